"""Three batches to choose from, and what each half of the question alone would have chosen."""

import math
from collections.abc import Iterator, Sequence

from jax_rl.report import text
from jax_rl.report.section import Section, Table
from jax_rl.report.sections.quantities import add_ends, add_near, show_quantity
from jax_rl.study.decisions.choices import SAMPLES_RATIO, Choices

_WORDS = {
    "samples": "samples to target alone",
    "generation": "generation throughput alone",
    "throughput": "throughput end to end alone",
}
_METHODS = (
    f"Efficient is the largest batch whose ratio of samples to target to the reference is at most"
    f" {SAMPLES_RATIO:g} by its point estimate; the confidence is the coverage of the one-sided"
    " t interval that ends there.",
    "The break-even is where the ratio of times to the reference goes through 1, on a straight line"
    " in log batch and log ratio between neighbouring batches; its interval is where the limits of"
    " the ratios do, each taken by itself.",
    "Regret is the time to target of the batch that was chosen over that of the fastest.",
    "Not told from the fastest: no other batch of the setting beats it beyond its one-sided"
    " simultaneous bound.",
)


def show_choices(choices: Sequence[Choices]) -> Section | None:
    """One entry per setting and clock; None without any."""
    if not choices:
        return None
    several = len({one.setting for one in choices}) > 1
    rows = [row for one in choices for row in _list_rows(one, several=several)]
    return Section(
        id="choices",
        title="Which batch should one take, and what would half the question have said?",
        paragraphs=[line for one in choices for line in _describe(one, several=several)],
        tables=[_make_table(rows, several=several)] if rows else [],
        methods=_METHODS,
    )


def _describe(one: Choices, *, several: bool) -> Iterator[str]:
    parts = []
    if one.fastest is not None:
        parts.append(f"the fastest batch is {add_near(f'{one.fastest:,}', _list_near(one))}")
    if one.efficient is not None:
        parts.append(f"the largest efficient one {one.efficient:,}{_describe_efficient(one)}")
    if one.break_even is not None:
        parts.append(_describe_break_even(one))
    where = f"{one.setting}, by the {one.clock} clock" if several else f"By the {one.clock} clock"
    if parts:
        yield f"{where}: {'; '.join(parts)}."
    if one.reason:
        yield f"{where}: something is missing, since {one.reason}."


def _list_near(one: Choices) -> list[str]:
    return [f"{batch:,}" for batch in one.near if batch != one.fastest]


def _describe_efficient(one: Choices) -> str:
    if one.efficient == one.reference:
        return ", the reference itself"
    ratio, ends = text.format_interval(one.efficient_ratio)
    words = f"samples ×{ratio}" + (f", 95 % interval {ends}" if ends else "")
    if one.efficient_confidence is not None:
        words += f"; at most ×{SAMPLES_RATIO:g} with confidence {one.efficient_confidence:.0%}"
    return f" ({words})"


def _describe_break_even(one: Choices) -> str:
    edge, reference = one.break_even, f"the reference ({one.reference:,})"
    if edge is None or edge.estimate is None:
        return f"where a batch becomes slower than {reference} is not known"
    at_reference = math.isclose(edge.estimate, one.reference)
    if edge.bound == "at least" and at_reference:
        return f"no batch larger than {reference} has a time to compare"
    if edge.bound == "at least":
        return (
            f"by the point estimates no larger batch is slower than {reference} up to"
            f" {show_quantity(edge).lstrip('> ')}{add_ends(edge)}"
        )
    if at_reference:
        return f"by the point estimates the next larger batch is slower than {reference} already"
    return (
        f"by the point estimates a batch is slower than {reference} beyond"
        f" {show_quantity(edge, 'rollouts')}{add_ends(edge)}"
    )


def _list_rows(one: Choices, *, several: bool) -> Iterator[list[str]]:
    for half in one.halves:
        ratio, ends = text.format_interval(half.regret)
        yield [
            *([one.setting] if several else []),
            _WORDS[half.by],
            one.clock,
            f"{half.batch:,}",
            ratio,
            ends or text.NOTHING,
        ]


def _make_table(rows: Sequence[Sequence[str]], *, several: bool) -> Table:
    return Table(
        id="choices",
        title="What each half alone would have chosen",
        about="Time: to target with that batch, over that of the fastest batch.",
        header=[
            *(["setting"] if several else []),
            "looking at",
            "clock",
            "batch",
            "time",
            "95 %",
        ],
        rows=rows,
    )
