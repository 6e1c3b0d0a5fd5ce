"""The figures of a study of one setting, each from its summary to a matplotlib figure."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jax_rl.records import PHASES, UNCOUNTED_PHASES
from jax_rl.report import axes as shared
from jax_rl.report import marks, text
from jax_rl.study.batches import measure_cell
from jax_rl.study.summary import BatchResult, Cell, Comparison, Interval, StudySummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PHASE_COLORS = {
    "generate": "#d55e00",
    "reward": "#e69f00",
    "learn": "#0072b2",
    "sync": "#56b4e9",
    "other": "#cc79a7",
    "validate": "#8f949b",
    "checkpoint": "#b4b8be",
    "compile": "#d6d9dd",
}
DARK_PHASES = ("generate", "learn")  # white numbers are readable on these

Position = Callable[[Cell], tuple[list[float], float | None]]


def draw_validation_against_samples(summary: StudySummary) -> "Figure":
    """Validation score against samples, one line per run."""

    def position(cell: Cell) -> tuple[list[float], float | None]:
        crossing = cell.crossing.samples if cell.crossing is not None else None
        return [float(samples) for samples in cell.curve_samples], crossing

    title = "Do the curves lie on each other, sample for sample?"
    return _draw_curves(summary, position, title=title, unit="samples (rollouts generated)")


def draw_validation_against_seconds(summary: StudySummary) -> "Figure":
    """Validation score against training time, one line per run."""
    length, symbol = text.choose_time_unit(cell.training_seconds for cell in summary.cells)

    def position(cell: Cell) -> tuple[list[float], float | None]:
        crossing = cell.crossing.training_seconds / length if cell.crossing is not None else None
        return [seconds / length for seconds in cell.curve_training_seconds], crossing

    title = "When does each run get there, by the training clock?"
    return _draw_curves(summary, position, title=title, unit=f"training time ({symbol})")


def draw_samples_to_target(summary: StudySummary) -> "Figure":
    """Samples to the target against batch: runs, geometric means, censored runs as arrows."""
    figure, axes = _make_figure(4.2, "How many samples does each batch need?")
    shared.set_batch_axis(axes, summary)
    points = [
        (cell, measure_cell(cell)["samples"])  # of a censored run its bound
        for result in summary.batches
        for cell in text.cells_of(summary, result)
    ]
    means = [
        (result, result.samples_to_target, result.samples_at_least) for result in summary.batches
    ]
    drawn = marks.draw_means(axes, means, color=shared.INK)
    drawn += marks.draw_seeds(axes, summary, points)
    shared.set_log_axis(axes, drawn)
    axes.set_ylabel("samples to target (rollouts)")
    marks.explain_marks(axes, [cell for cell, _ in points], below=0.28)
    return figure


def draw_throughput(summary: StudySummary) -> "Figure":
    """Rollouts per second against batch: the runs', the separate measurement's, the phases'."""
    figure, axes = _make_figure(4.4, "How does throughput change with the batch?")
    hollow = {"ls": "none", "marker": "D", "mfc": "none", "ms": 10, "mew": 1.5}
    series: list[tuple[str, str, dict[str, Any], Callable[[BatchResult], float | None]]] = [
        ("learn alone", "learn", {"marker": "s"}, lambda r: r.learn_per_second),
        ("generate alone", "generate", {"marker": "^"}, lambda r: r.generate_per_second),
        ("whole run", "total", {"marker": "o", "lw": 2.4}, lambda r: r.throughput),
        ("◇ measured apart", "apart", hollow, lambda r: r.steady_per_second),
    ]
    lines, drawn = [], list[float]()
    for name, color, style, value in series:
        known = [(r.batch, y) for r in summary.batches if (y := value(r)) and text.is_number(y)]
        if known:
            batches, rates = zip(*known, strict=True)
            axes.plot(batches, rates, color=shared.SERIES[color], **style)
            lines.append((name, rates[-1], shared.SERIES[color]))
            drawn += rates
    shared.set_batch_axis(axes, summary)
    shared.set_log_axis(axes, drawn)
    shared.label_ends(axes, lines)
    axes.set_ylabel("rollouts per second")
    return figure


def draw_time_to_target(summary: StudySummary) -> "Figure":
    """Time to the target against batch, and under it the two factors that make it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(shared.WIDTH, 7.6), layout="constrained")
    upper, lower = figure.subplots(2, 1)
    _draw_times(upper, summary)
    _draw_factors(lower, summary)
    return figure


def draw_phase_shares(summary: StudySummary) -> "Figure":
    """Shares of elapsed time per phase, one bar per batch."""
    rows = range(len(summary.batches))
    figure, axes = _make_figure(1.9 + 0.42 * len(rows), "Where does the elapsed time go?")
    counted = [phase for phase in PHASES if phase not in UNCOUNTED_PHASES]
    left = [0.0 for _ in rows]
    for phase in (*counted, *UNCOUNTED_PHASES):
        shares = [100 * result.phase_shares.get(phase, 0.0) for result in summary.batches]
        color = PHASE_COLORS[phase]
        bars = axes.barh(rows, shares, left=left, height=0.72, color=color, label=phase)
        numbers = [f"{share:.0f}" if share >= 4.5 else "" for share in shares]
        ink = "white" if phase in DARK_PHASES else shared.INK
        axes.bar_label(bars, numbers, label_type="center", color=ink, fontsize=10)
        left = [start + share for start, share in zip(left, shares, strict=True)]
    labels = [f"{text.format_multiple(r.multiple)}   {r.batch:,}" for r in summary.batches]
    axes.set_yticks(rows, labels)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("share of elapsed time (%); grey: not on the training clock")
    axes.set_ylabel("batch")
    figure.legend(loc="outside lower left", ncols=4, handlelength=1.0, columnspacing=1.2)
    return figure


FIGURES: dict[str, Callable[[StudySummary], "Figure"]] = {
    "validation_samples": draw_validation_against_samples,
    "validation_seconds": draw_validation_against_seconds,
    "samples_to_target": draw_samples_to_target,
    "throughput": draw_throughput,
    "time_to_target": draw_time_to_target,
    "phase_shares": draw_phase_shares,
}
"""Every figure by the name of its files, in the order of the page."""


def _make_figure(height: float, title: str) -> tuple["Figure", "Axes"]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(shared.WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    return figure, axes


def _draw_curves(summary: StudySummary, position: Position, *, title: str, unit: str) -> "Figure":
    figure, axes = _make_figure(4.6, title)
    colors = shared.batch_colors(summary)
    ends: dict[int, float] = {}
    first = []
    for cell in sorted(summary.cells, key=lambda cell: (-cell.batch, cell.seed)):
        x, crossing = position(cell)
        if not x or cell.batch not in colors:
            continue
        color = colors[cell.batch]
        axes.plot(x, cell.curve_scores, color=color, lw=1.1, alpha=0.85)
        if crossing is not None:
            axes.plot([crossing], [summary.target], "o", color=color, ms=7, mec="white", zorder=4)
        elif cell.finished:
            axes.plot(x[-1:], cell.curve_scores[-1:], "x", color=color, ms=8, mew=2, zorder=4)
        ends[cell.batch] = max(x[-1], ends.get(cell.batch, 0.0))
        first += [p for p, samples in zip(x, cell.curve_samples, strict=True) if samples][:1]
    axes.axhline(summary.target, color=shared.INK, lw=1.0, ls=(0, (5, 3)), zorder=1)
    # On a linear axis the fastest batches would be a cliff at the left edge.
    if ends and max(ends.values()) > 8 * min(ends.values()):
        shared.set_symmetric_log(axes, threshold=min(first), end=max(ends.values()))
        unit += ", logarithmic"
    else:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    if any(cell.finished and cell.crossing is None for cell in summary.cells):
        unit += "; ✕ target not reached"
    axes.set_xlabel(unit)
    scores = [summary.target, *(score for cell in summary.cells for score in cell.curve_scores)]
    margin = 0.05 * (max(scores) - min(scores)) + 0.002
    axes.set_ylim(min(scores) - margin, max(scores) + margin)
    axes.set_ylabel("validation score (mean reward)")
    shared.label_ends(axes, [(f"target {summary.target:g}", summary.target, shared.INK)])
    shared.name_batches_above(axes, summary)
    return figure


def _draw_times(axes: "Axes", summary: StudySummary) -> None:
    cells = [cell for result in summary.batches for cell in text.cells_of(summary, result)]
    length, symbol = text.choose_time_unit(text.clock_seconds(cell, "elapsed") for cell in cells)
    shared.set_batch_axis(axes, summary)
    drawn, lines = [], []
    for clock, color, marker, style in (
        ("elapsed", shared.SERIES["apart"], "s", "--"),
        ("training", shared.INK, "o", "-"),
    ):
        means: list[tuple[BatchResult, float | None, float | None]] = []
        for result in summary.batches:
            exact = result.training_time if clock == "training" else result.elapsed_time
            bound = text.seconds_at_least(result, clock)
            means.append((result, exact and exact / length, bound and bound / length))
        here = marks.draw_means(axes, means, color=color, marker=marker, style=style)
        drawn += here
        lines += [(clock, here[-1], color)] if here else []
    points = [(cell, text.clock_seconds(cell, "training") / length) for cell in cells]
    drawn += marks.draw_seeds(axes, summary, points)
    shared.set_log_axis(axes, drawn)
    shared.label_ends(axes, lines)
    axes.set_title("How long does each batch take?")
    axes.set_xlabel("")
    axes.set_ylabel(f"time to target ({symbol})")
    marks.explain_marks(axes, cells, below=0.25)


def _draw_factors(axes: "Axes", summary: StudySummary) -> None:
    """Ratios to the reference; in logarithms time is the sum of the other two."""
    shared.set_batch_axis(axes, summary)
    rows = [(r, r.against_reference or _compare_with_itself(r)) for r in summary.batches]
    axes.axhline(1.0, color=shared.MUTED, lw=1.0)
    drawn, lines = [1.0], []
    for name, color, marker, aside, choose in (
        ("samples", shared.SERIES["generate"], "^", -0.05, lambda c: c.samples),
        ("1 / throughput", shared.SERIES["learn"], "s", 0.05, lambda c: invert(c.throughput)),
        ("= training time", shared.INK, "o", 0.0, lambda c: c.training_time),
    ):
        known = [(r.batch * summary.factor**aside, choose(c)) for r, c in rows]
        here = marks.draw_intervals(axes, known, color=color, marker=marker)
        drawn += [y for ends in here for y in ends]
        lines += [(name, here[-1][0], color)] if here else []
    shared.set_ratio_axis(axes, drawn)
    shared.label_ends(axes, lines)
    axes.set_title("Which factor makes it so?")
    axes.set_ylabel("ratio to the reference")


def _compare_with_itself(result: BatchResult) -> Comparison:
    """The reference's place in a figure of ratios: one, unless censored runs leave it open."""
    one, unknown = Interval(1.0, None, None), Interval(None, None, None)
    to_target = unknown if result.censored or result.multiple != 1.0 else one
    throughput = one if result.multiple == 1.0 else unknown
    return Comparison(
        setting=result.setting,
        batch=result.batch,
        against_setting=result.setting,
        against=result.batch,
        samples=to_target,
        throughput=throughput,
        training_time=to_target,
        elapsed_time=to_target,
    )


def invert(ratio: Interval) -> Interval:
    """The ratio the other way round."""
    flipped = {"at least": "at most", "at most": "at least"}
    estimate, low, high = (
        1 / value if value else None for value in (ratio.estimate, ratio.high, ratio.low)
    )
    return Interval(estimate, low, high, flipped.get(ratio.bound, ""))
