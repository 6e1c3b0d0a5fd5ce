"""What reaching the target costs in device-hours and money, and the trade between time and cost."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from jax_rl.report import axes as shared
from jax_rl.report import text
from jax_rl.report.section import Drawing, Section, Table
from jax_rl.report.sections.quantities import add_near, set_log_x
from jax_rl.study.decisions.cost import ArmCost, Costs
from jax_rl.study.summary import arm_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_METHODS = (
    "Device-hours are devices times hours to the target; savings are against the reference arm, and"
    " negative where more is spent.",
    "Device-hours of an arm are the geometric mean over its runs of devices times hours. Not told"
    " from the cheapest: no other arm needs fewer device-hours beyond its one-sided simultaneous"
    " bound.",
    "On the front no other arm needs neither more time nor more device-hours.",
)


def show_costs(costs: Sequence[Costs]) -> Section | None:
    """One entry per clock; None where no arm has a cost, nor a reason for having none."""
    known = [one for one in costs if any(arm.device_hours is not None for arm in one.arms)]
    refused = [f"By the {one.clock} clock: no cost, {one.reason}." for one in costs if one.reason]
    if not known and not refused:
        return None
    return Section(
        id="cost",
        title="What does it cost?",
        paragraphs=[*(_describe(one) for one in known), *refused],
        tables=[_make_table(one) for one in known],
        drawings=[_make_drawing(one) for one in known if one.several_device_counts],
        methods=_METHODS,
    )


def _name(one: Costs, arm: ArmCost) -> str:
    several = len({other.setting for other in one.arms}) > 1
    return f"{arm.setting} {arm.batch:,}" if several else f"{arm.batch:,}"


def _describe(one: Costs) -> str:
    known = [arm for arm in one.arms if arm.device_hours is not None]
    best = min(known, key=lambda arm: arm.device_hours or 0.0)
    near = [_name(one, arm) for arm in one.arms if arm != best and _is_cheapest(one, arm)]
    words = (
        f"By the {one.clock} clock the cheapest batch is {add_near(_name(one, best), near)} with"
        f" {text.format_number(best.device_hours)} device-hours"
    )
    if best.money is not None:
        words += f", {_show_money(best.money, one)}"
    if (best.setting, best.batch) == (one.reference_setting, one.reference_batch):
        words += ": the reference itself"
    elif best.saved_share is not None:
        words += (
            f": by the point estimates {text.format_percent(best.saved_share)} less than the"
            f" reference, i.e. {text.format_number(best.saved_device_hours)} device-hours"
        )
        if best.saved_money is not None:
            words += f" or {_show_money(best.saved_money, one)}"
    if one.price is None:
        words += ". No price was given (--price)"
    return f"{words}."


def _is_cheapest(one: Costs, arm: ArmCost) -> bool:
    return arm_of(arm) in one.cheapest


def _show_money(money: float | None, one: Costs) -> str:
    return text.NOTHING if money is None else f"{money:,.2f} {one.currency}"


def _make_table(one: Costs) -> Table:
    length, symbol = text.choose_time_unit(arm.seconds for arm in one.arms)
    priced = one.price is not None
    rows = []
    for arm in one.arms:
        row = [
            _name(one, arm),
            text.format_number(arm.devices),
            text.format_number(None if arm.seconds is None else arm.seconds / length),
            text.format_to_target(arm.device_hours, arm.device_hours_at_least),
            text.format_percent(arm.saved_share),
            text.format_number(arm.saved_device_hours),
        ]
        if priced:
            row += [_show_money(arm.money, one), _show_money(arm.saved_money, one)]
        rows.append([*row, "yes" if arm.on_front else ""])
    money = [f"price at {one.price:g} {one.currency}/h", "saved"] if priced else []
    return Table(
        id=f"cost_{one.clock}",
        title=f"Cost to target, {one.clock} clock",
        about="Saved: against the reference. Front: no other needs neither more time nor more"
        " device-hours.",
        header=[
            "batch",
            "devices",
            f"time, {symbol}",
            "device-hours",
            "saved",
            "device-hours saved",
            *money,
            "on the front",
        ],
        rows=rows,
    )


def _make_drawing(one: Costs) -> Drawing:
    return Drawing(
        name=f"front_{one.clock}",
        heading=f"Time against device-hours, {one.clock} clock",
        reading="To the left is sooner, below is cheaper; the line joins the arms to which no other"
        " is better in both.",
        description=_describe(one),
        draw=partial(_draw_front, one=one),
    )


def _draw_front(axes: "Axes", *, one: Costs) -> None:
    known = [arm for arm in one.arms if arm.seconds is not None and arm.device_hours is not None]
    length, symbol = text.choose_time_unit(arm.seconds for arm in known)
    front = sorted(
        ((arm.seconds or 0.0) / length, arm.device_hours or 0.0) for arm in known if arm.on_front
    )
    axes.plot(*zip(*front, strict=True), color="#0072b2", lw=1.6)
    for arm in known:
        x, y = (arm.seconds or 0.0) / length, arm.device_hours or 0.0
        axes.plot([x], [y], "o", color="#0072b2" if arm.on_front else shared.MUTED, ms=7)
        devices = f"{text.format_number(arm.devices)} device{'s' if arm.devices > 1 else ''}"
        axes.annotate(
            f"{_name(one, arm)}, {devices}",
            (x, y),
            xytext=(6, 5),
            textcoords="offset points",
            fontsize=9,
            color=shared.MUTED,
        )
    set_log_x(axes, [(arm.seconds or 0.0) / length for arm in known])
    shared.set_log_axis(axes, [arm.device_hours or 0.0 for arm in known])
    axes.set_xlabel(f"time to target ({symbol})")
    axes.set_ylabel("device-hours")
