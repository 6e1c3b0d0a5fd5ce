"""The figures that hold settings against each other, one curve per setting."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jax_rl.report import axes as shared
from jax_rl.report import marks, text
from jax_rl.report.views import list_views
from jax_rl.study.batches import measure_cell
from jax_rl.study.summary import BatchResult, Cell, StudySummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette again, with markers, so that no curve is told by its colour alone.
LAYOUT_COLORS = ("#22252a", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
LAYOUT_MARKERS = ("o", "s", "D", "v", "P", "X", "h")


def draw_settings_throughput(summary: StudySummary) -> "Figure":
    """Rollouts per second against batch, a curve per setting."""
    return _draw(
        summary,
        "How does throughput change with batch and setting?",
        "rollouts per second",
        mean=lambda view, result: (result.throughput, None),
        run=lambda cell: cell.rollouts_per_second,
        bounded=False,
    )


def draw_settings_time(summary: StudySummary) -> "Figure":
    """Training time to the target against batch, a curve per setting."""
    length, symbol = text.choose_time_unit(
        text.clock_seconds(cell, "training") for cell in summary.cells
    )

    def mean(view: StudySummary, result: BatchResult) -> tuple[float | None, float | None]:
        bound = text.seconds_at_least(result, "training")
        exact = result.training_time
        return exact and exact / length, bound and bound / length

    return _draw(
        summary,
        "How long does each batch take in each setting?",
        f"training time to target ({symbol})",
        mean=mean,
        run=lambda cell: text.clock_seconds(cell, "training") / length,
        bounded=True,
    )


def draw_settings_samples(summary: StudySummary) -> "Figure":
    """Samples to the target against batch, a curve per setting."""
    return _draw(
        summary,
        "Does any setting need more samples?",
        "samples to target (rollouts)",
        mean=lambda view, result: (result.samples_to_target, result.samples_at_least),
        run=lambda cell: measure_cell(cell)["samples"],
        bounded=True,
    )


SETTING_FIGURES: dict[str, Callable[[StudySummary], "Figure"]] = {
    "settings_time": draw_settings_time,
    "settings_throughput": draw_settings_throughput,
    "settings_samples": draw_settings_samples,
}
"""Figures over all settings, in the order of the page."""


def list_setting_figures(summary: StudySummary) -> list[str]:
    """Those that compare something: without seconds where they are not compared."""
    if len(summary.settings) < 2:
        return []
    return [
        name for name in SETTING_FIGURES if name == "settings_samples" or not summary.incomparable
    ]


def _draw(
    summary: StudySummary,
    title: str,
    unit: str,
    *,
    mean: Callable[[StudySummary, BatchResult], tuple[float | None, float | None]],
    run: Callable[[Cell], float],
    bounded: bool,
) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(shared.WIDTH, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    shared.set_batch_axis(axes, summary)
    views = list_views(summary)
    drawn, lines, shown = [], list[tuple[str, float, Any]](), list[Cell]()
    for place, view in enumerate(views):
        color = LAYOUT_COLORS[place % len(LAYOUT_COLORS)]
        marker = LAYOUT_MARKERS[place % len(LAYOUT_MARKERS)]
        means = [(result, *mean(view, result)) for result in view.batches]
        here = marks.draw_means(axes, means, color=color, marker=marker)
        cells = [cell for result in view.batches for cell in text.cells_of(view, result)]
        aside = summary.factor ** (0.13 + 0.27 * place / len(views))
        drawn += here + _draw_runs(axes, cells, run, color=color, aside=aside, bounded=bounded)
        shown += cells
        last = view.batches[-1:]
        known = [value for r in last for value in mean(view, r) if value is not None]
        lines += [(view.setting, known[0], color)] if known else []
    shared.set_log_axis(axes, drawn)
    shared.label_ends(axes, lines)
    axes.set_ylabel(unit)
    marks.explain_marks(axes, shown if bounded else [], below=0.26)
    return figure


def _draw_runs(
    axes: "Axes",
    cells: list[Cell],
    run: Callable[[Cell], float],
    *,
    color: str,
    aside: float,
    bounded: bool,
) -> list[float]:
    """One small mark per run beside its batch; an arrow where it is a bound."""
    values = [run(cell) for cell in cells]
    for cell, value in zip(cells, values, strict=True):
        open_end = bounded and cell.crossing is None
        marker, size = (r"$\uparrow$", 12) if open_end else (".", 6)
        axes.plot([cell.batch * aside], [value], marker=marker, ms=size, color=color, mew=0.5)
    return values
