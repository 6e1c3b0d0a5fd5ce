"""The gradient noise scale of a run: the batch at which noise in the gradient equals its signal.

With G the full gradient and Sigma the covariance of the gradient of one independent unit,

    E |g_unit|^2 = |G|^2 + tr(Sigma),    E |g_minibatch|^2 = |G|^2 + tr(Sigma) / units,

where g_minibatch is the mean over the units. Both unknowns follow without bias:

    |G|^2 = (units |g_minibatch|^2 - |g_unit|^2) / (units - 1),
    tr(Sigma) = units (|g_unit|^2 - |g_minibatch|^2) / (units - 1).

A unit is `unit_groups` whole groups of K rollouts, so that one group has unit_groups tr(Sigma), and
the noise scale tr(Sigma of a group) / |G|^2 is in groups, K times it in rollouts. It is a ratio of
means, never a mean of ratios, and it is fixed in advance which: the sample-weighted mean of either
from the start of the run up to its crossing. It ignores Adam and clipping: an order of magnitude.

Source: An Empirical Model of Large-Batch Training, arXiv:1812.06162, appendix A.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from jax_rl.records import Iteration
from jax_rl.study.intervals import LEVEL

BLOCKS = 20
"""Blocks of consecutive iterations that the jackknife leaves out in turn."""

FEWEST_ITERATIONS = 5
"""Iterations without which there is no standard error, and so no value."""

HALF_LIVES = 10
"""Half-lives of the moving averages in the part of a run that is looked at."""

CURVE_POINTS = 200
"""Points of the curve over training, at most."""


@dataclasses.dataclass(frozen=True)
class NoiseScale:
    """What one run says; None where there is no number, and then `reason` says why."""

    reason: str  # why there is no noise scale; empty with one
    units: int  # independent gradients per update
    unit_groups: int  # whole groups in each
    group: int  # rollouts per group, K
    iterations: int  # up to the crossing, or all of a run without one
    samples: int  # after the last of them
    crossed: bool  # whether the run reached the target
    signal: float | None  # |G|^2, sample-weighted mean
    signal_low: float | None  # its 95 % interval
    signal_high: float | None
    noise: float | None  # tr(Sigma) of the gradient of one group, sample-weighted mean
    rollouts: float | None  # the noise scale; None where |G|^2 cannot be told from 0
    rollouts_low: float | None  # its 95 % interval; a lower bound alone where there is no value
    rollouts_high: float | None
    curve_samples: list[int]
    curve_rollouts: list[float | None]  # of moving averages; None where that of |G|^2 is negative

    @property
    def groups(self) -> float | None:
        """The noise scale in groups."""
        return None if self.rollouts is None else self.rollouts / self.group


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A ratio of two uncertain means with its 95 % interval."""

    estimate: float | None  # None: the denominator cannot be told from 0
    low: float | None
    high: float | None


def measure_noise(
    iterations: Sequence[Iteration], *, group: int, crossing: float | None
) -> NoiseScale:
    """The noise scale of a run from its iterations.

    Args:
      iterations: of one run, in order.
      group: rollouts per group, K.
      crossing: samples at which the run crossed its target; None: all of the run is taken.
    """
    part = [e for e in iterations if crossing is None or e.samples <= crossing]
    measured = [e for e in part if _is_measured(e)]
    empty = NoiseScale(
        reason=_explain_nothing(iterations, part, measured),
        units=iterations[-1].noise_units if iterations else 0,
        unit_groups=iterations[-1].noise_unit_groups if iterations else 0,
        group=group,
        iterations=len(measured),
        samples=part[-1].samples if part else 0,
        crossed=crossing is not None,
        **dict.fromkeys(_NUMBERS),
        curve_samples=[],
        curve_rollouts=[],
    )
    if empty.reason:
        return empty
    samples = np.array([e.samples for e in measured], np.float64)
    weights = np.diff(samples, prepend=samples[0] - (samples[1] - samples[0]))
    signal, noise = estimate_parts(
        np.array([e.unit_norm_squared for e in measured], np.float64),
        np.array([e.minibatch_norm_squared for e in measured], np.float64),
        units=empty.units,
        unit_groups=empty.unit_groups,
    )
    means, covariance, blocks = average_blocks(np.stack([noise, signal]), weights)
    half = quantile(blocks - 1) * math.sqrt(covariance[1, 1])
    ratio = divide_means(means, covariance, blocks - 1)
    known = ratio.estimate is not None and ratio.estimate > 0
    curve = smooth_ratio(noise, signal, samples, half_life=samples[-1] / HALF_LIVES)
    chosen = np.unique(np.linspace(0, len(samples) - 1, CURVE_POINTS).astype(int))
    return dataclasses.replace(
        empty,
        reason=_explain_ratio(ratio, float(means[1] + half)),
        signal=float(means[1]),
        signal_low=float(means[1] - half),
        signal_high=float(means[1] + half),
        noise=float(means[0]),
        rollouts=_times(group, ratio.estimate) if known else None,
        # A lower bound of 0 says nothing of a value that is not known.
        rollouts_low=_times(group, ratio.low) if known or ratio.low else None,
        rollouts_high=_times(group, ratio.high),
        curve_samples=[int(samples[i]) for i in chosen],
        curve_rollouts=[_times(group, curve[i]) for i in chosen],
    )


_NUMBERS = (
    "signal",
    "signal_low",
    "signal_high",
    "noise",
    "rollouts",
    "rollouts_low",
    "rollouts_high",
)

NOT_IDENTIFIED = "not identified: the 95 % interval of |G|² includes 0"

BELOW_ZERO = "not identified: the 95 % interval of |G|² is below 0, which no square is"

NO_NOISE = "not identified: tr(Σ) comes out below 0"


def _explain_ratio(ratio: "Ratio", signal_high: float) -> str:
    """Why a ratio is no noise scale; empty if it is."""
    if ratio.estimate is None:
        return BELOW_ZERO if signal_high < 0 else NOT_IDENTIFIED
    return "" if ratio.estimate > 0 else NO_NOISE


def _is_measured(event: Iteration) -> bool:
    norms = (event.unit_norm_squared, event.minibatch_norm_squared)
    return event.noise_units > 1 and all(n is not None and math.isfinite(n) for n in norms)


def _explain_nothing(
    iterations: Sequence[Iteration], part: Sequence[Iteration], measured: Sequence[Iteration]
) -> str:
    if not any(e.noise_units for e in iterations):
        return "not measured: measure.noise_scale was off"
    if all(e.noise_units < 2 for e in iterations):
        return "not available: an update has one independent gradient; a smaller batch.microbatch"
    if not part:
        return "not available: the target was crossed in the first iteration"
    if len(measured) < FEWEST_ITERATIONS:
        return f"not available: {len(measured)} iterations up to the crossing, of 5 needed"
    return ""


def estimate_parts(
    unit: NDArray[np.float64], minibatch: NDArray[np.float64], *, units: int, unit_groups: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Unbiased |G|^2 and tr(Sigma) of one group's gradient; either may come out negative.

    Args:
      unit: [n] mean squared norm of a unit's gradient.
      minibatch: [n] squared norm of the mean over `units` of them.
      units: independent units per minibatch, at least 2.
      unit_groups: groups in a unit.
    """
    signal = (units * minibatch - unit) / (units - 1)
    noise = unit_groups * units * (unit - minibatch) / (units - 1)
    return signal, noise


def average_blocks(
    values: NDArray[np.float64], weights: NDArray[np.float64], *, blocks: int = BLOCKS
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Weighted means, and their covariance by a jackknife over blocks of neighbours.

    Neighbouring iterations have nearly the same weights of the policy, so that their gradients
    are alike: a block keeps them together. What changes along the run counts as uncertainty too,
    so that the interval is rather too wide than too narrow.

    Args:
      values: [k, n], k series over n iterations.
      weights: [n], positive.
      blocks: left out in turn, at most n.

    Returns:
      means [k], covariance [k, k], and the number of blocks.
    """
    parts = np.array_split(np.arange(values.shape[1]), min(blocks, values.shape[1]))
    sums = np.stack([values[:, part] @ weights[part] for part in parts])  # [blocks, k]
    total = np.array([weights[part].sum() for part in parts])
    left = (sums.sum(0) - sums) / (total.sum() - total)[:, None]
    means: NDArray[np.float64] = sums.sum(0) / total.sum()
    return means, jackknife_covariance(left), len(parts)


def jackknife_covariance(left_out: NDArray[np.float64]) -> NDArray[np.float64]:
    """Covariance [k, k] of k statistics from their values [blocks, k] with one block left out."""
    count = len(left_out)
    apart = left_out - left_out.mean(0)
    covariance: NDArray[np.float64] = (count - 1) / count * apart.T @ apart
    return covariance


def quantile(degrees_of_freedom: int) -> float:
    """Of Student's t, for a two-sided interval of 95 %."""
    return float(stdtrit(degrees_of_freedom, (1 + LEVEL) / 2))


def divide_means(
    means: NDArray[np.float64], covariance: NDArray[np.float64], degrees_of_freedom: int
) -> Ratio:
    """means[0] / means[1] with Fieller's interval.

    The interval is bounded exactly where that of means[1] leaves out 0; where it does not there
    is no estimate, and what is left of the interval is its lower bound, if it has one above 0.

    Args:
      means: [2], numerator and denominator; the ratio asked for is positive.
      covariance: [2, 2] of the two.
      degrees_of_freedom: of the covariance.

    Source: Fieller 1954, "Some problems in interval estimation".
    """
    square = quantile(degrees_of_freedom) ** 2
    numerator, denominator = map(float, means)
    # The ratios r for which means[0] - r means[1] is within its interval: a r^2 - 2 b r + c <= 0.
    a = denominator**2 - square * float(covariance[1, 1])
    b = numerator * denominator - square * float(covariance[0, 1])
    c = numerator**2 - square * float(covariance[0, 0])
    root = math.sqrt(max(0.0, b * b - a * c))
    if a < 0 < c:
        return Ratio(None, (b - root) / a, None)  # outside of two roots, of which one is negative
    if a <= 0 or denominator < 0:
        return Ratio(None, None, None)
    return Ratio(numerator / denominator, max(0.0, (b - root) / a), (b + root) / a)


def smooth_ratio(
    noise: NDArray[np.float64],
    signal: NDArray[np.float64],
    samples: NDArray[np.float64],
    *,
    half_life: float,
) -> list[float | None]:
    """Moving average of the numerator over that of the denominator, each its own; [n].

    Args:
      noise: [n] numerators.
      signal: [n] denominators.
      samples: [n] ascending; neighbours are one iteration apart.
      half_life: of an iteration's share in the averages, in samples.
    """
    # Both averages begin at 0 and are short of weight alike, which cancels in their ratio.
    averages = np.zeros(2)
    ratios: list[float | None] = []
    before = 0.0
    for now, pair in zip(samples, np.stack([noise, signal], axis=1), strict=True):
        keep = 0.5 ** ((now - before) / half_life)
        averages = keep * averages + (1 - keep) * pair
        ratios.append(float(averages[0] / averages[1]) if averages[1] > 0 else None)
        before = float(now)
    return ratios


def _times(group: int, value: float | None) -> float | None:
    return None if value is None else group * value
