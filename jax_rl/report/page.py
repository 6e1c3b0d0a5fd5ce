"""The report as one self-contained HTML page: nothing in it is fetched from anywhere."""

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from jax_rl.report import table, text
from jax_rl.report.captions import CAPTIONS, describe_figure
from jax_rl.report.trust import list_facts
from jax_rl.study.summary import Cell, StudySummary, Verdict

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
            "name": f"figure-{name}",
            "heading": CAPTIONS[name].heading,
            "reading": CAPTIONS[name].reading,
            "svg": Markup(embed_svg(source, name, label=describe_figure(summary, name))),
        }
        for name, source in figures.items()
    ]
    finished = text.count_finished(summary)
    reference = [result.batch == summary.reference_batch for result in summary.batches]
    return environment.get_template(TEMPLATE).render(
        s=summary,
        finished=finished,
        agreement=table.describe_agreement(summary),
        missing=max(0, summary.planned_cells - finished),
        verdicts=[_show_verdict(summary, v) for v in (summary.training, summary.elapsed)],
        target=table.target_rows(summary),
        throughput=table.throughput_rows(summary),
        ratios=_list_ratios(summary),
        reference_row=reference.index(True) if any(reference) else -1,
        table_notes=table.table_notes(summary),
        figures=drawn,
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
    header = ["order", "batch", "seed", "rate", "samples to target", "raw", "held", "learnt"]
    header += ["in flight", "updates", f"training time, {symbol}", f"elapsed time, {symbol}"]
    header += ["rollouts/s", "steady gap", "other", "sum gap", "load", "mismatch, nats"]
    header += ["best score", "notes"]

    def show(cell: Cell) -> list[str]:
        found = cell.crossing
        bound = "" if found is not None else "> "
        return [
            str(cell.order),
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


def _show_verdict(summary: StudySummary, verdict: Verdict) -> dict[str, Any]:
    names = {result.batch: text.format_batch(result) for result in summary.batches}
    near = [names.get(b, f"{b:,}") for b in verdict.undistinguished if b != verdict.fastest]
    return {
        "title": table.verdict_title(verdict),
        "fastest": "No fastest batch"
        if verdict.fastest is None
        else f"Batch {names.get(verdict.fastest, f'{verdict.fastest:,}')}",
        "near": f"or {', '.join(near)}: not told apart" if near else "",
        "sentences": verdict.sentences,
    }


def _list_ratios(summary: StudySummary) -> list[dict[str, Any]]:
    about = f"With 95 % intervals. {table.RATIO_READING}"
    tables = [
        {"id": id_, "title": title, "about": about, "header": table.RATIO_HEADER, "rows": rows}
        for id_, title, rows in (
            (
                "t-reference",
                "Ratios against the reference",
                table.ratio_rows(summary, lambda result: result.against_reference),
            ),
            (
                "t-smaller",
                "Ratios against the next smaller batch",
                table.ratio_rows(summary, lambda result: result.against_smaller),
            ),
        )
    ]
    return [entry for entry in tables if entry["rows"]]
