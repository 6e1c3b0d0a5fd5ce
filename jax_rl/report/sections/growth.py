"""Which published statements about growing batches the user's own runs support."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jax_rl.report import text
from jax_rl.report.section import Drawing, Section, Table
from jax_rl.study.growth.arms import ArmShape
from jax_rl.study.growth.evidence import UNMEASURED, Evidence, Statement
from jax_rl.study.growth.statements import Growth

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def show_growth(growth: Growth) -> Section | None:
    """The section; None where no statement was put to the test."""
    tested = [one for one in growth.statements if one.outcome != UNMEASURED]
    if not tested:
        return None
    others = [one for one in growth.statements if one.outcome == UNMEASURED]
    paragraphs = [_describe(one) for one in tested]
    if others:
        claims = "; ".join(f"“{one.claim}”" for one in others)
        paragraphs.append(f"Not measured by these runs: {claims}")
    settings = list(dict.fromkeys(arm.setting for arm in growth.arms))
    known = [arm for arm in growth.arms if arm.samples is not None]
    return Section(
        id="growth",
        title="What of the batch should grow",
        paragraphs=paragraphs,
        tables=[
            _tabulate_statements(growth.statements),
            *([_tabulate_evidence(tested)] if any(one.evidence for one in tested) else []),
            _tabulate_arms(growth.arms),
        ],
        drawings=[_draw_samples(known, settings)] if len(settings) > 1 and known else [],
        methods=[f"{one.claim} {one.rule}" for one in growth.statements],
    )


def _describe(one: Statement) -> str:
    numbers = [f"{e.name}, {e.measure} {_format(e)}" for e in one.evidence]
    rests = f" ({'; '.join(numbers)})" if numbers else ""
    return f"{one.outcome.capitalize()}: {one.claim}{rests} [{one.source}]"


def _format(one: Evidence) -> str:
    return f"{text.format_number(one.estimate)}{_format_ends(one, ', 95 % ')}"


def _format_ends(one: Evidence, lead: str = "") -> str:
    low = None if one.low is None else text.format_number(one.low)
    high = None if one.high is None else text.format_number(one.high)
    if low and high:
        return f"{lead}{low} to {high}"
    return f"{lead}{low} or more" if low else f"{lead}{high} or less" if high else ""


def _tabulate_statements(statements: Sequence[Statement]) -> Table:
    return Table(
        id="growth-statements",
        title="Published statements and these runs",
        about=(
            "Supported or contradicted only where an interval says so; undecided where it does not;"
            " not measured where the study has no arms for it."
        ),
        header=["statement", "published in", "these runs"],
        rows=[[one.claim, one.source, one.outcome] for one in statements],
    )


def _tabulate_evidence(statements: Sequence[Statement]) -> Table:
    rows = [
        [
            f"{one.id}: {found.name}",
            found.measure,
            text.format_number(found.estimate),
            _format_ends(found) or text.NOTHING,
        ]
        for one in statements
        for found in one.evidence
    ]
    return Table(
        id="growth-evidence",
        title="The numbers that the statements rest on",
        about="95 % intervals; those of ratios to another arm hold together within a statement.",
        header=["compared", "number", "estimate", "interval"],
        rows=rows,
    )


def _tabulate_arms(arms: Sequence[ArmShape]) -> Table:
    length, unit = text.choose_time_unit(arm.training_time for arm in arms)
    rows = [
        [
            f"{arm.setting} {arm.batch:,}",
            f"{arm.prompts:,}",
            f"{arm.group:,}",
            str(arm.updates),
            text.format_number(arm.devices or None),
            text.format_number(arm.samples),
            text.format_number(None if arm.training_time is None else arm.training_time / length),
            text.format_number(arm.device_hours),
        ]
        for arm in arms
    ]
    return Table(
        id="growth-arms",
        title="What each batch is made of",
        about="Geometric means over runs; – where a run missed the target.",
        header=[
            "setting and batch",
            "prompts",
            "rollouts per prompt",
            "updates per batch",
            "devices",
            "samples to target",
            f"training time, {unit}",
            "device-hours",
        ],
        rows=rows,
    )


def _draw_samples(arms: Sequence[ArmShape], settings: Sequence[str]) -> Drawing:
    markers = "osD^v<>Ph*"

    def draw(axes: "Axes") -> None:
        from matplotlib.ticker import NullLocator

        from jax_rl.report.axes import set_log_axis

        for place, setting in enumerate(settings):
            line = sorted((a for a in arms if a.setting == setting), key=lambda arm: arm.batch)
            axes.plot(
                [arm.batch for arm in line],
                [arm.samples or 0.0 for arm in line],
                marker=markers[place % len(markers)],
                label=setting,
            )
        batches = sorted({arm.batch for arm in arms})
        axes.set_xscale("log")
        axes.set_xticks(batches, [f"{batch:,}" for batch in batches])
        axes.xaxis.set_minor_locator(NullLocator())
        set_log_axis(axes, [arm.samples or 0.0 for arm in arms])
        axes.set_xlabel("batch (rollouts)")
        axes.set_ylabel("samples to target (rollouts)")
        axes.legend()

    words = "; ".join(
        f"{arm.setting} {arm.batch:,}: {text.format_number(arm.samples)}" for arm in arms
    )
    return Drawing(
        name="growth_samples",
        heading="Does it matter how a batch grows?",
        reading=(
            "Where two settings' lines lie on each other, only the size of the batch counts; where"
            " they part, what it is made of does."
        ),
        description=f"Samples to target against batch, one line per setting. {words}.",
        draw=draw,
    )
