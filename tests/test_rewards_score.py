import math
import time
from fractions import Fraction

import numpy as np
import pytest

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.score import score
from jax_rl.tasks.addition import Addition


class Faulty(Addition):
    """Rewards that a fork's code could give, by response."""

    def reward(self, prompt, response):
        if response == "raise":
            raise ZeroDivisionError("1/0")
        return {
            "none": None,
            "nan": math.nan,
            "inf": -math.inf,
            "huge": 1e300,
            "long": 10**400,
            "array": np.ones(2),
            "half": Fraction(1, 2),
            "true": True,
            "numpy": np.float32(0.25),
        }[response]


@pytest.fixture
def faulty():
    return Faulty(TaskConfig())


def test_rewards_by_hand():
    scores = score(Addition(TaskConfig()), ["1+2=", "47+85=", "9+9="], ["3", "131", "18"])
    np.testing.assert_array_equal(scores.rewards, np.array([1, 0, 1], np.float32))
    assert scores.rewards.dtype == np.float32
    assert scores.valid.dtype == np.bool_
    assert scores.valid.all()
    assert scores.failures == 0
    assert scores.first_failure is None


@pytest.mark.parametrize("bad", ["raise", "none", "nan", "inf", "huge", "long", "array"])
def test_a_failed_reward_is_masked_counted_and_described(faulty, bad):
    scores = score(faulty, ["a", "b", "c"], ["half", bad, "true"])
    np.testing.assert_array_equal(scores.rewards, np.array([0.5, 0, 1], np.float32))
    np.testing.assert_array_equal(scores.valid, [True, False, True])
    assert scores.failures == 1
    assert scores.first_failure is not None
    assert f"row 1: prompt 'b', response {bad!r}" in scores.first_failure


def test_the_first_of_several_failures_is_the_one_described(faulty):
    scores = score(faulty, ["a", "b", "c"], ["numpy", "raise", "nan"])
    assert scores.failures == 2
    assert scores.rewards[0] == 0.25
    assert scores.first_failure == ("row 1: prompt 'b', response 'raise': ZeroDivisionError: 1/0")


def test_refuses_when_every_reward_failed(faulty):
    with pytest.raises(UserError, match=r"all 2 responses.*row 0: prompt 'a', response 'raise'"):
        score(faulty, ["a", "b"], ["raise", "nan"])


def test_no_rows_and_unequal_rows(faulty):
    assert score(faulty, [], []).failures == 0
    with pytest.raises(ValueError, match="shorter"):
        score(faulty, ["a", "b"], ["true"])


def test_scoring_does_not_hold_up_an_iteration():
    task = Addition(TaskConfig())
    rows = 4096
    prompts, responses = ["47+85="] * rows, ["132"] * rows
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        assert score(task, prompts, responses).rewards.sum() == rows
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.1  # about 10 ms; the rest is room for a busy machine
