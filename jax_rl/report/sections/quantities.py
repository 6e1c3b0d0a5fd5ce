"""Quantities with intervals or bounds in words, and an axis of batches, for several sections."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from jax_rl.report import text
from jax_rl.study.names import join_words
from jax_rl.study.summary import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def show_quantity(interval: Interval | None, unit: str = "") -> str:
    """`96.2 rollouts`, or `> 2,048 rollouts` for a bound."""
    if interval is None or not text.is_number(interval.estimate):
        return text.NOTHING
    sign = {"at least": "> ", "at most": "< "}.get(interval.bound, "")
    return f"{sign}{text.format_number(interval.estimate)} {unit}".strip()


def show_ends(interval: Interval | None) -> str:
    """`60.3 to 161`, `60.3 or more`, `161 or less`; a dash without an end."""
    low = None if interval is None else interval.low
    high = None if interval is None else interval.high
    if low is not None and high is not None:
        return f"{text.format_number(low)} to {text.format_number(high)}"
    if low is not None:
        return f"{text.format_number(low)} or more"
    return text.NOTHING if high is None else f"{text.format_number(high)} or less"


def add_ends(interval: Interval | None) -> str:
    """` (95 % interval 60.3 to 161)`; nothing without an end."""
    ends = show_ends(interval)
    return "" if ends == text.NOTHING else f" (95 % interval {ends})"


def add_near(first: str, others: Sequence[str]) -> str:
    """`64 (16 and 256 not told from it)`; the first alone where it is told from all."""
    return f"{first} ({join_words(others)} not told from it)" if others else first


def set_batches(axes: "Axes", batches: Iterable[int]) -> None:
    """Logarithmic x with one tick per batch."""
    ticks = sorted(set(batches))
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(ticks[0] / 1.5, ticks[-1] * 1.5)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("batch, rollouts per iteration")


def set_log_x(axes: "Axes", values: Sequence[float], *, room: float = 1.8) -> None:
    """Logarithmic x around `values`, ticks at 1, 2, 5 times powers of ten in plain numbers.

    Args:
      room: factor left free to the right, for words beside the marks.
    """
    low, high = min(values) / 1.3, max(values) * room
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 300 else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    inside = [tick for tick in ticks if low <= tick <= high]
    axes.set_xscale("log")
    axes.set_xticks(inside, [text.format_number(tick) for tick in inside])
    axes.set_xticks([], minor=True)
    axes.set_xlim(low, high)
