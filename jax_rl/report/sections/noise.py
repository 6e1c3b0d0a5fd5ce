"""How noisy the gradient is: the noise scale by batch, and where the noise comes from."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jax_rl.report import axes as shared
from jax_rl.report import text
from jax_rl.report.section import Drawing, Section, Table
from jax_rl.study.names import Names
from jax_rl.study.noise.batches import BatchNoise, NoiseSummary, TurningPoint
from jax_rl.study.noise.scale import Ratio
from jax_rl.study.noise.split import CovarianceSplit, Estimated
from jax_rl.study.summary import arm_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ORDER = 10.0
"""Two numbers within this factor are of one order of magnitude."""

_METHODS = (
    "Noise scale: K tr(Σ) / |G|², in rollouts, Σ the covariance of the gradient of one group of K"
    " rollouts and G the full gradient: the batch whose gradient is as much noise as signal"
    " (arXiv:1812.06162). It knows nothing of Adam or of clipping, and is an order of magnitude.",
    "The independent unit is a whole group or several: |G|² = (u m − s) / (u − 1) and tr(Σ) ="
    " c u (s − m) / (u − 1), with m the squared norm of an update's gradient, s the mean squared"
    " norm of its u units, c groups in a unit. Both are unbiased. A unit's rows keep the weights"
    " that they have in the whole minibatch.",
    "The value of a run, fixed before any was seen: the sample-weighted mean of tr(Σ) over that of"
    " |G|², up to the crossing (all of a run without one). Errors: a jackknife over 20 blocks of"
    " iterations; the interval of the ratio is Fieller's. Where the 95 % interval of |G|² includes"
    " 0 the noise scale is not identified. The curve is of moving averages of both, each its own.",
    "A batch has the geometric mean over its seeds, with a t interval of the logarithms.",
)

_SPLIT_METHOD = (
    "Probe: two independent groups g₁, g₂ for each prompt at frozen weights. Within prompts"
    " ½ E|g₁ − g₂|²; between prompts E⟨g₁, g₂⟩ − |G|², with |G|² from the products of different"
    " prompts; errors are a jackknife over prompts."
)


def show_noise(summary: NoiseSummary, *, names: Names) -> Section | None:
    """The section; None for a study that measured nothing of the kind.

    Args:
      summary: of the study.
      names: how arms are called.
    """
    if not summary.asked_for:
        return None
    drawn = [one for one in summary.batches if _curves(one)]
    return Section(
        id="noise",
        title="How noisy is the gradient?",
        paragraphs=[*_say_scale(summary, names), *map(_say_split, summary.splits)],
        tables=[
            *([_tabulate(summary, names)] if summary.batches else []),
            *([_tabulate_splits(summary.splits)] if summary.splits else []),
        ],
        drawings=[_make_drawing(drawn, summary.turning_point, names)] if drawn else [],
        methods=[*_METHODS, *([_SPLIT_METHOD] if summary.splits else [])],
    )


def _say_scale(summary: NoiseSummary, names: Names) -> list[str]:
    measured = [one for one in summary.batches if any(run.units for run in one.runs)]
    if not measured:
        return []
    known = [one for one in measured if one.rollouts is not None]
    if not known:
        reasons = sorted({run.reason for one in measured for run in one.runs if run.reason})
        return [f"No batch has a noise scale: {'; '.join(reasons)}."]
    values = [one.rollouts for one in known if one.rollouts is not None]
    low, high = min(values), max(values)
    span = _show_count(low) + (f" to {_show_count(high)}" if high > low else "")
    where = (
        f"at {names.show(arm_of(known[0]))}" if len(known) == 1 else f"over {len(known)} batches"
    )
    return [
        f"The gradient noise scale is {span} rollouts {where}: an order of magnitude, not a"
        " batch to choose.",
        _say_turning_point(summary),
    ]


def _say_turning_point(summary: NoiseSummary) -> str:
    point, ratio = summary.turning_point, summary.turning_ratio
    if point is None:
        why = f": {summary.turning_reason}" if summary.turning_reason else ""
        return f"No turning point was measured that it could be held against{why}."
    if ratio is None:
        return "No batch of the reference's setting has a noise scale to hold its turning point to."
    where = f"{point.bound} {_show_count(point.rollouts)} rollouts".strip()
    times = f"{text.format_ratio(ratio)} times the mean noise scale over batches"
    if point.bound:
        words = "a bound, so that the two can be compared on one side only"
    elif 1 / ORDER <= ratio <= ORDER:
        words = "the same order of magnitude"
    else:
        words = "another order of magnitude: here the noise scale does not predict it"
    return (
        f"The turning point that the runs themselves show ({point.what}) is {where}, {times}:"
        f" {words}."
    )


def _say_split(split: CovarianceSplit) -> str:
    place = f"At {split.samples:,} samples of batch {split.batch:,}, seed {split.seed},"
    share = split.within_share
    if share.estimate is None or share.low is None or share.high is None:
        return f"{place} the probe cannot tell the noise from 0."
    side = (
        "most of the noise lies within prompts"
        if share.low > 0.5
        else "most of the noise lies between prompts"
        if share.high < 0.5
        else "neither part is shown to be the larger"
    )
    return (
        f"{place} {text.format_percent(share.estimate)} of a group's gradient noise is within its"
        f" prompt (95 % interval {text.format_percent(share.low)} to"
        f" {text.format_percent(share.high)}): {side}."
    )


def _tabulate(summary: NoiseSummary, names: Names) -> Table:
    header = ["batch", "units × groups", "seeds", "noise scale", "95 % interval"]
    header += ["|G|²", "tr(Σ) of a group", "turning point / scale"]
    return Table(
        id="noise_scale",
        title="Gradient noise scale",
        about=(
            "In rollouts, geometric mean over seeds up to the crossing. Units: independent"
            " gradients per update, and whole groups in each. |G|² and tr(Σ): means over seeds."
        ),
        header=header,
        rows=[_list_row(one, names) for one in summary.batches],
    )


def _list_row(one: BatchNoise, names: Names) -> list[str]:
    run = one.runs[0]
    value = _show_count(one.rollouts)
    if one.rollouts is None:
        bound = one.at_least
        reason = next((r.reason for r in one.runs if r.reason), text.NOTHING)
        value = f"≥ {_show_count(bound)}" if bound is not None else reason
    ends = (one.rollouts_low, one.rollouts_high)
    return [
        names.show(arm_of(one)),
        f"{run.units} × {run.unit_groups}" if run.units else text.NOTHING,
        f"{one.identified} of {len(one.seeds)}",
        value,
        text.NOTHING if None in ends else " to ".join(map(_show_count, ends)),
        _show_sum(one.signal),
        _show_sum(one.noise),
        text.format_ratio(one.turning_ratio),
    ]


def _tabulate_splits(splits: Sequence[CovarianceSplit]) -> Table:
    return Table(
        id="noise_split",
        title="Noise within and between prompts",
        about="At frozen weights, with 95 % intervals over prompts; noise scale in rollouts.",
        header=[
            *("run", "samples", "prompts × 2 × K", "|G|²"),
            *("within", "between", "share within", "noise scale"),
        ],
        rows=[
            [
                f"batch {split.batch:,} seed {split.seed}",
                f"{split.samples:,}",
                f"{split.prompts:,} × 2 × {split.group}",
                *(_show(part) for part in (split.signal, split.within, split.between)),
                *(_show(ratio) for ratio in (split.within_share, split.rollouts)),
            ]
            for split in splits
        ],
    )


def _make_drawing(
    batches: Sequence[BatchNoise], point: TurningPoint | None, names: Names
) -> Drawing:
    return Drawing(
        name="noise_scale",
        heading="How does the gradient's noise grow along the runs?",
        reading=(
            "Moving averages, one line per run, one colour per batch; gaps: the signal's average"
            " is below 0. Dashed: the turning point that the runs show."
        ),
        description=(
            "Noise scale in rollouts against samples for "
            + ", ".join(names.show(arm_of(one)) for one in batches)
        ),
        draw=lambda axes: _draw(axes, batches, point, names),
    )


def _draw(
    axes: "Axes", batches: Sequence[BatchNoise], point: TurningPoint | None, names: Names
) -> None:
    from matplotlib import colormaps

    values: list[float] = []
    labels = []
    for i, one in enumerate(batches):
        color = colormaps["plasma"](0.8 * i / max(1, len(batches) - 1))
        for samples, rollouts in _curves(one):
            axes.plot(samples, rollouts, color=color, lw=1.4)
            values += [value for value in rollouts if math.isfinite(value)]
            labels.append((names.show(arm_of(one)), values[-1], color))
    if point is not None:
        axes.axhline(point.rollouts, color=shared.MUTED, ls="--", lw=1.4)
        values.append(point.rollouts)
    shared.set_log_axis(axes, values)
    # One name per batch: the last of its runs.
    shared.label_ends(axes, list({name: (name, y, c) for name, y, c in labels}.values()))
    axes.set_xlabel("samples (rollouts generated)")
    axes.set_ylabel("noise scale (rollouts)")


def _curves(one: BatchNoise) -> list[tuple[list[int], list[float]]]:
    """Samples and values of each run that has any; NaN where the average has none."""
    return [
        (
            run.curve_samples,
            [math.nan if not value or value <= 0 else value for value in run.curve_rollouts],
        )
        for run in one.runs
        if any(value is not None and value > 0 for value in run.curve_rollouts)
    ]


def _show_count(value: float | None) -> str:
    return text.format_number(value)


def _show_sum(value: float | None) -> str:
    """Of squares, which may be far below 1."""
    return text.NOTHING if value is None else f"{value:.3g}"


def _show(value: Estimated | Ratio) -> str:
    if value.estimate is None:
        return text.NOTHING if value.low is None else f"≥ {value.low:.3g}"
    return f"{value.estimate:.3g} ({value.low:.3g} to {value.high:.3g})"
