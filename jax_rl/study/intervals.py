"""Geometric means, and t intervals on log ratios in the two-way design of batches and seeds.

The model is additive on logarithms: log y = batch effect + seed effect + residual. Seeds are
blocks: a seed shares its prompts among batches, and its runs follow one another in time. One
residual variance is pooled over all batches, because three seeds alone say little about it.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from jax_rl.study.summary import Interval

LEVEL = 0.95
"""Coverage of every interval."""


@dataclasses.dataclass(frozen=True)
class AdditiveFit:
    """Least squares of values on batch and seed effects; balanced or not."""

    batches: tuple[int, ...]
    effects: NDArray[np.float64]  # [batches], at the mean seed effect
    residual_sd: float  # NaN without degrees of freedom
    degrees_of_freedom: int
    inverse: NDArray[np.float64]  # pseudo-inverse of the normal equations, [effects, effects]
    row_space: NDArray[np.float64]  # projector on the estimable contrasts, [effects, effects]


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm; NaN for no values."""
    return float(np.exp(np.mean(np.log(values)))) if len(values) else math.nan


def fit_additive(
    batches: Sequence[int], seeds: Sequence[int], values: Sequence[float]
) -> AdditiveFit:
    """Fits value = batch effect + seed effect; one entry per run in each sequence.

    In a full block design the degrees of freedom are (batches - 1)(seeds - 1), and differences of
    effects are differences of batch means. With runs missing, least squares compares batches
    within the seeds that they share, as far as the design connects them.
    """
    levels, blocks = sorted(set(batches)), sorted(set(seeds))
    design = np.zeros((len(values), len(levels) + len(blocks)))
    for row, (batch, seed) in enumerate(zip(batches, seeds, strict=True)):
        design[row, levels.index(batch)] = 1.0
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
        batches=tuple(levels),
        effects=effects[: len(levels)] + effects[len(levels) :].sum() / max(1, len(blocks)),
        residual_sd=math.sqrt(float(residual @ residual) / freedom) if freedom else math.nan,
        degrees_of_freedom=freedom,
        inverse=inverse,
        row_space=row_space,
    )


def contrast(fit: AdditiveFit, batch: int, *, against: int) -> tuple[float, float] | None:
    """Effect of a batch minus that of another, and its standard error per unit residual sd.

    None where the design does not connect the two, e.g. when they share no seed.
    """
    if batch not in fit.batches or against not in fit.batches:
        return None
    direction = np.zeros(len(fit.inverse))
    direction[fit.batches.index(batch)] += 1.0
    direction[fit.batches.index(against)] -= 1.0
    if not np.allclose(fit.row_space @ direction, direction, atol=1e-8):
        return None
    difference = float(
        fit.effects[fit.batches.index(batch)] - fit.effects[fit.batches.index(against)]
    )
    return difference, math.sqrt(max(0.0, float(direction @ fit.inverse @ direction)))


def make_interval(
    log_ratio: float,
    error: float,
    *,
    residual_sd: float,
    degrees_of_freedom: int,
    bound: str = "",
) -> Interval:
    """The ratio with its t interval; without degrees of freedom, without interval.

    Args:
      error: standard error of `log_ratio` per unit residual standard deviation.
      bound: "", or "at least" / "at most", which opens the interval on that side.
    """
    estimate = math.exp(log_ratio)
    if degrees_of_freedom < 1:
        return Interval(estimate, None, None, bound)
    half = float(stdtrit(degrees_of_freedom, (1 + LEVEL) / 2)) * residual_sd * error
    return Interval(
        estimate=estimate,
        low=None if bound == "at most" else math.exp(log_ratio - half),
        high=None if bound == "at least" else math.exp(log_ratio + half),
        bound=bound,
    )
