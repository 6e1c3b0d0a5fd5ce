import math
import time
from fractions import Fraction

import numpy as np
import pytest

from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem, Response
from jax_rl.rewards.score import check_scores, score
from jax_rl.rewards.verify import is_integer


def compare(problem, response):
    return float(is_integer(response.text, problem.answer))


def faulty(problem, response):
    """Rewards that a fork's code could give, by response."""
    if response.text == "raise":
        raise ZeroDivisionError("1/0")
    if response.text == "leave":
        raise SystemExit(2)
    return {
        "none": None,
        "nan": math.nan,
        "inf": -math.inf,
        "huge": 1e300,
        "long": 10**400,
        "array": np.ones(2),
        "text": "1.0",
        "half": Fraction(1, 2),
        "true": True,
        "numpy": np.float32(0.25),
    }[response.text]


def problems(*prompts, answer=None, place=""):
    return [Problem(prompt=p, content=p, answer=answer, place=place) for p in prompts]


def responses(*texts):
    return [Response(text=text, tokens=len(text), ended=True, limit=9) for text in texts]


def test_rewards_by_hand():
    own = problems("1+2", answer=3) + problems("47+85", answer=132) + problems("9+9", answer=18)
    scores = check_scores(score(compare, own, responses("3", "131", "18")), name="addition")
    np.testing.assert_array_equal(scores.rewards, np.array([1, 0, 1], np.float32))
    assert scores.rewards.dtype == np.float32
    assert scores.valid.dtype == np.bool_
    assert scores.valid.all()
    assert scores.failures == 0
    assert scores.timeouts == 0
    assert scores.first_failure is None


@pytest.mark.parametrize(
    "bad", ["raise", "leave", "none", "nan", "inf", "huge", "long", "array", "text"]
)
def test_a_failed_reward_is_masked_counted_and_described(bad):
    scores = check_scores(
        score(faulty, problems("a", "b", "c"), responses("half", bad, "true")), name="t"
    )
    np.testing.assert_array_equal(scores.rewards, np.array([0.5, 0, 1], np.float32))
    np.testing.assert_array_equal(scores.valid, [True, False, True])
    assert scores.failures == 1
    assert scores.first_failure is not None
    assert f"row 1: prompt 'b', response {bad!r}" in scores.first_failure


def test_the_first_of_several_failures_is_the_one_described():
    own = problems("a") + problems("b", "c", place="rows.jsonl:4")
    scores = check_scores(score(faulty, own, responses("numpy", "raise", "nan")), name="t")
    assert scores.failures == 2
    assert scores.rewards[0] == 0.25
    assert scores.first_failure == (
        "row 1 (rows.jsonl:4): prompt 'b', response 'raise': ZeroDivisionError: 1/0"
    )


def test_a_long_response_is_described_by_its_ends():
    scores = score(compare, problems("a" * 5000), responses("b" * 5000))
    assert scores.first_failure is not None
    assert len(scores.first_failure) < 1500
    assert "aaa'" in scores.first_failure and "'bbb" in scores.first_failure


def test_refuses_when_every_reward_failed():
    own, said = problems("a", "b"), responses("raise", "nan")
    match = r"task 't': .*all 2 responses.*row 0: prompt 'a', response 'raise'"
    with pytest.raises(UserError, match=match):
        check_scores(score(faulty, own, said), name="t")
    # A part of a batch may fail as a whole.
    part = score(faulty, own, said)
    assert part.failures == 2
    with pytest.raises(UserError, match=match):
        check_scores(part, name="t")


def test_no_rows_and_unequal_rows():
    assert check_scores(score(faulty, [], []), name="t").failures == 0
    with pytest.raises(ValueError, match="shorter"):
        check_scores(score(faulty, problems("a", "b"), responses("true")), name="t")


def test_scoring_does_not_hold_up_an_iteration():
    rows = 4096
    own, said = problems("47+85=", answer=132) * rows, responses("132") * rows
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        assert check_scores(score(compare, own, said), name="t").rewards.sum() == rows
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.1  # about 10 ms; the rest is room for a busy machine
