"""Marks that several figures share: runs, geometric means, intervals, one-sided bounds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jax_rl.report.axes import MUTED, batch_colors
from jax_rl.study.summary import BatchResult, Cell, Interval, StudySummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_means(
    axes: "Axes",
    means: Sequence[tuple[BatchResult, float | None, float | None]],
    *,
    color: str,
    marker: str = "o",
    style: str = "-",
) -> list[float]:
    """Geometric means joined by a line; where only a lower bound is known, an open arrow."""
    exact = [(r.batch, mean) for r, mean, _ in means if mean is not None]
    bounds = [(r.batch, bound) for r, mean, bound in means if mean is None and bound is not None]
    axes.plot([b for b, _ in exact], [m for _, m in exact], style, color=color, lw=1.6, zorder=2)
    for batch, mean in exact:
        axes.plot([batch], [mean], marker, color=color, ms=9, mfc="white", mew=1.8, zorder=3)
    for batch, bound in bounds:
        axes.plot([batch], [bound], "^", color=color, ms=11, mfc="white", mew=1.8, zorder=3)
    return [value for _, value in exact + bounds]


def draw_seeds(
    axes: "Axes", summary: StudySummary, points: Sequence[tuple[Cell, float]]
) -> list[float]:
    """One mark per run, set apart a little by seed: dots, and upward arrows if censored."""
    colors = batch_colors(summary)
    seeds = sorted({cell.seed for cell, _ in points})
    for cell, value in points:
        # Seeds of one batch would hide each other and the mean on the same abscissa.
        aside = summary.factor ** (0.16 + 0.2 * seeds.index(cell.seed) / max(1, len(seeds) - 1))
        marker, size = ("o", 6) if cell.crossing is not None else (r"$\uparrow$", 13)
        color = colors[cell.batch]
        axes.plot([cell.batch * aside], [value], marker=marker, ms=size, color=color, mew=0.5)
    return [value for _, value in points]


def explain_marks(axes: "Axes", cells: Sequence[Cell], *, below: float) -> None:
    censored = any(cell.crossing is None for cell in cells)
    words = "○ geometric mean   ● one run"
    words += "   ↑ target not reached (△ mean is at least this)" if censored else ""
    axes.text(0.0, -below, words, transform=axes.transAxes, color=MUTED, fontsize=10)


def draw_intervals(
    axes: "Axes", known: Sequence[tuple[float, Interval]], *, color: str, marker: str
) -> list[list[float]]:
    """A line through the ratios, bars for their intervals, arrows for one-sided ones.

    Returns, per ratio that was drawn: the ratio, then the ends of its interval.
    """
    points = [(x, i.estimate, i) for x, i in known if i.estimate is not None]
    exact = [(x, y) for x, y, i in points if not i.bound]
    width = 2.6 if marker == "o" else 1.6
    axes.plot([x for x, _ in exact], [y for _, y in exact], color=color, marker=marker, lw=width)
    drawn = []
    for x, y, i in points:
        ends = [y, *(end for end in (i.low, i.high) if end is not None)]
        axes.plot([x, x], [min(ends), max(ends)], color=color, lw=1.2, alpha=0.7)
        if i.bound:
            arrow = r"$\uparrow$" if i.bound == "at least" else r"$\downarrow$"
            axes.plot([x], [y], marker=arrow, ms=13, color=color, mew=0.5)
        drawn.append(ends)
    return drawn
