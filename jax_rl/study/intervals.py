"""Geometric means, and t intervals on log ratios in the two-way design of arms and seeds.

The model is additive on logarithms: log y = arm effect + seed effect + residual. An arm is what
is compared, a batch in a layout. Seeds are blocks: a seed shares its prompts among arms, and its
runs follow one another in time. One residual variance is pooled over all arms, because three
seeds alone say little about it.
"""

import dataclasses
import functools
import math
from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from jax_rl.study.summary import Arm, Interval

Key = TypeVar("Key", int, Arm)
"""What an arm is called by; it has an order, so that the same runs give the same fit."""

LEVEL = 0.95
"""Coverage of every interval that is shown."""


@dataclasses.dataclass(frozen=True)
class AdditiveFit:
    """Least squares of values on arm and seed effects; balanced or not."""

    arms: tuple[Hashable, ...]
    effects: NDArray[np.float64]  # [arms], at the mean seed effect
    residual_sd: float  # NaN without degrees of freedom
    degrees_of_freedom: int
    inverse: NDArray[np.float64]  # pseudo-inverse of the normal equations, [effects, effects]
    row_space: NDArray[np.float64]  # projector on the estimable contrasts, [effects, effects]

    def effect(self, arm: Hashable) -> float:
        """An arm's mean logarithm, at the mean seed effect."""
        return float(self.effects[self.places[arm]])

    @functools.cached_property
    def places(self) -> dict[Hashable, int]:
        """Where each arm stands among the effects."""
        return {arm: i for i, arm in enumerate(self.arms)}


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm; NaN for no values."""
    return float(np.exp(np.mean(np.log(values)))) if len(values) else math.nan


def fit_additive(arms: Sequence[Key], seeds: Sequence[int], values: Sequence[float]) -> AdditiveFit:
    """Fits value = arm effect + seed effect; one entry per run in each sequence.

    In a full block design the degrees of freedom are (arms - 1)(seeds - 1), and differences of
    effects are differences of arm means. With runs missing, least squares compares arms within
    the seeds that they share, as far as the design connects them.
    """
    levels, blocks = sorted(set(arms)), sorted(set(seeds))
    design = np.zeros((len(values), len(levels) + len(blocks)))
    columns = {level: i for i, level in enumerate(levels)}
    for row, (arm, seed) in enumerate(zip(arms, seeds, strict=True)):
        design[row, columns[arm]] = 1.0
        design[row, len(levels) + blocks.index(seed)] = 1.0
    observed = np.asarray(values, dtype=np.float64)
    inverse = np.asarray(
        np.linalg.pinv(design.T @ design, rcond=1e-10, hermitian=True), dtype=np.float64
    )
    effects = inverse @ (design.T @ observed)
    row_space = inverse @ (design.T @ design)
    freedom = len(values) - round(float(np.trace(row_space)))
    residual = observed - design @ effects
    return AdditiveFit(
        arms=tuple(levels),
        effects=effects[: len(levels)] + effects[len(levels) :].sum() / max(1, len(blocks)),
        residual_sd=math.sqrt(float(residual @ residual) / freedom) if freedom else math.nan,
        degrees_of_freedom=freedom,
        inverse=inverse,
        row_space=row_space,
    )


def contrast(fit: AdditiveFit, arm: Hashable, *, against: Hashable) -> tuple[float, float] | None:
    """Effect of an arm minus that of another, and its standard error per unit residual sd.

    None where the design does not connect the two, e.g. when they share no seed.
    """
    direction = find_direction(fit, arm, against=against)
    if direction is None:
        return None
    difference = fit.effect(arm) - fit.effect(against)
    return difference, math.sqrt(max(0.0, float(direction @ fit.inverse @ direction)))


def find_direction(
    fit: AdditiveFit, arm: Hashable, *, against: Hashable
) -> NDArray[np.float64] | None:
    """The contrast of two arms as weights of the effects, [effects]; None if not connected."""
    if arm not in fit.places or against not in fit.places:
        return None
    direction = np.zeros(len(fit.inverse))
    direction[fit.places[arm]] += 1.0
    direction[fit.places[against]] -= 1.0
    estimable = np.abs(fit.row_space @ direction - direction).max() < 1e-8
    return direction if estimable else None


def make_interval(
    log_ratio: float,
    error: float,
    *,
    residual_sd: float,
    degrees_of_freedom: int,
    bound: str = "",
    level: float = LEVEL,
    critical: float | None = None,
) -> Interval:
    """The ratio with its t interval; without degrees of freedom, without interval.

    Args:
      error: standard error of `log_ratio` per unit residual standard deviation.
      bound: "", or "at least" / "at most", which opens the interval on that side.
      level: coverage of the two-sided interval.
      critical: half width in standard errors instead of the t quantile of `level`, e.g. one that
        holds for several ratios at once.
    """
    estimate = math.exp(log_ratio)
    if degrees_of_freedom < 1:
        return Interval(estimate, None, None, bound)
    if critical is None:
        critical = float(stdtrit(degrees_of_freedom, (1 + level) / 2))
    half = critical * residual_sd * error
    return Interval(
        estimate=estimate,
        low=None if bound == "at most" else math.exp(log_ratio - half),
        high=None if bound == "at least" else math.exp(log_ratio + half),
        bound=bound,
    )
