import pytest

from jax_rl.rewards.base import Problem, Response
from jax_rl.rewards.patterns import Format, Regex

THINKING = r"<think>.*</think>\s*<answer>.*</answer>"


def apply(verifier, text, answer=None):
    response = Response(text=text, tokens=1, ended=True, limit=9)
    return verifier(Problem(prompt="p", content="p", answer=answer), response)


@pytest.mark.parametrize(
    ("pattern", "answer", "text", "reward"),
    [
        (r"Answer: (\w+)", "yes", "Answer: yes.", 1),
        (r"Answer: (\w+)", "yes", "Answer: no. Answer: yes", 1),
        (r"Answer: (\w+)", "yes", "Answer: yes. Answer: no", 0),
        (r"Answer: (\w+)", "yes", "yes", 0),
        (r"Answer:(.*)", " yes ", "Answer:  yes", 1),
        (r"Answer: (\d+)", 7, "Answer: 7", 1),
        (r"a|(b)", "b", "ba", 0),  # the last match has no first group
    ],
)
def test_regex_by_hand(pattern, answer, text, reward):
    assert apply(Regex(pattern), text, answer) == reward


def test_regex_needs_an_answer():
    with pytest.raises(ValueError, match="no answer"):
        apply(Regex("(a)"), "a")


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<think>a\nb</think>\n<answer>1</answer>", 1),
        ("<think>a</think><answer>1</answer> more", 0),
        ("so <think>a</think><answer>1</answer>", 0),
        ("", 0),
    ],
)
def test_format_by_hand(text, reward):
    assert apply(Format(THINKING), text) == reward
