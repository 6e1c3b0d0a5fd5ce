"""Estimates against hand-worked numbers, enumeration and simulation."""

import itertools
import math

import numpy as np
import pytest

from jax_rl.evaluation.scores import (
    Estimate,
    estimate_mean,
    estimate_share,
    majority,
    pass_at,
)


def test_mean_has_a_t_interval() -> None:
    # Mean 2, standard deviation 1, error 1 / sqrt(3); t(0.975, 2) = 4.30265 by the tables.
    found = estimate_mean(np.array([1.0, 2.0, 3.0]))
    assert found.value == 2
    assert found.high - 2 == pytest.approx(4.30265 / math.sqrt(3), rel=1e-5)
    assert 2 - found.low == pytest.approx(found.high - 2)


def test_mean_of_one_prompt_has_no_bounds() -> None:
    assert estimate_mean(np.array([0.5])) == Estimate(0.5, -math.inf, math.inf)


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [
        # Wilson's interval without correction as in Newcombe 1998, table I.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_yes_or_no_prompts_have_wilsons_interval(
    hits: int, count: int, low: float, high: float
) -> None:
    found = estimate_share(np.array([1.0] * hits + [0.0] * (count - hits)))
    assert found.value == hits / count
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


def test_shares_have_the_interval_of_their_effective_number() -> None:
    # Mean 0.5, variance 0.0625 a quarter of a yes-or-no's: 40 prompts are worth 160, and
    # t(0.975, 39) = 2.02269 against z = 1.95996 leaves 150.23 of them.
    found = estimate_share(np.array([0.25, 0.75] * 20))
    worth, z = 160 * (1.95996 / 2.02269) ** 2, 1.95996
    reach = z * math.sqrt(0.25 / worth + z * z / (4 * worth**2)) / (1 + z * z / worth)
    assert found.high - 0.5 == pytest.approx(reach, rel=1e-4)
    assert 0.5 - found.low == pytest.approx(reach, rel=1e-4)


def test_equal_shares_keep_a_width() -> None:
    assert estimate_share(np.full(10, 0.5)) == estimate_share(np.array([0.0, 1.0] * 5))
    single = estimate_share(np.array([1.0]))
    assert (single.low, single.high) == pytest.approx((0.2065, 1.0), abs=1e-4)


@pytest.mark.parametrize("prompts", [6, 20, 60])
def test_intervals_cover_the_truth(prompts: int) -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(600):
        rates = rng.beta(1.0, 0.5, prompts)  # mean 2/3
        found = estimate_share(rng.binomial(4, rates) / 4)
        covered += found.low <= 2 / 3 <= found.high
    # Three standard errors of 600 draws are 2.7 %.
    assert covered / 600 == pytest.approx(0.95, abs=0.035)


def test_an_estimate_reads_as_value_and_interval() -> None:
    assert str(Estimate(0.5, 0.25, 0.75)) == "0.5000 (0.2500 to 0.7500)"


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_pass_at_is_the_mean_over_all_subsets(k: int) -> None:
    correct = np.array([[c >= 5 - n for c in range(5)] for n in range(6)])  # 0 to 5 correct
    subsets = list(itertools.combinations(range(5), k))
    expected = [np.mean([row[list(subset)].any() for subset in subsets]) for row in correct]
    assert pass_at(correct, k).tolist() == pytest.approx(expected)


def test_pass_at_has_no_bias() -> None:
    # Of two responses that are right with probability 0.3: 1 - 0.7^2 = 0.51.
    correct = np.random.default_rng(0).random((20_000, 5)) < 0.3
    assert pass_at(correct, 2).mean() == pytest.approx(0.51, abs=0.01)


@pytest.mark.parametrize("k", [0, 4])
def test_pass_at_more_than_there_are_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=rf"k = {k} is not in 1 .. 3"):
        pass_at(np.ones((2, 3), bool), k)


@pytest.mark.parametrize(
    ("correct", "votes", "expected"),
    [
        ([1, 1, 0], [4, 4, 5], 1.0),
        ([0, 0, 1], [4, 4, 5], 0.0),
        ([1, 0, 0, 0], [4, 5, None, None], 0.5),  # a tie of two
        ([1, 0, 0], [4, 5, 6], 1 / 3),
        ([0, 0, 1], [None, None, 4], 1.0),  # no answer is no vote
        ([1, 1, 1], [None, None, None], 0.0),
        ([1, 0, 0], [4, 4, 5], 0.5),  # judged differently, though the answer is the same
    ],
)
def test_majority(correct: list[int], votes: list[int | None], expected: float) -> None:
    assert majority(np.array([correct], bool), [votes]).tolist() == pytest.approx([expected])


def test_majority_of_each_prompt() -> None:
    correct = np.array([[1, 1, 0], [0, 0, 1]], bool)
    assert majority(correct, [["a", "a", "b"]] * 2).tolist() == [1.0, 0.0]
