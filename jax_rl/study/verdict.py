"""Which batch, in which setting, reaches the target first, in words whose factors multiply."""

import math
from collections.abc import Collection, Sequence

from jax_rl.study.batches import StudyFit, compare_arms
from jax_rl.study.judge import judge_arms, leave_open
from jax_rl.study.names import Names
from jax_rl.study.summary import Arm, ArmVerdict, BatchResult, Verdict, arm_of
from jax_rl.study.words import RateContext, describe_comparison, format_ends


def decide(
    fit: StudyFit,
    results: Sequence[BatchResult],
    *,
    names: Names,
    clock: str,
    context: RateContext,
    untuned: Collection[Arm] = (),
) -> Verdict:
    """The verdict under one clock, `training` or `elapsed`, over the settings that `names` has.

    The fastest arm has the smallest effect on log time among the arms whose runs all crossed. An
    arm is faster or slower than the reference when its simultaneous interval leaves out 1, and
    cannot be told from the fastest unless another arm beats it beyond its simultaneous bound
    (`jax_rl.study.judge`). The first setting has the reference. Arms whose seconds are not
    comparable have no verdict.

    Args:
      untuned: arms whose best rate was at the edge of those tried; what is said of them, and
        against them, stays undecided.
    """
    arms = [arm_of(result) for result in results if result.setting in names.settings]
    obstacles = fit.list_obstacles(*arms)
    reference = Arm(names.settings[0], context.reference)
    if obstacles and set(arms) & set(fit.complete):
        return Verdict(clock, None, None, [], False, [_describe_obstacles(obstacles)], [], [])
    judgement = leave_open(judge_arms(fit, arms, reference=reference, clock=clock), untuned, arms)
    fastest, near = judgement.fastest, judgement.near
    if fastest is None:
        words = _describe_no_fastest(fit, arms, names)
        return Verdict(clock, None, None, [], False, [words], [], [])
    batches = [arm.batch for arm in arms if arm.setting == fastest.setting]
    sentences = [
        *_describe_fastest(fit, arms, fastest, names=names, clock=clock, context=context),
        *_describe_verdicts(judgement.verdicts, fastest, reference, names),
        *_describe_untuned([arm for arm in arms if arm in untuned], names),
        *_describe_apart(judgement.apart, fastest, names),
        _describe_set(fit, fastest, near, arms, names=names),
        _describe_range(fastest, near, batches, names=names),
        *_describe_coarse(results, near, arms, names),
        *_describe_censored(fit, results, arms, names),
    ]
    return Verdict(
        clock=clock,
        setting=fastest.setting,
        fastest=fastest.batch,
        undistinguished=[arm.batch for arm in near if arm.setting == fastest.setting],
        inside_range=min(batches) < fastest.batch < max(batches),
        sentences=sentences,
        arms=near,
        against_fastest=[compare_arms(fit, a, against=fastest) for a in arms if a != fastest],
        against_reference=judgement.verdicts,
    )


def _describe_fastest(
    fit: StudyFit,
    arms: Sequence[Arm],
    fastest: Arm,
    *,
    names: Names,
    clock: str,
    context: RateContext,
) -> list[str]:
    """The fastest against the reference; if it is the reference, the next one against it."""
    reference = Arm(names.settings[0], context.reference)
    if fastest != reference and reference in fit.censored:
        comparison = compare_arms(fit, fastest, against=reference)
        censored = _count_censored(fit, reference, names)
        return [
            describe_comparison(
                comparison, clock=clock, context=context, names=names, censored=censored
            )
        ]
    if fastest != reference:
        return [
            f"Batch {names.show(fastest)} reaches the target first by the {clock} clock; the"
            f" reference batch {names.show(reference)} has no finished run to compare with."
        ]
    sentences = [f"The reference batch ({names.show(fastest)}) reaches the target first."]
    others = [arm for arm in fit.connect(arms, reference=fastest) if arm != fastest]
    if not others:
        return sentences
    second = min(others, key=fit.fits[f"{clock}_time"].effect)
    comparison = compare_arms(fit, second, against=fastest)
    words = describe_comparison(comparison, clock=clock, context=context, names=names)
    return [*sentences, f"Next, {'' if names.several else 'the '}{words}"]


def _describe_verdicts(
    verdicts: Sequence[ArmVerdict], fastest: Arm, reference: Arm, names: Names
) -> list[str]:
    """The interval of the fastest (or the next) over the reference, and the verdict on all."""
    known = [v for v in verdicts if format_ends(v.time)]
    if not known:
        return []
    named = [v for v in known if (v.setting, v.batch) == (fastest.setting, fastest.batch)]
    if fastest == reference:
        named = sorted(
            (v for v in known if not v.time.bound), key=lambda v: v.time.estimate or math.inf
        )[:1]
    together = f", one of {len(verdicts)} that hold together" if len(verdicts) > 1 else ""
    sentences = [
        f"95 % interval of the time of {names.show(arm_of(v))} over that of"
        f" {names.show(reference)}: {format_ends(v.time)}{together}."
        for v in named
    ]
    parts = [
        f"{word}: {names.join(arms)}"
        for word in ("faster", "slower", "undecided")
        if (arms := [arm_of(v) for v in verdicts if v.verdict == word])
    ]
    return [
        *sentences,
        f"Against the reference {names.show(reference)}, by intervals that hold together in 95 % of"
        f" studies, {'; '.join(parts)}.",
    ]


def _describe_untuned(arms: Sequence[Arm], names: Names) -> list[str]:
    if not arms:
        return []
    return [
        f"The best rate of {names.join(arms)} was at the edge of those tried, so that whether it is"
        " faster or slower stays undecided."
    ]


def _describe_apart(arms: Sequence[Arm], fastest: Arm, names: Names) -> list[str]:
    if not arms:
        return []
    return [
        f"No shared seed connects {names.join(arms)} with {names.show(fastest)}: they are not"
        " compared, and the fastest is that of the connected batches."
    ]


def _describe_set(
    fit: StudyFit, fastest: Arm, near: Sequence[Arm], arms: Sequence[Arm], *, names: Names
) -> str:
    first, others = names.show(fastest), [arm for arm in near if arm != fastest]
    if fit.degrees_of_freedom < 1:
        return (
            "There are no intervals: the runs leave no degrees of freedom (two seeds and two"
            f" batches that all reach the target are the fewest), so {names.join(others)} cannot"
            f" be told from the fastest, {first}."
            if others
            else "There are no intervals: only one batch was measured."
        )
    if len(arms) == 1:
        return f"No other batch was measured to compare {first} with."
    meaning = (
        " The truly fastest batch measured is among those not told from the fastest in at least"
        " 95 % of studies: all comparisons are allowed for, and that the fastest was picked from"
        " these data."
    )
    if others:
        return f"{names.join(others)} cannot be told from the fastest, {first}.{meaning}"
    return f"Every other batch is slower than {first} beyond its simultaneous bound.{meaning}"


def _describe_range(
    fastest: Arm, near: Sequence[Arm], batches: Sequence[int], *, names: Names
) -> str:
    """Whether the fastest batch is inside the range of the batches of its setting."""
    low, high = min(batches), max(batches)
    span = f"range of {low} to {high}" + (f" in {fastest.setting}" if names.several else "")
    if low < fastest.batch < high:
        edges = [a for a in near if a.setting == fastest.setting and a.batch in (low, high)]
        if edges:
            return (
                f"The fastest batch is inside the {span}, but its edge ({names.join(edges)})"
                " cannot be told from it."
            )
        return f"The optimum is inside the {span}."
    if low == high:
        return "The optimum is not inside the range: only one batch was measured."
    side, beyond = ("smallest", "smaller") if fastest.batch == low else ("largest", "larger")
    return (
        f"The optimum is not inside the range: the fastest batch, {names.show(fastest)}, is the"
        f" {side} measured, and a {beyond} one may be faster."
    )


def _describe_coarse(
    results: Sequence[BatchResult], near: Sequence[Arm], arms: Sequence[Arm], names: Names
) -> list[str]:
    coarse = [arm_of(r) for r in results if r.too_coarse and arm_of(r) in arms]
    if not coarse:
        return []
    text = f"Too coarse: {names.join(coarse)} had fewer than 20 updates to target"
    if set(coarse) & set(near):
        text += ", so the fastest, or one that cannot be told from it, is among the too coarse"
    return [text + "."]


def _describe_censored(
    fit: StudyFit, results: Sequence[BatchResult], arms: Sequence[Arm], names: Names
) -> list[str]:
    lines = [
        f"{_count_censored(fit, arm_of(r), names)}, > {r.samples_at_least:,.0f} samples"
        for r in results
        if r.samples_at_least is not None and arm_of(r) in arms
    ]
    if not lines:
        return []
    return [
        "Batches with censored runs have no point estimate and cannot be named the fastest ("
        + "; ".join(lines)
        + ")."
    ]


def _describe_obstacles(obstacles: Sequence[str]) -> str:
    return (
        f"The runs were {'; '.join(obstacles)}, so their throughput and times"
        " are not compared and there is no verdict; only samples to target are compared."
    )


def _describe_no_fastest(fit: StudyFit, arms: Sequence[Arm], names: Names) -> str:
    if not arms:
        return "No run has finished, so there is no verdict."
    counts = "; ".join(_count_censored(fit, arm, names) for arm in arms)
    return f"In no batch did every run reach the target, so there is no verdict ({counts})."


def _count_censored(fit: StudyFit, arm: Arm, names: Names) -> str:
    if not fit.censored[arm]:
        return ""
    runs = len(fit.cells_of(arm))
    return f"{fit.censored[arm]} of {runs} runs of {names.show(arm)} censored"
