"""The report as one self-contained HTML page: nothing in it is fetched from anywhere."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_rl.report.exports import name_file
from jax_rl.report.parts import Report, ShadedTable, find_words, split_cell
from jax_rl.report.section import Table

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATE = "report.html.j2"
STYLE = "report.css"
SCRIPT = "report.js"


def render_page(report: Report, figures: Mapping[str, str]) -> str:
    """The page as HTML.

    Args:
      report: what it says; its texts are escaped.
      figures: SVG source by name, as `save_figures` returns it; others are left out.
    """
    import jinja2
    from markupsafe import Markup

    room = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(room),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["typeset"] = typeset
    script = (room / SCRIPT).read_text(encoding="utf-8")
    return environment.get_template(TEMPLATE).render(
        report=report,
        tables={part.id: [_show_table(table) for table in part.tables] for part in report.parts},
        figures={
            plot.name: Markup(
                embed_svg(figures[plot.name], f"figure-{plot.name}", label=plot.description)
            )
            for plot in report.plots
            if plot.name in figures
        },
        curves=Markup(embed_json(report.curves)) if report.curves else None,
        style=Markup((room / STYLE).read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=hash_script(script),
    )


def typeset(words: str) -> "Markup":
    """Text with the indices and powers of its formulas: `S_min`, `x^2`, `n^{-1/2}`."""
    from markupsafe import Markup
    from markupsafe import escape as escape_markup

    source = str(escape_markup(words))
    # The index of one letter; a longer name with an underscore is a name.
    source = re.sub(r"\b([^\W\d_])_(\w+)", r"\1<sub>\2</sub>", source)
    source = re.sub(r"\^(?:\{([^{}]+)\}|([-+]?[\w.]*\w))", r"<sup>\1\2</sup>", source)
    return Markup(source)


def hash_script(script: str) -> str:
    """What the page's policy knows its one script by; any other is not run."""
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def embed_json(value: Any) -> str:
    """JSON that can stand in a script element: no text in it can end the element."""
    source = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        source = source.replace(character, f"\\u{ord(character):04x}")
    return source


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


def _show_table(table: Table) -> dict[str, Any]:
    words = find_words(table)
    marked = table.marked if isinstance(table, ShadedTable) else -1
    shades = table.shades if isinstance(table, ShadedTable) else ()
    return {
        "id": f"t-{table.id}",
        "file": f"{name_file(table.id)}.csv",
        "title": table.title,
        "about": table.about,
        "header": table.header,
        "words": words,
        "rows": [
            {
                "name": row[0],
                "marked": place == marked,
                "cells": [
                    _show_cell(cell, words[column], shades[place][column - 1] if shades else None)
                    for column, cell in enumerate(row)
                    if column
                ],
            }
            for place, row in enumerate(table.rows)
        ],
    }


def _show_cell(cell: str, words: bool, shade: float | None) -> dict[str, Any]:
    value, aside = split_cell(cell)
    return {"value": value, "aside": aside, "words": words, "shade": shade}
