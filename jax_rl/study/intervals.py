"""Geometric means, and t intervals on log ratios in the two-way design of arms and seeds.

The model is additive on logarithms: log y = arm effect + seed effect + residual. An arm is what
is compared, a batch in a layout. Seeds are blocks: a seed shares its prompts among arms, and its
runs follow one another in time. One residual variance is pooled over all arms, because three
seeds alone say little about it.
"""

import dataclasses
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
        return float(self.effects[self.arms.index(arm)])


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
    for row, (arm, seed) in enumerate(zip(arms, seeds, strict=True)):
        design[row, levels.index(arm)] = 1.0
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
    if arm not in fit.arms or against not in fit.arms:
        return None
    direction = np.zeros(len(fit.inverse))
    direction[fit.arms.index(arm)] += 1.0
    direction[fit.arms.index(against)] -= 1.0
    if not np.allclose(fit.row_space @ direction, direction, atol=1e-8):
        return None
    difference = fit.effect(arm) - fit.effect(against)
    return difference, math.sqrt(max(0.0, float(direction @ fit.inverse @ direction)))


def make_interval(
    log_ratio: float,
    error: float,
    *,
    residual_sd: float,
    degrees_of_freedom: int,
    bound: str = "",
    level: float = LEVEL,
) -> Interval:
    """The ratio with its t interval; without degrees of freedom, without interval.

    Args:
      error: standard error of `log_ratio` per unit residual standard deviation.
      bound: "", or "at least" / "at most", which opens the interval on that side.
      level: coverage of the two-sided interval.
    """
    estimate = math.exp(log_ratio)
    if degrees_of_freedom < 1:
        return Interval(estimate, None, None, bound)
    half = float(stdtrit(degrees_of_freedom, (1 + level) / 2)) * residual_sd * error
    return Interval(
        estimate=estimate,
        low=None if bound == "at most" else math.exp(log_ratio - half),
        high=None if bound == "at least" else math.exp(log_ratio + half),
        bound=bound,
    )
