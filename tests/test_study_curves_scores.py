"""The sigmoid of the score: recovered, judged on what it has not seen, refused."""

import dataclasses

import numpy as np
import pytest
from study_records import build_cell

from jax_rl.study.batches import fit_study
from jax_rl.study.curves.scores import ScoreFit, fit_scores, fit_sigmoid
from jax_rl.study.summary import Arm

ARM = Arm("replicated", 64)
SAMPLES = [1024 * k for k in range(41)]


def draw(
    top: float = 0.9, half: float = 6000.0, exponent: float = 1.5, noise: float = 0.0
) -> list[float]:
    x = np.array(SAMPLES[1:], float)
    scores = 0.2 + (top - 0.2) / (1 + (half / x) ** exponent)
    rng = np.random.default_rng(0)
    return [0.2, *(scores + noise * rng.normal(size=len(x)))]


def known(fit: ScoreFit) -> tuple[float, float, float]:
    assert fit.asymptote is not None
    assert fit.asymptote.estimate is not None
    assert fit.midpoint is not None
    assert fit.exponent is not None
    return fit.asymptote.estimate, fit.midpoint, fit.exponent


def test_an_exact_sigmoid_is_recovered_and_predicts() -> None:
    found = fit_sigmoid(SAMPLES, draw(), arm=ARM)
    assert known(found) == pytest.approx((0.9, 6000.0, 1.5), rel=1e-3)
    assert (found.points_fitted, found.points_held_out) == (24, 16)
    assert found.rmse_curve == pytest.approx(0, abs=1e-4)
    x = np.array(SAMPLES[25:], float)
    rest = 0.2 + 0.7 / (1 + (6000 / x) ** 1.5)
    assert found.rmse_carried == pytest.approx(
        float(np.sqrt(np.mean((rest - draw()[24]) ** 2))), rel=1e-6
    )
    assert found.predicts is True
    assert found.start_score == 0.2


def test_the_held_out_points_are_not_fitted() -> None:
    """Whatever comes after the first 60 % moves the error and not the curve."""
    scores = draw(noise=0.01)
    other = [*scores[:25], *(0.3 for _ in scores[25:])]
    first, second = (fit_sigmoid(SAMPLES, values, arm=ARM) for values in (scores, other))
    assert known(first) == known(second)
    assert first.predicts is True
    assert (second.rmse_curve or 0) > 0.3


def test_the_interval_of_the_asymptote() -> None:
    found = fit_sigmoid(SAMPLES, draw(noise=0.005), arm=ARM).asymptote
    assert found is not None
    assert found.low is not None
    assert found.low < 0.9
    assert found.high is None or found.high > 0.9


def test_a_start_alone_does_not_bound_the_asymptote() -> None:
    found = fit_sigmoid(SAMPLES, draw(top=0.95, half=2e5, noise=0.01), arm=ARM)
    assert found.asymptote is not None
    assert found.asymptote.high is None


def test_a_flat_end_is_predicted_best_by_carrying_on() -> None:
    """A jump and then a plateau: the sigmoid does no better than the last score."""
    scores = [0.2, *np.full(10, 0.3), *np.linspace(0.3, 0.8, 14), *np.full(16, 0.8)]
    found = fit_sigmoid(SAMPLES, [float(s) for s in scores], arm=ARM)
    assert found.rmse_carried == pytest.approx(0, abs=1e-12)
    assert found.predicts is False


@pytest.mark.parametrize(
    ("samples", "scores", "reason"),
    [
        (SAMPLES[:12], draw()[:12], "3 parameters take 8 points at least; there are 7"),
        (SAMPLES[1:], draw()[1:], "no score before the first sample"),
        (SAMPLES, [0.5, *[0.4] * 40], "the first part of the curve does not rise"),
        (SAMPLES, [0.5, *[1.5] * 40], "scores outside 0 to 1"),
        (SAMPLES, [-0.5, *[0.5] * 40], "scores outside 0 to 1"),
        ([], [], "no score before the first sample"),
    ],
)
def test_what_is_not_fitted_says_why(samples: list[int], scores: list[float], reason: str) -> None:
    found = fit_sigmoid(samples, scores, arm=ARM)
    assert found.reason == reason
    assert (found.asymptote, found.rmse_curve, found.predicts, found.fitted) == (
        None,
        None,
        None,
        [],
    )


def test_an_arm_is_the_mean_of_its_seeds_as_far_as_all_go() -> None:
    cells = [
        dataclasses.replace(
            build_cell(64, seed, samples=4000, rate=50.0),
            curve_samples=SAMPLES[: 41 - seed],
            curve_scores=[score + 0.01 * seed for score in draw()][: 41 - seed],
        )
        for seed in range(2)
    ]
    found = fit_scores(fit_study(cells, settings=("replicated",)), ARM)
    assert found.samples == SAMPLES[1:40]
    assert found.scores == pytest.approx([score + 0.005 for score in draw()[1:40]])
    assert found.start_score == pytest.approx(0.205)


def test_runs_on_different_grids_have_no_mean_curve() -> None:
    def fit(*grids: list[int]) -> ScoreFit:
        cells = [
            dataclasses.replace(
                build_cell(64, seed, samples=4000, rate=50.0),
                curve_samples=grid,
                curve_scores=draw()[: len(grid)],
            )
            for seed, grid in enumerate(grids)
        ]
        return fit_scores(fit_study(cells, settings=("replicated",)), ARM)

    found = fit(SAMPLES, [2 * n for n in SAMPLES])
    assert (found.reason, found.samples) == ("the runs have different grids", [])
    # A last score of its own, where the seconds ended, is left out alone.
    assert fit(SAMPLES, [*SAMPLES[:30], SAMPLES[30] - 100]).samples == SAMPLES[1:30]
