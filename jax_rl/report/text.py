"""Numbers and free text as the terminal, the figures and the page print them."""

import math
from collections.abc import Iterable
from fractions import Fraction

from jax_rl.study.batches import measure_cell
from jax_rl.study.summary import Arm, BatchResult, Cell, Interval, StudySummary

NOTHING = "–"
"""Stands where there is no number."""

TIME_UNITS = ((1.0, "s"), (60.0, "min"), (3600.0, "h"))


def clean(text: str) -> str:
    """Free text on one line, without the control characters that would steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def is_number(value: float | None) -> bool:
    """Whether there is a finite number to print."""
    return value is not None and math.isfinite(value)


def format_number(value: float | None) -> str:
    """Three significant digits below 100, whole with thousands separators from there on."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    if value == int(value):
        return f"{value:.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}" if digits < 6 else f"{value:.2e}"


def format_spread(value: float | None) -> str:
    """A standard deviation, two significant digits."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:.2g}"


def format_rate(value: float) -> str:
    """A learning rate."""
    return f"{value:.3g}"


def format_score(value: float | None) -> str:
    """A validation score, three decimals."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:.3f}"


def format_percent(value: float | None, *, signed: bool = False) -> str:
    """A share or a relative gap, one decimal."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{100 * value:{'+' if signed else ''}.1f} %"


def format_multiple(multiple: float) -> str:
    """A batch as its multiple of the reference: ×1/4, ×1, ×16."""
    return f"×{Fraction(multiple).limit_denominator(65_536)}"


def format_batch(result: BatchResult) -> str:
    """A batch in rollouts with its multiple: 64 (×4)."""
    return f"{result.batch:,} ({format_multiple(result.multiple)})"


def format_arm(summary: StudySummary, arm: Arm) -> str:
    """A batch as above, after its setting where the summary has several."""
    found = [r for r in summary.batches if (r.setting, r.batch) == (arm.setting, arm.batch)]
    batch = format_batch(found[0]) if found else f"{arm.batch:,}"
    return f"{arm.setting} {batch}" if len(summary.settings) > 1 else batch


def format_ratio(value: float | None) -> str:
    """A ratio, three significant digits."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:#.3g}".rstrip(".")


def format_interval(interval: Interval | None) -> tuple[str, str]:
    """A ratio and its 95 % interval, as two strings; the second is empty where there is none.

    A ratio that censored runs leave one-sided is `≥ 2.17` or `≤ 2.17`, its interval open.
    """
    if interval is None or not is_number(interval.estimate):
        return NOTHING, ""
    sign = {"at least": "≥ ", "at most": "≤ "}.get(interval.bound, "")
    low, high = format_ratio(interval.low), format_ratio(interval.high)
    bounds = {
        (True, True): f"{low}–{high}",
        (True, False): f"{low} or more",
        (False, True): f"{high} or less",
        (False, False): "",
    }[is_number(interval.low), is_number(interval.high)]
    return sign + format_ratio(interval.estimate), bounds


def format_to_target(value: float | None, at_least: float | None) -> str:
    """A quantity up to the target, or `> N` where censored runs leave only a bound."""
    if is_number(value):
        return format_number(value)
    return f"> {format_number(at_least)}" if is_number(at_least) else NOTHING


def choose_time_unit(seconds: Iterable[float | None]) -> tuple[float, str]:
    """The unit for a set of times: its length in seconds and its symbol.

    The largest unit in which the median is at least 3, so that one column has one unit.
    """
    known = sorted(value for value in seconds if value is not None and math.isfinite(value))
    median = known[len(known) // 2] if known else 0.0
    return next((u for u in reversed(TIME_UNITS) if median >= 3 * u[0]), TIME_UNITS[0])


def format_duration(seconds: float | None) -> str:
    """One time with its own unit: 42.1 s, 12.5 min, 3.2 h."""
    length, symbol = choose_time_unit([seconds])
    return NOTHING if seconds is None else f"{format_number(seconds / length)} {symbol}"


def cells_of(summary: StudySummary, result: BatchResult) -> list[Cell]:
    """The runs that a batch's row stands for, by seed."""
    arm = (result.setting, result.batch)
    cells = [c for c in summary.cells if (c.setting, c.batch) == arm and c.seed in result.seeds]
    return sorted(cells, key=lambda cell: cell.seed)


def clock_seconds(cell: Cell, clock: str) -> float:
    """Seconds to the crossing by the clock `training` or `elapsed`; censored: the bound."""
    return measure_cell(cell)[f"{clock}_time"]


def seconds_at_least(result: BatchResult, clock: str) -> float | None:
    """Geometric mean of the seconds to the target, censored runs at the length they had."""
    if clock == "training":
        known, bound = result.training_time, result.training_time_at_least
    else:
        known, bound = result.elapsed_time, result.elapsed_time_at_least
    return bound if known is None else known


def count_finished(summary: StudySummary) -> int:
    """Runs of the study that went to their end."""
    return sum(cell.finished for cell in summary.cells)
