"""Families of curves over batches, and their residuals by turning point and by level."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import fdtrc, fdtri

from jax_rl.study.intervals import LEVEL

_BEYOND = math.log(1e4)
"""How far outside the measured batches a turning point is searched, as a logarithm."""
_STEPS = 4000

_ROUNDING = 1e-12
"""A standard deviation of logarithms below this is none."""

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Curve:
    """A family of curves: level times a shape that a turning point moves."""

    name: str
    measure: str  # what it describes, of study.batches.MEASURES
    # Logarithm of curve over level, at the logarithms of batches and of the turning point.
    shape: Callable[[Array, Array], Array]
    # The side on which a turning point outside the range leaves the level an extrapolation.
    level_open: str

    def evaluate(
        self, batches: Sequence[float] | Array, *, level: float, turning_point: float
    ) -> Array:
        """The curve at these batches; in the unit of the level."""
        logs = np.log(np.asarray(batches, dtype=np.float64))
        return level * np.exp(self.shape(logs, np.asarray(math.log(turning_point))))


def _rise(batch: Array, turn: Array) -> Array:
    return np.logaddexp(0.0, batch - turn)


def _saturate(batch: Array, turn: Array) -> Array:
    return -np.logaddexp(0.0, turn - batch)


def _bend(batch: Array, turn: Array) -> Array:
    return np.minimum(batch - turn, 0.0)


SAMPLES = Curve("S_min (1 + B / B_crit)", "samples", _rise, "at most")
SATURATING = Curve("T_max B / (B + B_half)", "throughput", _saturate, "at least")
PIECEWISE = Curve("linear, then flat", "throughput", _bend, "at least")
CURVES = {curve.name: curve for curve in (SAMPLES, SATURATING, PIECEWISE)}


@dataclasses.dataclass(frozen=True)
class Points:
    """What a curve is fitted to: a measure's mean logarithm in each batch."""

    batches: tuple[int, ...]  # ascending
    logs: tuple[float, ...]
    runs: tuple[int, ...]  # behind each mean; its weight
    residual_sd: float  # of one run's logarithm about arm and seed effects; NaN if unknown
    degrees_of_freedom: int


class Profile:
    """Residual sums of squares of a curve over its points, by turning point and by level."""

    def __init__(self, curve: Curve, points: Points):
        self._curve = curve
        self._batches = np.log(np.asarray(points.batches, dtype=np.float64))
        self._logs = np.asarray(points.logs, dtype=np.float64)
        self._weights = np.asarray(points.runs, dtype=np.float64)
        self.range_of_turn = (self._batches[0] - _BEYOND, self._batches[-1] + _BEYOND)
        self._turns = np.linspace(*self.range_of_turn, _STEPS)
        self._shapes = curve.shape(self._batches[None, :], self._turns[:, None])
        levels = (self._logs - self._shapes) @ self._weights / self._weights.sum()
        self.range_of_level = (float(levels.min()), float(levels.max()))
        rests = (self._logs - self._shapes - levels[:, None]) ** 2 @ self._weights
        self.turn = self._find_best(int(np.argmin(rests)))
        self.level = self._level_at(self.turn)
        self.best_rss = self.rss_at_turn(self.turn)
        self.freedom = len(points.batches) - 2
        self._choose_variance(points)

    @property
    def fitted(self) -> list[float]:
        """The best curve at the batches."""
        shape = self._curve.shape(self._batches, np.asarray(self.turn))
        return [float(value) for value in np.exp(self.level + shape)]

    def rss_at_turn(self, turn: float) -> float:
        """The least for this logarithm of the turning point."""
        rest = self._logs - self._curve.shape(self._batches, np.asarray(turn))
        return float(self._weights @ (rest - self._level_at(turn)) ** 2)

    def rss_at_level(self, level: float) -> float:
        """The least for this logarithm of the level."""
        return float(np.min((self._logs - level - self._shapes) ** 2 @ self._weights))

    def _level_at(self, turn: float) -> float:
        rest = self._logs - self._curve.shape(self._batches, np.asarray(turn))
        return float(self._weights @ rest / self._weights.sum())

    def _find_best(self, place: int) -> float:
        """Around the best of the steps."""
        around = self._turns[max(0, place - 1)], self._turns[min(_STEPS - 1, place + 1)]
        found = minimize_scalar(
            self.rss_at_turn, bounds=around, method="bounded", options={"xatol": 1e-9}
        )
        return float(found.x)

    def _choose_variance(self, points: Points) -> None:
        """The runs' own, unless the means scatter about the curve by more than that explains."""
        about_curve = self.best_rss / self.freedom
        freedom, self.variance, self.lack_of_fit = self.freedom, about_curve, None
        if points.degrees_of_freedom and points.residual_sd > _ROUNDING:
            pure = points.residual_sd**2
            self.lack_of_fit = float(
                fdtrc(self.freedom, points.degrees_of_freedom, about_curve / pure)
            )
            if self.lack_of_fit >= 1 - LEVEL:
                freedom, self.variance = points.degrees_of_freedom, pure
        self.quantile = float(fdtri(1, freedom, LEVEL))


def find_limits(
    rss: Callable[[float], float], best: float, ends: tuple[float, float], allowed: float
) -> tuple[float | None, float | None]:
    """Where the profile leaves what is allowed, to each side of the best; None: nowhere."""

    def excess(value: float) -> float:
        return rss(value) - allowed

    limits: list[float | None] = []
    for end in ends:
        steps = np.linspace(best, end, 200)
        outside = next((i for i, value in enumerate(steps) if excess(float(value)) > 0), None)
        if outside is None:
            limits.append(None)
        elif outside == 0:
            limits.append(best)  # no spread at all
        else:
            limits.append(float(brentq(excess, steps[outside - 1], steps[outside])))
    return limits[0], limits[1]
