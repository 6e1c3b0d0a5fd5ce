"""Two-parameter curves through the geometric means of a setting's batches, in log space.

Samples to target follow S_min (1 + B / B_crit) (McCandlish et al. 2018, An empirical model of
large-batch training, with updates turned into samples), throughput T_max B / (B + B_half) or a
line that becomes flat. Both have a level and a turning point. Two parameters take five batches.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jax_rl.study.batches import StudyFit
from jax_rl.study.curves.shapes import (
    PIECEWISE,
    SAMPLES,
    SATURATING,
    Curve,
    Points,
    Profile,
    find_limits,
)
from jax_rl.study.summary import Arm, Interval

POINTS_PER_PARAMETER = 2.5
"""At most two parameters per five points."""


@dataclasses.dataclass(frozen=True)
class CurveFit:
    """A fitted curve, or why there is none.

    A turning point outside the measured batches is a bound, the batch at the edge; so is the
    level that would follow from it. An interval's open side is None.
    """

    setting: str
    measure: str
    curve: str  # its name
    batches: list[int]  # that it is fitted to
    left_out: list[int]  # batches with censored runs
    measured: list[float]  # geometric means at `batches`
    level: Interval | None  # S_min in rollouts, or T_max in rollouts per second; for these seeds
    turning_point: Interval | None  # B_crit, B_half, or where the line becomes flat; rollouts
    residual_sd: float | None  # of a batch's mean logarithm about the curve
    lack_of_fit: float | None  # p value of residuals so large, if the curve were right
    fitted: list[float]  # at `batches`
    reason: str  # why it is not fitted; empty if it is


@dataclasses.dataclass(frozen=True)
class SettingFits:
    """The curves of one setting."""

    setting: str
    samples: CurveFit
    throughput: list[CurveFit]
    closer: str  # curve of throughput with the smaller residuals; empty if none is fitted


def fit_setting(fit: StudyFit, setting: str, *, tuned: bool) -> SettingFits:
    """Fits the curves of a setting over the batches whose runs all reached the target.

    Args:
      tuned: every batch was given its own best rate; under one rule for all, the samples to
        target tell of the rule as much as of the batch, and are not fitted.
    """
    arms = [arm for arm in fit.censored if arm.setting == setting]
    complete = [arm for arm in fit.complete if arm in arms]
    left_out = [arm.batch for arm in arms if fit.censored[arm]]
    untuned = "" if tuned else "rates not tuned per batch"
    obstacles = fit.list_obstacles(*complete)
    connected = fit.connect(complete, reference=complete[0]) if complete else []
    apart = "" if connected == complete else "shared seeds do not connect the batches"
    moved = f"runs {'; '.join(obstacles)}" if obstacles else ""

    def make(curve: Curve, refused: str) -> CurveFit:
        points = gather_points(fit, complete, measure=curve.measure)
        reason = refused or apart or check_points(len(points.batches), parameters=2)
        if reason:
            return _leave_out(curve, points, setting=setting, left_out=left_out, reason=reason)
        return fit_curve(curve, points, setting=setting, left_out=left_out)

    throughput = [make(SATURATING, moved), make(PIECEWISE, moved)]
    known = [one for one in throughput if one.residual_sd is not None]
    return SettingFits(
        setting=setting,
        samples=make(SAMPLES, untuned),
        throughput=throughput,
        closer=min(known, key=lambda one: one.residual_sd or 0.0).curve if known else "",
    )


def gather_points(fit: StudyFit, arms: Sequence[Arm], *, measure: str) -> Points:
    """The arms' effects on a measure, each with the number of its runs."""
    additive = fit.fits[measure]
    ordered = sorted(arms, key=lambda arm: arm.batch)
    return Points(
        batches=tuple(arm.batch for arm in ordered),
        logs=tuple(additive.effect(arm) for arm in ordered),
        runs=tuple(len(fit.cells_of(arm)) for arm in ordered),
        residual_sd=additive.residual_sd,
        degrees_of_freedom=additive.degrees_of_freedom,
    )


def check_points(count: int, *, parameters: int) -> str:
    """Why so few points do not carry so many parameters; empty if they do."""
    fewest = math.ceil(POINTS_PER_PARAMETER * parameters)
    if count >= fewest:
        return ""
    return f"{parameters} parameters take {fewest} points at least; there are {count}"


def fit_curve(
    curve: Curve, points: Points, *, setting: str, left_out: Sequence[int] = ()
) -> CurveFit:
    """Weighted least squares on logarithms, with profile-likelihood intervals of 95 %.

    The variance behind the intervals is that of runs about arm and seed effects. Where the means
    scatter about the curve by more than it explains (p < 0.05) it is theirs: a curve that does not
    describe the batches knows its turning point less well than the seeds alone would say.
    """
    profile = Profile(curve, points)
    allowed = profile.best_rss + profile.variance * profile.quantile
    turn_low, turn_high = find_limits(
        profile.rss_at_turn, profile.turn, profile.range_of_turn, allowed
    )
    level_low, level_high = find_limits(
        profile.rss_at_level, profile.level, profile.range_of_level, allowed
    )
    turn = _bound(profile.turn, turn_low, turn_high, batches=points.batches)
    level = Interval(math.exp(profile.level), _exp(level_low), _exp(level_high))
    fitted = profile.fitted
    if turn.bound == curve.level_open:
        # The level lies beyond what was measured: no more is known than the curve's last value.
        edge = fitted[0] if turn.bound == "at most" else fitted[-1]
        side = {"high": None} if turn.bound == "at least" else {"low": None}
        level = dataclasses.replace(level, estimate=edge, bound=turn.bound, **side)
    return CurveFit(
        setting=setting,
        measure=curve.measure,
        curve=curve.name,
        batches=list(points.batches),
        left_out=list(left_out),
        measured=_list_means(points),
        level=level,
        turning_point=turn,
        residual_sd=math.sqrt(profile.best_rss / profile.freedom / np.mean(points.runs)),
        lack_of_fit=profile.lack_of_fit,
        fitted=fitted,
        reason="",
    )


def _leave_out(
    curve: Curve, points: Points, *, setting: str, left_out: list[int], reason: str
) -> CurveFit:
    return CurveFit(
        setting=setting,
        measure=curve.measure,
        curve=curve.name,
        batches=list(points.batches),
        left_out=left_out,
        measured=_list_means(points),
        level=None,
        turning_point=None,
        residual_sd=None,
        lack_of_fit=None,
        fitted=[],
        reason=reason,
    )


def _list_means(points: Points) -> list[float]:
    return [math.exp(value) for value in points.logs]


def _bound(
    turn: float, low: float | None, high: float | None, *, batches: Sequence[int]
) -> Interval:
    """A turning point; outside the batches the edge that it lies beyond."""
    smallest, largest = batches[0], batches[-1]
    if turn >= math.log(largest) - 1e-6:
        inside = low is not None and low < math.log(largest)
        return Interval(float(largest), _exp(low) if inside else float(largest), None, "at least")
    if turn <= math.log(smallest) + 1e-6:
        inside = high is not None and high > math.log(smallest)
        return Interval(float(smallest), None, _exp(high) if inside else float(smallest), "at most")
    return Interval(math.exp(turn), _exp(low), _exp(high))


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)
