"""What the report of a study says, part by part; how it is written is not known here."""

from collections.abc import Iterable, Sequence

from jax_rl.report import drawings, setting_tables, table, text
from jax_rl.report.curves import gather_curves
from jax_rl.report.imported import list_imported_facts
from jax_rl.report.parts import Card, Part, Report, ShadedTable, check_names, make_part
from jax_rl.report.section import Section, Table
from jax_rl.report.sections.certainty import show_certainty
from jax_rl.report.sections.choices import show_choices
from jax_rl.report.sections.cost import show_costs
from jax_rl.report.sections.fits import show_fits
from jax_rl.report.sections.growth import show_growth
from jax_rl.report.sections.noise import show_noise
from jax_rl.report.sections.rates import show_rates
from jax_rl.report.sections.time_use import show_time_use
from jax_rl.report.sections.transfer import show_transfers
from jax_rl.report.trust import list_facts
from jax_rl.report.views import has_several, list_views, name_files, name_settings
from jax_rl.study.batches import measure_cell
from jax_rl.study.names import Names
from jax_rl.study.summary import Arm, Cell, StudySummary, Verdict

CLOCKS = (
    "The training clock leaves out compiling, validating and saving; the elapsed clock counts"
    " everything."
)

TARGET_ABOUT = "Geometric means over the seeds of each batch; the shaded row is the reference."

THROUGHPUT_ABOUT = (
    "Rollouts and tokens per second by the training clock; steady/s is measured apart from the"
    " run; generate/s and learn/s count only the seconds of that phase; lengths in tokens."
)

CELLS_ABOUT = (
    "Crossing: where the isotonic fit of the validation curve meets the target. Raw: the first"
    " grid point at or above it. Held: no later grid point fell below. Steady gap: separate"
    " throughput measurement against the run's. Sum gap: phases against elapsed time."
)


def list_sections(summary: StudySummary) -> list[Section]:
    """The further questions that a study's records answer, in the order of the report."""
    answers = summary.answers
    if answers is None:
        return []
    names = Names(tuple(setting.setting for setting in summary.settings))
    shown = [
        # One clock: the other's is in the summary.
        show_certainty(answers.certainty[0] if answers.certainty else None, names=names),
        show_rates(
            answers.tuning,
            answers.rate_effects,
            answers.gradients,
            names=names,
            settings=answers.settings,
            imported=summary.imported,
        ),
        show_choices(answers.choices),
        show_fits(answers.fits, answers.score_fits),
        show_noise(answers.noise, names=names),
        show_growth(answers.growth),
        show_time_use(summary, answers.time_use),
        show_costs(answers.costs),
        show_transfers(answers.transfers),
    ]
    return [section for section in shown if section is not None]


def make_report(summary: StudySummary, sections: Iterable[Section] = ()) -> Report:
    """The report of a study: the verdict first, then what it rests on.

    Args:
      summary: what the study found.
      sections: further questions; they come after the batches and their figures.

    Raises:
      ValueError: two parts, tables or figures have one name.
    """
    finished = text.count_finished(summary)
    missing = max(0, summary.planned_cells - finished)
    unfinished = (
        f"This study is not finished. {finished} of {summary.planned_cells} planned runs are"
        f" finished, {missing} missing. Every number and verdict here is preliminary."
    )
    report = Report(
        title=f"Time to target against {_name_arms(summary)}: {summary.name}",
        about=(
            f"Task {summary.task}; policy of {_describe_size(summary)}; target score"
            f" {summary.target:g}; {summary.device}."
        ),
        alerts=[unfinished] if missing else [],
        parts=[
            _show_verdict(summary),
            *([_show_settings(summary)] if has_several(summary) else []),
            *_show_views(summary),
            *(make_part(section, drawings.plot_drawing) for section in sections),
            Part(
                id="trust",
                title="What a reader must know to trust this",
                facts=list_imported_facts(summary) if summary.imported else list_facts(summary),
            ),
            Part(id="runs", title="Runs", tables=[_list_runs(summary)]),
        ],
        curves=gather_curves(summary),
    )
    check_names(report)
    return report


def _name_arms(summary: StudySummary) -> str:
    return f"{name_settings(summary)} and batch" if has_several(summary) else "batch"


def _show_verdict(summary: StudySummary) -> Part:
    return Part(
        id="verdict",
        title="Verdict",
        cards=_make_cards(summary),
        paragraphs=[f"{table.describe_agreement(summary)} {CLOCKS}"],
        alerts=summary.notes,
    )


def _make_cards(summary: StudySummary) -> list[Card]:
    return [_make_card(summary, verdict) for verdict in (summary.training, summary.elapsed)]


def _make_card(summary: StudySummary, verdict: Verdict) -> Card:
    fastest = None
    headline = f"No fastest {_name_arms(summary)}"
    if verdict.fastest is not None:
        fastest = Arm(verdict.setting or "", verdict.fastest)
        before = "" if has_several(summary) else "Batch "
        headline = f"{before}{text.format_arm(summary, fastest)}"
    near = [text.format_arm(summary, arm) for arm in verdict.arms if arm != fastest]
    return Card(
        title=table.verdict_title(verdict),
        headline=headline,
        aside=f"or {', '.join(near)}: not told apart" if fastest and near else "",
        sentences=[*verdict.sentences, *table.single_sentences(summary, verdict)],
    )


def _show_settings(summary: StudySummary) -> Part:
    """What is said over all settings."""
    heat = [
        ShadedTable(
            id=f"heat-{verdict.clock}",
            title=f"Time to target relative to the best, by the {verdict.clock} clock",
            about=setting_tables.HEAT_READING,
            header=header,
            rows=[[setting, *(cell.shown for cell in cells)] for setting, cells in rows],
            shades=[[cell.heat for cell in cells] for _, cells in rows],
        )
        for verdict in (summary.training, summary.elapsed)
        for header, rows in [setting_tables.heat_rows(summary, verdict)]
        if rows
    ]
    grids = [
        Table(f"grid-{place}", grid.title, grid.about, grid.header, grid.rows)
        for place, grid in enumerate(setting_tables.list_grids(summary), 1)
        if summary.batches
    ]
    samples = Table(
        id="samples",
        title="Samples to target between layouts",
        about=setting_tables.SAMPLES_READING,
        header=setting_tables.SAMPLES_HEADER,
        rows=setting_tables.samples_rows(summary),
    )
    return Part(
        id="settings",
        title=f"{name_settings(summary).capitalize()}s and batches",
        paragraphs=summary.layout_samples,
        tables=[*heat, *grids, *([samples] if samples.rows else [])],
        plots=drawings.list_setting_plots(summary),
    )


def _show_views(summary: StudySummary) -> list[Part]:
    """What is said of each setting, or of the only one: its batches, then their figures."""
    several, files = has_several(summary), name_files(summary)
    parts: list[Part] = []
    for view in list_views(summary):
        name = view.setting if several else ""
        end, of = (f"-{files[name]}", f": {name}") if several else ("", "")
        about = f"{name_settings(summary).capitalize()} {table.describe_setting(view)}."
        nothing = "No run is finished, so there is nothing to compare yet."
        parts.append(
            Part(
                id=f"batches{end}",
                title=f"Batches{of}",
                about=about if several else "",
                cards=_make_cards(view) if several else [],
                paragraphs=[] if view.batches else [nothing],
                tables=_list_tables(view, end),
                # The marks mean the same everywhere, and are explained where the last ones are.
                remarks=table.table_notes(summary) if name == _last(files, several) else [],
            )
        )
        if plots := drawings.list_view_plots(view, files[name] if several else ""):
            parts.append(Part(id=f"figures{end}", title=f"Figures{of}", plots=plots))
    return parts


def _last(files: dict[str, str], several: bool) -> str:
    return list(files)[-1] if several else ""


def _list_tables(view: StudySummary, end: str) -> list[Table]:
    """The tables of the batches of one setting; none without a finished run."""
    if not view.batches:
        return []
    marked = [result.batch == view.reference_batch for result in view.batches]
    reference = marked.index(True) if any(marked) else -1
    target, throughput = table.target_rows(view), table.throughput_rows(view)
    return [
        ShadedTable(f"target{end}", "To the target", TARGET_ABOUT, *target, marked=reference),
        ShadedTable(
            f"throughput{end}", "Throughput", THROUGHPUT_ABOUT, *throughput, marked=reference
        ),
        *(
            Table(
                id=f"{key}{end}",
                title=title,
                about=f"With 95 % intervals. {table.RATIO_READING}",
                header=table.RATIO_HEADER,
                rows=[
                    [batch, against, *("\n".join(filter(None, pair)) for pair in pairs)]
                    for batch, against, pairs in rows
                ],
            )
            for key, title, rows in table.list_ratios(view)
        ),
    ]


def _list_runs(summary: StudySummary) -> Table:
    header, rows = cell_rows(summary)
    return Table("runs", "Every run, in the order of running", CELLS_ABOUT, header, rows)


def cell_rows(summary: StudySummary) -> tuple[Sequence[str], list[list[str]]]:
    """Header and rows of the table of runs, in the order of running."""
    length, symbol = text.choose_time_unit(cell.elapsed_seconds for cell in summary.cells)
    several, word = has_several(summary), name_settings(summary)
    header = ["order", *([word] if several else []), "batch", "seed", "rate"]
    header += ["samples to target", "raw", "held", "learnt"]
    header += ["in flight", "updates", f"training time, {symbol}", f"elapsed time, {symbol}"]
    header += ["rollouts/s", "steady gap", "other", "sum gap", "load", "mismatch, nats"]
    header += ["best score", "notes"]
    return header, [_show_cell(cell, length, several=several) for cell in summary.cells]


def _show_cell(cell: Cell, length: float, *, several: bool) -> list[str]:
    found = cell.crossing
    bound = "" if found is not None else "> "
    crossed = [text.NOTHING] * 5
    if found is not None:
        crossed = [
            f"{found.raw_samples:,}",
            "yes" if found.held else "no",
            f"{found.learnt:,}",
            f"{found.in_flight:,}",
            text.format_number(found.updates),
        ]
    return [
        str(cell.order),
        *([cell.setting] if several else []),
        f"{cell.batch:,}",
        str(cell.seed),
        text.format_rate(cell.learning_rate),
        bound + text.format_number(measure_cell(cell)["samples"]),
        *crossed,
        bound + text.format_number(text.clock_seconds(cell, "training") / length),
        bound + text.format_number(text.clock_seconds(cell, "elapsed") / length),
        text.format_number(cell.rollouts_per_second),
        text.format_percent(cell.steady_gap, signed=True),
        text.format_percent(cell.other_share),
        text.format_percent(cell.accounting_gap),
        text.format_number(cell.load_average),
        text.format_spread(cell.mismatch_max),
        text.format_score(cell.best_score),
        "; ".join(([] if cell.finished else ["not finished"]) + cell.notes),
    ]


def _describe_size(summary: StudySummary) -> str:
    return f"{summary.parameters:,} parameters" if summary.parameters else "unknown size"
