"""Setting x batch as tables: the numbers, the time relative to the best, the samples' ratios."""

import dataclasses
import math
from collections.abc import Callable

from jax_rl.report import text
from jax_rl.report.views import find_result, list_batches, name_settings
from jax_rl.study.summary import Arm, BatchResult, StudySummary, Verdict, arm_of
from jax_rl.study.words import time_ratio

FADED = 4.0
"""A time this many times the best has no colour left."""

HEAT_READING = (
    "Time to target over that of the fastest, whose place is 1; = marks what cannot be told from"
    " it, > a bound from runs that missed the target."
)

SAMPLES_READING = (
    "Same batch, same seeds, so that the ratio is 1 up to noise; with 95 % intervals over pairs of"
    " runs."
)


@dataclasses.dataclass(frozen=True)
class HeatCell:
    """A time relative to the best."""

    shown: str
    heat: float  # 1 for the best, 0 from 4 times its time on
    near: bool  # the fastest, or not told from it


@dataclasses.dataclass(frozen=True)
class Grid:
    """A number for each setting and batch."""

    title: str
    about: str
    header: list[str]
    rows: list[list[str]]


def heat_rows(
    summary: StudySummary, verdict: Verdict
) -> tuple[list[str], list[tuple[str, list[HeatCell]]]]:
    """Header and rows, setting x batch; no rows where no arm is the fastest."""
    header = _make_header(summary)
    if verdict.fastest is None:
        return header, []
    ratios = {arm_of(c): time_ratio(c, verdict.clock) for c in verdict.against_fastest}
    best = Arm(verdict.setting or "", verdict.fastest)

    def show(arm: Arm) -> HeatCell:
        if arm == best:
            return HeatCell("1", 1.0, True)
        ratio = ratios.get(arm)
        if ratio is None or ratio.estimate is None:
            return HeatCell(text.NOTHING, 0.0, False)
        bound = "> " if ratio.bound == "at least" else ""
        near = arm in verdict.arms
        return HeatCell(
            f"{bound}{text.format_ratio(ratio.estimate)}{' =' if near else ''}",
            min(1.0, max(0.0, 1 - math.log(ratio.estimate) / math.log(FADED))),
            near,
        )

    batches = [result.batch for result in list_batches(summary)]
    return header, [
        (setting.setting, [show(Arm(setting.setting, batch)) for batch in batches])
        for setting in summary.settings
    ]


def list_grids(summary: StudySummary) -> list[Grid]:
    """The numbers by setting and batch; samples alone where seconds are not compared."""
    unmoved = "; a layout should not move them" if name_settings(summary) == "layout" else ""
    samples = _make_grid(
        summary,
        "Samples to target",
        f"Rollouts, geometric means over seeds{unmoved}.",
        lambda r: text.format_to_target(r.samples_to_target, r.samples_at_least),
    )
    if summary.incomparable:
        return [samples]
    length, symbol = text.choose_time_unit(
        text.seconds_at_least(result, "training") for result in summary.batches
    )

    def show_time(result: BatchResult) -> str:
        bound = text.seconds_at_least(result, "training")
        exact = result.training_time
        return text.format_to_target(exact and exact / length, bound and bound / length)

    return [
        _make_grid(
            summary,
            f"Training time to target, {symbol}",
            "Geometric means over seeds.",
            show_time,
        ),
        _make_grid(
            summary,
            "Throughput, rollouts per second",
            "By the training clock.",
            lambda r: text.format_number(r.throughput),
        ),
        samples,
    ]


SAMPLES_HEADER = ["layout", "against", "batch", "pairs", "samples", "95 % interval", "differs"]


def samples_rows(summary: StudySummary) -> list[list[str]]:
    """The ratios of samples between layouts."""
    rows = []
    for ratio in summary.layout_ratios:
        shown, ends = text.format_interval(ratio.samples)
        batch = "all" if ratio.batch is None else f"{ratio.batch:,}"
        told = "yes" if ratio.differs else "no" if ends else text.NOTHING
        pairs = str(ratio.pairs)
        rows.append([ratio.setting, ratio.against, batch, pairs, shown, ends or text.NOTHING, told])
    return rows


def _make_header(summary: StudySummary) -> list[str]:
    return [
        name_settings(summary),
        *(text.format_batch(result) for result in list_batches(summary)),
    ]


def _make_grid(
    summary: StudySummary, title: str, about: str, show: Callable[[BatchResult], str]
) -> Grid:
    batches = [result.batch for result in list_batches(summary)]

    def find(arm: Arm) -> str:
        result = find_result(summary, arm)
        return text.NOTHING if result is None else show(result)

    rows = [
        [setting.setting, *(find(Arm(setting.setting, batch)) for batch in batches)]
        for setting in summary.settings
    ]
    return Grid(title, about, _make_header(summary), rows)
