"""Tables and the figure of the section on learning rates."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jax_rl.report import axes as shared
from jax_rl.report import text
from jax_rl.report.section import Drawing, Table
from jax_rl.study.names import Names
from jax_rl.study.rates.effects import RateEffect
from jax_rl.study.rates.gradients import GradientResult
from jax_rl.study.rates.tuning import ArmTuning, TriedRate, Tuning
from jax_rl.study.summary import arm_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def tabulate_trials(tuning: Tuning, names: Names) -> Table:
    """Samples to target at each multiple tried, and the choice."""
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
                names.show(arm_of(arm)),
                *(show(arm, multiple) for multiple in multiples),
                text.NOTHING if arm.learning_rate is None else text.format_rate(arm.learning_rate),
                "yes" if arm.on_edge else "no",
                f"{arm.samples:,}",
            )
            for arm in tuning.arms
        ],
    )


def tabulate_effects(effects: Sequence[RateEffect], names: Names) -> Table:
    """Every comparison of rates, of trials and of runs."""
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
                names.show(arm_of(effect)),
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


def tabulate_gradients(gradients: Sequence[GradientResult], names: Names) -> Table:
    """Clipping and the norms of gradients and updates."""
    return Table(
        id="gradients",
        title="Gradients and updates",
        about="Share of updates whose gradient was clipped, the norm of gradients before clipping,"
        " and of the change that one update makes to all weights; the last also by rollout.",
        header=("batch", "clipped", "clipped at", "gradient", "update", "update / rollout"),
        rows=[
            (
                names.show(arm_of(result)),
                text.format_percent(result.clipped),
                text.format_number(result.max_grad_norm),
                text.format_number(result.grad_norm),
                text.format_number(result.update_norm),
                text.format_number(result.update_per_sample),
            )
            for result in gradients
        ],
    )


def draw_trials(tuning: Tuning, names: Names) -> Drawing:
    """Samples to target against the multiple of the rule's rate."""
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
            axes.plot(*zip(*points, strict=True), color=color, lw=2, label=names.show(arm_of(arm)))
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
