"""A saturating sigmoid of the score in log samples, judged on a part that it has not seen.

The curve is s0 + (A - s0) / (1 + (x_half / x)^k), the form in which scores of reinforcement
learning were extrapolated over compute (Khatri et al. 2025, The art of scaling reinforcement
learning compute for LLMs). With one batch, samples and compute differ by a factor alone as long
as responses keep their length.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, least_squares
from scipy.special import fdtri

from jax_rl.study.batches import StudyFit
from jax_rl.study.curves.fits import check_points
from jax_rl.study.intervals import LEVEL
from jax_rl.study.summary import Arm, Cell, Interval

FITTED_SHARE = 0.6
"""Of the grid points, the first ones, which the curve is fitted to."""

_PARAMETERS = 3
_EXPONENTS = (0.2, 10.0)
_STARTS = (0.5, 1.0, 3.0)

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class ScoreFit:
    """The sigmoid of one arm, or why there is none. RMSE are those of the held-out points."""

    setting: str
    batch: int
    points_fitted: int
    points_held_out: int
    start_score: float | None  # s0, measured
    asymptote: Interval | None  # A; at most 1
    midpoint: float | None  # x_half, samples
    exponent: float | None
    rmse_curve: float | None
    rmse_carried: float | None  # of the last fitted point's score, carried on
    predicts: bool | None  # whether the curve's is the smaller
    samples: list[int]  # all points after the first
    scores: list[float]  # means over seeds
    fitted: list[float]  # the curve there
    reason: str


def fit_scores(fit: StudyFit, arm: Arm) -> ScoreFit:
    """Fits the mean curve of an arm's runs, as far as all of them go on one grid."""
    cells = fit.cells_of(arm)
    shortest = min((len(cell.curve_samples) for cell in cells), default=0)
    # A run that its seconds end may have its last score between the others' grid points.
    shared = shortest - 1 if _differ(cells, shortest) else shortest
    if _differ(cells, shared):
        return _leave_out(arm, [], [], first=0, reason="the runs have different grids")
    samples = cells[0].curve_samples[:shared] if cells else []
    means = np.mean([cell.curve_scores[:shared] for cell in cells], axis=0) if cells else []
    return fit_sigmoid(samples, [float(mean) for mean in means], arm=arm)


def _differ(cells: Sequence[Cell], length: int) -> bool:
    return len({tuple(cell.curve_samples[:length]) for cell in cells}) > 1


def fit_sigmoid(samples: Sequence[int], scores: Sequence[float], *, arm: Arm) -> ScoreFit:
    """Fits the first 60 % of the points and predicts the others.

    Args:
      samples: of the grid, the first of them 0.
      scores: one at each; those outside 0 to 1 are not fitted.
    """
    rest = list(samples[1:]), [float(score) for score in scores[1:]]
    count = len(rest[0])
    first = math.ceil(FITTED_SHARE * count)
    reason = "" if count and samples[0] == 0 else "no score before the first sample"
    reason = reason or ("" if _are_shares(scores) else "scores outside 0 to 1")
    reason = reason or check_points(first, parameters=_PARAMETERS)
    reason = reason or _check_rise(scores[0], rest[1][:first])
    if reason:
        return _leave_out(arm, *rest, first=first, reason=reason)
    x, y, start = np.log(rest[0]), np.asarray(rest[1]), float(scores[0])
    model = _Sigmoid(x[:first], y[:first], start)
    curve = model.evaluate(model.best, x)
    held = y[first:]
    rmse = float(np.sqrt(np.mean((curve[first:] - held) ** 2)))
    carried = float(np.sqrt(np.mean((y[first - 1] - held) ** 2)))
    return ScoreFit(
        setting=arm.setting,
        batch=arm.batch,
        points_fitted=first,
        points_held_out=count - first,
        start_score=start,
        asymptote=model.bound_asymptote(),
        midpoint=float(np.exp(model.best[1])),
        exponent=float(model.best[2]),
        rmse_curve=rmse,
        rmse_carried=carried,
        predicts=rmse < carried,
        samples=rest[0],
        scores=rest[1],
        fitted=[float(value) for value in curve],
        reason="",
    )


def _are_shares(scores: Sequence[float]) -> bool:
    return min(scores) >= 0 and max(scores) <= 1


def _check_rise(start: float, scores: Sequence[float]) -> str:
    if max(scores) > start:
        return ""
    return "the first part of the curve does not rise"


def _leave_out(
    arm: Arm, samples: list[int], scores: list[float], *, first: int, reason: str
) -> ScoreFit:
    return ScoreFit(
        setting=arm.setting,
        batch=arm.batch,
        points_fitted=first,
        points_held_out=len(samples) - first,
        start_score=None,
        asymptote=None,
        midpoint=None,
        exponent=None,
        rmse_curve=None,
        rmse_carried=None,
        predicts=None,
        samples=samples,
        scores=scores,
        fitted=[],
        reason=reason,
    )


class _Sigmoid:
    """Least squares of (A, log x_half, k) on scores [n] at log samples [n]."""

    def __init__(self, x: Array, y: Array, start: float):
        self._x, self._y, self._start = x, y, start
        # Half of the way may lie far beyond what was seen, but not before it.
        self._halves = float(x[0]) - 3.0, float(x[-1]) + 7.0
        self._lowest = start + 1e-6
        tries = [
            self._solve_all((float(min(1.0, top)), float(half), exponent))
            for top in (y.max(), 1.0)
            for half in (x[0], x.mean(), x[-1])
            for exponent in _STARTS
        ]
        self._rss, self.best = min(tries, key=lambda found: found[0])

    def evaluate(self, parameters: Array, x: Array) -> Array:
        top, half, exponent = parameters
        # logaddexp keeps the power from overflowing far left of the midpoint.
        share: Array = np.exp(-np.logaddexp(0.0, exponent * (half - x)))
        return self._start + (top - self._start) * share

    def bound_asymptote(self) -> Interval:
        """The asymptote with its profile interval; a side that the data leave open is None."""
        freedom = len(self._x) - _PARAMETERS
        allowed = self._rss * (1 + float(fdtri(1, freedom, LEVEL)) / freedom) + 1e-15
        top = float(self.best[0])

        def excess(value: float) -> float:
            return self._rss_at(value) - allowed

        def find(end: float) -> float | None:
            if abs(end - top) < 1e-9 or excess(end) <= 0:
                return None
            return float(brentq(excess, top, end, xtol=1e-6))

        return Interval(top, find(self._lowest), find(1.0))

    def _solve_all(self, start: tuple[float, float, float]) -> tuple[float, Array]:
        low = (self._lowest, self._halves[0], _EXPONENTS[0])
        high = (1.0 + 1e-9, self._halves[1], _EXPONENTS[1])
        inside = np.clip(start, np.add(low, 1e-7), np.subtract(high, 1e-10))
        found = least_squares(
            lambda p: self.evaluate(p, self._x) - self._y, inside, bounds=(low, high)
        )
        return float(2 * found.cost), np.asarray(found.x, dtype=np.float64)

    def _rss_at(self, top: float) -> float:
        """The least for this asymptote."""
        low, high = (self._halves[0], _EXPONENTS[0]), (self._halves[1], _EXPONENTS[1])
        starts = [tuple(self.best[1:]), (float(self._x.mean()), 1.0), (self._halves[1], 0.5)]
        return min(
            float(
                2
                * least_squares(
                    lambda p: self.evaluate(np.array([top, *p]), self._x) - self._y,
                    np.clip(start, np.add(low, 1e-9), np.subtract(high, 1e-9)),
                    bounds=(low, high),
                ).cost
            )
            for start in starts
        )
