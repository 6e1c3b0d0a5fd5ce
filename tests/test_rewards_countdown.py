import time

import pytest

from jax_rl.rewards.base import Problem, Response
from jax_rl.rewards.countdown import score_countdown


def score(text, numbers=(3, 7, 2), target=27):
    problem = Problem(prompt="p", content="p", answer={"numbers": list(numbers), "target": target})
    return score_countdown(problem, Response(text=text, tokens=1, ended=True, limit=9))


@pytest.mark.parametrize(
    "text",
    [
        "3*(7+2)",
        "<answer>3*(7+2)</answer>",
        "<answer>1</answer> no: <answer> (7 + 2) * 3 = 27 </answer>",
        r"so \boxed{3 \times (7+2)}",
        r"\boxed{3 \cdot \left(7+2\right) = 27}",
        "So the answer is 3 × (7 + 2) = 27.",
        "I try 3+7+2=12 first.\n(2+7)×3=27",
        # in other marks
        r"<answer>\boxed{3*(7+2)}</answer>",
        r"<answer>so it is $\boxed{3 \times (7+2) = 27}$</answer>",
        r"<answer>\(3*(7+2)\)</answer>",
        "<answer>\n\\[\n3*(7+2)\n\\]\n</answer>",
        "<answer>$3*(7+2)$ = $27$</answer>",
        "<answer>`3*(7+2)`</answer>",
        "<answer>```\n3*(7+2)\n```</answer>",
        "<answer>**3*(7+2)**</answer>",
        "<answer>**3*(7+2)** = **27**</answer>",
        "<answer>**`3*(7+2)`**</answer>",
        "<answer>3*[7+2]</answer>",
        r"<answer>3 \times \left[7 + 2\right]</answer>",
        "<answer>3 × (7+2)</answer>",
        "Answer: **3*(7+2) = 27**",
        "Answer: `3*[7+2]`",
        r"So \(3*(7+2) = 27\).",
        "It is $3*(7+2)$ (27)",
        # with the target and with words
        "<answer>3*(7+2) = 27\nThat works</answer>",
        "<answer>3*(7+2) = 27.</answer>",
        "<answer>27=3*(7+2)</answer>",
        "27 = 3*(7+2)",
        "3*(7+2) = 27, which is the target 27 - done",
        "3*(7+2) = 27 [uses each number]",
        "[Answer: 3*(7+2)]",
    ],
)
def test_right_expressions(text):
    assert score(text) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "27",
        "<answer>27</answer>",
        "3*7+2",
        "3*9",
        "3*(7+2)*1",
        "3*(7+2)+3-3",
        "3*(7+2)=28",
        "3*(7+2)=27=27",
        "<answer>3*(7+2)</answer> <answer>3*7</answer>",
        "<answer>3 7 2</answer>",
        "37-2-8",
        "3*(7+2",
        "3**(7+2)",
        "3/(7-7)",
        "",
        "٣*(7+2)",
        r"<answer>\boxed{3*7+2}</answer>",
        r"<answer>3*(7+2) or \boxed{27}</answer>",
        "<answer>28=3*(7+2)</answer>",
        "<answer>27=3*9</answer>",
        "<answer>27=27</answer>",
        "<answer>27=27=3*(7+2)</answer>",
        "<answer>27=</answer>",
        "<answer>=3*(7+2)</answer>",
        "<answer>3*(7+2)=</answer>",
        "<answer>3*(7+2)=x</answer>",
        "<answer>27\n3*(7+2)</answer>",
        "<answer>That works\n3*(7+2)</answer>",
        "<answer>3*[7+2)</answer>",
        "<answer>3*(7+2]</answer>",
        "<answer>3*(7+2)**</answer>",
        "<answer>3**[7+2]</answer>",
        "<answer>3*(7`+`2)*3</answer>",
        "<answer>`3`7`2`</answer>",
        "<answer>**27**</answer>",
        "<answer>``</answer>",
        "<answer></answer> 3*(7+2)",
        "3*(7+2) is near, 3**(7+2)",
        "It is $3*(7+2)$ = $28$",
        "It is **3*(7+2)** = **28**",
        "`3*(7+2)` = `28`",
        "3*(7+2) = 27, and 27 - 3 = 24",
    ],
)
def test_wrong_expressions(text):
    assert score(text) == 0.0


def test_rationals_on_the_way_are_exact():
    assert score("4/(1-3/5)", numbers=(4, 1, 3, 5), target=10) == 1.0
    assert score("8/(3-8/3)", numbers=(8, 8, 3, 3), target=24) == 1.0
    assert score(r"<answer>\frac{7+2}{3}</answer>", target=3) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9",
        "<answer>9**9**9</answer>",
        "<answer>__import__('os').system('true')</answer>",
        "(" * 100_000,
        "-" * 100_000 + "3",
        "3+" * 50_000,
        "<answer>" * 20_000,
        "<answer>" + "(" * 400 + "3*(7+2)" + ")" * 400 + "</answer>",
        "\\frac{" * 20_000,
        "<answer>" + "**" * 50_000 + "</answer>",
        "<answer>" + "=" * 100_000 + "</answer>",
        "<answer>" + "\\boxed{" * 20_000 + "</answer>",
        "<answer>" + "\n" * 100_000 + "</answer>",
        "[" * 100_000,
        "3*" + "[" * 100_000,
        "3" + " " * 100_000 + "*",
        "3 *" * 30_000,
        "3" + "$ " * 50_000 + "=",
        "x**y " * 20_000,
        "x**3 " * 20_000,
        "<answer>" + "x** " * 20_000 + "</answer>",
    ],
)
def test_hostile_text_is_wrong_at_once(text):
    start = time.perf_counter()
    assert score(text) == 0.0
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize(
    "answer",
    [None, 27, {"numbers": [1, 2]}, {"numbers": "12", "target": 3},
     {"numbers": [1.5, 2], "target": 3}, {"numbers": [1, 2], "target": "3"}],
)  # fmt: skip
def test_an_answer_of_another_form_fails_aloud(answer):
    problem = Problem(prompt="p", content="p", answer=answer)
    with pytest.raises(ValueError, match="answer"):
        score_countdown(problem, Response(text="1+2", tokens=1, ended=True, limit=9))
