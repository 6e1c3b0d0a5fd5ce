"""Curves over batches: recovered, bounded, refused, and how often their intervals are right."""

import math

import numpy as np
import pytest
from scipy import optimize, stats
from study_records import build_cell

from jax_rl.study.batches import fit_study
from jax_rl.study.curves.fits import CurveFit, check_points, fit_curve, fit_setting
from jax_rl.study.curves.shapes import PIECEWISE, SAMPLES, SATURATING, Curve, Points
from jax_rl.study.summary import Interval

BATCHES = (8, 32, 128, 512, 2048)


def make_points(
    values: list[float] | np.ndarray, *, sd: float = 0.05, freedom: int = 8, runs: int = 3
) -> Points:
    logs = tuple(float(value) for value in np.log(values))
    return Points(BATCHES, logs, (runs,) * len(BATCHES), sd, freedom)


def fit(curve: Curve, values: list[float] | np.ndarray, **options: float) -> CurveFit:
    return fit_curve(curve, make_points(values, **options), setting="replicated")


def known(interval: Interval | None) -> float:
    assert interval is not None
    assert interval.estimate is not None
    return interval.estimate


BATCH = np.array(BATCHES, float)
EXACT = [
    (SAMPLES, 4000 * (1 + BATCH / 100), 4000, 100),
    (SATURATING, 900 * BATCH / (BATCH + 60), 900, 60),
    (PIECEWISE, 900 * np.minimum(1, BATCH / 200), 900, 200),
]


@pytest.mark.parametrize(("curve", "values", "level", "turn"), EXACT)
def test_exact_curves_are_recovered(
    curve: Curve, values: np.ndarray, level: float, turn: float
) -> None:
    found = fit(curve, values)
    assert known(found.level) == pytest.approx(level, rel=1e-6)
    assert known(found.turning_point) == pytest.approx(turn, rel=1e-6)
    assert found.fitted == pytest.approx(list(values), rel=1e-6)
    assert found.reason == ""
    assert found.turning_point is not None
    assert found.turning_point.bound == ""
    assert found.turning_point.low is not None
    assert found.turning_point.low < turn < (found.turning_point.high or math.inf)


def test_noisy_values_are_fitted_as_scipy_does() -> None:
    values = 4000 * (1 + BATCH / 100) * np.exp([0.03, -0.05, 0.04, 0.02, -0.03])
    points = Points(BATCHES, tuple(np.log(values)), (3, 3, 1, 3, 2), 0.05, 8)
    found = fit_curve(SAMPLES, points, setting="replicated")
    (level, turn), _ = optimize.curve_fit(
        lambda x, a, t: a + np.log1p(x / np.exp(t)),
        BATCH,
        np.log(values),
        p0=(8.0, 4.0),
        sigma=1 / np.sqrt([3, 3, 1, 3, 2]),
    )
    assert known(found.level) == pytest.approx(math.exp(level), rel=1e-5)
    assert known(found.turning_point) == pytest.approx(math.exp(turn), rel=1e-5)


def test_the_profile_interval_is_where_the_sum_of_squares_says() -> None:
    values = 4000 * (1 + BATCH / 100) * np.exp([0.03, -0.05, 0.04, 0.02, -0.03])
    found = fit(SAMPLES, values, sd=0.08, freedom=8)

    def rss_at(turn: float) -> float:
        rest = np.log(values) - np.log1p(BATCH / turn)
        return 3 * float(np.sum((rest - rest.mean()) ** 2))

    assert found.turning_point is not None
    best = rss_at(known(found.turning_point))
    grown = 0.08**2 * stats.f.ppf(0.95, 1, 8)
    for end in (found.turning_point.low, found.turning_point.high):
        assert end is not None
        assert rss_at(end) - best == pytest.approx(grown, rel=1e-4)
    assert found.lack_of_fit == pytest.approx(stats.f.sf(best / 3 / 0.08**2, 3, 8))


def test_a_curve_that_does_not_fit_knows_its_turning_point_less_well() -> None:
    crooked = 4000 * (1 + BATCH / 100) * np.exp([0.3, -0.3, 0.3, -0.3, 0.3])
    loose, tight = fit(SAMPLES, crooked, sd=0.02), fit(SAMPLES, EXACT[0][1], sd=0.02)
    assert loose.lack_of_fit is not None
    assert loose.lack_of_fit < 1e-6
    assert loose.turning_point is not None
    assert tight.turning_point is not None
    ratios = [
        math.log((one.high or 1e9) / (one.low or 1e-9))
        for one in (loose.turning_point, tight.turning_point)
    ]
    assert ratios[0] > 5 * ratios[1]


@pytest.mark.parametrize(
    ("curve", "values", "edge", "bound", "level"),
    [
        (SAMPLES, [4000.0] * 5, 2048, "at least", ("", 4000)),
        (SAMPLES, 40 * BATCH, 8, "at most", ("at most", 320)),
        (SATURATING, 3 * BATCH, 2048, "at least", ("at least", 6144)),
        (SATURATING, [900.0] * 5, 8, "at most", ("", 900)),
        (PIECEWISE, 3 * BATCH, 2048, "at least", ("at least", 6144)),
    ],
)
def test_a_turning_point_outside_the_range_is_a_bound(
    curve: Curve, values: np.ndarray, edge: int, bound: str, level: tuple[str, float]
) -> None:
    found = fit(curve, values)
    assert found.turning_point is not None
    assert (known(found.turning_point), found.turning_point.bound) == (edge, bound)
    assert found.level is not None
    assert found.level.bound == level[0]
    assert known(found.level) == pytest.approx(level[1], rel=1e-3)
    closed = {"at least": found.turning_point.high, "at most": found.turning_point.low}
    assert closed[bound] is None


def test_an_interval_that_reaches_beyond_the_range_is_open() -> None:
    # At a turning point of 1,500 the largest batch needs 2.4 times as many samples.
    found = fit(SAMPLES, 4000 * (1 + BATCH / 1500), sd=0.6)
    assert known(found.turning_point) == pytest.approx(1500, rel=1e-6)
    assert found.turning_point is not None
    assert found.turning_point.high is None
    assert found.turning_point.low is not None


@pytest.mark.slow
def test_intervals_cover_the_truth_in_95_percent() -> None:
    rng = np.random.default_rng(7)
    inside = {"turn": 0, "level": 0}
    studies = 500
    for _ in range(studies):
        logs = np.log(4000 * (1 + BATCH / 100)) + rng.normal(0, 0.1 / math.sqrt(3), 5)
        sd = 0.1 * math.sqrt(rng.chisquare(8) / 8)
        found = fit(SAMPLES, np.exp(logs), sd=sd)
        for name, interval, truth in (
            ("turn", found.turning_point, 100),
            ("level", found.level, 4000),
        ):
            assert interval is not None
            inside[name] += (interval.low or 0) <= truth <= (interval.high or math.inf)
    # 95 of 100 up to three standard deviations of the count.
    for name, count in inside.items():
        assert abs(count / studies - 0.95) < 3 * math.sqrt(0.95 * 0.05 / studies), (name, count)


# From a study


def make_study(batches: tuple[int, ...], *, censored: tuple[int, ...] = (), seeds: int = 3) -> list:
    return [
        build_cell(
            batch,
            seed,
            samples=4000 * (1 + batch / 100) * math.exp(0.05 * seed),
            rate=900 * batch / (batch + 60) * math.exp(0.01 * ((seed * batch) % 3)),
            crossed=batch not in censored or seed > 0,
        )
        for seed in range(seeds)
        for batch in batches
    ]


def test_a_study_with_rates_of_its_own_per_batch_is_fitted() -> None:
    found = fit_setting(
        fit_study(make_study(BATCHES), settings=("replicated",)), "replicated", tuned=True
    )
    assert known(found.samples.turning_point) == pytest.approx(100, rel=1e-6)
    assert known(found.samples.level) == pytest.approx(4000 * math.exp(0.05), rel=1e-6)
    assert found.samples.measured == pytest.approx(
        [4000 * (1 + b / 100) * math.exp(0.05) for b in BATCHES]
    )
    saturating, _ = found.throughput
    assert known(saturating.turning_point) == pytest.approx(60, rel=0.05)
    assert found.closer == SATURATING.name


def test_samples_under_one_rule_are_not_fitted_but_throughput_is() -> None:
    found = fit_setting(
        fit_study(make_study(BATCHES), settings=("replicated",)), "replicated", tuned=False
    )
    assert found.samples.reason == "rates not tuned per batch"
    assert (found.samples.level, found.samples.turning_point) == (None, None)
    assert found.throughput[0].reason == ""


def test_four_batches_carry_no_two_parameters() -> None:
    cells = make_study(BATCHES, censored=(2048,))
    found = fit_setting(fit_study(cells, settings=("replicated",)), "replicated", tuned=True)
    assert found.samples.reason == "2 parameters take 5 points at least; there are 4"
    assert found.samples.left_out == [2048]
    assert found.samples.batches == [8, 32, 128, 512]
    assert found.closer == ""


def test_throughput_of_several_devices_has_no_curve() -> None:
    cells = make_study(BATCHES)
    cells += [build_cell(4096, 0, samples=1e5, rate=900.0, device="2 x cpu (cpu)")]
    found = fit_setting(fit_study(cells, settings=("replicated",)), "replicated", tuned=True)
    assert found.throughput[0].reason == "runs on different devices (1 x cpu (cpu); 2 x cpu (cpu))"
    assert found.samples.reason == ""


@pytest.mark.parametrize(("parameters", "fewest"), [(1, 3), (2, 5), (3, 8)])
def test_at_most_two_parameters_per_five_points(parameters: int, fewest: int) -> None:
    assert check_points(fewest, parameters=parameters) == ""
    assert check_points(fewest - 1, parameters=parameters) != ""


def test_batches_without_shared_seeds_have_no_curve() -> None:
    """One run per batch, all seeds distinct: effects are half own and half of all the others."""
    cells = [
        build_cell(batch, seed, samples=4000 * (1 + batch / 100), rate=float(batch))
        for seed, batch in enumerate(BATCHES)
    ]
    found = fit_setting(fit_study(cells, settings=("replicated",)), "replicated", tuned=True)
    for curve in (found.samples, *found.throughput):
        assert curve.reason == "shared seeds do not connect the batches"
        assert curve.level is None
