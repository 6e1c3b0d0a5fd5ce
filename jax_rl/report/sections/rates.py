"""How the learning rate belongs to each batch: trials, their cost, and what moving it does."""

import math
from collections.abc import Mapping, Sequence

from jax_rl.report import text
from jax_rl.report.section import Section
from jax_rl.report.sections.rates_tables import (
    draw_trials,
    tabulate_effects,
    tabulate_gradients,
    tabulate_trials,
)
from jax_rl.study.names import Names, join_words
from jax_rl.study.rates.effects import RateEffect
from jax_rl.study.rates.gradients import GradientResult
from jax_rl.study.rates.tuning import Tuning
from jax_rl.study.settings import Setting
from jax_rl.study.summary import arm_of

HEADLINE_FACTORS = (4, 16)
"""Multiples of the reference batch at which the words say what moving the rate does."""

_METHODS = (
    "Rate rules, with r the minibatch over the reference's: none ×1; sqrt ×√r; linear ×r;"
    " power ×r^p; adam ×√r, and both decays β → β^r, so that their half-lives stay the same in"
    " samples, and ε → ε/√r (Malladi et al. 2022; Marek et al. 2025).",
    "Trials: of the multiples whose trials all reached the target, the one with the smallest"
    " geometric mean of samples to target; where there is none, the highest mean final score. A"
    " best multiple at the edge of the grid gets one more beyond it, a limited number of times."
    " The best of several noisy multiples looks better than it is, which is why the compared runs"
    " have other seeds.",
    "Gradients: means over the updates up to the crossing, those of the warm-up included, then"
    " over the runs.",
)


def show_rates(
    tuning: Tuning,
    effects: Sequence[RateEffect],
    gradients: Sequence[GradientResult],
    *,
    names: Names,
    settings: Mapping[str, Setting],
    imported: bool = False,
) -> Section:
    """The section; it also says that nothing was tuned.

    Args:
      imported: the runs are another trainer's, so that nothing here can measure more.
    """
    unmeasured = "" if imported else _say_unmeasured(effects, settings)
    return Section(
        id="rates",
        title="The learning rate",
        paragraphs=[
            *(_say_tuning(tuning, names) if tuning.multiples else _say_rule(settings)),
            *_say_unmoved(effects, names, unmeasured),
            *_say_reference(effects, names),
            *_say_gradients(gradients, names),
        ],
        tables=[
            *([tabulate_trials(tuning, names)] if tuning.arms else []),
            *([tabulate_effects(effects, names)] if effects else []),
            *([tabulate_gradients(gradients, names)] if gradients else []),
        ],
        drawings=[draw_trials(tuning, names)] if any(arm.rates for arm in tuning.arms) else [],
        methods=_METHODS,
    )


def _say_rule(settings: Mapping[str, Setting]) -> list[str]:
    rules = list(dict.fromkeys(setting.rule for setting in settings.values()))
    moved = f"by the rule {rules[0]}" if len(rules) == 1 else f"by the rules {join_words(rules)}"
    return [
        f"Rates were moved with the batch {moved} and not tuned at each batch: a verdict is one on"
        " the batch under its rule, and a batch that looks slow may lack a better rate"
        " (study.trials tries some at every batch)."
    ]


def _say_tuning(tuning: Tuning, names: Names) -> list[str]:
    tried = join_words(f"×{multiple:g}" for multiple in tuning.multiples)
    more = sorted({arm.extensions for arm in tuning.arms if arm.extensions})
    extended = [
        f"{names.join(arm_of(a) for a in tuning.arms if a.extensions == count)} had {count}"
        " more beyond the edge"
        for count in more
    ]
    words = [
        f"Every batch had the same {len(tuning.multiples)} trial rates, {tried} of its rule's"
        f" rate{' (' + '; '.join(extended) + ')' if extended else ''}, on"
        f" {_count(len(tuning.seeds), 'seed')} that no compared run uses; the compared"
        " runs have the best of them."
    ]
    if missing := [arm_of(arm) for arm in tuning.arms if arm.missing]:
        words.append(f"The trials of {names.join(missing)} are not finished.")
    if edge := [arm_of(arm) for arm in tuning.arms if arm.on_edge]:
        words.append(
            f"The best rate of {names.join(edge)} is at the edge of those tried: a better one may"
            " lie beyond it, and what is said of that batch holds for this rate alone."
        )
    if blind := [arm_of(arm) for arm in tuning.arms if arm.by_score]:
        words.append(
            f"At {names.join(blind)} no rate reached the target in all its trials; the one with"
            " the highest final score was taken."
        )
    shares = [text.format_percent(s) for s in (tuning.samples_share, tuning.seconds_share)]
    words.append(
        f"The cost of tuning: {_count(tuning.trials, 'trial')}, {tuning.samples:,} samples"
        f" ({shares[0]} of all) and {text.format_duration(tuning.elapsed_seconds)} ({shares[1]} of"
        " all elapsed time)."
    )
    return words


def _find_unmoved(effects: Sequence[RateEffect]) -> list[RateEffect]:
    return [e for e in effects if e.question == "unmoved" and e.factor in HEADLINE_FACTORS]


def _say_unmeasured(effects: Sequence[RateEffect], settings: Mapping[str, Setting]) -> str:
    """Which of the headline's multiples are not measured, and what would."""
    measured = {effect.factor for effect in _find_unmoved(effects)}
    factors = [factor for factor in HEADLINE_FACTORS if factor not in measured]
    if not factors:
        return ""
    rule = next((setting.rule for setting in settings.values()), "none")
    other = "sqrt" if rule == "none" else rule
    steps = {"none": 0.5, "sqrt": -0.5, "linear": -1.0}
    trials = ""
    if rule in steps:
        tried = [1.0, *(factor ** steps[rule] for factor in factors)]
        trials = f", or trials of {join_words(map(text.format_multiple, tried))}"
    where = join_words(text.format_multiple(factor) for factor in factors)
    return f'not measured at {where} (study.rules = ["none", "{other}"]{trials}, would tell)'


def _say_unmoved(effects: Sequence[RateEffect], names: Names, unmeasured: str) -> list[str]:
    parts = [_say_effect(effect, names) for effect in _find_unmoved(effects)]
    parts += [unmeasured] if unmeasured else []
    if not parts:
        return []
    return [
        "Samples to target with the reference's rate kept, over those with the rate moved:"
        f" {'; '.join(parts)}."
    ]


def _say_reference(effects: Sequence[RateEffect], names: Names) -> list[str]:
    found = [e for e in effects if e.question == "reference" and e.samples.estimate is not None]
    if not found:
        return []
    where = names.join(arm_of(effect) for effect in found)
    if all(effect.learning_rate == effect.against_rate for effect in found):
        return [
            "A rate tuned at the reference alone, and moved by the rule, would have been the best"
            f" of those tried at {where} too."
        ]
    worst = max(found, key=lambda effect: effect.samples.estimate or 0.0)
    return [
        f"At {where}, a rate tuned at the reference alone, and moved by the rule, takes up to this"
        " multiple of the best rate's samples, by the trials that chose it:"
        f" {_say_effect(worst, names)}."
    ]


def _say_effect(effect: RateEffect, names: Names) -> str:
    estimate, ends = text.format_interval(effect.samples)
    ratio = f"{estimate}×" if effect.samples.estimate is not None else "not known"
    interval = f", 95 % interval {ends}" if ends else ""
    return (
        f"{ratio} at {names.show(arm_of(effect))}, {text.format_multiple(effect.factor)} the"
        f" reference (rate {text.format_rate(effect.learning_rate)} against"
        f" {text.format_rate(effect.against_rate)}{interval};"
        f" {_count(effect.pairs, 'pair')} of {effect.source})"
    )


def _say_gradients(gradients: Sequence[GradientResult], names: Names) -> list[str]:
    known = [result for result in gradients if math.isfinite(result.clipped)]
    if not known:
        return []
    least = min(known, key=lambda result: result.clipped)
    most = max(known, key=lambda result: result.clipped)
    if most.clipped == 0:
        return ["No gradient was clipped up to the crossings."]
    if least.clipped == most.clipped:
        return [
            f"Gradients were clipped in {text.format_percent(most.clipped)} of updates at every"
            " batch: the norm of such a gradient moves no weight any more, only its direction."
        ]
    return [
        f"Gradients were clipped in {text.format_percent(least.clipped)} of updates"
        f" ({names.show(arm_of(least))}) to {text.format_percent(most.clipped)}"
        f" ({names.show(arm_of(most))}); where most are, the norm of the gradient moves no"
        " weight any more, only its direction."
    ]


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
