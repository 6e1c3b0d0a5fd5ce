"""A plan in a terminal: narrow tables, one under the other, and what to know of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jax_rl.costs.program import ProgramCosts
from jax_rl.plan.predict import STAGES, VALIDATE, Prediction
from jax_rl.plan.run import Plan

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_GIB = 2**30
Rows = list[list[str]]


def list_memory_rows(plan: Plan) -> tuple[list[str], Rows]:
    """Header and a row for each point: GiB per device by stage, and whether they suffice."""
    header = [
        "layout",
        "batch",
        *(f"{name}, GiB" for name in ("state", *STAGES)),
        "validate (paper)",
        "fits",
    ]
    rows = [
        [
            one.point.request.layout,
            f"{one.point.plan.size:,}",
            _gib(one.state),
            *(_gib(one.memory.get(stage)) for stage in (*STAGES, VALIDATE)),
            {True: "yes", False: "no", None: "not known"}[one.fits],
        ]
        for one in plan.predictions
    ]
    return header, rows


def list_time_rows(plan: Plan) -> tuple[list[str], Rows]:
    """Header and a row for each point: least seconds by stage, MFU and rollouts/s at most."""
    header = ["layout", "batch", *(f"{name}, s" for name in STAGES), "MFU", "rollouts/s"]
    rows = [
        [
            one.point.request.layout,
            f"{one.point.plan.size:,}",
            *(_format(one.seconds.get(stage)) for stage in STAGES),
            f"{one.mfu:.1%}" if one.seconds else "–",
            _format(one.throughput) if one.throughput else "–",
        ]
        for one in plan.predictions
    ]
    return header, rows


def list_program_rows(one: Prediction) -> tuple[list[str], Rows]:
    """Header and a row for each program of a point: what one call costs."""
    header = ["program", "calls", "TFLOP", "GB", "sent GB", "least s", "bound", "MFU"]
    rows = [
        [
            name,
            str(one.calls[name]),
            _format(costs.flops / 1e12),
            _format(costs.bytes / 1e9),
            _format(sum(c.bytes for c in costs.collectives) / 1e9),
            _format(one.bounds[name].seconds),
            one.bounds[name].bound,
            f"{one.bounds[name].mfu:.0%}",
        ]
        for name, costs in one.costs.items()
    ]
    return header, rows


def list_collective_rows(one: Prediction) -> tuple[list[str], Rows]:
    """Header and a row for each kind of exchange over the same axes in a program of a point."""
    header = ["program", "collective", "over", "devices", "count", "GB per call"]
    rows = [
        [name, *row] for name, costs in one.costs.items() for row in _describe_collectives(costs)
    ]
    return header, rows


def list_lines(plan: Plan) -> list[str]:
    """Lines below the tables: largest batches, mappings, notes of points and of the plan."""
    lines = [f"Largest batch, {one.layout}: {one.text}." for one in plan.largest]
    by_note: dict[tuple[str, str], list[str]] = {}
    for one in plan.predictions:
        layout, batch = one.point.request.layout, f"{one.point.plan.size:,}"
        lines.append(f"{layout}: {one.point.plan.describe()}")
        for note in one.notes:
            by_note.setdefault((layout, note), []).append(batch)
    lines += [
        f"{layout}, batch {' and '.join(batches)}: {note}"
        for (layout, note), batches in by_note.items()
    ]
    lines += [f"Note: {note}." for note in plan.notes]
    done = plan.compiled
    lines.append(
        f"{done['programs']:.0f} programs, {done['cached']:.0f} of them from the cache; the others"
        f" took {done['processor_seconds']:,.0f} seconds of a core to compile."
    )
    return lines


def print_plan(plan: Plan, *, console: "Console | None" = None) -> None:
    """Prints the plan; plain text where the output is not a terminal."""
    from rich.console import Console

    (console or Console(highlight=False)).print(_render(plan))


def _list_shown(plan: Plan) -> list[Prediction]:
    """The point with the largest batch of each layout."""
    last = {one.point.request.layout: one for one in plan.predictions}
    return list(last.values())


def _describe_collectives(costs: ProgramCosts) -> Sequence[list[str]]:
    return [
        [
            one.kind,
            "+".join(one.axes) or "unknown",
            str(one.group),
            f"{one.count:,.0f}",
            _format(one.bytes / 1e9),
        ]
        for one in costs.collectives
    ]


def _gib(size: int | None) -> str:
    return "–" if size is None else f"{size / _GIB:.2f}"


def _format(value: float | None) -> str:
    """Three significant digits below 100, whole from there on."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def _render(plan: Plan) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    count, kind = plan.devices["count"], plan.devices["kind"]
    title = f"{plan.target.name}: {count} x {kind}, {plan.chip.memory_bytes / _GIB:.2f} GiB each"
    return Group(
        _make_table(f"{title}; at the peak of each stage", *list_memory_rows(plan)),
        _make_table("Least seconds of one iteration, rollouts at most", *list_time_rows(plan)),
        *(table for one in _list_shown(plan) for table in _make_details(one)),
        *(Text(line) for line in list_lines(plan)),
    )


def _make_details(one: Prediction) -> "list[RenderableType]":
    where = f"{one.point.request.layout}, batch {one.point.plan.size:,}"
    return [
        _make_table(f"{where}: one call of each program, per device", *list_program_rows(one)),
        _make_table(f"{where}: what a device sends in one call", *list_collective_rows(one)),
    ]


def _make_table(title: str, header: list[str], rows: Rows) -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(
        title=Text(title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for place, column in enumerate(header):
        grid.add_column(Text(column), justify="left" if place == 0 else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(value) for value in row))
    return grid
