"""The tables and the figure of how sure a verdict is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jax_rl.report import axes as shared
from jax_rl.report import text
from jax_rl.report.section import Drawing, Table
from jax_rl.study.certainty.censored import CensoredRatio
from jax_rl.study.certainty.sensitivity import Reading, Sensitivity, TargetPoint
from jax_rl.study.certainty.spread import FEWEST_BOOTSTRAP_SEEDS, Spread
from jax_rl.study.names import Names, join_words
from jax_rl.study.summary import Arm, arm_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RULES = {
    "isotonic": "isotonic fit",
    "raw": "first score at the target",
    "confirmed": "first score that the next two confirm",
}


def name_fastest(point: Reading | TargetPoint, names: Names) -> str:
    """The fastest arm, or `none`."""
    if point.fastest is None:
        return "none"
    return names.show(Arm(point.setting or "", point.fastest))


def tabulate_readings(sensitivity: Sensitivity, names: Names) -> Table:
    """The verdict under each reading of the curves."""
    return Table(
        id="certainty_readings",
        title="Other readings of the same curves",
        about="The verdict by each rule that finds the crossing, and at the target moved by twice"
        " the standard deviation of a validation score. The first row is the verdict's own.",
        header=("rule", "target", "fastest", "not told from it", "faster", "slower", "censored"),
        rows=[
            (
                RULES[r.rule],
                text.format_score(r.target),
                name_fastest(r, names),
                join_words(
                    names.show(a) for a in r.arms if (a.setting, a.batch) != (r.setting, r.fastest)
                )
                or text.NOTHING,
                _list_verdicts(r, "faster", names),
                _list_verdicts(r, "slower", names),
                f"{r.censored}",
            )
            for r in sensitivity.readings
        ],
    )


def _list_verdicts(reading: Reading, word: str, names: Names) -> str:
    arms = [arm_of(v) for v in reading.verdicts if v.verdict == word]
    return names.join(arms) or text.NOTHING


def tabulate_spread(spread: Spread, names: Names) -> Table:
    """The residual standard deviation of each arm."""
    return Table(
        id="certainty_spread",
        title="Spread of log time by arm",
        about="Standard deviation of the residuals after arm and seed effects. 0 stands where the"
        " estimate of the variance is negative.",
        header=("arm", "runs", "residual sd"),
        rows=[
            (
                names.show(arm_of(arm)),
                f"{arm.runs}",
                text.format_spread(arm.residual_sd),
            )
            for arm in spread.arms
        ],
    )


def tabulate_intervals(spread: Spread, names: Names) -> Table:
    """Pooled, paired and resampled intervals side by side."""
    return Table(
        id="certainty_intervals",
        title="Time over that of the reference, by three kinds of 95 % interval",
        about="Pooled: residuals of all arms. Two arms alone: the shared seeds of arm and"
        f" reference. Bootstrap: seeds resampled, from {FEWEST_BOOTSTRAP_SEEDS} on.",
        header=("arm", "pooled", "its interval", "two arms alone", "its interval", "bootstrap"),
        rows=[
            (
                names.show(arm_of(choice)),
                *text.format_interval(choice.pooled),
                *text.format_interval(choice.paired),
                text.format_interval(choice.bootstrap)[1] or text.NOTHING,
            )
            for choice in spread.intervals
        ],
    )


def tabulate_censored(ratios: Sequence[CensoredRatio], names: Names) -> Table:
    """Arms with censored runs, by the censored log-normal fit."""
    return Table(
        id="certainty_censored",
        title="Batches with censored runs, by the log-normal fit",
        about="Over the reference. The fit takes a run that missed the target for one somewhere"
        " above its bound. The verdict does not use it: it takes the bound alone.",
        header=("arm", "censored", "samples", "95 % interval", "time", "95 % interval", "why none"),
        rows=[
            (
                names.show(arm_of(ratio)),
                f"{ratio.censored} of {ratio.runs}",
                *text.format_interval(ratio.samples),
                *text.format_interval(ratio.training_time),
                ratio.reason or text.NOTHING,
            )
            for ratio in ratios
        ],
    )


def tabulate_targets(sensitivity: Sensitivity, names: Names) -> Table:
    """Time to each target, arm by arm."""
    arms = _list_arms(sensitivity, names)
    length, symbol = _choose_unit(sensitivity)
    return Table(
        id="certainty_targets",
        title=f"Time to target ({symbol}) by the target",
        about=f"Geometric means over seeds by the {sensitivity.clock} clock, crossings by the"
        " isotonic fit.",
        header=("target", *(names.show(arm) for arm in arms), "fastest", "not told from it"),
        rows=[
            (
                text.format_score(point.target),
                *(text.format_number(_scale(_find_time(point, arm), length)) for arm in arms),
                name_fastest(point, names),
                join_words(
                    names.show(a)
                    for a in point.arms
                    if (a.setting, a.batch) != (point.setting, point.fastest)
                )
                or text.NOTHING,
            )
            for point in sensitivity.targets
        ],
    )


def draw_targets(sensitivity: Sensitivity, names: Names) -> Drawing:
    """Time to target against the target."""
    arms = _list_arms(sensitivity, names)
    length, symbol = _choose_unit(sensitivity)

    def draw(axes: "Axes") -> None:
        from matplotlib import colormaps

        drawn: list[float] = []
        for i, arm in enumerate(arms):
            known = [
                (point.target, seconds / length)
                for point in sensitivity.targets
                if (seconds := _find_time(point, arm)) is not None
            ]
            scores, times = zip(*known, strict=True)
            # The lightest fifth of the map is too faint on white.
            color = colormaps["plasma"](0.8 * i / max(1, len(arms) - 1))
            marker = "os^Dv"[i % 5]
            axes.plot(scores, times, marker + "-", color=color, ms=5, label=names.show(arm))
            drawn += times
        shared.set_log_axis(axes, drawn)
        axes.axvline(sensitivity.target, color=shared.MUTED, lw=1, ls="--")
        axes.set_xlabel("target (validation score); dashed: that of the study")
        axes.set_ylabel(f"{sensitivity.clock} time to target ({symbol})")
        axes.legend(loc="upper left", title="batch")

    return Drawing(
        name="time_against_target",
        heading="Does the fastest batch depend on the target?",
        reading="One line per arm. Where lines cross, another target has another fastest batch.",
        description="Time to target against the target, one line per arm: "
        + "; ".join(
            f"at {text.format_score(p.target)} {name_fastest(p, names)} is the fastest"
            for p in sensitivity.targets
        )
        + ".",
        draw=draw,
    )


def _list_arms(sensitivity: Sensitivity, names: Names) -> list[Arm]:
    """Arms that have a time at some target, in the order of the study."""
    times = (time for point in sensitivity.targets for time in point.times)
    arms = {arm_of(time) for time in times}
    return sorted(arms, key=lambda arm: (names.settings.index(arm.setting), arm.batch))


def _find_time(point: TargetPoint, arm: Arm) -> float | None:
    found = [t.seconds for t in point.times if (t.setting, t.batch) == (arm.setting, arm.batch)]
    return found[0] if found else None


def _scale(value: float | None, length: float) -> float | None:
    return None if value is None else value / length


def _choose_unit(sensitivity: Sensitivity) -> tuple[float, str]:
    return text.choose_time_unit(t.seconds for point in sensitivity.targets for t in point.times)
