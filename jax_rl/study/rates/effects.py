"""What moving the learning rate with the batch does, and what tuning at one batch alone misses.

Where trials hold both rates that a question is about, it is answered from them: under the square
root rule the reference's own rate is the multiple 1/2 at four times the batch. Where a study
compares rate rules, its compared runs answer too, with an interval.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from jax_rl.study.intervals import make_interval
from jax_rl.study.rates.tuning import ArmTuning, TriedRate, Tuning
from jax_rl.study.settings import Setting
from jax_rl.study.summary import Cell, Interval


@dataclasses.dataclass(frozen=True)
class RateEffect:
    """Samples to target at one rate over those at another, at the same batch."""

    question: Literal["unmoved", "reference"]  # the reference's rate, or its best multiple
    source: Literal["trials", "runs"]
    setting: str  # of the rate asked about
    against_setting: str  # of the other; another one only where runs of two rules are compared
    batch: int
    factor: float  # of the reference batch
    learning_rate: float  # asked about
    against_rate: float  # moved with the batch; or the best at this batch
    pairs: int  # of runs
    samples: Interval  # without ends where it is of trials


def find_effects(
    tuning: Tuning, settings: Mapping[str, Setting], cells: Sequence[Cell], *, reference: int
) -> list[RateEffect]:
    """All comparisons of rates that a study holds, by question, setting and batch.

    Args:
      tuning: of the study; arms whose trials are not finished are left out.
      settings: by name.
      cells: the compared runs that are finished.
      reference: the batch that the configured rate belongs to.
    """
    effects = [
        # Compared runs that were tuned have neither rule's own rate.
        *([] if tuning.arms else _compare_rules(settings, cells, reference)),
        *(
            effect
            for name, setting in settings.items()
            for effect in _compare_trials(tuning, setting, name, reference)
        ),
    ]
    return sorted(effects, key=lambda effect: effect.question, reverse=True)


def _compare_trials(
    tuning: Tuning, setting: Setting, name: str, reference: int
) -> list[RateEffect]:
    arms = {arm.batch: arm for arm in tuning.arms if arm.setting == name and not arm.missing}
    home = arms.pop(reference, None)
    if home is None:
        return []
    effects = []
    for batch, arm in arms.items():
        moved = _find_rate(arm, _rule_rate(arm))
        kept = _find_rate(arm, _rule_rate(home))
        if setting.rule == "none":
            moved = _find_rate(arm, _rule_rate(home) * math.sqrt(batch / reference))
        # Under adam the betas move too: its trials hold no run with the reference's optimizer.
        if setting.rule != "adam" and kept and moved and kept != moved:
            effects.append(_compare_rates("unmoved", arm, kept, moved, reference))
        best = next(rate for rate in arm.rates if rate.multiple == arm.multiple)
        same = next((r for r in arm.rates if math.isclose(r.multiple, home.multiple or 0)), None)
        # A best that lies beyond the trials, or that a score chose, is no rate to carry over.
        if same and not (home.on_edge or home.by_score):
            effects.append(_compare_rates("reference", arm, same, best, reference))
    return effects


def _rule_rate(arm: ArmTuning) -> float:
    return arm.rates[0].learning_rate / arm.rates[0].multiple


def _find_rate(arm: ArmTuning, rate: float) -> TriedRate | None:
    return next((r for r in arm.rates if math.isclose(r.learning_rate, rate, rel_tol=1e-6)), None)


def _compare_rates(
    question: Literal["unmoved", "reference"],
    arm: ArmTuning,
    rate: TriedRate,
    against: TriedRate,
    reference: int,
) -> RateEffect:
    above, below = (r.samples_to_target or r.samples_at_least for r in (rate, against))
    bound = _choose_bound(rate.samples_to_target is None, against.samples_to_target is None)
    ratio = above / below if above and below and bound is not None else None
    return RateEffect(
        question=question,
        source="trials",
        setting=arm.setting,
        against_setting=arm.setting,
        batch=arm.batch,
        factor=arm.batch / reference,
        learning_rate=rate.learning_rate,
        against_rate=against.learning_rate,
        pairs=len(rate.seeds),
        samples=Interval(ratio, None, None, bound or ""),
    )


def _compare_rules(
    settings: Mapping[str, Setting], cells: Sequence[Cell], reference: int
) -> list[RateEffect]:
    """The rule `none` against each other rule, in settings that are the same otherwise."""
    effects = []
    for kept in settings.values():
        if kept.rule != "none":
            continue
        for moved in settings.values():
            renamed = dataclasses.replace(moved, name=kept.name, rule="none")
            if moved.rule != "none" and renamed == kept:
                batches = sorted({cell.batch for cell in cells} - {reference})
                found = [_compare_runs(kept, moved, b, cells, reference) for b in batches]
                effects += [effect for effect in found if effect is not None]
    return effects


def _compare_runs(
    kept: Setting, moved: Setting, batch: int, cells: Sequence[Cell], reference: int
) -> RateEffect | None:
    mine, theirs = (
        {cell.seed: cell for cell in cells if (cell.setting, cell.batch) == (one.name, batch)}
        for one in (kept, moved)
    )
    seeds = sorted(mine.keys() & theirs.keys())
    if not seeds:
        return None
    sides = [[runs[seed] for seed in seeds] for runs in (mine, theirs)]
    censored = [any(cell.crossing is None for cell in side) for side in sides]
    return RateEffect(
        question="unmoved",
        source="runs",
        setting=kept.name,
        against_setting=moved.name,
        batch=batch,
        factor=batch / reference,
        learning_rate=sides[0][0].learning_rate,
        against_rate=sides[1][0].learning_rate,
        pairs=len(seeds),
        samples=_compare_pairs(*sides, bound=_choose_bound(*censored)),
    )


def _compare_pairs(mine: Sequence[Cell], theirs: Sequence[Cell], *, bound: str | None) -> Interval:
    if bound is None:
        return Interval(None, None, None)
    above, below = (
        np.log([c.crossing.samples if c.crossing else max(1, c.samples) for c in side])
        for side in (mine, theirs)
    )
    logs = above - below
    freedom = len(logs) - 1
    return make_interval(
        float(np.mean(logs)),
        len(logs) ** -0.5,
        residual_sd=float(np.std(logs, ddof=1)) if freedom else math.nan,
        degrees_of_freedom=freedom,
        bound=bound,
    )


def _choose_bound(above: bool, below: bool) -> str | None:
    """What a ratio is where its numerator or denominator is censored; None: nothing."""
    bounds = {(False, False): "", (True, False): "at least", (False, True): "at most"}
    return bounds.get((above, below))
