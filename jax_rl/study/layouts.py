"""Layouts against each other: that they move no sample, and what each choice alone would give.

A layout says where the program lies, not what it computes, so that two runs of one batch and
seed in two layouts differ by rounding alone: a near-tie that falls the other way gives another
token, and from there on the runs part. Their samples to target then scatter, but about the same
mean. Such runs are compared in pairs, which leaves out all that batch and seed do to both.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jax_rl.study.batches import StudyFit, compare_arms, measure_cell
from jax_rl.study.intervals import LEVEL, make_interval
from jax_rl.study.names import Names, join_words
from jax_rl.study.summary import (
    Arm,
    Cell,
    Interval,
    LayoutRatio,
    SingleChoices,
    Verdict,
    arm_of,
)
from jax_rl.study.words import (
    RateContext,
    describe_ratio,
    format_ends,
    format_factor,
    time_ratio,
)


@dataclasses.dataclass(frozen=True)
class _Pairs:
    """Runs of one batch in two layouts, seed by seed."""

    batch: int
    logs: tuple[float, ...]  # log samples ratio of each seed; a censored run at its bound
    bound: str | None  # "" if all crossed, "at least", "at most"; None: both sides censored

    @property
    def mean(self) -> float:
        return float(np.mean(self.logs))


def compare_layouts(cells: Sequence[Cell], layouts: Sequence[str]) -> list[LayoutRatio]:
    """Samples to target in each layout over those in the first, per batch and of all batches.

    Per batch, the residual variance is pooled over the batches of a layout; of all batches, the
    pairs are one sample, so that a batch at which the layouts differ more counts as scatter.
    A batch with a censored run has a one-sided ratio and is left out of that of all batches.
    """
    first, *others = layouts
    batches = sorted({cell.batch for cell in cells})
    paired = {
        layout: [p for b in batches if (p := _pair_runs(cells, Arm(layout, b), first)).logs]
        for layout in others
    }
    count = sum(len(pairs) + 1 for pairs in paired.values() if pairs)
    # Bonferroni: one false alarm in 20 studies, not in 20 ratios.
    level = 1 - (1 - LEVEL) / max(1, count)
    return [
        ratio
        for layout, pairs in paired.items()
        if pairs
        for ratio in _compare_pairs(layout, first, pairs, level)
    ]


def _pair_runs(cells: Sequence[Cell], arm: Arm, first: str) -> _Pairs:
    mine = {cell.seed: cell for cell in cells if arm_of(cell) == arm}
    theirs = {cell.seed: cell for cell in cells if arm_of(cell) == Arm(first, arm.batch)}
    seeds = sorted(mine.keys() & theirs.keys())
    above, below = (any(runs[s].crossing is None for s in seeds) for runs in (mine, theirs))
    bounds = {(False, False): "", (True, False): "at least", (False, True): "at most"}
    return _Pairs(
        batch=arm.batch,
        logs=tuple(
            math.log(measure_cell(mine[s])["samples"] / measure_cell(theirs[s])["samples"])
            for s in seeds
        ),
        bound=bounds.get((above, below)),
    )


def _compare_pairs(
    layout: str, first: str, pairs: Sequence[_Pairs], level: float
) -> list[LayoutRatio]:
    exact = [p for p in pairs if p.bound == ""]
    squares = sum((log - p.mean) ** 2 for p in exact for log in p.logs)
    freedom = sum(len(p.logs) - 1 for p in exact)
    sd = math.sqrt(squares / freedom) if freedom else math.nan

    def make(
        batch: int | None, logs: Sequence[float], bound: str | None, sd: float, freedom: int
    ) -> LayoutRatio:
        if bound is None or not logs:
            nothing = Interval(None, None, None)
            return LayoutRatio(layout, first, batch, len(logs), nothing, False)
        shown, wide = (
            make_interval(
                float(np.mean(logs)),
                len(logs) ** -0.5,
                residual_sd=sd,
                degrees_of_freedom=freedom,
                bound=bound,
                level=coverage,
            )
            for coverage in (LEVEL, level)
        )
        return LayoutRatio(layout, first, batch, len(logs), shown, _leaves_out_one(wide))

    logs = [log for p in exact for log in p.logs]
    scatter = float(np.std(logs, ddof=1)) if len(logs) > 1 else math.nan
    return [
        make(None, logs, "", scatter, len(logs) - 1),
        *(make(p.batch, p.logs, p.bound, sd, freedom) for p in pairs),
    ]


def _leaves_out_one(interval: Interval) -> bool:
    # Equal runs have an interval of length zero, whose ends are 1 to rounding.
    above = interval.low is not None and interval.low > 1 + 1e-9
    return above or (interval.high is not None and interval.high < 1 - 1e-9)


def describe_layout_samples(ratios: Sequence[LayoutRatio]) -> list[str]:
    """What the ratios of samples say, one sentence per layout; a layout that moves them first."""
    differing = [describe_difference(r) for r in ratios if r.differs]
    unknown = [r for r in ratios if r.batch is None and not format_ends(r.samples)]
    same = [
        f"Samples to target in {r.setting} are ×{format_factor(r.samples.estimate, 3)} those in"
        f" {r.against} (95 % interval {format_ends(r.samples, 3)}; {r.pairs} pairs of runs of one"
        " batch and seed): no dependence on the layout that these could show."
        for r in ratios
        if r.batch is None
        and r.samples.estimate is not None
        and r not in unknown
        and not any(other.differs for other in ratios if other.setting == r.setting)
    ]
    few = [
        f"Whether samples to target in {r.setting} differ from those in {r.against} cannot be"
        f" told: {r.pairs} pair{'' if r.pairs == 1 else 's'} of runs of one batch and seed"
        " reached the target."
        for r in unknown
    ]
    return [*differing, *same, *few]


def describe_difference(ratio: LayoutRatio) -> str:
    """That a layout changes the samples to target."""
    where = "over all batches" if ratio.batch is None else f"at batch {ratio.batch}"
    bound = f"{ratio.samples.bound} " if ratio.samples.bound else ""
    return (
        f"Samples to target depend on the layout: {where}, {ratio.setting} needs {bound}"
        f"×{format_factor(ratio.samples.estimate or math.nan, 3)} of the samples of {ratio.against}"
        f" (95 % interval {format_ends(ratio.samples, 3)}; it leaves out 1 also when it allows for"
        " the number of such ratios). A layout must not change what is learnt: look for its"
        " reason before you trust a comparison of times."
    )


def choose_singly(
    fit: StudyFit,
    both: Verdict,
    single: Sequence[Verdict],
    *,
    names: Names,
    context: RateContext,
    word: str = "layout",
) -> SingleChoices:
    """The best setting at the reference batch, and the best batch in each setting.

    Args:
      both: the verdict over all arms.
      single: the verdict of each setting under the same clock, in the order of `names`.
      word: what a setting is called, as `name_settings` gives it.
    """
    clock, reference = both.clock, Arm(names.settings[0], context.reference)
    measured = [arm for arm in fit.censored if arm.batch == reference.batch]
    complete = [arm for arm in measured if not fit.censored[arm]]
    if not complete or fit.list_obstacles(*measured):
        best, near = None, list[str]()
    else:
        best = min(complete, key=fit.fits[f"{clock}_time"].effect)
        near = [a.setting for a in measured if a == best or _is_near(fit, a, best, clock)]
    batch = single[0].fastest
    alone = [best, None if batch is None else Arm(reference.setting, batch)]
    if both.fastest is not None and both.setting is not None:
        alone.append(Arm(both.setting, both.fastest))
    return SingleChoices(
        clock=clock,
        setting=best.setting if best else None,
        settings=near,
        batch=batch,
        sentences=[
            _describe_best_setting(best, near, reference.batch, word),
            _describe_best_batches(single, names, word),
            *_describe_gains(fit, alone, reference, clock=clock, names=names, word=word),
        ],
    )


def _is_near(fit: StudyFit, arm: Arm, best: Arm, clock: str) -> bool:
    low = time_ratio(compare_arms(fit, arm, against=best), clock).low
    return low is None or low <= 1


def _describe_best_setting(best: Arm | None, near: Sequence[str], batch: int, word: str) -> str:
    if best is None:
        return f"At the reference batch {batch} no {word} can be named the fastest."
    others = [setting for setting in near if setting != best.setting]
    told = f"; {join_words(others)} cannot be told from it" if others else ""
    return f"At the reference batch {batch} the fastest {word} is {best.setting}{told}."


def _describe_best_batches(single: Sequence[Verdict], names: Names, word: str) -> str:
    def show(verdict: Verdict) -> str:
        if verdict.fastest is None:
            return "none"
        others = [str(b) for b in verdict.undistinguished if b != verdict.fastest]
        told = f" ({join_words(others)} not told from it)" if others else ""
        return f"{verdict.fastest}{told}"

    pairs = zip(names.settings, single, strict=True)
    return (
        f"The fastest batch in each {word}: "
        + "; ".join(f"{setting} {show(verdict)}" for setting, verdict in pairs)
        + "."
    )


def _describe_gains(
    fit: StudyFit,
    alone: Sequence[Arm | None],
    reference: Arm,
    *,
    clock: str,
    names: Names,
    word: str,
) -> list[str]:
    """How much sooner than the reference each choice is: the setting, the batch, both."""
    parts = []
    for what, arm in zip((f"the {word} alone", "the batch alone", "both"), alone, strict=False):
        if arm == reference:
            parts.append(f"{what} ({names.show(arm)}) stays")
        elif arm is not None and reference in fit.censored:
            ratio = time_ratio(compare_arms(fit, arm, against=reference), clock)
            if ratio.estimate is not None:
                parts.append(f"{what} ({names.show(arm)}) {describe_ratio(ratio)}")
    if not parts:
        return []
    return [f"Against the reference {names.show(reference)}: {'; '.join(parts)}."]
