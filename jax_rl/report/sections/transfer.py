"""The study's samples with the throughput of other hardware."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from jax_rl.report import axes as shared
from jax_rl.report import text
from jax_rl.report.section import Drawing, Section, Table
from jax_rl.report.sections.quantities import set_batches
from jax_rl.study.decisions.transfer import Transfer, TransferArm

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_METHODS = (
    "Time on other hardware is the study's samples to target over the table's rollouts per second,"
    " summed over the way to the target where the table has the rates of a replayed run by tenths;"
    " by the training clock.",
    "Intervals are those of the study's samples; the table's throughput is taken as exact.",
    "A plan gives upper bounds of throughput, hence lower bounds of time, and no verdict.",
)


def show_transfers(transfers: Sequence[Transfer]) -> Section | None:
    """One entry per table and layout; None without any."""
    if not transfers:
        return None
    numbered = list(enumerate(transfers, 1))
    return Section(
        id="transfer",
        title="And on other hardware?",
        paragraphs=[line for one in transfers for line in _describe(one)],
        tables=[_make_table(one, number) for number, one in numbered],
        drawings=[
            _make_drawing(one, number)
            for number, one in numbered
            if any(_read_time(arm) is not None for arm in one.arms)
        ],
        methods=_METHODS,
    )


def _read_time(arm: TransferArm) -> float | None:
    return arm.time if arm.time is not None else arm.time_at_least


def _describe(one: Transfer) -> list[str]:
    lines = [*one.sentences, *(f"Left out: {reason}." for reason in one.missing)]
    return [f"{text.clean(line)}" for line in (*lines, *(f"Note: {note}." for note in one.notes))]


def _make_table(one: Transfer, number: int) -> Table:
    length, symbol = text.choose_time_unit(_read_time(arm) for arm in one.arms)
    predicted = one.kind == "predicted"
    rows = []
    for arm in one.arms:
        time, bound = (
            None if value is None else value / length for value in (arm.time, arm.time_at_least)
        )
        ratio, ends = text.format_interval(arm.against_reference)
        rows.append(
            [
                f"{arm.batch:,}",
                text.format_number(arm.samples),
                ("≤ " if predicted else "") + text.format_number(arm.throughput),
                text.format_to_target(time, bound),
                *([] if predicted else [ratio, ends or text.NOTHING]),
                text.format_number(arm.own_throughput),
                text.format_number(None if arm.own_time is None else arm.own_time / length),
            ]
        )
    ratios = [] if predicted else ["against the reference", "95 %, samples alone"]
    return Table(
        id=f"transfer_{number}",
        title=f"{one.kind.capitalize()}: {one.hardware}, {one.layout}",
        about=f"From {text.clean(one.source)}; the last two columns are the study's own hardware.",
        header=[
            "batch",
            "samples to target",
            "rollouts/s there",
            f"training time there, {symbol}",
            *ratios,
            "rollouts/s here",
            f"training time here, {symbol}",
        ],
        rows=rows,
    )


def _make_drawing(one: Transfer, number: int) -> Drawing:
    return Drawing(
        name=f"transfer_times_{number}",
        heading=f"Time to target, {one.kind} on {one.hardware}",
        reading="Grey: the study's own hardware. Triangles are lower bounds.",
        description=text.clean(" ".join(one.sentences)),
        draw=partial(_draw_times, one=one),
    )


def _draw_times(axes: "Axes", *, one: Transfer) -> None:
    there = [(arm.batch, arm.time) for arm in one.arms if arm.time is not None]
    bounds = [(arm.batch, arm.time_at_least) for arm in one.arms if arm.time_at_least is not None]
    own = [(arm.batch, arm.own_time) for arm in one.arms if arm.own_time is not None]
    length, symbol = text.choose_time_unit(seconds for _, seconds in (*there, *bounds))
    series = (
        (own, shared.MUTED, "o-", "the study's own"),
        (there, "#0072b2", "o-", one.kind),
        (bounds, "#0072b2", "^", "at least"),
    )
    drawn: list[float] = []
    for points, color, style, label in series:
        if points:
            values = [seconds / length for _, seconds in points]
            axes.plot([b for b, _ in points], values, style, color=color, label=label, ms=7)
            drawn += values
    set_batches(axes, [arm.batch for arm in one.arms])
    shared.set_log_axis(axes, drawn)
    axes.set_ylabel(f"training time to target ({symbol})")
    axes.legend()
