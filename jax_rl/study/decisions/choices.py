"""The batches that a setting's study points to, and what each half alone would have chosen.

A larger batch is worth its samples as long as throughput grows faster than samples to target.
Who looks at one half alone chooses another batch; its regret is the time that this costs.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence

from scipy.special import stdtr

from jax_rl.study.batches import StudyFit, compare_arms
from jax_rl.study.intervals import contrast
from jax_rl.study.judge import judge_arms, leave_open
from jax_rl.study.names import join_words
from jax_rl.study.summary import Arm, BatchResult, Interval, arm_of
from jax_rl.study.words import time_ratio

SAMPLES_RATIO = 1.1
"""A batch that needs at most this multiple of the reference's samples is called efficient."""

ONE = Interval(1.0, 1.0, 1.0)


@dataclasses.dataclass(frozen=True)
class HalfChoice:
    """The batch that one half of the question would choose, and what it really takes."""

    by: str  # "samples", "generation" or "throughput"
    batch: int
    regret: Interval  # its time to target over the fastest batch's; 1 if it is the fastest


@dataclasses.dataclass(frozen=True)
class Choices:
    """Three batches of a setting under one clock, and the choices of each half."""

    setting: str
    clock: str
    reference: int
    efficient: int | None  # the largest with samples ratio <= 1.1 to the reference
    efficient_ratio: Interval | None
    efficient_confidence: float | None  # one-sided, that its ratio is <= 1.1; None without spread
    fastest: int | None
    near: list[int]  # batches that cannot be told from the fastest, it included
    break_even: Interval | None  # rollouts beyond which it is slower than the reference
    halves: list[HalfChoice]
    reason: str  # why something is missing; empty if nothing is


def choose_batches(
    fit: StudyFit,
    results: Sequence[BatchResult],
    *,
    setting: str,
    reference: int,
    clock: str,
    untuned: Collection[Arm] = (),
) -> Choices:
    """Reads the choices off the setting's comparisons.

    Args:
      clock: `training` or `elapsed`.
      untuned: arms whose best rate is not known, so that they may be the fastest.
    """
    mine = [result for result in results if result.setting == setting]
    arms = [arm_of(result) for result in mine]
    complete = [arm for arm in fit.complete if arm in arms]
    base = Arm(setting, reference)
    efficient = _find_efficient(fit, complete, base)
    confidence = None
    if efficient is not None and efficient != base:
        confidence = _find_confidence(fit, efficient, base)
    reason = _find_obstacle(fit, arms, complete, base)
    timed = [] if fit.list_obstacles(*arms) else arms
    judgement = leave_open(judge_arms(fit, timed, reference=base, clock=clock), untuned, arms)
    fastest = judgement.fastest
    return Choices(
        setting=setting,
        clock=clock,
        reference=reference,
        efficient=efficient.batch if efficient else None,
        efficient_ratio=_compare(fit, efficient, base).samples if efficient else None,
        efficient_confidence=confidence,
        fastest=fastest.batch if fastest else None,
        near=[arm.batch for arm in judgement.near],
        break_even=_find_break_even(fit, arms, fastest, base, clock) if fastest else None,
        halves=_choose_halves(fit, mine, fastest, clock) if fastest else [],
        reason=reason,
    )


def _find_obstacle(fit: StudyFit, arms: Sequence[Arm], complete: Sequence[Arm], base: Arm) -> str:
    if not complete:
        return "in no batch did every run reach the target"
    if obstacles := fit.list_obstacles(*arms):
        return f"runs {'; '.join(obstacles)}: times are not compared"
    if base not in fit.censored:
        return f"no run of the reference batch {base.batch} has finished"
    if fit.censored[base]:
        return f"some runs of the reference batch {base.batch} did not reach the target"
    connected = fit.connect(arms, reference=base)
    if apart := [arm.batch for arm in complete if arm not in connected]:
        return f"no shared seed connects {join_words(map(str, apart))} with the reference"
    return ""


def _compare(fit: StudyFit, arm: Arm, against: Arm) -> "_Ratios":
    if arm == against:
        return _Ratios(ONE, ONE, ONE)
    found = compare_arms(fit, arm, against=against)
    return _Ratios(found.samples, time_ratio(found, "training"), time_ratio(found, "elapsed"))


@dataclasses.dataclass(frozen=True)
class _Ratios:
    samples: Interval
    training: Interval
    elapsed: Interval

    def time(self, clock: str) -> Interval:
        return self.training if clock == "training" else self.elapsed


def _find_efficient(fit: StudyFit, complete: Sequence[Arm], base: Arm) -> Arm | None:
    """By the point estimates; the largest of them, whatever smaller ones need."""
    if base not in complete:
        return None
    ratios = {arm: _compare(fit, arm, base).samples.estimate for arm in complete}
    within = [arm for arm, ratio in ratios.items() if ratio and ratio <= SAMPLES_RATIO]
    return max(within, key=lambda arm: arm.batch)


def _find_confidence(fit: StudyFit, arm: Arm, base: Arm) -> float | None:
    """Coverage of the one-sided interval of the samples ratio that ends at 1.1."""
    samples = fit.fits["samples"]
    difference = contrast(samples, arm, against=base)
    if difference is None or not samples.degrees_of_freedom or not samples.residual_sd > 0:
        return None
    distance = (math.log(SAMPLES_RATIO) - difference[0]) / (difference[1] * samples.residual_sd)
    return float(stdtr(samples.degrees_of_freedom, distance))


def _find_break_even(
    fit: StudyFit, arms: Sequence[Arm], fastest: Arm, base: Arm, clock: str
) -> Interval | None:
    """Where the time ratio to the reference goes through 1, on a line in log batch and log ratio.

    The interval is where the limits of the ratios do. It is sought from the fastest batch on, if
    that is above the reference; a batch with censored runs has only a lower limit.
    """
    if base not in fit.complete:
        return None
    above = sorted(arm for arm in arms if arm.batch >= base.batch)
    ratios = {arm: _compare(fit, arm, base).time(clock) for arm in above}
    begin = max(fastest, base)
    late = [arm for arm in above if arm >= begin]
    estimates = [_read_knot(arm, ratios[arm], "estimate") for arm in late]
    place, bounded = _cross(estimates)
    low, _ = _cross([_read_knot(arm, ratios[arm], "high") for arm in above])
    high, _ = _cross([_read_knot(arm, ratios[arm], "low") for arm in late])
    if place is None:
        known = [knot.batch for knot in estimates if knot is not None and not knot.bound]
        return Interval(float(max(known)), low, None, "at least") if known else None
    bound = "at most" if bounded else ""
    return Interval(place, low, high, bound)


@dataclasses.dataclass(frozen=True)
class _Knot:
    """Log time ratio at a batch."""

    batch: int
    log_ratio: float
    bound: bool = False  # the ratio is at least this


def _read_knot(arm: Arm, ratio: Interval, end: str) -> _Knot | None:
    value = getattr(ratio, end)
    return None if value is None else _Knot(arm.batch, math.log(value), bool(ratio.bound))


def _cross(knots: Sequence[_Knot | None]) -> tuple[float | None, bool]:
    """The batch at which the ratios first exceed 1, and whether it may be a smaller one."""
    before: _Knot | None = None
    for knot in knots:
        if knot is None:
            continue
        if knot.log_ratio > 0:
            if before is None:
                return float(knot.batch), knot.bound
            if before.log_ratio == 0.0:  # exactly at this batch, without rounding
                return float(before.batch), knot.bound or before.bound
            share = -before.log_ratio / (knot.log_ratio - before.log_ratio)
            logs = math.log(before.batch), math.log(knot.batch)
            place = math.exp(logs[0] + share * (logs[1] - logs[0]))
            return place, knot.bound or before.bound
        # Also a lower bound: the true ratio is above it, and meets 1 no later than the line does.
        before = knot
    return None, False


def _choose_halves(
    fit: StudyFit, results: Sequence[BatchResult], fastest: Arm, clock: str
) -> list[HalfChoice]:
    """A batch with censored runs can be chosen by a throughput, never by samples."""
    rules: dict[str, Callable[[BatchResult], float]] = {
        "samples": lambda r: -(r.samples_to_target or math.inf),
        "generation": lambda r: r.generate_per_second,
        "throughput": lambda r: r.throughput,
    }
    choices = []
    for name, score in rules.items():
        known = [result for result in results if not math.isnan(score(result))]
        if known:
            arm = arm_of(max(known, key=score))
            regret = _compare(fit, arm, fastest).time(clock)
            choices.append(HalfChoice(by=name, batch=arm.batch, regret=regret))
    return choices
