"""Spread by arm, other intervals, more seeds: hand-worked, textbook and simulated numbers."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from study_records import build_cell

from jax_rl.study.batches import fit_study
from jax_rl.study.certainty.spread import (
    compare_intervals,
    compare_spreads,
    count_seeds,
    describe_spread,
    resample_seeds,
)
from jax_rl.study.summary import Arm

REFERENCE = Arm("replicated", 16)


def arrange(values):
    """Arms, seeds and values of an array [arms, seeds]."""
    pairs = [(a, s) for a in range(values.shape[0]) for s in range(values.shape[1])]
    arms = [Arm("replicated", 16 * 2**a) for a, _ in pairs]
    return arms, [s for _, s in pairs], [float(values[pair]) for pair in pairs]


def study(log_times):
    arms, seeds, values = arrange(np.asarray(log_times))
    cells = [
        build_cell(arm.batch, seed, samples=1000 * math.exp(value), rate=1000.0)
        for arm, seed, value in zip(arms, seeds, values, strict=True)
    ]
    return fit_study(cells, settings=["replicated"])


def test_arm_variances_are_grubbs():
    # With three arms: (var(y1 - y2) + var(y1 - y3) - var(y2 - y3)) / 2, and so on.
    values = np.random.default_rng(0).normal(size=(3, 6)) * np.array([[0.5], [1.0], [2.0]])
    spreads, _, _ = compare_spreads(*arrange(values))
    apart = {
        (i, j): np.var(values[i] - values[j], ddof=1) for i in range(3) for j in range(3) if i != j
    }
    for i, spread in enumerate(spreads):
        j, k = (other for other in range(3) if other != i)
        variance = (apart[i, j] + apart[i, k] - apart[j, k]) / 2
        assert spread.residual_sd == pytest.approx(math.sqrt(max(0.0, variance)))
        assert (spread.batch, spread.runs) == (16 * 2**i, 6)


def test_negative_variance_is_shown_as_zero():
    # The first arm is the mean of the others: its Grubbs variance is (1/4 + 1/4 - 1) / 2 < 0
    # of that of y2 - y3.
    rows = np.array([[1.0, -1.0, 0.5, 0.0], [-1.0, 1.0, -0.5, 0.0]])
    spreads, _, _ = compare_spreads(*arrange(np.vstack([rows.mean(axis=0), rows])))
    assert spreads[0].residual_sd == 0.0
    assert spreads[1].residual_sd > 0


def test_p_value_is_uniform_under_equal_spreads_and_small_under_unequal_ones():
    rng = np.random.default_rng(1)
    found = [compare_spreads(*arrange(rng.normal(size=(4, 3))))[2] for _ in range(300)]
    # Four standard errors of a share of 0.1 over 300 are 0.07.
    assert np.mean(np.array(found) < 0.1) == pytest.approx(0.1, abs=0.07)
    unequal = rng.normal(size=(4, 10)) * np.array([[1.0], [1.0], [1.0], [8.0]])
    _, statistic, p_value = compare_spreads(*arrange(unequal))
    assert p_value < 0.01
    assert statistic > 10
    assert compare_spreads(*arrange(unequal))[2] == p_value


def test_two_arms_or_one_seed_say_nothing_about_each():
    for shape in ((2, 5), (4, 1)):
        spreads, statistic, p_value = compare_spreads(*arrange(np.ones(shape)))
        assert (statistic, p_value) == (None, None)
        assert all(spread.residual_sd is None for spread in spreads)
    assert compare_spreads([], [], []) == ([], None, None)


def test_paired_interval_is_the_paired_t_test():
    logs = np.random.default_rng(2).normal([[0.0], [0.2], [0.3], [0.5]], 0.1, size=(4, 5))
    choices = compare_intervals(study(logs), clock="training", reference=REFERENCE)
    assert [choice.batch for choice in choices] == [32, 64, 128]
    for choice, row in zip(choices, logs[1:], strict=True):
        theirs = stats.ttest_rel(row, logs[0]).confidence_interval(0.95)
        assert math.log(choice.paired.low) == pytest.approx(theirs.low, abs=1e-6)
        assert math.log(choice.paired.high) == pytest.approx(theirs.high, abs=1e-6)
        assert choice.pooled.estimate == pytest.approx(choice.paired.estimate)
        assert choice.bootstrap is None


def test_bootstrap_from_ten_seeds_on():
    logs = np.random.default_rng(3).normal(scale=0.1, size=(3, 10))
    choices = compare_intervals(study(logs), clock="elapsed", reference=REFERENCE)
    assert all(choice.bootstrap is not None for choice in choices)
    # For many normal values the bootstrap is the t interval.
    sample = np.random.default_rng(4).normal(loc=0.3, size=400)
    found = resample_seeds(sample)
    half = stats.t.ppf(0.975, 399) * sample.std(ddof=1) / 20
    assert math.log(found.low) == pytest.approx(sample.mean() - half, abs=0.1 * half)
    assert math.log(found.high) == pytest.approx(sample.mean() + half, abs=0.1 * half)
    assert resample_seeds(sample) == found
    assert resample_seeds(np.full(10, 0.5)).low == pytest.approx(math.exp(0.5))


@pytest.mark.parametrize(("effect", "pairs"), [(0.5, 34), (0.8, 15), (1.0, 10)])
def test_seeds_of_two_arms_are_the_pairs_of_a_t_test(effect, pairs):
    # Cohen's table for a paired t test: 80 % power, two-sided 5 %, effect in standard deviations
    # of the difference, which is sqrt(2) residual sds.
    assert count_seeds(effect * 0.1 * math.sqrt(2), residual_sd=0.1, arms=2) == pairs


def test_power_with_several_arms_by_simulation():
    seeds = count_seeds(math.log(1.1), residual_sd=0.1, arms=5)
    rng, decided = np.random.default_rng(5), []
    for _ in range(400):
        logs = rng.normal([[0], [math.log(1.1)], [0], [0], [0]], 0.1, size=(5, seeds))
        centred = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
        freedom = 4 * (seeds - 1)
        error = math.sqrt((centred**2).sum() / freedom * 2 / seeds)
        # Dunnett's two-sided 5 % value for 4 comparisons and over 60 degrees of freedom: 2.5.
        decided.append(logs[1].mean() - logs[0].mean() > 2.5 * error)
    assert np.mean(decided) == pytest.approx(0.8, abs=0.06)
    assert seeds > count_seeds(math.log(1.1), residual_sd=0.1, arms=2)


def test_seeds_that_nobody_has():
    assert count_seeds(0.001, residual_sd=0.5, arms=5) is None
    assert count_seeds(0.0, residual_sd=0.5, arms=5) is None
    assert count_seeds(0.1, residual_sd=0.0, arms=5) is None


def test_spread_of_a_study():
    logs = np.random.default_rng(6).normal([[0.0], [0.04], [1.0], [-1.0]], 0.1, size=(4, 3))
    fit = study(logs)
    spread = describe_spread(
        fit, clock="training", reference=REFERENCE, undecided=[Arm("replicated", 32)]
    )
    assert spread.degrees_of_freedom == 6
    assert spread.residual_sd == pytest.approx(fit.fits["training_time"].residual_sd)
    assert 0 < spread.p_value <= 1
    assert len(spread.arms) == 4
    seen, plain = spread.more_seeds
    difference = abs(logs[1].mean() - logs[0].mean())
    assert math.log(seen.ratio) == pytest.approx(difference, abs=1e-6)
    assert (seen.batch, seen.seeds) == (32, 3)
    needed = count_seeds(difference, residual_sd=spread.residual_sd, arms=4)
    assert seen.more == (None if needed is None else needed - 3)
    assert (plain.batch, plain.ratio) == (None, 1.1)


def test_spread_without_degrees_of_freedom():
    spread = describe_spread(
        study([[0.0], [0.1], [0.3]]), clock="training", reference=REFERENCE, undecided=[]
    )
    assert (spread.residual_sd, spread.p_value, spread.more_seeds) == (None, None, [])
    assert spread.intervals[0].paired.low is None


def test_more_seeds_are_counted_with_one_settings_residuals():
    """Two settings of three arms: five comparisons, but the freedom of three arms."""
    logs = np.random.default_rng(8).normal([[0.0], [0.04], [0.2]], 0.1, size=(3, 3))
    cells = [
        dataclasses.replace(cell, setting=name) for name in ("a", "b") for cell in study(logs).cells
    ]
    fit = fit_study(cells, settings=["a", "b"])
    spread = describe_spread(fit, clock="training", reference=Arm("a", 16), undecided=[])
    assert spread.degrees_of_freedom == 4
    [plain] = spread.more_seeds
    sd = spread.residual_sd
    needed = count_seeds(math.log(1.1), residual_sd=sd, arms=6, block=3)
    assert plain.more == needed - 3
    assert count_seeds(math.log(1.1), residual_sd=sd, arms=6, block=2) > needed
