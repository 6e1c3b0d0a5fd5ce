"""What another reading of the same curves would have said: crossing rule, target, validation set.

Everything is read from the curves of runs that were made for one target. A run ends soon after
it has met that target, so that a higher one may be out of its reach: it is censored there.
"""

import dataclasses
import math
from collections.abc import Collection, Sequence

import numpy as np

from jax_rl.study.batches import StudyFit, fit_study
from jax_rl.study.crossing import CROSSING_RULES, locate_crossing
from jax_rl.study.intervals import geometric_mean
from jax_rl.study.judge import Judgement, judge_arms, leave_open
from jax_rl.study.names import Names
from jax_rl.study.summary import Arm, ArmVerdict, Cell, Crossing, arm_of

TARGETS = 8
"""Targets between the start score and the best that all runs hold."""

NOISE_WIDTH = 2.0
"""Standard deviations of a validation score by which the target is moved."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """The verdict under one crossing rule and one target."""

    rule: str  # "isotonic", "raw", "confirmed"
    target: float
    shift: float  # of the target, in standard deviations of the validation noise
    censored: int  # runs without a crossing
    setting: str | None  # of the fastest arm
    fastest: int | None  # its batch; None where no arm has a crossing in every run
    arms: list[Arm]  # that cannot be told from it, it included
    verdicts: list[ArmVerdict]
    changed: list[Arm]  # arms whose verdict against the reference is not the headline's
    same_fastest: bool  # as in the headline


@dataclasses.dataclass(frozen=True)
class ArmTime:
    """Geometric means over an arm's runs up to one target."""

    setting: str
    batch: int
    samples: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class TargetPoint:
    """Time to one target."""

    target: float
    times: list[ArmTime]
    setting: str | None
    fastest: int | None
    arms: list[Arm]  # that cannot be told from the fastest, it included


@dataclasses.dataclass(frozen=True)
class SetUncertainty:
    """What the choice of the validation prompts alone does to all runs alike.

    Another set of as many prompts would move every run's scores together, so it is no part of
    the intervals between arms.
    """

    prompts: int  # 0: not known
    score_sd: float | None  # sqrt(p (1 - p) / prompts) at p = target, the most for scores in [0, 1]
    samples_lower: float | None  # samples to (target - sd) over samples to target, geometric mean
    samples_higher: float | None  # likewise at target + sd; None where no run gets there


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """The verdict under other readings of the curves, by one clock."""

    clock: str
    target: float
    noise: float | None  # standard deviation of a validation score
    readings: list[Reading]  # the headline's own first
    targets: list[TargetPoint]
    validation_set: SetUncertainty


@dataclasses.dataclass(frozen=True)
class _Question:
    """What is asked of each reading."""

    fit: StudyFit  # the verdict's own
    names: Names
    reference: Arm
    clock: str
    untuned: Collection[Arm]

    def judge(self, target: float, rule: str) -> tuple[Judgement, list[Cell]]:
        """The verdict's own judgement, of crossings of this target by this rule."""
        crossed = [cross_again(cell, target, rule) for cell in self.fit.cells]
        again = fit_study(
            crossed,
            settings=self.names.settings,
            devices_grow=self.fit.devices_grow,
            incomparable=self.fit.incomparable,
        )
        arms = list(again.censored)
        found = judge_arms(again, arms, reference=self.reference, clock=self.clock)
        return leave_open(found, self.untuned, arms), crossed


def describe_sensitivity(
    fit: StudyFit,
    *,
    names: Names,
    reference: Arm,
    target: float,
    noise: float,
    prompts: int,
    clock: str,
    untuned: Collection[Arm] = (),
) -> Sensitivity:
    """Reads the curves of the finished runs again.

    Args:
      fit: that the verdict is made from; its seconds are comparable.
      noise: standard deviation of the scores about the fits; NaN if unknown.
      prompts: of the validation set.
      clock: "training" or "elapsed".
      untuned: arms that the verdict leaves open, because their best rate is not known.
    """
    shifts = (0.0, -NOISE_WIDTH, NOISE_WIDTH) if math.isfinite(noise) and noise > 0 else (0.0,)
    cells, question = fit.cells, _Question(fit, names, reference, clock, untuned)
    headline = question.judge(target, "isotonic")[0]
    readings = [
        _read(question, target + (shift * noise if shift else 0.0), shift, rule, headline)
        for shift in shifts
        for rule in (CROSSING_RULES if shift == 0.0 else ("isotonic",))
        if shift == 0.0 or target + shift * noise > _highest_start(cells)
    ]
    return Sensitivity(
        clock=clock,
        target=target,
        noise=noise if math.isfinite(noise) else None,
        readings=readings,
        targets=[_measure_target(question, goal) for goal in choose_targets(cells)],
        validation_set=_bound_validation_set(cells, target, prompts),
    )


def cross_again(cell: Cell, target: float, rule: str) -> Cell:
    """The run with its crossing of another target, or by another rule, read from its curve.

    Learnt and in-flight counts are not on the curve: they are those of all samples.
    """
    place = locate_crossing(cell.curve_scores, target, rule=rule)
    if place is None:
        rate = cell.samples / cell.training_seconds
        return dataclasses.replace(cell, crossing=None, rollouts_per_second=rate)
    raw = place.raw
    after = np.asarray(cell.curve_scores[place.after :])
    crossing = Crossing(
        samples=place.interpolate(cell.curve_samples),
        updates=place.interpolate(cell.curve_updates),
        training_seconds=place.interpolate(cell.curve_training_seconds),
        elapsed_seconds=place.interpolate(cell.curve_elapsed_seconds),
        raw_samples=cell.curve_samples[raw],
        raw_training_seconds=cell.curve_training_seconds[raw],
        raw_elapsed_seconds=cell.curve_elapsed_seconds[raw],
        learnt=cell.curve_samples[raw],
        in_flight=0,
        held=bool(np.all(after >= target)),
    )
    rate = crossing.samples / crossing.training_seconds
    return dataclasses.replace(cell, crossing=crossing, rollouts_per_second=rate)


def choose_targets(cells: Sequence[Cell], count: int = TARGETS) -> list[float]:
    """Evenly spaced scores above every run's start, up to the best that all runs hold.

    A run holds what its isotonic fit ends at; the lowest such end can be met by every run.
    """
    curves = [cell.curve_fit for cell in cells if cell.curve_fit]
    if not curves:
        return []
    low, high = max(fit[0] for fit in curves), min(fit[-1] for fit in curves)
    if high <= low:
        return []
    return [low + (high - low) * (k + 1) / count for k in range(count)]


def _read(
    question: _Question, target: float, shift: float, rule: str, headline: Judgement
) -> Reading:
    judgement, crossed = question.judge(target, rule)
    words = {(v.setting, v.batch): v.verdict for v in headline.verdicts}
    fastest = judgement.fastest
    return Reading(
        rule=rule,
        target=target,
        shift=shift,
        censored=sum(cell.crossing is None for cell in crossed),
        setting=fastest.setting if fastest else None,
        fastest=fastest.batch if fastest else None,
        arms=judgement.near,
        verdicts=judgement.verdicts,
        changed=[
            arm_of(v) for v in judgement.verdicts if words.get((v.setting, v.batch)) != v.verdict
        ],
        same_fastest=fastest == headline.fastest,
    )


def _measure_target(question: _Question, target: float) -> TargetPoint:
    judgement, crossed = question.judge(target, "isotonic")
    by_arm: dict[Arm, list[Crossing]] = {}
    for cell in crossed:
        if cell.crossing is not None:
            by_arm.setdefault(arm_of(cell), []).append(cell.crossing)
    fastest = judgement.fastest
    return TargetPoint(
        target=target,
        times=[
            ArmTime(
                setting=arm.setting,
                batch=arm.batch,
                samples=geometric_mean([c.samples for c in found]),
                seconds=geometric_mean([getattr(c, f"{question.clock}_seconds") for c in found]),
            )
            for arm, found in by_arm.items()
        ],
        setting=fastest.setting if fastest else None,
        fastest=fastest.batch if fastest else None,
        arms=judgement.near,
    )


def _bound_validation_set(cells: Sequence[Cell], target: float, prompts: int) -> SetUncertainty:
    shares = all(0 <= score <= 1 for cell in cells for score in cell.curve_scores)
    if not prompts or not shares or not 0 < target < 1:
        return SetUncertainty(prompts, None, None, None)
    score_sd = math.sqrt(target * (1 - target) / prompts)

    def compare(goal: float) -> float | None:
        """Samples to `goal` over samples to the target, of the runs that met both."""
        if goal <= _highest_start(cells):
            return None
        ratios = [
            there.samples / here.samples
            for cell in cells
            if (here := cross_again(cell, target, "isotonic").crossing)
            and (there := cross_again(cell, goal, "isotonic").crossing)
        ]
        return geometric_mean(ratios) if ratios else None

    return SetUncertainty(prompts, score_sd, compare(target - score_sd), compare(target + score_sd))


def _highest_start(cells: Sequence[Cell]) -> float:
    return max((cell.curve_fit[0] for cell in cells if cell.curve_fit), default=-math.inf)
