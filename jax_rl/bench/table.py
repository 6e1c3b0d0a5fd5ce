"""A table of throughput in a terminal; fits 80 columns."""

from typing import TYPE_CHECKING

from jax_rl.throughput import ThroughputPoint, ThroughputTable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_GIB = 2**30
_SHOWN = ("generate", "learn")

HEADER = (
    "batch",
    "rollouts/s",
    "tokens/s",
    "generate",
    "learn",
    "rest",
    "length",
    "steps",
    "peak GiB",
)


def list_rows(table: ThroughputTable, layout: str) -> list[list[str]]:
    """A row for each point of a layout; one that does not fit is a misfit, explained below."""
    return [_describe_point(point) for point in table.points if point.layout == layout]


def list_remarks(table: ThroughputTable) -> list[str]:
    """Lines below the table: rates over a replayed run, what did not fit, notes."""
    lines: list[str] = []
    for point in table.points:
        where = f"{point.layout}, batch {point.batch:,}"
        if point.by_progress:
            rates = "  ".join(_format(rate) for rate in point.by_progress)
            lines.append(f"{where}: rollouts/s by tenth of the run: {rates}")
        lines += [f"{where}: {note}" for note in point.notes]
    return [*lines, *(f"Note: {note}." for note in table.notes)]


def print_throughput(table: ThroughputTable, *, console: "Console | None" = None) -> None:
    """Prints the table; plain text where the output is not a terminal."""
    from rich.console import Console

    (console or Console(highlight=False)).print(_render(table))


def _describe_point(point: ThroughputPoint) -> list[str]:
    if point.fits is False:
        return [f"{point.batch:,}", "misfit", *[""] * (len(HEADER) - 2)]
    rest = sum(value for phase, value in point.seconds.items() if phase not in _SHOWN)
    peak = point.peak_memory_bytes
    return [
        f"{point.batch:,}",
        _format(point.rollouts_per_second),
        _format(point.rollouts_per_second * point.mean_length),
        *(_format(point.seconds.get(phase, 0.0)) for phase in _SHOWN),
        _format(rest),
        _format(point.mean_length),
        _format(point.decode_steps),
        "–" if peak is None else f"{peak / _GIB:.2f}",
    ]


def _format(value: float) -> str:
    """Three significant digits below 100, whole from there on."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def _render(table: ThroughputTable) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    processes = f", {table.process_count} processes" if table.process_count > 1 else ""
    title = (
        f"Throughput on {table.device_count} x {table.device_kind} ({table.platform}){processes};"
        " generate, learn and rest are seconds of one iteration"
    )
    layouts = dict.fromkeys(point.layout for point in table.points)
    return Group(
        Text(title, style="bold"),
        *(_render_layout(table, layout) for layout in layouts),
        *(Text(line) for line in list_remarks(table)),
    )


def _render_layout(table: ThroughputTable, layout: str) -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(
        title=Text(f"\nLayout {layout}"),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for column in HEADER:
        grid.add_column(Text(column), justify="right", no_wrap=True)
    for row in list_rows(table, layout):
        grid.add_row(*(Text(value) for value in row))
    return grid
