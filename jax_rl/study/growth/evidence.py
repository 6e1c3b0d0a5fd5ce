"""A statement held against measured numbers: supported, contradicted, or neither.

Only an interval decides. A number whose interval holds the value that would make the statement
empty leaves it undecided.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import stdtrit

from jax_rl.study.batches import StudyFit
from jax_rl.study.intervals import LEVEL, AdditiveFit
from jax_rl.study.summary import Arm, Interval

SUPPORTED, CONTRADICTED, UNDECIDED, UNMEASURED = (
    "supported",
    "contradicted",
    "undecided",
    "not measured",
)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One number that a statement rests on, with its interval; None on an open side."""

    name: str  # what is compared
    measure: str  # what the number is
    estimate: float
    low: float | None
    high: float | None


@dataclasses.dataclass(frozen=True)
class Statement:
    """One published statement and what these runs say of it."""

    id: str
    claim: str
    source: str
    outcome: str  # supported, contradicted, undecided, not measured
    rule: str  # when which outcome is given; what would have to be run if it is not measured
    evidence: list[Evidence]


def judge_sign(one: Evidence, *, neutral: float = 0.0) -> str:
    """Supported if the interval is above the neutral value, contradicted if below."""
    if one.low is not None and one.low > neutral:
        return SUPPORTED
    return CONTRADICTED if one.high is not None and one.high < neutral else UNDECIDED


def is_inside(one: Evidence, margin: float) -> bool:
    """Whether the whole interval of a ratio lies within 1 / margin to margin."""
    if one.low is None or one.high is None:
        return False
    return one.low >= 1 / margin and one.high <= margin


def join_outcomes(outcomes: Sequence[str]) -> str:
    """One outcome of several settings: theirs, if those that are decided agree."""
    if not outcomes:
        return UNMEASURED
    decided = set(outcomes) - {UNDECIDED}
    return decided.pop() if len(decided) == 1 else UNDECIDED


def contrast_arms(fit: AdditiveFit, weights: Mapping[Arm, float]) -> tuple[float, float]:
    """A linear contrast of arm effects, and its standard error per unit residual sd.

    NaN, both, where the runs do not connect the arms, e.g. when they share no seed.

    Args:
      weights: of arms in the fit; they add up to 0.
    """
    direction = np.zeros(len(fit.inverse))
    for arm, weight in weights.items():
        direction[fit.arms.index(arm)] += weight
    if not np.allclose(fit.row_space @ direction, direction, atol=1e-8):
        return math.nan, math.nan
    value = sum(weight * fit.effect(arm) for arm, weight in weights.items())
    return value, math.sqrt(max(0.0, float(direction @ fit.inverse @ direction)))


def estimate_contrast(
    fit: StudyFit,
    weights: Mapping[Arm, float],
    *,
    offset: float = 0.0,
    measure: str = "samples",
    comparisons: int = 1,
) -> tuple[float, float | None, float | None]:
    """A contrast of arms' mean logarithms plus a known number, and its 95 % t interval.

    The interval is open on both sides where the runs leave no degrees of freedom.

    Args:
      comparisons: intervals that hold together (Bonferroni).
    """
    value, error = contrast_arms(fit.fits[measure], weights)
    estimate, freedom = value + offset, fit.degrees_of_freedom
    if freedom < 1 or math.isnan(value):
        return estimate, None, None
    quantile = 1 - (1 - LEVEL) / (2 * comparisons)
    half = float(stdtrit(freedom, quantile)) * fit.fits[measure].residual_sd * error
    return estimate, estimate - half, estimate + half


def widen_interval(ratio: Interval, comparisons: int, *, freedom: int) -> Interval:
    """A 95 % t interval of a ratio made one that holds together with others (Bonferroni)."""
    middle = ratio.estimate
    if middle is None or freedom < 1:
        return ratio
    single = float(stdtrit(freedom, (1 + LEVEL) / 2))
    together = float(stdtrit(freedom, 1 - (1 - LEVEL) / (2 * max(1, comparisons))))

    def move(end: float | None) -> float | None:
        return None if end is None else middle * (end / middle) ** (together / single)

    return dataclasses.replace(ratio, low=move(ratio.low), high=move(ratio.high))
