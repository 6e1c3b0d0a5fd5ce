"""Is one spread for all arms right, what would other intervals say, and how many seeds are enough.

All of it is about log times under one clock, in the arms whose runs all reached the target.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import nctdtr

from jax_rl.study.batches import StudyFit, compare_arms, measure_cell
from jax_rl.study.intervals import LEVEL, make_interval
from jax_rl.study.simultaneous import find_critical_value
from jax_rl.study.summary import Arm, Cell, Interval, arm_of
from jax_rl.study.words import time_ratio

FEWEST_BOOTSTRAP_SEEDS = 10
"""On fewer seeds resampling covers far less than it says: on 3 about 75 % instead of 95 %."""

POWER = 0.8
"""Probability that enough seeds decide a true difference."""

MOST_SEEDS = 1000
"""More seeds than this are not counted."""

PLAIN_DIFFERENCE = 1.1
"""A ratio of times that is worth deciding in any study, beside the differences seen."""

_DRAWS = 1999
_RESAMPLES = 4999

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class ArmSpread:
    """Spread of one arm's log times about arm and seed effects."""

    setting: str
    batch: int
    runs: int
    residual_sd: float | None  # unbiased in its square; None: not told apart from other arms


@dataclasses.dataclass(frozen=True)
class IntervalChoice:
    """One arm's ratio of times to the reference by other ways than the pooled spread."""

    setting: str
    batch: int
    pooled: Interval  # all arms' residuals together
    paired: Interval  # these two arms alone, seed by seed: right also if the spreads differ
    bootstrap: Interval | None  # seeds resampled; None on fewer than 10 shared seeds


@dataclasses.dataclass(frozen=True)
class MoreSeeds:
    """How many seeds would decide one difference against the reference, at the spread seen."""

    setting: str | None  # of the undecided arm whose difference it is; None: of any arm
    batch: int | None
    ratio: float  # of times, above 1: the difference, whichever side is faster
    seeds: int  # now, per arm
    more: int | None  # beside these; None: more than 1,000 in all


@dataclasses.dataclass(frozen=True)
class Spread:
    """What the residuals of log time say under one clock."""

    clock: str
    residual_sd: float | None  # pooled
    degrees_of_freedom: int
    arms: list[ArmSpread]  # of the reference's setting
    statistic: float | None  # Bartlett's, of the residuals by arm
    p_value: float | None  # that equal spreads give one as large
    draws: int  # simulated studies behind the p-value
    intervals: list[IntervalChoice]
    more_seeds: list[MoreSeeds]
    power: float


def describe_spread(
    fit: StudyFit, *, clock: str, reference: Arm, undecided: Sequence[Arm]
) -> Spread:
    """The spread of the arms and its consequences.

    Args:
      clock: "training" or "elapsed".
      undecided: arms whose difference from the reference the study leaves open.
    """
    cells = [c for arm in fit.complete for c in fit.cells_of(arm)]
    mine = [c for c in cells if c.setting == reference.setting]
    spreads, statistic, p_value = compare_spreads(
        [arm_of(c) for c in mine], [c.seed for c in mine], _log_times(mine, clock)
    )
    others = _list_others(fit, reference)
    pooled = fit.fits[f"{clock}_time"]
    known = pooled.degrees_of_freedom > 0
    return Spread(
        clock=clock,
        residual_sd=pooled.residual_sd if known else None,
        degrees_of_freedom=pooled.degrees_of_freedom,
        arms=spreads,
        statistic=statistic,
        p_value=p_value,
        draws=_DRAWS,
        intervals=compare_intervals(fit, clock=clock, reference=reference),
        more_seeds=_count_more_seeds(fit, others, undecided, reference, clock) if known else [],
        power=POWER,
    )


def compare_spreads(
    arms: Sequence[Arm], seeds: Sequence[int], values: Sequence[float]
) -> tuple[list[ArmSpread], float | None, float | None]:
    """Spread by arm, Bartlett's statistic of the residuals, and its p-value.

    Residuals share the degrees of freedom of the arm and seed effects and are correlated, so that
    the chi-squared table does not hold: the p-value is from simulated normal errors of equal
    spread in the same design, with a fixed seed. An arm's variance is the solution of
    E[sum of its squared residuals] = sum over arms of (squared weights) times (their variances),
    which in a full block design is Grubbs' estimator (1948, On estimating precision of measuring
    instruments); a negative one is shown as 0. Two arms mirror each other and say nothing.
    """
    levels, blocks = sorted(set(arms)), sorted(set(seeds))
    rows = np.array([levels.index(a) for a in arms], dtype=int)
    design = np.zeros((len(values), len(levels) + len(blocks)))
    design[np.arange(len(values)), rows] = 1.0
    design[np.arange(len(values)), [len(levels) + blocks.index(s) for s in seeds]] = 1.0
    makes = np.eye(len(values)) - design @ np.linalg.pinv(design)  # values to residuals
    member = (rows[:, None] == np.arange(len(levels))).astype(np.float64)  # [runs, arms]
    squares = member.T @ (makes @ np.asarray(values, dtype=np.float64)) ** 2
    shares = member.T @ makes**2 @ member
    freedom = member.T @ np.diag(makes)
    told = len(levels) > 2 and min(freedom) > 0.1 and np.linalg.cond(shares) < 1e9
    variances = np.linalg.solve(shares, squares) if told else np.full(len(levels), np.nan)
    spreads = [
        ArmSpread(
            setting=arm.setting,
            batch=arm.batch,
            runs=int(member[:, i].sum()),
            residual_sd=math.sqrt(max(0.0, float(variances[i]))) if told else None,
        )
        for i, arm in enumerate(levels)
    ]
    if not told or not squares.sum() > 1e-18:
        return spreads, None, None
    errors = np.random.default_rng(0).standard_normal((len(values), _DRAWS))
    null = _bartlett(member.T @ (makes @ errors) ** 2, freedom)
    statistic = float(_bartlett(squares[:, None], freedom)[0])
    return spreads, statistic, float((1 + np.sum(null >= statistic)) / (1 + _DRAWS))


def _bartlett(squares: Floats, freedom: Floats) -> Floats:
    """Bartlett's statistic of sums of squares; [arms, studies] -> [studies]."""
    weight = freedom[:, None]
    floor = 1e-12 * squares.sum(axis=0)  # an arm without residuals is very unequal, not infinite
    apart = np.sum(weight * np.log(np.maximum(squares, floor) / weight), axis=0)
    together: Floats = weight.sum() * np.log(squares.sum(axis=0) / weight.sum()) - apart
    return together


def compare_intervals(fit: StudyFit, *, clock: str, reference: Arm) -> list[IntervalChoice]:
    """Every complete arm's ratio to the reference by each kind of interval."""
    return [_choose_interval(fit, a, reference, clock) for a in _list_others(fit, reference)]


def _list_others(fit: StudyFit, reference: Arm) -> list[Arm]:
    return [a for a in fit.complete if a != reference and reference in fit.complete]


def _choose_interval(fit: StudyFit, arm: Arm, reference: Arm, clock: str) -> IntervalChoice:
    logs = _pair_logs(fit, arm, reference, clock)
    # One value per seed is one sample: its standard deviation needs no model of other arms.
    paired = (
        make_interval(
            float(np.mean(logs)),
            len(logs) ** -0.5,
            residual_sd=float(np.std(logs, ddof=1)) if len(logs) > 1 else math.nan,
            degrees_of_freedom=len(logs) - 1,
        )
        if len(logs)
        else Interval(None, None, None)
    )
    return IntervalChoice(
        setting=arm.setting,
        batch=arm.batch,
        pooled=time_ratio(compare_arms(fit, arm, against=reference), clock),
        paired=paired,
        bootstrap=resample_seeds(logs) if len(logs) >= FEWEST_BOOTSTRAP_SEEDS else None,
    )


def resample_seeds(logs: Floats) -> Interval:
    """Studentised bootstrap of the mean log ratio over seeds (Efron and Tibshirani 1993, 12.5).

    Args:
      logs: one log ratio per seed. The resamples are the same each time.
    """
    count = len(logs)
    mean, error = float(np.mean(logs)), float(np.std(logs, ddof=1)) / math.sqrt(count)
    if error == 0:
        return Interval(math.exp(mean), math.exp(mean), math.exp(mean))
    picks = logs[np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))]
    errors = np.std(picks, axis=1, ddof=1) / math.sqrt(count)
    # A resample of one seed alone has no spread; with ten seeds that is one in 10^9.
    statistics = ((np.mean(picks, axis=1) - mean) / np.maximum(errors, 1e-12 * error))[errors > 0]
    low, high = np.quantile(statistics, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(
        math.exp(mean), math.exp(mean - float(high) * error), math.exp(mean - float(low) * error)
    )


def count_seeds(
    log_difference: float,
    *,
    residual_sd: float,
    arms: int,
    block: int | None = None,
    power: float = POWER,
    most: int = MOST_SEEDS,
) -> int | None:
    """Fewest seeds in a full block design that decide a difference from the reference.

    Decided means: outside the simultaneous interval of `arms` - 1 comparisons with the reference,
    with probability `power` if the true log difference is `log_difference`. None: over `most`.

    Args:
      arms: that are compared, the reference included.
      block: arms whose residuals give the spread, where they are fewer: those of one setting.
    """

    def reach(seeds: int) -> float:
        freedom = ((block or arms) - 1) * (seeds - 1)
        correlation = np.full((arms - 1, arms - 1), 0.5) + 0.5 * np.eye(arms - 1)
        critical = find_critical_value(correlation, freedom)
        away = abs(log_difference) / (residual_sd * math.sqrt(2 / seeds))
        return 1.0 - float(nctdtr(freedom, away, critical))

    if min(arms, block or arms) < 2 or not residual_sd > 0 or log_difference == 0:
        return None
    low, high = 1, 2  # one seed has no degrees of freedom
    while reach(high) < power:
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reach(middle) >= power else (middle, high)
    return high


def _count_more_seeds(
    fit: StudyFit, others: Sequence[Arm], undecided: Sequence[Arm], reference: Arm, clock: str
) -> list[MoreSeeds]:
    """For each undecided arm the difference seen, and one plain difference for all arms."""
    residual_sd, arms = fit.fits[f"{clock}_time"].residual_sd, len(others) + 1
    seeds = min(len(fit.cells_of(arm)) for arm in (reference, *others))
    # The spread has at least the degrees of freedom of the setting that has the fewest.
    sizes = Counter(arm.setting for arm in (reference, *others))
    block = min((size for size in sizes.values() if size > 1), default=1)

    def count(arm: Arm | None, ratio: float) -> MoreSeeds:
        needed = count_seeds(math.log(ratio), residual_sd=residual_sd, arms=arms, block=block)
        return MoreSeeds(
            setting=arm.setting if arm else None,
            batch=arm.batch if arm else None,
            ratio=ratio,
            seeds=seeds,
            more=None if needed is None else max(0, needed - seeds),
        )

    found = []
    for arm in others:
        estimate = time_ratio(compare_arms(fit, arm, against=reference), clock).estimate
        if arm in undecided and estimate is not None:
            found.append(count(arm, max(estimate, 1 / estimate)))
    return [*found, count(None, PLAIN_DIFFERENCE)] if others and residual_sd > 0 else found


def _pair_logs(fit: StudyFit, arm: Arm, reference: Arm, clock: str) -> Floats:
    """Log ratios of times of the seeds that both have."""
    mine, theirs = ({c.seed: c for c in fit.cells_of(side)} for side in (arm, reference))
    seeds = sorted(mine.keys() & theirs.keys())
    pairs = zip(
        _log_times([mine[s] for s in seeds], clock),
        _log_times([theirs[s] for s in seeds], clock),
        strict=True,
    )
    return np.array([a - b for a, b in pairs], dtype=np.float64)


def _log_times(cells: Sequence[Cell], clock: str) -> list[float]:
    return [math.log(measure_cell(cell)[f"{clock}_time"]) for cell in cells]
