"""The censored log-normal fit: least squares without censoring, a generic maximiser with it."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import optimize, stats
from study_records import build_cell

from jax_rl.study.certainty.censored import contrast_censored, estimate_censored, fit_censored
from jax_rl.study.intervals import contrast, fit_additive
from jax_rl.study.summary import Arm, Interval

ARMS = [arm for arm in range(5) for _ in range(3)]
SEEDS = [seed for _ in range(5) for seed in range(3)]


def draw(rng_seed=0):
    rng = np.random.default_rng(rng_seed)
    return 9 + 0.3 * np.array(ARMS) + 0.2 * np.array(SEEDS) + rng.normal(scale=0.1, size=15)


def test_without_censoring_it_is_least_squares():
    values = draw()
    fit, exact = fit_censored(ARMS, SEEDS, values, [False] * 15), fit_additive(ARMS, SEEDS, values)
    assert fit.degrees_of_freedom == exact.degrees_of_freedom == 8
    assert fit.residual_sd == pytest.approx(exact.residual_sd, rel=1e-6)
    for arm in range(1, 5):
        difference, error = contrast_censored(fit, arm, against=0)
        expected, per_sd = contrast(exact, arm, against=0)
        assert difference == pytest.approx(expected, abs=1e-8)
        assert error == pytest.approx(per_sd * exact.residual_sd, rel=1e-6)


def test_agrees_with_a_generic_maximiser():
    limit = 10.3
    values = draw()
    cut, values = values > limit, np.minimum(values, limit)
    assert cut.sum() == 3
    design = np.column_stack(
        [[a == level for a in ARMS] for level in range(5)]
        + [[s == level for s in SEEDS] for level in (1, 2)]
    ).astype(float)

    def lose(parameters):
        sigma = np.exp(parameters[-1])
        z = (values - design @ parameters[:-1]) / sigma
        return -np.where(cut, stats.norm.logsf(z), stats.norm.logpdf(z) - np.log(sigma)).sum()

    start = np.append(np.linalg.lstsq(design, values, rcond=None)[0], np.log(0.1))
    best = optimize.minimize(lose, start, method="BFGS", options={"gtol": 1e-9}).x
    fit = fit_censored(ARMS, SEEDS, values, cut)
    difference, error = contrast_censored(fit, 4, against=0)
    assert difference == pytest.approx(best[4] - best[0], abs=1e-5)
    scale = math.sqrt(12 / fit.degrees_of_freedom)
    assert fit.residual_sd == pytest.approx(np.exp(best[-1]) * scale, rel=1e-4)
    # The observed information by finite differences of the likelihood.
    eye, step = np.eye(8), 1e-4
    information = [
        [
            (
                lose(best + step * (a + b))
                - lose(best + step * (a - b))
                - lose(best - step * (a - b))
                + lose(best - step * (a + b))
            )
            / (4 * step**2)
            for a in eye
        ]
        for b in eye
    ]
    covariance = np.linalg.inv(information)
    variance = covariance[4, 4] + covariance[0, 0] - 2 * covariance[4, 0]
    assert error == pytest.approx(math.sqrt(variance) * scale, rel=1e-3)


def test_censored_runs_pull_the_estimate_above_their_bounds():
    rng = np.random.default_rng(1)
    arms = np.repeat([0, 1], 200)
    values = np.where(arms == 1, 1.0, 0.0) + rng.normal(scale=0.5, size=400)
    cut = values > 1.2
    fit = fit_censored(list(arms), [0] * 400, np.minimum(values, 1.2), cut)
    assert contrast_censored(fit, 1, against=0)[0] == pytest.approx(1.0, abs=0.1)
    naive = np.minimum(values, 1.2)
    assert naive[arms == 1].mean() - naive[arms == 0].mean() < 0.95
    assert fit.residual_sd == pytest.approx(0.5, abs=0.05)


def test_arms_and_seeds_without_a_crossing_are_left_out():
    values = draw()
    cut = np.array([arm == 4 for arm in ARMS])
    fit = fit_censored(ARMS, SEEDS, values, cut)
    assert fit.arms == (0, 1, 2, 3)
    assert contrast_censored(fit, 4, against=0) is None
    rest = fit_additive(ARMS[:12], SEEDS[:12], values[:12])
    assert contrast_censored(fit, 3, against=0)[0] == pytest.approx(
        contrast(rest, 3, against=0)[0], abs=1e-8
    )


def test_too_few_crossings_give_nothing():
    assert fit_censored([0, 1], [0, 0], [1.0, 2.0], [False, False]) is None
    assert fit_censored(ARMS, SEEDS, draw(), [True] * 15) is None
    assert fit_censored(ARMS, SEEDS, np.array(ARMS) + np.array(SEEDS), [False] * 15) is None
    assert fit_censored([], [], [], []) is None


def study(censored, seeds=3):
    rng = np.random.default_rng(2)
    return [
        build_cell(
            batch,
            seed,
            samples=20_000 * math.exp(rng.normal(scale=0.1)) * (2 if batch == 256 else 1),
            rate=1000.0,
            crossed=(batch, seed) not in censored,
        )
        for batch in (64, 128, 256)
        for seed in range(seeds)
    ]


def test_ratios_of_a_study():
    reference = Arm("replicated", 64)
    assert estimate_censored(study(()), reference=reference) == []
    [found] = estimate_censored(study({(256, 0)}), reference=reference)
    assert (found.batch, found.runs, found.censored, found.reason) == (256, 3, 1, "")
    cells = {(c.batch, c.seed): c.samples for c in study({(256, 0)})}
    bound = np.exp(np.mean([np.log(cells[256, s] / cells[64, s]) for s in range(3)]))
    # The censored run is somewhere above its bound.
    assert found.samples.estimate > bound
    assert found.samples.low < found.samples.estimate < found.samples.high
    [found] = estimate_censored(study({(256, s) for s in range(3)}), reference=reference)
    assert found.samples == Interval(None, None, None)
    assert found.reason.startswith("no runs that reached the target connect")
    # A censored reference is compared with every arm.
    assert len(estimate_censored(study({(64, 0)}), reference=reference)) == 2
    everything = {(b, s) for b in (64, 128, 256) for s in range(3)}
    assert estimate_censored(study(everything), reference=reference)[0].reason.startswith(
        "the runs that reached the target leave no"
    )


def test_an_arm_is_fitted_with_its_own_setting_and_the_references():
    cut = {(256, 0)}
    first = study(cut)
    rng = np.random.default_rng(3)

    def rename(name, scale):
        """The same runs in another setting, up to a little noise."""
        return [
            dataclasses.replace(
                cell,
                setting=name,
                crossing=cell.crossing
                and dataclasses.replace(
                    cell.crossing,
                    samples=cell.crossing.samples * math.exp(scale * rng.normal()),
                ),
            )
            for cell in first
        ]

    alone = estimate_censored(first, reference=Arm("replicated", 64))
    more = [*first, *rename("b", 0.01), *rename("c", 1.0)]
    found = estimate_censored(more, reference=Arm("replicated", 64), most_freedom=2)
    assert [(one.setting, one.batch) for one in found] == [
        ("replicated", 256),
        ("b", 256),
        ("c", 256),
    ]
    assert found[0] == alone[0]
    pair = [cell for cell in more if cell.setting != "c"]
    [_, near] = estimate_censored(pair, reference=Arm("replicated", 64), most_freedom=2)
    assert found[1] == near
    [_, free] = estimate_censored(pair, reference=Arm("replicated", 64))
    widths = [math.log(one.samples.high / one.samples.low) for one in (near, free)]
    # 16 of 18 runs crossed; 6 arms and 2 seeds leave 8 degrees of freedom.
    assert widths[0] / widths[1] == pytest.approx(stats.t.ppf(0.975, 2) / stats.t.ppf(0.975, 8))


def test_a_diverged_run_is_no_bound_of_a_later_crossing():
    def judge(reference, ended):
        cells = [
            cell if cell.crossing else dataclasses.replace(cell, ended=ended)
            for cell in study({(256, 0)})
        ]
        found = estimate_censored(cells, reference=Arm("replicated", reference))
        return {one.batch: (one.samples.estimate is not None, one.reason) for one in found}

    assert judge(64, "sample_budget") == {256: (True, "")}
    assert judge(64, "not_finite") == {256: (False, "a run diverged")}
    assert judge(256, "not_finite") == dict.fromkeys((64, 128), (False, "a run diverged"))
