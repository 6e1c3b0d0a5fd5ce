"""Two-way model and t intervals: hand-worked numbers, exact products, and coverage."""

import math

import numpy as np
import pytest

from jax_rl.study.intervals import contrast, fit_additive, geometric_mean, make_interval

# Table of the t distribution, two-sided 95 %.
T_2, T_8 = 4.302653, 2.306004


def design(batches, seeds):
    pairs = [(b, s) for b in batches for s in seeds]
    return [b for b, _ in pairs], [s for _, s in pairs]


def test_geometric_mean():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(geometric_mean([]))


def test_full_block_by_hand():
    # Rows 1, 2, 3 and 2, 5, 5: batch means 2 and 4, seed means 1.5, 3.5, 4, grand mean 3.
    # Residuals of batch 8: 1-.5, 2-2.5, 3-3 = .5, -.5, 0; of 16 the negatives. SSR = 1, dof = 2.
    fit = fit_additive(*design([8, 16], [0, 1, 2]), [1.0, 2.0, 3.0, 2.0, 5.0, 5.0])
    assert fit.degrees_of_freedom == 2
    assert fit.residual_sd == pytest.approx(math.sqrt(0.5))
    assert fit.effects == pytest.approx([2.0, 4.0])
    difference, error = contrast(fit, 16, against=8)
    assert difference == pytest.approx(2.0)
    assert error == pytest.approx(math.sqrt(2 / 3))
    interval = make_interval(
        difference, error, residual_sd=fit.residual_sd, degrees_of_freedom=fit.degrees_of_freedom
    )
    half = T_2 * math.sqrt(0.5) * math.sqrt(2 / 3)
    assert interval.estimate == pytest.approx(math.exp(2))
    assert interval.low == pytest.approx(math.exp(2 - half), rel=1e-6)
    assert interval.high == pytest.approx(math.exp(2 + half), rel=1e-6)


def test_missing_run_by_hand():
    # Batch 16 lacks seed 1, so only seed 0 compares them: the difference is 5 - 1.
    fit = fit_additive([8, 8, 16], [0, 1, 0], [1.0, 7.0, 5.0])
    assert fit.degrees_of_freedom == 0
    assert math.isnan(fit.residual_sd)
    difference, error = contrast(fit, 16, against=8)
    assert difference == pytest.approx(4.0)
    assert error == pytest.approx(math.sqrt(2))
    interval = make_interval(difference, error, residual_sd=math.nan, degrees_of_freedom=0)
    assert (interval.low, interval.high) == (None, None)
    assert interval.estimate == pytest.approx(math.exp(4))


def test_unbalanced_agrees_with_dummy_regression():
    rng = np.random.default_rng(0)
    batches, seeds = design([4, 8, 16, 32], [0, 1, 2])
    keep = [i for i in range(12) if i not in (2, 7)]
    batches, seeds = [batches[i] for i in keep], [seeds[i] for i in keep]
    values = rng.normal(size=10)
    fit = fit_additive(batches, seeds, values)
    columns = [[b == level for b in batches] for level in (4, 8, 16, 32)]
    columns += [[s == level for s in seeds] for level in (1, 2)]
    x = np.array(columns, float).T
    beta, ssr, rank, _ = np.linalg.lstsq(x, values, rcond=None)
    assert rank == 6
    assert fit.degrees_of_freedom == 4
    assert fit.residual_sd == pytest.approx(math.sqrt(ssr[0] / 4))
    difference, error = contrast(fit, 32, against=4)
    covariance = np.linalg.inv(x.T @ x)
    assert difference == pytest.approx(beta[3] - beta[0])
    assert error == pytest.approx(
        math.sqrt(covariance[3, 3] + covariance[0, 0] - 2 * covariance[0, 3])
    )


def test_unconnected_batches_have_no_contrast():
    fit = fit_additive([8, 8, 16, 16], [0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    assert contrast(fit, 16, against=8) is None
    assert contrast(fit, 32, against=8) is None
    assert fit_additive([], [], []).degrees_of_freedom == 0


def test_one_sided():
    low = make_interval(0.5, 1.0, residual_sd=0.1, degrees_of_freedom=8, bound="at least")
    assert low.high is None
    assert low.bound == "at least"
    assert low.low == pytest.approx(math.exp(0.5 - T_8 * 0.1), rel=1e-6)
    high = make_interval(0.5, 1.0, residual_sd=0.1, degrees_of_freedom=8, bound="at most")
    assert high.low is None
    assert high.high == pytest.approx(math.exp(0.5 + T_8 * 0.1), rel=1e-6)


def test_critical_value_of_several_comparisons_replaces_that_of_one():
    wide = make_interval(0.5, 2.0, residual_sd=0.1, degrees_of_freedom=8, critical=3.0)
    assert (wide.low, wide.high) == pytest.approx((math.exp(-0.1), math.exp(1.1)))


def test_coverage_is_nominal():
    # 3 seeds x 5 batches, seed effects three times the residual. 2,000 studies put the standard
    # error of a coverage of 0.95 at 0.005; four contrasts of each are averaged.
    rng = np.random.default_rng(1)
    batches, seeds = design([0, 1, 2, 3, 4], [0, 1, 2])
    effects = np.array([0.0, -0.2, -0.1, 0.4, 1.0])
    hits = []
    for _ in range(2000):
        shared = rng.normal(scale=0.3, size=3)
        values = effects[batches] + shared[seeds] + rng.normal(scale=0.1, size=15)
        fit = fit_additive(batches, seeds, values)
        assert fit.degrees_of_freedom == 8
        for batch in range(1, 5):
            interval = make_interval(
                *contrast(fit, batch, against=0),
                residual_sd=fit.residual_sd,
                degrees_of_freedom=fit.degrees_of_freedom,
            )
            hits.append(interval.low <= math.exp(effects[batch]) <= interval.high)
    assert 0.93 <= np.mean(hits) <= 0.97
