"""Which arms are faster or slower than the reference, and which may be the fastest.

Both statements hold for all arms of a study at once: the intervals to the reference are Dunnett's,
and the arms that may be the fastest are those that Hsu's comparisons with the best leave over.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from jax_rl.study.batches import StudyFit, compare_measure
from jax_rl.study.simultaneous import correlate_contrasts, find_critical_value
from jax_rl.study.summary import Arm, ArmVerdict, arm_of


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What the times of a study decide under one clock."""

    fastest: Arm | None  # smallest geometric mean among the arms whose runs all crossed
    near: list[Arm]  # those that cannot be told from it, it included; empty without a fastest
    verdicts: list[ArmVerdict]  # every other arm against the reference
    apart: list[Arm]  # complete, and no shared seed connects them with the fastest


def judge_arms(fit: StudyFit, arms: Sequence[Arm], *, reference: Arm, clock: str) -> Judgement:
    """Judges `arms`, all run on one kind of device, by their times under a clock.

    An arm with censored runs has a one-sided ratio, which may show it slower and never faster.
    Without degrees of freedom every arm is undecided. The fastest is one of those that shared
    seeds connect with the reference, or of the largest connected part where its runs did not all
    cross; any other arm may be the fastest.
    """
    connected = fit.connect(arms, reference=reference)
    if not connected:
        return Judgement(None, [], [], [])
    return Judgement(
        fastest=min(connected, key=fit.fits[f"{clock}_time"].effect),
        near=find_least(fit, arms, clock=clock),
        verdicts=judge_against(fit, arms, reference=reference, clock=clock),
        apart=[arm for arm in fit.complete if arm in arms and arm not in connected],
    )


def leave_open(judgement: Judgement, untuned: Collection[Arm], arms: Sequence[Arm]) -> Judgement:
    """The same with every comparison of an arm in `untuned` undecided.

    Its best rate may lie beyond those tried, so that it may be faster than it seems: no arm is
    then known to be faster or slower than it, and it may be the fastest.
    """
    doubted = [arm for arm in arms if arm in untuned]
    if not doubted or judgement.fastest is None:
        return judgement
    named = {arm_of(one) for one in judgement.verdicts}
    every = not named >= set(doubted)  # the reference is one of them
    return dataclasses.replace(
        judgement,
        near=[arm for arm in arms if arm in judgement.near or arm in doubted],
        verdicts=[
            dataclasses.replace(one, verdict="undecided")
            if every or arm_of(one) in doubted
            else one
            for one in judgement.verdicts
        ],
    )


def judge_against(
    fit: StudyFit, arms: Sequence[Arm], *, reference: Arm, clock: str
) -> list[ArmVerdict]:
    """Faster, slower or undecided, by intervals of which all hold in 95 % of studies."""
    if reference not in arms:
        return []
    correlation = correlate_contrasts(fit.design, arms, against=reference)
    critical = find_critical_value(correlation, fit.degrees_of_freedom)
    verdicts = []
    for arm in arms:
        if arm == reference:
            continue
        ratio = compare_measure(fit, f"{clock}_time", arm, against=reference, critical=critical)
        faster = ratio.high is not None and ratio.high < 1
        slower = ratio.low is not None and ratio.low > 1
        word = "faster" if faster else "slower" if slower else "undecided"
        verdicts.append(ArmVerdict(arm.setting, arm.batch, word, ratio))
    return verdicts


def find_least(
    fit: StudyFit, arms: Sequence[Arm], *, clock: str, devices: Mapping[Arm, float] | None = None
) -> list[Arm]:
    """Arms that no other arm beats in time, for each of them all others compared at once.

    The truly least is below each other by assumption, so that it is left out in at most 5 % of
    studies, whichever it is.

    Args:
      devices: numbers of them: it is then device-hours that are compared.
    """
    return [arm for arm in arms if _may_be_least(fit, arm, arms, clock, devices)]


def _may_be_least(
    fit: StudyFit,
    arm: Arm,
    arms: Sequence[Arm],
    clock: str,
    devices: Mapping[Arm, float] | None,
) -> bool:
    correlation = correlate_contrasts(fit.design, arms, against=arm)
    critical = find_critical_value(correlation, fit.degrees_of_freedom, one_sided=True)
    for other in arms:
        if other == arm or fit.censored[other]:
            continue
        ratio = compare_measure(fit, f"{clock}_time", arm, against=other, critical=critical)
        factor = devices[arm] / devices[other] if devices else 1.0
        if ratio.low is not None and ratio.low * factor > 1:
            return False
    return True
