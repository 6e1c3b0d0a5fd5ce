"""The report as GitHub-flavoured Markdown, its figures beside it."""

import re
from collections.abc import Sequence

from jax_rl.report.parts import Card, Part, Plot, Report, find_words, join_cell
from jax_rl.report.section import Table
from jax_rl.report.text import clean


def render_markdown(report: Report) -> str:
    """The report as text; figures are links to figures/NAME.svg."""
    blocks = [f"# {escape(report.title)}", escape(report.about)]
    blocks += [_quote(alert) for alert in report.alerts]
    for part in report.parts:
        blocks += _render_part(part)
    blocks.append(
        "Made by `jax-rl report` from the records of the runs alone. The numbers are in"
        " `summary.json`, the figures in `figures/`, the tables as CSV and LaTeX in `tables/`."
    )
    return "\n\n".join(block for block in blocks if block) + "\n"


def escape(text: str) -> str:
    """Free text on one line that Markdown shows as it is."""
    line = re.sub(r"([\\`*_\[\]<|~$&])", r"\\\1", clean(text))
    # Only at its start does a line become a heading, a list or a quotation.
    return re.sub(r"^(\d*)(#+ |[-+] |[.)] |>)", r"\1\\\2", line)


def _render_part(part: Part) -> list[str]:
    blocks = [f"## {escape(part.title)}", escape(part.about)]
    for card in part.cards:
        blocks += _render_card(card)
    blocks += [escape(paragraph) for paragraph in part.paragraphs]
    blocks += [_quote(alert) for alert in part.alerts]
    blocks += [f"**{escape(term)}.** {escape(words)}" for term, words in part.facts]
    for table in part.tables:
        blocks += _render_table(table)
    blocks += [escape(remark) for remark in part.remarks]
    for plot in part.plots:
        blocks += _render_plot(plot)
    if part.methods:
        blocks += ["### Method", "\n".join(f"- {escape(method)}" for method in part.methods)]
    return blocks


def _render_card(card: Card) -> list[str]:
    headline = f"**{escape(card.headline)}**"
    if card.aside:
        headline += f" ({escape(card.aside)})"
    return [f"### {escape(card.title)}", headline, *map(escape, card.sentences)]


def _render_table(table: Table) -> list[str]:
    words = find_words(table)
    rule = [":---" if not place or words[place] else "---:" for place in range(len(table.header))]
    lines = [_join([escape(column) for column in table.header]), _join(rule)]
    lines += [_join([escape(join_cell(cell)) for cell in row]) for row in table.rows]
    return [f"**{escape(table.title)}.** {escape(table.about)}".strip(), "\n".join(lines)]


def _render_plot(plot: Plot) -> list[str]:
    image = f"![{escape(plot.description)}](figures/{plot.name}.svg)"
    return [f"### {escape(plot.heading)}", image, escape(plot.reading)]


def _join(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _quote(text: str) -> str:
    return f"> {escape(text)}"
