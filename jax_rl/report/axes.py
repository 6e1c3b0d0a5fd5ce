"""What all figures share: the style, the palettes, the axes, labels beside the lines."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jax_rl.report.text import format_multiple, format_number
from jax_rl.report.views import list_batches
from jax_rl.study.summary import StudySummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 6.8  # inches; at this width the page shows the figures in their own size

INK = "#22252a"
MUTED = "#6b7078"

# Okabe and Ito's palette, in which each pair can be told apart under colour blindness.
SERIES = {"total": INK, "generate": "#d55e00", "learn": "#0072b2", "apart": "#6b7078"}

STYLE: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so that all machines draw the same
    "font.size": 11,
    "axes.titlesize": 12.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#9a9ea5",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "figure.constrained_layout.h_pad": 0.12,  # inches
    "figure.constrained_layout.w_pad": 0.12,
    "axes.axisbelow": True,
    "grid.color": "#e6e7e9",
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 10.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.dpi": 160,
    "svg.fonttype": "path",
    "svg.hashsalt": "jax_rl",  # ids in the SVG are then the same each time
}


@contextlib.contextmanager
def use_style() -> Iterator[None]:
    """The report's own style; a reader's matplotlibrc does not change the figures."""
    import matplotlib.style

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.style.use(STYLE)
        yield


def batch_colors(summary: StudySummary) -> dict[int, Any]:
    """One colour per batch, dark to light in the order of the batches."""
    from matplotlib import colormaps

    # The lightest fifth of the map is too faint on white.
    count = len(summary.batches)
    return {
        result.batch: colormaps["plasma"](0.8 * i / max(1, count - 1))
        for i, result in enumerate(summary.batches)
    }


def name_batches_above(axes: "Axes", summary: StudySummary) -> None:
    """A legend of the batches' colours between the title and the axes, in rows from the left."""
    from matplotlib.lines import Line2D

    colors = batch_colors(summary)
    labels = {r.batch: f"{format_multiple(r.multiple)} ({r.batch:,})" for r in summary.batches}
    handles = [Line2D([], [], color=colors[b], lw=3, label=label) for b, label in labels.items()]
    columns = 5 if max(map(len, labels.values())) < 13 else 3
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        handlelength=1.1,
        columnspacing=1.3,
    )
    rows = math.ceil(len(handles) / columns)
    axes.set_title(axes.get_title(loc="left"), pad=12 + 18 * rows)


def set_batch_axis(axes: "Axes", summary: StudySummary) -> None:
    """Logarithmic x with one tick per batch: its multiple, and the rollouts under it."""
    results = list_batches(summary)
    batches = [result.batch for result in results]
    labels = [f"{format_multiple(r.multiple)}\n{r.batch:,}" for r in results]
    axes.set_xscale("log")
    axes.set_xticks(batches, labels)
    axes.set_xticks([], minor=True)
    margin = summary.factor**0.45
    axes.set_xlim(batches[0] / margin, batches[-1] * margin)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("batch: multiple of the reference, rollouts per iteration")


def set_log_axis(axes: "Axes", values: Sequence[float], *, least_range: float = 4.0) -> None:
    """Logarithmic y around `values`, ticks at 1, 2, 5 times powers of ten in plain numbers.

    The axis spans at least the factor `least_range`, so that noise does not fill the picture.
    """
    low, high = min(values, default=1.0), max(values, default=1.0)
    widen = max(1.0, math.sqrt(least_range / (high / low)))
    low, high = low / widen / 1.15, high * widen * 1.15
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps: tuple[float, ...] = (1, 2, 5) if high / low < 300 else (1,)
    _set_ticks(axes, [s * 10.0**d for d in decades for s in steps], (low, high), format_number)


def set_ratio_axis(axes: "Axes", values: Sequence[float]) -> None:
    """Logarithmic y for ratios, symmetric in meaning: ticks at powers of two, as fractions."""
    widest = max(2.0, *(max(v, 1 / v) for v in values))
    low = min(1 / 1.5, min(values) / 1.2)
    high = max(1.5, max(values) * 1.2)
    step = 1 if widest < 32 else 2
    powers = range(-16 * step, 16 * step + 1, step)
    _set_ticks(axes, [2.0**p for p in powers], (low, high), format_multiple)


def set_symmetric_log(axes: "Axes", *, threshold: float, end: float) -> None:
    """Logarithmic x from `threshold` on, linear from 0 to there, so that the start is shown."""
    axes.set_xscale("symlog", linthresh=threshold, linscale=0.4)
    ticks = [0.0]
    decade = math.floor(math.log10(threshold))
    candidates = [s * 10.0**d for d in range(decade, decade + 12) for s in (1, 2, 5)]
    ticks += [tick for tick in candidates if threshold <= tick <= end]
    axes.set_xticks(ticks, [format_number(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(0, end * 1.08)


def _set_ticks(
    axes: "Axes",
    ticks: Sequence[float],
    limits: tuple[float, float],
    show: Callable[[float], str],
) -> None:
    inside = [tick for tick in ticks if limits[0] <= tick <= limits[1]]
    axes.set_yscale("log")
    axes.set_yticks(inside, [show(tick) for tick in inside])
    axes.set_yticks([], minor=True)
    axes.set_ylim(*limits)


def label_ends(
    axes: "Axes", labels: Sequence[tuple[str, float, Any]], *, gap: float = 0.075
) -> None:
    """Writes (text, y, colour) to the right of the axes, pushed apart to `gap` of its height.

    The limits of the axes have to be set before.
    """
    to_fraction = axes.transData + axes.transAxes.inverted()
    right = axes.get_xlim()[1]
    wanted = [(float(to_fraction.transform((right, y))[1]), text, c) for text, y, c in labels]
    wanted.sort(key=lambda entry: entry[0])
    places = spread([place for place, _, _ in wanted], gap=gap)
    for place, (_, text, color) in zip(places, wanted, strict=True):
        axes.text(1.02, place, text, color=color, transform=axes.transAxes, va="center")


def spread(places: Sequence[float], *, gap: float) -> list[float]:
    """Ascending places moved as little as is needed for neighbours to be `gap` apart."""
    # Least squares with an order constraint: the isotonic fit of places[i] - i * gap.
    blocks: list[list[float]] = []
    for i, place in enumerate(places):
        blocks.append([place - i * gap])
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    level = [_mean(block) for block in blocks for _ in block]
    return [value + i * gap for i, value in enumerate(level)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
