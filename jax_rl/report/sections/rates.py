"""How the learning rate belongs to each batch: trials, their cost, and what moving it does."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from jax_rl.report import axes as shared
from jax_rl.report import text
from jax_rl.report.section import Drawing, Section, Table
from jax_rl.study.names import Names, join_words
from jax_rl.study.rates.effects import RateEffect
from jax_rl.study.rates.gradients import GradientResult
from jax_rl.study.rates.tuning import ArmTuning, TriedRate, Tuning
from jax_rl.study.settings import Setting
from jax_rl.study.summary import Arm

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
) -> Section:
    """The section; it also says that nothing was tuned."""
    return Section(
        id="rates",
        title="The learning rate",
        paragraphs=[
            *(_say_tuning(tuning, names) if tuning.multiples else _say_rule(settings)),
            *_say_unmoved(effects, names),
            *_say_reference(effects, names),
            *_say_gradients(gradients, names),
        ],
        tables=[
            *([_tabulate_trials(tuning, names)] if tuning.arms else []),
            *([_tabulate_effects(effects, names)] if effects else []),
            *([_tabulate_gradients(gradients, names)] if gradients else []),
        ],
        drawings=[_draw_trials(tuning, names)] if any(arm.rates for arm in tuning.arms) else [],
        methods=_METHODS,
    )


def _arm(item: ArmTuning | RateEffect | GradientResult) -> Arm:
    return Arm(item.setting, item.batch)


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
    words = [
        f"Every batch had the same {len(tuning.multiples)} trial rates, {tried} of its rule's"
        f" rate, on {_count(len(tuning.seeds), 'seed')} that no compared run uses; the compared"
        " runs have the best of them."
    ]
    if missing := [_arm(arm) for arm in tuning.arms if arm.missing]:
        words.append(f"The trials of {names.join(missing)} are not finished.")
    if edge := [_arm(arm) for arm in tuning.arms if arm.on_edge]:
        words.append(
            f"The best rate of {names.join(edge)} is at the edge of those tried: a better one may"
            " lie beyond it, and what is said of that batch holds for this rate alone."
        )
    if blind := [_arm(arm) for arm in tuning.arms if arm.by_score]:
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


def _say_unmoved(effects: Sequence[RateEffect], names: Names) -> list[str]:
    found = [e for e in effects if e.question == "unmoved" and e.factor in HEADLINE_FACTORS]
    if not found:
        return []
    parts = [_say_effect(effect, names) for effect in found]
    return [
        "Samples to target with the reference's rate kept, over those with the rate moved:"
        f" {'; '.join(parts)}."
    ]


def _say_reference(effects: Sequence[RateEffect], names: Names) -> list[str]:
    found = [e for e in effects if e.question == "reference" and e.samples.estimate is not None]
    if not found:
        return []
    if all(effect.learning_rate == effect.against_rate for effect in found):
        return [
            "A rate tuned at the reference alone, and moved by the rule, would have been the best"
            " of those tried at the other batches too."
        ]
    worst = max(found, key=lambda effect: effect.samples.estimate or 0.0)
    return [
        "A rate tuned at the reference alone, and moved by the rule, takes up to this multiple of"
        f" the best rate's samples, by the trials that chose it: {_say_effect(worst, names)}."
    ]


def _say_effect(effect: RateEffect, names: Names) -> str:
    estimate, ends = text.format_interval(effect.samples)
    ratio = f"{estimate}×" if effect.samples.estimate is not None else "not known"
    interval = f", 95 % interval {ends}" if ends else ""
    return (
        f"{ratio} at {names.show(_arm(effect))}, {text.format_multiple(effect.factor)} the"
        f" reference (rate {text.format_rate(effect.learning_rate)} against"
        f" {text.format_rate(effect.against_rate)}{interval};"
        f" {_count(effect.pairs, 'pair')} of {effect.source})"
    )


def _say_gradients(gradients: Sequence[GradientResult], names: Names) -> list[str]:
    if not gradients:
        return []
    least = min(gradients, key=lambda result: result.clipped)
    most = max(gradients, key=lambda result: result.clipped)
    if most.clipped == 0:
        return ["No gradient was clipped up to the crossings."]
    if least.clipped == most.clipped:
        return [
            f"Gradients were clipped in {text.format_percent(most.clipped)} of updates at every"
            " batch: the norm of such a gradient moves no weight any more, only its direction."
        ]
    return [
        f"Gradients were clipped in {text.format_percent(least.clipped)} of updates"
        f" ({names.show(_arm(least))}) to {text.format_percent(most.clipped)}"
        f" ({names.show(_arm(most))}); where most are, the norm of the gradient moves no weight any"
        " more, only its direction."
    ]


def _tabulate_trials(tuning: Tuning, names: Names) -> Table:
    multiples = sorted({rate.multiple for arm in tuning.arms for rate in arm.rates})

    def show(arm: ArmTuning, multiple: float) -> str:
        rate = next((r for r in arm.rates if r.multiple == multiple), None)
        if rate is None:
            return text.NOTHING
        shown = text.format_to_target(rate.samples_to_target, rate.samples_at_least)
        return f"{shown} (best)" if multiple == arm.multiple else shown

    return Table(
        id="trials",
        title="Trials of the learning rate",
        about="Samples to target at each multiple of the rule's rate, geometric mean over the"
        " trials; > where a trial did not reach the target. The best of a batch is what its"
        " compared runs have.",
        header=("batch", *(f"×{m:g}" for m in multiples), "rate", "at the edge", "trial samples"),
        rows=[
            (
                names.show(_arm(arm)),
                *(show(arm, multiple) for multiple in multiples),
                text.NOTHING if arm.learning_rate is None else text.format_rate(arm.learning_rate),
                "yes" if arm.on_edge else "no",
                f"{arm.samples:,}",
            )
            for arm in tuning.arms
        ],
    )


def _tabulate_effects(effects: Sequence[RateEffect], names: Names) -> Table:
    asked = {
        "unmoved": "the reference's rate, over the rate moved",
        "reference": "the reference's best multiple, over the best here",
    }
    return Table(
        id="rate_effects",
        title="Samples to target at one rate over another",
        about="Of trials, without an interval: the best rate was chosen on the same trials, so that"
        " the ratio to it is 1 or more. Of runs that compare rules, with their 95 % interval.",
        header=("batch", "what", "rate", "over rate", "samples", "95 % interval", "pairs", "from"),
        rows=[
            (
                names.show(_arm(effect)),
                asked[effect.question],
                text.format_rate(effect.learning_rate),
                text.format_rate(effect.against_rate),
                *text.format_interval(effect.samples),
                f"{effect.pairs}",
                effect.source,
            )
            for effect in effects
        ],
    )


def _tabulate_gradients(gradients: Sequence[GradientResult], names: Names) -> Table:
    return Table(
        id="gradients",
        title="Gradients and updates",
        about="Share of updates whose gradient was clipped, the norm of gradients before clipping,"
        " and of the change that one update makes to all weights; the last also by rollout.",
        header=("batch", "clipped", "clipped at", "gradient", "update", "update / rollout"),
        rows=[
            (
                names.show(_arm(result)),
                text.format_percent(result.clipped),
                text.format_number(result.max_grad_norm),
                text.format_number(result.grad_norm),
                text.format_number(result.update_norm),
                text.format_number(result.update_per_sample),
            )
            for result in gradients
        ],
    )


def _draw_trials(tuning: Tuning, names: Names) -> Drawing:
    return Drawing(
        name="trials",
        heading="Samples to target by trial rate",
        reading="One line per batch; ring: the rate that its runs have; triangle: a trial did not"
        " reach the target, so that more samples are needed than shown.",
        description="Samples to target against the multiple of the rule's learning rate, one line"
        " per batch.",
        draw=_make_drawing(tuning, names),
    )


def _make_drawing(tuning: Tuning, names: Names) -> "Callable[[Axes], None]":
    def draw(axes: "Axes") -> None:
        from matplotlib import colormaps

        arms = [arm for arm in tuning.arms if arm.rates]
        for place, arm in enumerate(arms):
            color = colormaps["plasma"](0.8 * place / max(1, len(arms) - 1))
            points = [(rate.multiple, _samples(rate)) for rate in arm.rates]
            axes.plot(*zip(*points, strict=True), color=color, lw=2, label=names.show(_arm(arm)))
            for rate in arm.rates:
                mark = "o" if rate.samples_to_target is not None else "^"
                chosen = rate.multiple == arm.multiple
                axes.plot(
                    rate.multiple,
                    _samples(rate),
                    mark,
                    color=color,
                    ms=10 if chosen else 6,
                    mfc="white" if chosen else color,
                    mew=2,
                )
        multiples = sorted({rate.multiple for arm in arms for rate in arm.rates})
        axes.set_xscale("log")
        axes.set_xticks(multiples, [text.format_multiple(multiple) for multiple in multiples])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("learning rate: multiple of the rule's")
        shared.set_log_axis(axes, [_samples(rate) for arm in arms for rate in arm.rates])
        axes.set_ylabel("samples to target")
        axes.legend()

    return draw


def _samples(rate: TriedRate) -> float:
    return rate.samples_to_target or rate.samples_at_least or 1.0


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
