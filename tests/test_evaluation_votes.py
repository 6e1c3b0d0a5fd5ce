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
        ("18", "I add 9 and 9. <answer>18</answer> I took 2 steps.", Fraction(18)),
        ("18", "<answer>17</answer> no, <answer>\nIt is $18.00\n</answer>", Fraction(18)),
        ("18", r"\boxed{3} <answer>\boxed{18} in 2 steps</answer>", Fraction(18)),
        ("18", "17 <answer>none</answer> 16", None),
        ("18", "<answer>17</answer> then <answer>18", Fraction(17)),
        ("Paris", "France, so <answer> Paris\n</answer>.", "Paris"),
        ("New York", "<answer>New\n York</answer>", "New York"),
        ({"sum": 9}, r"first \boxed{1}, <answer>\boxed{4 + 5}</answer>", "4+5"),
        ({"sum": 9}, r"first \boxed{1}, <answer>4 + 5</answer>", "4 + 5"),
        (None, "so <answer> </answer>", None),
    ],
)
def test_a_vote_is_what_the_answer_is_compared_with(answer: Any, text: str, vote: Any) -> None:
    assert read_vote(Problem(prompt="?", content="?", answer=answer), text) == vote


def test_responses_that_reason_differently_to_one_answer_give_one_vote() -> None:
    problem = Problem(prompt="?", content="?", answer="Paris")
    texts = ["It is in France. <answer>Paris</answer>", "By the Seine: <answer> Paris </answer>"]
    assert {read_vote(problem, text) for text in texts} == {"Paris"}
