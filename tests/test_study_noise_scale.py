"""The noise scale of gradients whose covariance is known."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.special import stdtrit

from jax_rl.records import Iteration
from jax_rl.study.noise.batches import TurningPoint, summarise_noise
from jax_rl.study.noise.scale import (
    BELOW_ZERO,
    NO_NOISE,
    average_blocks,
    divide_means,
    estimate_parts,
    measure_noise,
    smooth_ratio,
)
from jax_rl.study.summary import Arm

DIMENSIONS, UNITS, UNIT_GROUPS, GROUP = 40, 4, 2, 8
SIGNAL = np.full(DIMENSIONS, 0.5)  # |G|^2 = 10
DEVIATIONS = np.linspace(0.5, 3.0, DIMENSIONS)  # of one group's gradient
TRACE = float(np.sum(DEVIATIONS**2))


def draw_norms(rng, count, *, signal=SIGNAL, units=UNITS, unit_groups=UNIT_GROUPS):
    """Squared norms [count] of `count` iterations: mean of a unit's, and of the minibatch's."""
    noise = rng.standard_normal((count, units, DIMENSIONS)) * DEVIATIONS / math.sqrt(unit_groups)
    gradients = signal + noise
    return np.sum(gradients**2, axis=2).mean(1), np.sum(gradients.mean(1) ** 2, axis=1)


NOTHING = dict.fromkeys((field.name for field in dataclasses.fields(Iteration)), 0.0)


def make_run(unit, minibatch, *, batch=UNITS * UNIT_GROUPS * GROUP, units=UNITS):
    """Iterations with these squared norms."""
    return [
        Iteration(**{
            **NOTHING,
            "samples": (number + 1) * batch,
            "noise_units": units,
            "noise_unit_groups": UNIT_GROUPS,
            "unit_norm_squared": float(u),
            "minibatch_norm_squared": float(m),
        })
        for number, (u, m) in enumerate(zip(unit, minibatch, strict=True))
    ]  # fmt: skip


@pytest.fixture(scope="module")
def studies():
    """500 runs of 100 iterations each."""
    rng = np.random.default_rng(0)
    norms = [draw_norms(rng, 100) for _ in range(500)]
    return [measure_noise(make_run(*pair), group=GROUP, crossing=None) for pair in norms]


# The estimators


@pytest.mark.parametrize(("units", "unit_groups"), [(2, 1), (4, 2), (16, 1)])
def test_both_parts_are_unbiased(units, unit_groups):
    rng = np.random.default_rng(1)
    norms = draw_norms(rng, 20_000, units=units, unit_groups=unit_groups)
    for found, expected in zip(
        estimate_parts(*norms, units=units, unit_groups=unit_groups),
        (np.sum(SIGNAL**2), TRACE),
        strict=True,
    ):
        error = found.std() / math.sqrt(len(found))
        assert abs(found.mean() - expected) < 3.5 * error
        assert error < 0.03 * expected


def test_two_units_by_hand():
    # Units (3, 0) and (1, 2): |unit|^2 is 9 and 5, their mean (2, 1) has 5. <3 0, 1 2> = 3.
    signal, noise = estimate_parts(np.array([7.0]), np.array([5.0]), units=2, unit_groups=3)
    assert signal == pytest.approx(3.0)
    assert noise == pytest.approx(3 * 4.0)  # half of |(2, -2)|^2 is 4, three groups in a unit


def test_units_that_are_not_whole_groups_are_wrong_by_a_lot():
    # Rows of one group share their prompt: tr(Sigma) = 100 between prompts, 1600 within one of
    # them in every row, |G|^2 = 4. By groups of 16 the noise scale is 16 (100 + 1600 / 16) / 4.
    rng = np.random.default_rng(2)
    groups, rows, count, size = 4, 16, 20_000, 10
    prompts = math.sqrt(100 / size) * rng.standard_normal((count, groups, 1, size))
    scale = {}
    for cut in (rows, rows // 2, 1):  # the mean over so many rows of a prompt, drawn at once
        within = math.sqrt(1600 / size / cut)
        units = rng.standard_normal((count, groups, rows // cut, size))
        units = (math.sqrt(4 / size) + prompts + within * units).reshape(count, -1, size)
        norms = np.sum(units**2, axis=2).mean(1), np.sum(units.mean(1) ** 2, axis=1)
        signal, noise = estimate_parts(*norms, units=units.shape[1], unit_groups=1)
        scale[cut] = cut * noise.mean() / signal.mean()
    assert scale[16] == pytest.approx(16 * 200 / 4, rel=0.15)
    # |G|^2 takes up 15 / 63 of the part between prompts, as many pairs of rows share one.
    assert scale[1] == pytest.approx((1600 + 100 * 48 / 63) / (4 + 100 * 15 / 63), rel=0.05)
    assert scale[16] > 10 * scale[1]
    assert scale[16] > 5 * scale[8]


# One run


def test_the_value_is_near_the_truth_and_its_interval_covers_it(studies):
    truth = GROUP * TRACE / np.sum(SIGNAL**2)
    values = np.array([one.rollouts for one in studies])
    assert np.exp(np.log(values).mean()) == pytest.approx(truth, rel=0.02)
    covered = np.mean([one.rollouts_low <= truth <= one.rollouts_high for one in studies])
    assert 0.925 <= covered <= 0.975
    inside = [one.signal_low <= np.sum(SIGNAL**2) <= one.signal_high for one in studies]
    assert 0.925 <= np.mean(inside) <= 0.975


def test_groups_and_curve_of_a_run(studies):
    one = studies[0]
    assert one.groups == pytest.approx(one.rollouts / GROUP)
    assert one.noise / one.signal == pytest.approx(one.groups)
    assert one.iterations == 100
    assert one.samples == 6400
    assert not one.crossed
    assert one.curve_samples[0] == 64
    assert one.curve_samples[-1] == 6400
    later = [value for value in one.curve_rollouts[30:] if value is not None]
    assert np.median(later) == pytest.approx(one.rollouts, rel=0.5)


def test_no_signal_is_not_identified():
    rng = np.random.default_rng(3)
    found = [
        measure_noise(make_run(*draw_norms(rng, 50, signal=0.0)), group=GROUP, crossing=None)
        for _ in range(200)
    ]
    named = [one for one in found if one.rollouts is not None]
    # One side of a 95 % interval.
    assert len(named) <= 12
    for one in found:
        if one.rollouts is None:
            assert one.reason.startswith("not identified")
            assert one.signal is not None
            assert one.rollouts_high is None


def test_only_what_came_up_to_the_crossing_counts_and_by_samples():
    unit, minibatch = np.full(12, 8.0), np.full(12, 5.0)
    unit[::2] += 0.5
    run = make_run(unit, minibatch, units=2, batch=100)
    run[6:] = make_run(unit * 50, minibatch, units=2, batch=100)[6:]
    found = measure_noise(run, group=GROUP, crossing=650.0)
    # Six iterations: |g_unit|^2 is 8.5 and 8 in turn, signal 2 x 5 - 8.25, noise 2 (8.25 - 5).
    assert found.crossed
    assert found.iterations == 6
    assert found.samples == 600
    assert found.signal == pytest.approx(1.75)
    assert found.noise == pytest.approx(UNIT_GROUPS * 6.5)
    assert found.rollouts == pytest.approx(GROUP * UNIT_GROUPS * 6.5 / 1.75)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda e: {"noise_units": 0}, "not measured"),
        (lambda e: {"noise_units": 1, "unit_norm_squared": None}, "one independent gradient"),
        (lambda e: {"unit_norm_squared": math.nan}, "0 iterations up to the crossing"),
        (lambda e: {"samples": e.samples + 10**6}, "crossed in the first iteration"),
    ],
)
def test_why_there_is_no_value(change, reason):
    run = make_run(np.full(10, 8.0), np.full(10, 5.0))
    changed = [dataclasses.replace(event, **change(event)) for event in run]
    found = measure_noise(changed, group=GROUP, crossing=10_000.0)
    assert reason in found.reason
    assert found.rollouts is found.signal is None
    assert measure_noise([], group=GROUP, crossing=None).reason.startswith("not measured")


# Parts of it


def test_the_jackknife_of_a_plain_mean_is_its_standard_error():
    values = np.random.default_rng(4).standard_normal((1, 20))
    means, covariance, blocks = average_blocks(values, np.ones(20))
    assert blocks == 20
    assert means[0] == pytest.approx(values.mean())
    assert covariance[0, 0] == pytest.approx(values.var(ddof=1) / 20)
    weighted, _, _ = average_blocks(np.array([[1.0, 4.0]]), np.array([3.0, 1.0]))
    assert weighted[0] == pytest.approx((3 * 1 + 4) / 4)


def test_fieller_ends_are_where_the_difference_is_at_its_quantile():
    means, covariance = np.array([6.0, 2.0]), np.array([[0.5, 0.1], [0.1, 0.2]])
    found = divide_means(means, covariance, 12)
    assert found.estimate == pytest.approx(3.0)
    for end in (found.low, found.high):
        direction = np.array([1.0, -end])
        error = math.sqrt(direction @ covariance @ direction)
        assert abs(direction @ means) / error == pytest.approx(stdtrit(12, 0.975))
    assert found.low < 3 < found.high


def test_a_denominator_near_0_leaves_a_lower_bound():
    found = divide_means(np.array([6.0, 0.3]), np.diag([0.1, 0.2]), 12)
    assert found.estimate is None
    assert found.high is None
    direction = np.array([1.0, -found.low])
    error = math.sqrt(direction @ np.diag([0.1, 0.2]) @ direction)
    assert direction @ np.array([6.0, 0.3]) / error == pytest.approx(stdtrit(12, 0.975))
    nothing = divide_means(np.array([0.1, 0.3]), np.diag([0.1, 0.2]), 12)
    assert nothing.estimate is nothing.low is nothing.high is None
    below = divide_means(np.array([6.0, -3.0]), np.diag([0.1, 0.2]), 12)
    assert below.estimate is below.low is below.high is None


def test_averages_move_apart_from_each_other():
    samples = np.arange(1, 4) * 10.0
    found = smooth_ratio(
        np.array([4.0, 0.0, 8.0]), np.array([1.0, 1.0, -9.0]), samples, half_life=10.0
    )
    # With 1/2 kept: 2 / 0.5, then (1 + 0) / (0.25 + 0.5), then (0.5 + 4) / (0.375 - 4.5).
    assert found == [pytest.approx(4.0), pytest.approx(1 / 0.75), None]


# All runs


def test_geometric_mean_over_seeds_beside_the_turning_point(studies):
    arm, other = Arm("replicated", 64), Arm("replicated", 256)
    unknown = measure_noise(
        make_run(*draw_norms(np.random.default_rng(3), 50, signal=0.0)), group=8, crossing=None
    )
    assert unknown.rollouts is None
    runs = {(arm, 0): studies[0], (arm, 1): studies[1], (other, 0): studies[2], (other, 1): unknown}
    point = TurningPoint(rollouts=300.0, bound="", what="samples to target are twice the least")
    found = summarise_noise(runs, setting="replicated", turning_point=point)
    first, second = found.batches
    logs = np.log([studies[0].rollouts, studies[1].rollouts])
    assert first.rollouts == pytest.approx(math.exp(logs.mean()))
    half = stdtrit(1, 0.975) * logs.std(ddof=1) / math.sqrt(2)
    assert first.rollouts_low == pytest.approx(math.exp(logs.mean() - half))
    assert first.rollouts_high == pytest.approx(math.exp(logs.mean() + half))
    assert first.turning_ratio == pytest.approx(300 / first.rollouts)
    assert (first.identified, second.identified) == (2, 1)
    assert first.signal == pytest.approx((studies[0].signal + studies[1].signal) / 2)
    assert first.noise == pytest.approx((studies[0].noise + studies[1].noise) / 2)
    assert found.rollouts == first.rollouts
    assert found.turning_ratio == first.turning_ratio
    assert second.rollouts is second.turning_ratio is None
    assert found.asked_for
    bound = math.sqrt(studies[2].rollouts * unknown.rollouts_low)
    assert second.at_least == pytest.approx(bound)
    nothing = {(arm, 0): measure_noise([], group=8, crossing=None)}
    assert not summarise_noise(nothing, setting="replicated").asked_for


def test_only_the_setting_of_the_turning_point_is_held_against_it(studies):
    runs = {(Arm("four", 64), 0): studies[0], (Arm("one", 64), 0): studies[1]}
    point = TurningPoint(rollouts=300.0, bound="", what="")
    found = summarise_noise(runs, setting="one", turning_point=point, turning_reason="none")
    assert found.rollouts == pytest.approx(studies[1].rollouts)
    four, one = found.batches
    assert four.turning_ratio is None
    assert one.turning_ratio == found.turning_ratio == pytest.approx(300 / studies[1].rollouts)
    assert found.turning_reason == ""
    assert summarise_noise(runs, setting="one", turning_reason="why").turning_reason == "why"


@pytest.mark.parametrize(
    ("minibatch", "reason"),
    [
        (3.0, BELOW_ZERO),  # |G|^2 = 2 x 3 - 8, far below 0
        (9.0, NO_NOISE),  # |G|^2 = 2 x 9 - 8, noise 2 (8 - 9)
    ],
)
def test_a_part_that_comes_out_negative_is_called_so(minibatch, reason):
    unit = 8.0 + 0.01 * np.arange(10)
    run = make_run(unit, np.full(10, minibatch), units=2)
    found = measure_noise(run, group=GROUP, crossing=None)
    assert found.reason == reason
    assert found.rollouts is found.rollouts_low is None
    arm = Arm("replicated", 64)
    (batch,) = summarise_noise({(arm, 0): found}, setting="replicated").batches
    assert batch.rollouts is batch.at_least is None
