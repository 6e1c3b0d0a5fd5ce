import logging
import threading

import pytest

pytest.importorskip("math_verify")

from jax_rl.rewards.base import Problem, Response
from jax_rl.rewards.math_answer import score_math


def score(answer, text):
    problem = Problem(prompt="p", content="p", answer=answer)
    return score_math(problem, Response(text=text, tokens=1, ended=True, limit=9))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (r"\frac{1}{2}", r"So $\boxed{0.5}$."),
        (r"2\sqrt{3}", r"\boxed{\sqrt{12}}"),
        (r"We get $x=1$, so $\boxed{(x+1)^2}$.", r"\boxed{x^2+2x+1}"),
        (r"\{1, 2\}", r"\boxed{\{2, 1\}}"),
        (4, "The answer is $4$."),
    ],
)
def test_equal_answers(answer, text):
    assert score(answer, text) == 1.0


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (r"\frac{1}{2}", r"\boxed{0.6}"),
        (r"2\sqrt{3}", r"\boxed{2\sqrt{2}}"),
        ("4", ""),
        ("4", r"\boxed{\frac{}"),
        (r"\boxed{3}, not 4", r"\boxed{4}"),
    ],
)
def test_other_answers(answer, text):
    assert score(answer, text) == 0.0


def test_no_answer_is_a_failure():
    with pytest.raises(ValueError, match="no answer"):
        score(None, "4")


def test_works_off_the_main_thread_and_says_nothing(caplog):
    # Its own limits are signals, which only the main thread can set.
    scores = []
    with caplog.at_level(logging.WARNING):
        thread = threading.Thread(target=lambda: scores.append(score("4", r"\boxed{4}")))
        thread.start()
        thread.join()
    assert scores == [1.0]
    assert not caplog.records
