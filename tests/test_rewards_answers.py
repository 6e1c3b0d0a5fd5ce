import pytest

from jax_rl.rewards.answers import find_boxed, find_tagged, require_answer
from jax_rl.rewards.base import Problem


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        (r"\boxed{5}", "5"),
        (r"\boxed{1} then \boxed{ 2 }", "2"),
        (r"\boxed{\frac{3}{4}} end", r"\frac{3}{4}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{a \boxed{b} c}", r"a \boxed{b} c"),
        (r"\fbox{7}", "7"),
        (r"\boxed {7}", "7"),
        (r"$\boxed 7$.", "7"),
        (r"\boxed{5} and \boxed{}", "5"),
        (r"\boxed{5} and \boxed{6", "5"),
        (r"\boxed{open \boxed{6}", "6"),
        ("} } \\boxed{5} }", "5"),
        ("{{{ \\boxed{5}", "5"),
        ("boxed{5}", None),
        ("", None),
        (r"\boxed{", None),
        (r"\boxed{\}", None),
    ],
)
def test_boxes_by_hand(text, boxed):
    assert find_boxed(text) == boxed


@pytest.mark.parametrize(
    ("text", "tagged"),
    [
        ("<answer>5</answer>", "5"),
        ("<answer>4</answer> no: <answer> 5\n6 </answer> so 7", " 5\n6 "),
        ("<answer>4 <answer>5</answer></answer>", "5"),
        ("<answer>4</answer> or <answer>5", "4"),
        ("<answer></answer>", ""),
        ("</answer>5<answer>", None),
        ("<answer>5", None),
        ("", None),
    ],
)
def test_answer_tags_by_hand(text, tagged):
    assert find_tagged(text) == tagged


def test_a_problem_without_an_answer_is_named():
    assert require_answer(Problem(prompt="p", content="p", answer=0)) == 0
    with pytest.raises(ValueError, match=r"no answer.*\(a.csv:3\)"):
        require_answer(Problem(prompt="p", content="p", place="a.csv:3"))
