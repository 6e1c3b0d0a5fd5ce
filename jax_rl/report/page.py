"""The report as one self-contained HTML page: nothing in it is fetched from anywhere."""

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from jax_rl.report import setting_tables, table, text
from jax_rl.report.captions import CAPTIONS, describe_figure
from jax_rl.report.drawings import list_drawings
from jax_rl.report.setting_figures import SETTING_FIGURES
from jax_rl.report.trust import list_facts
from jax_rl.report.views import has_several, list_views, name_files, name_settings
from jax_rl.study.summary import Arm, Cell, StudySummary, Verdict

TEMPLATE = "report.html.j2"

CELLS_ABOUT = (
    "Crossing: where the isotonic fit of the validation curve meets the target. Raw: the first"
    " grid point at or above it. Held: no later grid point fell below. Steady gap: separate"
    " throughput measurement against the run's. Sum gap: phases against elapsed time."
)


def render_page(summary: StudySummary, figures: Mapping[str, str]) -> str:
    """The page as HTML.

    Args:
      summary: what the study found; its texts are escaped.
      figures: SVG source by name, as `save_figures` returns it.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    drawn = [
        {
            "name": f"figure-{drawing.name}",
            "setting": drawing.setting,
            "over_all": drawing.caption in SETTING_FIGURES,
            "heading": CAPTIONS[drawing.caption].heading
            + (f": {drawing.setting}" if drawing.setting else ""),
            "reading": CAPTIONS[drawing.caption].reading,
            "svg": Markup(
                embed_svg(
                    figures[drawing.name],
                    drawing.name,
                    label=describe_figure(drawing.view, drawing.caption),
                )
            ),
        }
        for drawing in list_drawings(summary)
        if drawing.name in figures
    ]
    finished = text.count_finished(summary)
    return environment.get_template(TEMPLATE).render(
        s=summary,
        finished=finished,
        agreement=table.describe_agreement(summary),
        missing=max(0, summary.planned_cells - finished),
        several=has_several(summary),
        word=name_settings(summary),
        verdicts=_show_verdicts(summary),
        settings=_show_settings(summary),
        setting_figures=[figure for figure in drawn if figure["over_all"]],
        views=_show_views(summary, [figure for figure in drawn if not figure["over_all"]]),
        table_notes=table.table_notes(summary),
        trust=list_facts(summary),
        cells=cell_rows(summary),
        cells_about=CELLS_ABOUT,
    )


def embed_svg(source: str, prefix: str, *, label: str) -> str:
    """An SVG file made fit to stand inside a page, beside others.

    Ids get `prefix`, since two figures define the same glyphs and clip paths under the same
    ids; the prolog, the metadata and the style sheet, which would hold for the whole page, go;
    the size is left to the page. `label` is what a screen reader says.
    """
    svg = source[source.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'\bhref="#', f'href="#{prefix}-', svg)
    svg = svg.replace("url(#", f"url(#{prefix}-")
    opening, rest = svg.split(">", 1)
    opening = re.sub(r'\s(width|height)="[^"]*"', "", opening)
    return f'{opening} role="img" aria-label="{escape(label)}">{rest}'


def cell_rows(summary: StudySummary) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of runs, in the order of running."""
    length, symbol = text.choose_time_unit(cell.elapsed_seconds for cell in summary.cells)
    several, word = has_several(summary), name_settings(summary)
    header = ["order", *([word] if several else []), "batch", "seed", "rate"]
    header += ["samples to target", "raw", "held", "learnt"]
    header += ["in flight", "updates", f"training time, {symbol}", f"elapsed time, {symbol}"]
    header += ["rollouts/s", "steady gap", "other", "sum gap", "load", "mismatch, nats"]
    header += ["best score", "notes"]

    def show(cell: Cell) -> list[str]:
        found = cell.crossing
        bound = "" if found is not None else "> "
        return [
            str(cell.order),
            *([cell.setting] if several else []),
            f"{cell.batch:,}",
            str(cell.seed),
            text.format_rate(cell.learning_rate),
            bound + text.format_number(cell.samples if found is None else found.samples),
            text.NOTHING if found is None else f"{found.raw_samples:,}",
            text.NOTHING if found is None else "yes" if found.held else "no",
            text.NOTHING if found is None else f"{found.learnt:,}",
            text.NOTHING if found is None else f"{found.in_flight:,}",
            text.NOTHING if found is None else text.format_number(found.updates),
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

    return header, [show(cell) for cell in summary.cells]


def _show_verdicts(summary: StudySummary) -> list[dict[str, Any]]:
    return [_show_verdict(summary, verdict) for verdict in (summary.training, summary.elapsed)]


def _show_verdict(summary: StudySummary, verdict: Verdict) -> dict[str, Any]:
    several = has_several(summary)
    fastest = None
    if verdict.fastest is not None:
        fastest = Arm(verdict.setting or "", verdict.fastest)
    near = [text.format_arm(summary, arm) for arm in verdict.arms if arm != fastest]
    if fastest is None:
        big = f"No fastest {f'{name_settings(summary)} and batch' if several else 'batch'}"
    else:
        big = f"{'' if several else 'Batch '}{text.format_arm(summary, fastest)}"
    return {
        "title": table.verdict_title(verdict),
        "fastest": big,
        "near": f"or {', '.join(near)}: not told apart" if near else "",
        "sentences": [*verdict.sentences, *table.single_sentences(summary, verdict)],
    }


def _show_views(summary: StudySummary, drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the page says of each setting, or of the only one."""
    several, files = has_several(summary), name_files(summary)
    shown = []
    for view in list_views(summary):
        setting = view.setting if several else ""
        reference = [result.batch == view.reference_batch for result in view.batches]
        end = f"-{files[setting]}" if several else ""
        shown.append(
            {
                "id": end,
                "title": f"Batches: {setting}" if several else "Batches",
                "figures_title": f"Figures: {setting}" if several else "Figures",
                "about": table.describe_setting(view) if several else "",
                "verdicts": _show_verdicts(view) if several else [],
                "batches": bool(view.batches),
                "target": table.target_rows(view),
                "throughput": table.throughput_rows(view),
                "ratios": _list_ratios(view, end),
                "reference_row": reference.index(True) if any(reference) else -1,
                "figures": [figure for figure in drawn if figure["setting"] == setting],
            }
        )
    return shown


def _list_ratios(view: StudySummary, end: str) -> list[dict[str, Any]]:
    about = f"With 95 % intervals. {table.RATIO_READING}"
    return [
        {
            "id": f"t-{key}{end}",
            "title": title,
            "about": about,
            "header": table.RATIO_HEADER,
            "rows": rows,
        }
        for key, title, rows in table.list_ratios(view)
    ]


def _show_settings(summary: StudySummary) -> dict[str, Any]:
    """What the page says over all settings."""
    heat = [
        {
            "id": f"t-heat-{verdict.clock}",
            "title": f"Time to target relative to the best, by the {verdict.clock} clock",
            "header": header,
            "rows": rows,
        }
        for verdict in (summary.training, summary.elapsed)
        for header, rows in [setting_tables.heat_rows(summary, verdict)]
        if rows
    ]
    return {
        "heat": heat,
        "heat_about": setting_tables.HEAT_READING,
        "grids": setting_tables.list_grids(summary) if summary.batches else [],
        "samples_header": setting_tables.SAMPLES_HEADER,
        "samples": setting_tables.samples_rows(summary),
        "samples_about": setting_tables.SAMPLES_READING,
    }
