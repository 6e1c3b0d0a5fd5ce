"""The answer that a response gives."""

from fractions import Fraction
from typing import Any

import pytest

from jax_rl.evaluation.votes import read_vote
from jax_rl.rewards.base import Problem


@pytest.mark.parametrize(
    ("answer", "text", "vote"),
    [
        (70, "First 30, then\n#### 70", Fraction(70)),
        ("1,234", "It is $1,234.00.", Fraction(1234)),
        ("18", r"so \boxed{18}", Fraction(18)),
        ("18", "no idea", None),
        (r"\frac{x}{2}", r"thus \boxed{ \frac{x} {2}} .", r"\frac{x}{2}"),
        ("Paris", " Paris \n", "Paris"),
        ({"sum": 9}, "4+5", "4+5"),
        (None, "4  5", "4 5"),
        ("Paris", " \n", None),
    ],
)
def test_a_vote_is_what_the_answer_is_compared_with(answer: Any, text: str, vote: Any) -> None:
    assert read_vote(Problem(prompt="?", content="?", answer=answer), text) == vote
