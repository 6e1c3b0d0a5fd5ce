"""Crossings worked by hand, and the rule that ends a run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_rl.errors import UserError
from jax_rl.study.crossing import (
    CROSSING_RULES,
    check_start_score,
    find_crossing,
    fit_isotonic,
    locate_crossing,
    should_stop,
)


def cross(scores, target, *, step=100, start=0):
    samples = [start + step * i for i in range(len(scores))]
    return find_crossing(
        samples,
        scores,
        training_seconds=[s / 50 for s in samples],
        elapsed_seconds=[10 + s / 40 for s in samples],
        updates=[s // 20 for s in samples],
        learnt=[s - 3 for s in samples],
        in_flight=[7 for _ in samples],
        target=target,
    )


def fit_by_hand(scores):
    """Isotonic fit by its max-min formula, independent of pooling."""
    n = len(scores)
    return [
        max(min(np.mean(scores[i : j + 1]) for j in range(k, n)) for i in range(k + 1))
        for k in range(n)
    ]


def test_interpolates_all_axes_with_one_fraction():
    found = cross([0.1, 0.3, 0.5, 0.9], 0.6)
    # A quarter of the way from the grid point at 200 to the one at 300.
    assert found.samples == pytest.approx(225)
    assert found.training_seconds == pytest.approx(4.5)
    assert found.elapsed_seconds == pytest.approx(15.625)
    assert found.updates == pytest.approx(11.25)
    assert (found.raw_samples, found.raw_training_seconds) == (300, 6.0)
    assert found.raw_elapsed_seconds == 17.5
    assert (found.learnt, found.in_flight, found.held) == (297, 7, True)


def test_noisy_peak_moves_the_fit_and_not_the_raw_crossing():
    # 0.7 and 0.5 pool to 0.6: with target 0.65 the fit crosses between 300 (0.6) and 400 (0.8).
    found = cross([0.1, 0.4, 0.7, 0.5, 0.8], 0.65)
    assert found.raw_samples == 200
    assert found.samples == pytest.approx(325)
    assert found.held


def test_peak_that_later_points_take_back_is_no_crossing():
    assert cross([0.1, 0.9, 0.2, 0.2], 0.6) is None
    assert cross([0.1, 0.2, 0.3], 0.6) is None
    assert cross([], 0.6) is None


def test_not_held_when_a_later_score_is_below():
    # 0.9, 0.55 pool to 0.725, above the target, so the crossing stands but did not hold.
    found = cross([0.1, 0.9, 0.55, 0.95], 0.6)
    assert found.samples == pytest.approx(100 * (0.6 - 0.1) / (0.725 - 0.1))
    assert not found.held


def test_stretch_at_the_target_crosses_at_its_first_point():
    found = cross([0.1, 0.3, 0.5, 0.5, 0.5], 0.5)
    assert found.samples == 200
    assert found.held
    # The mean of 0.8 and 0.6 and 0.7 is 0.7 but for rounding.
    assert cross([0.1, 0.8, 0.6, 0.7], 0.7).samples == pytest.approx(100)


def test_rules_of_the_crossing():
    scores = [0.1, 0.7, 0.3, 0.7, 0.8, 0.9, 0.9]
    places = {rule: locate_crossing(scores, 0.6, rule=rule) for rule in CROSSING_RULES}
    grid = [100 * i for i in range(len(scores))]
    # 0.7 and 0.3 pool to 0.5, so the fit crosses half-way from there to 0.7.
    assert places["isotonic"].interpolate(grid) == pytest.approx(250)
    assert places["raw"].interpolate(grid) == 100
    assert places["confirmed"].interpolate(grid) == 300
    assert {place.raw for place in places.values()} == {1}
    # The last two points have not been followed by two others.
    assert locate_crossing([0.1, 0.2, 0.7, 0.8], 0.6, rule="confirmed") is None
    assert locate_crossing([0.1, 0.7, 0.8, 0.9], 0.6, rule="confirmed").after == 1
    assert locate_crossing([0.1, 0.5], 0.6, rule="raw") is None
    with pytest.raises(UserError, match="known are isotonic, raw, confirmed"):
        locate_crossing([0.1, 0.7], 0.6, rule="smooth")


def test_first_point_above_the_target():
    found = cross([0.7, 0.8], 0.6, start=100)
    assert (found.samples, found.training_seconds, found.raw_samples) == (100, 2.0, 100)
    with pytest.raises(UserError, match="start score is above the target"):
        cross([0.7, 0.8], 0.6)
    with pytest.raises(UserError, match="start score"):
        check_start_score(0.6, 0.6)
    check_start_score(0.59, 0.6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 16).map(lambda i: i / 16), min_size=1, max_size=9),
    st.integers(1, 16).map(lambda i: i / 16 - 1 / 32),
)
def test_fit_and_crossing_agree_with_the_max_min_formula(scores, target):
    fit = fit_by_hand(scores)
    np.testing.assert_allclose(fit_isotonic(scores), fit, atol=1e-12)
    found = cross(scores, target, start=100)
    above = [k for k, value in enumerate(fit) if value >= target]
    if not above:
        assert found is None
        return
    k = above[0]
    assert found.raw_samples <= 100 * (k + 1)
    assert 100 * max(k, 1) <= found.samples <= 100 * (k + 1)
    assert found.samples / found.training_seconds == pytest.approx(50)


@pytest.mark.parametrize(
    ("scores", "stops"),
    [
        ([0.1, 0.2, 0.3], False),
        # Crossing at 150, so 1.25 times it is 187.5; the raw crossing at 200 asks for 400.
        ([0.0, 0.4, 0.8], False),
        ([0.0, 0.4, 0.8, 0.8], False),
        ([0.0, 0.4, 0.8, 0.8, 0.8], True),
        # The fit has gone below again: goes on.
        ([0.0, 0.4, 0.8, 0.1, 0.1], False),
    ],
)
def test_stops_two_points_past_the_raw_crossing(scores, stops):
    assert should_stop([100 * i for i in range(len(scores))], scores, 0.6) is stops


def test_stops_only_at_a_quarter_more_than_the_crossing():
    scores = [i / 20 for i in range(26)]  # crosses 1.0 at the point 20, i.e. 2000 samples
    grid = [100 * i for i in range(26)]
    assert [should_stop(grid[: n + 1], scores[: n + 1], 1.0) for n in (22, 24, 25)] == [
        False,
        False,
        True,
    ]
