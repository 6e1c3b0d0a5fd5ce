"""The result of a study in a terminal: narrow tables, one under the other, then the verdict."""

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jax_rl.report import setting_tables, text
from jax_rl.report.views import describe_rule, has_several, list_views, name_settings
from jax_rl.study.clocks import name_the_same
from jax_rl.study.summary import Arm, BatchResult, Comparison, StudySummary, Verdict, arm_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Rows = list[list[str]]


def target_rows(summary: StudySummary) -> tuple[list[str], Rows]:
    """Header and rows of what each batch needed to reach the target."""
    length, symbol = text.choose_time_unit(
        text.seconds_at_least(result, "elapsed") for result in summary.batches
    )
    header = ["batch", "rate", "seeds at target", "samples to target", "updates", "rollouts/s"]
    header += [f"training time, {symbol}", f"elapsed time, {symbol}"]

    def show_time(result: BatchResult, seconds: float | None, clock: str) -> str:
        bound = text.seconds_at_least(result, clock)
        return text.format_to_target(
            None if seconds is None else seconds / length,
            None if bound is None else bound / length,
        )

    rows = [
        [
            text.format_batch(result),
            text.format_rate(result.learning_rate),
            f"{len(result.seeds) - result.censored} of {len(result.seeds)}",
            text.format_to_target(result.samples_to_target, result.samples_at_least),
            text.format_number(result.updates_to_target) + ("*" if result.too_coarse else ""),
            text.format_number(result.throughput),
            show_time(result, result.training_time, "training"),
            show_time(result, result.elapsed_time, "elapsed"),
        ]
        for result in summary.batches
    ]
    return header, rows


def throughput_rows(summary: StudySummary) -> tuple[list[str], Rows]:
    """Header and rows of where each batch's throughput comes from."""
    header = ["batch", "rollouts/s", "steady/s", "generate/s", "learn/s", "tokens/s"]
    header += ["mean length", "p95 length"]
    rows = [
        [text.format_batch(result)]
        + [
            text.format_number(value)
            for value in (
                result.throughput,
                result.steady_per_second,
                result.generate_per_second,
                result.learn_per_second,
                result.tokens_per_second,
                result.mean_length,
                result.p95_length,
            )
        ]
        for result in summary.batches
    ]
    return header, rows


RATIO_HEADER = ["batch", "against", "samples", "throughput", "training time", "elapsed time"]

RATIO_READING = "Training time = samples / throughput; a time ratio below 1 is sooner."


def ratio_rows(
    summary: StudySummary, choose: Callable[[BatchResult], Comparison | None]
) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Batch, the batch it is held against, and (ratio, 95 % interval) for the four ratios.

    `choose` picks the comparison; a batch without one has no row.
    """
    rows = []
    for result in summary.batches:
        comparison = choose(result)
        if comparison is None:
            continue
        against = Arm(comparison.against_setting, comparison.against)
        # Against another setting it is the same batch, which the row has named.
        other = text.format_arm(summary, against) if against.setting == result.setting else None
        ratios = (
            comparison.samples,
            comparison.throughput,
            comparison.training_time,
            comparison.elapsed_time,
        )
        mine = text.format_arm(summary, arm_of(result))
        rows.append((mine, other or against.setting, [text.format_interval(r) for r in ratios]))
    return rows


def list_ratios(
    view: StudySummary,
) -> list[tuple[str, str, list[tuple[str, str, list[tuple[str, str]]]]]]:
    """Key, title and rows of each table of ratios that has rows, for the batches of one setting."""
    first = next((r.against_setting.against_setting for r in view.batches if r.against_setting), "")
    tables = [
        ("reference", "Ratios against the reference", operator.attrgetter("against_reference")),
        (
            "smaller",
            "Ratios against the next smaller batch",
            operator.attrgetter("against_smaller"),
        ),
        ("setting", f"Ratios against {first}, same batch", operator.attrgetter("against_setting")),
    ]
    found = [(key, title, ratio_rows(view, choose)) for key, title, choose in tables]
    return [(key, title, rows) for key, title, rows in found if rows]


def table_notes(summary: StudySummary) -> list[str]:
    """What the marks in the tables mean, only for marks that occur."""
    notes = []
    if any(result.too_coarse for result in summary.batches):
        notes.append("* fewer than 20 updates to the target: too coarse to trust its exact place.")
    if any(result.censored for result in summary.batches):
        notes.append(
            "> N: not every seed reached the target; geometric mean with the censored runs at"
            " what they had used when they stopped. ≥ and ≤: ratios with such a run on one side."
        )
    missing = summary.planned_cells - text.count_finished(summary)
    if missing > 0:
        notes.append(
            f"Unfinished: {text.count_finished(summary)} of {summary.planned_cells} planned runs"
            f" are finished, {missing} missing. Every number here is preliminary."
        )
    return notes


def verdict_title(verdict: Verdict) -> str:
    """The heading of a verdict."""
    return f"Verdict by the {verdict.clock} clock"


def describe_agreement(summary: StudySummary) -> str:
    """Whether the two clocks name the same batch and setting, and say the same of all others."""
    what = f"batch and {name_settings(summary)}" if has_several(summary) else "batch"
    if not summary.clocks_agree and name_the_same(summary.training, summary.elapsed):
        return f"Both clocks name the same fastest {what}, but differ on others: read both."
    if not summary.clocks_agree:
        return f"The two clocks do not name the same fastest {what}: read both."
    if summary.training.fastest is None:
        return f"Neither clock names a fastest {what}."
    return f"Both clocks name the same fastest {what}."


def describe_setting(summary: StudySummary) -> str:
    """The layout of a view with the sizes of its mesh: `fsdp (data 1 x fsdp 8 x tensor 1)`."""
    sizes = {
        axis: size for setting in summary.settings for axis, size in setting.axis_sizes.items()
    }
    shape = " x ".join(f"{axis} {size}" for axis, size in sizes.items())
    return f"{summary.setting} ({shape})" if shape else summary.setting


def render_table(summary: StudySummary) -> "RenderableType":
    """The tables and the verdict as one rich renderable; fits 80 columns.

    A study of several settings has the tables of each, then those over all, then the verdict.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(
            f"{text.clean(summary.name)}: target {text.format_score(summary.target)},"
            f" budget {summary.sample_budget:,} samples a run,"
            f" rates by {text.clean(describe_rule(summary))}",
            style="bold",
        ),
    ]
    several = has_several(summary)
    for view in list_views(summary):
        if several:
            parts.append(
                Text(
                    f"\n{name_settings(summary).capitalize()} {text.clean(describe_setting(view))}",
                    style="bold",
                )
            )
        parts += _render_batches(view)
        parts += _render_verdicts(view) if several else []
    if several:
        parts.append(Text(f"\nAll {name_settings(summary)}s", style="bold"))
        parts += _render_settings(summary)
    if summary.batches:
        parts.append(Text(RATIO_READING, style="dim"))
    parts += [Text(note, style="yellow") for note in table_notes(summary)]
    parts += _render_verdicts(summary)
    parts.append(Text(f"\n{describe_agreement(summary)}", style="bold"))
    parts += [Text(f"Note: {text.clean(note)}") for note in summary.notes]
    return Group(*parts)


def _render_batches(view: StudySummary) -> "list[RenderableType]":
    """The tables of one setting."""
    parts: list[RenderableType] = []
    if view.batches:
        title = "To the target (geometric means over seeds)"
        parts.append(_make_table(title, *target_rows(view)))
        parts.append(_make_table("Throughput", *throughput_rows(view)))
    for _, title, rows in list_ratios(view):
        cells = [[b, a, *("\n".join(filter(None, r)) for r in ratios)] for b, a, ratios in rows]
        parts.append(_make_table(f"{title}, 95 % intervals", RATIO_HEADER, cells))
    return parts


def _render_settings(summary: StudySummary) -> "list[RenderableType]":
    """The tables over all settings."""
    from rich.text import Text

    parts: list[RenderableType] = []
    for grid in setting_tables.list_grids(summary):
        parts.append(_make_table(grid.title, grid.header, grid.rows))
    for verdict in (summary.training, summary.elapsed):
        header, rows = setting_tables.heat_rows(summary, verdict)
        plain = [[setting, *(cell.shown for cell in cells)] for setting, cells in rows]
        if plain:
            title = f"Time relative to the best, {verdict.clock} clock"
            parts.append(_make_table(title, header, plain))
    if summary.training.fastest is not None:
        parts.append(Text(setting_tables.HEAT_READING, style="dim"))
    if ratios := setting_tables.samples_rows(summary):
        title = "Samples to target between layouts"
        parts.append(_make_table(title, setting_tables.SAMPLES_HEADER, ratios))
        parts.append(Text(setting_tables.SAMPLES_READING, style="dim"))
    parts += [Text(text.clean(sentence)) for sentence in summary.layout_samples]
    return parts


def _render_verdicts(summary: StudySummary) -> "list[RenderableType]":
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = []
    for verdict in (summary.training, summary.elapsed):
        parts.append(Text(f"\n{verdict_title(verdict)}", style="bold"))
        sentences = [*verdict.sentences, *single_sentences(summary, verdict)]
        parts += [
            Padding(Text(text.clean(sentence)), (0, 0, 0, 2), expand=False)
            for sentence in sentences
        ]
    return parts


def single_sentences(summary: StudySummary, verdict: Verdict) -> list[str]:
    """What each choice alone would give by the clock of a verdict; nothing with one setting."""
    return [
        sentence
        for choices in summary.single_choices
        if choices.clock == verdict.clock
        for sentence in choices.sentences
    ]


def print_table(summary: StudySummary, *, console: "Console | None" = None) -> None:
    """Prints the tables and the verdict; plain text where the output is not a terminal."""
    from rich.console import Console

    (console or Console(highlight=False)).print(render_table(summary))


def _make_table(title: str, header: Sequence[str], rows: Rows) -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(f"\n{title}"),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for place, column in enumerate(header):
        table.add_column(Text(column), justify="right", overflow="fold", no_wrap=place == 0)
    for row in rows:
        table.add_row(*(Text(value) for value in row))
    return table
