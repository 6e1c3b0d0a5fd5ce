"""Where a validation curve meets the target, and when a run has gone far enough past it.

Scores of a finite validation set are noisy, and the first of many noisy points above a line
comes too early. So the crossing is read from the isotonic (non-decreasing least-squares) fit of
the curve, which uses the points on both sides; the raw first crossing is kept beside it.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from jax_rl.errors import UserError
from jax_rl.study.summary import Crossing

CROSSING_RULES = ("isotonic", "raw", "confirmed")
"""Where a curve crosses: its isotonic fit, its first score at the target, or the first such score
that the next two confirm. The headline is by the first."""

CONFIRMING_POINTS = 2
"""Grid points after a confirmed crossing that are at the target as well."""

TAIL_RATIO = 1.25
"""A run goes on until its samples are this multiple of the crossing."""

TAIL_POINTS = 2
"""... and until it has this many grid points past the raw crossing."""

# Pooled means are rounded: a block of scores whose mean is the target counts as at the target.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Place:
    """Between which grid points a curve meets the target."""

    raw: int  # first grid point at or above the target
    after: int  # first grid point at or past the crossing
    fraction: float  # of the way from the point before `after` to `after`

    def interpolate(self, values: Sequence[float]) -> float:
        """A quantity at the crossing; `values` are [points of the grid]."""
        if self.after == 0:
            return float(values[0])
        low, high = float(values[self.after - 1]), float(values[self.after])
        return high if self.fraction == 1.0 else low + self.fraction * (high - low)


def fit_isotonic(scores: Sequence[float]) -> NDArray[np.float64]:
    """The non-decreasing curve nearest to the scores in squared error; [points]."""
    if len(scores) == 0:
        return np.zeros(0)
    fit: NDArray[np.float64] = np.asarray(
        isotonic_regression(np.asarray(scores, dtype=np.float64)).x, dtype=np.float64
    )
    return fit


def find_crossing(
    samples: Sequence[int],
    scores: Sequence[float],
    *,
    training_seconds: Sequence[float],
    elapsed_seconds: Sequence[float],
    updates: Sequence[int],
    learnt: Sequence[int],
    in_flight: Sequence[int],
    target: float,
) -> Crossing | None:
    """Where the isotonic fit meets the target; all sequences are [points of the grid].

    Samples, seconds and updates are interpolated linearly with one fraction, between the last
    grid point below the target and the first at or above it. A curve that is above the target
    at its first point crosses there; a stretch exactly at the target crosses at its first point.

    None when the fit stays below the target, also if single scores were above it: a peak that
    the points after it take back is not a crossing. The raw crossing is never after the first
    grid point of the fit above the target. `held` looks at the raw scores after the crossing of
    the fit, not at those between the raw crossing and it, which the headline leaves out already.

    Raises:
      UserError: the score before any sample is at or above the target.
    """
    if len(samples) and samples[0] == 0:
        check_start_score(scores[0], target)
    place = locate_crossing(scores, target)
    if place is None:
        return None
    after = np.asarray(scores[place.after :], dtype=np.float64)
    return Crossing(
        samples=place.interpolate(samples),
        updates=place.interpolate(updates),
        training_seconds=place.interpolate(training_seconds),
        elapsed_seconds=place.interpolate(elapsed_seconds),
        raw_samples=int(samples[place.raw]),
        raw_training_seconds=float(training_seconds[place.raw]),
        raw_elapsed_seconds=float(elapsed_seconds[place.raw]),
        learnt=int(learnt[place.raw]),
        in_flight=int(in_flight[place.raw]),
        held=bool(np.all(after >= target - _ROUNDING)),
    )


def should_stop(samples: Sequence[int], scores: Sequence[float], target: float) -> bool:
    """Whether a run has gone far enough past its crossing; sequences are [points of the grid].

    True once the samples are at least 1.25 times the crossing of the isotonic fit so far and
    the grid has two points past the raw crossing.
    """
    place = locate_crossing(scores, target)
    if place is None:
        return False
    points_past = len(scores) - 1 - place.raw
    return points_past >= TAIL_POINTS and samples[-1] >= TAIL_RATIO * place.interpolate(samples)


def check_start_score(score: float, target: float) -> None:
    """Refuses a policy that is at the target before it has generated a sample.

    Raises:
      UserError: score >= target.
    """
    if score >= target - _ROUNDING:
        raise UserError(
            f"budget.target = {target:g}: the start score is above the target: the policy scores"
            f" {score:g} before its first sample, so there is no time-to-target to measure;"
            " set budget.target above that score, or warm_start.updates lower"
        )


def locate_crossing(
    scores: Sequence[float], target: float, *, rule: str = "isotonic"
) -> Place | None:
    """Where a curve meets the target by one of `CROSSING_RULES`; None if it does not.

    The raw and the confirmed crossing are grid points; that of the isotonic fit lies between two.
    """
    if rule == "isotonic":
        return _locate_fit(scores, target)
    above = np.asarray(scores) >= target - _ROUNDING
    reached = np.flatnonzero(above)
    if rule == "confirmed":
        # A point too near the end to be confirmed is none.
        last = len(above) - CONFIRMING_POINTS
        reached = np.array(
            [i for i in reached if i < last and above[i : i + CONFIRMING_POINTS + 1].all()],
            dtype=int,
        )
    elif rule != "raw":
        raise UserError(f"rule = {rule!r}: no such crossing; known are {', '.join(CROSSING_RULES)}")
    if not reached.size:
        return None
    return Place(int(np.flatnonzero(above)[0]), int(reached[0]), 1.0)


def _locate_fit(scores: Sequence[float], target: float) -> Place | None:
    fit = fit_isotonic(scores)
    reached = np.flatnonzero(fit >= target - _ROUNDING)
    if not reached.size:
        return None
    # The first point of a pooled block is at or above the block's mean, so a raw crossing exists.
    raw = int(np.flatnonzero(np.asarray(scores) >= target - _ROUNDING)[0])
    after = int(reached[0])
    if after == 0:
        return Place(raw, after, 1.0)
    low, high = float(fit[after - 1]), float(fit[after])
    return Place(raw, after, min(1.0, (target - low) / (high - low)))
