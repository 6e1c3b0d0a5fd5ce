"""Tables as CSV and LaTeX, the report as Markdown: whole, and with every text as it is."""

import csv
import io
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from matplotlib.figure import Figure
from report_studies import HOSTILE, STUDIES
from test_report_page import Outline

from jax_rl.report.contents import make_report
from jax_rl.report.exports import escape_latex, name_file, render_csv, render_latex, save_tables
from jax_rl.report.markdown import escape, render_markdown
from jax_rl.report.parts import Part, Plot, Report, check_names, find_words, join_cell
from jax_rl.report.section import Section, Table

ODD = Table(
    id="odd/one",
    title="50 % & more",
    about="A_b is $5.",
    header=["name", "ratio", "words"],
    rows=[
        ["a|b", "×1.9\n1.7–2.2", HOSTILE],
        ["=1+1", "≥ 2", 'say "x", then y and a long remark that is text'],
    ],
)


def test_csv_reads_back() -> None:
    assert list(csv.reader(io.StringIO(render_csv(ODD)))) == [
        ["name", "ratio", "words"],
        ["a|b", "×1.9 (1.7–2.2)", HOSTILE],
        ["'=1+1", "≥ 2", 'say "x", then y and a long remark that is text'],
    ]


def test_no_text_is_a_formula_of_a_spreadsheet() -> None:
    cells = [
        "=1+1",
        "@x",
        "-2+3+cmd|' /C calc'!A0",
        "+a",
        "-1.5 %",
        "+0.3",
        "-6.65e-04 (-1-2)",
        "–",
        "",
    ]
    rows = render_csv(Table("t", "T", "", ["a"], [[cell] for cell in cells])).splitlines()[1:]
    guarded = [row.strip('"').startswith("'") for row in rows]
    assert guarded == [True, True, True, True, False, False, False, False, False]


def test_latex_by_hand() -> None:
    assert render_latex(ODD).splitlines() == [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        r"  \caption{50 \% \& more. A\_b is \$5.}",
        r"  \label{tab:odd-one}",
        r"  \begin{tabular}{lrp{0.3\linewidth}}",
        r"    \toprule",
        r"    name & ratio & words \\",
        r"    \midrule",
        r"    a\ensuremath{|}b & \ensuremath{\times}1.9 (1.7--2.2) &"
        r" \ensuremath{<}script\ensuremath{>}alert('note')\ensuremath{<}/script\ensuremath{>}"
        r" \& [red] \\",
        r"    =1+1 & \ensuremath{\geq} 2 & say {\ttfamily\char34}x{\ttfamily\char34}, then y and"
        r" a long remark that is text \\",
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]


def test_no_text_is_a_command_of_latex() -> None:
    assert escape_latex("\\input{x}\n#1 ^~") == (
        r"\textbackslash{}input\{x\} \#1 \textasciicircum{}\textasciitilde{}"
    )


def test_latex_of_a_whole_report_has_even_rows() -> None:
    for table in make_report(STUDIES["hostile"]).tables:
        source = render_latex(table)
        rows = [line for line in source.splitlines() if line.endswith(r" \\")]
        assert len(rows) == 1 + len(table.rows)
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(table.header) - 1}
        bare = re.sub(r"\\[\\{}&%$#_]", "", source.partition("\n")[2])
        assert bare.count("{") == bare.count("}")
        assert not re.search(r"[%#$_^~]", bare)


def test_files_are_named_after_their_tables(tmp_path: Path) -> None:
    assert name_file("a b/../c") == "a-b-..-c"
    assert name_file("..") == "table"
    paths = save_tables([ODD], tmp_path / "tables")
    assert [path.name for path in paths] == ["odd-one.csv", "odd-one.tex"]
    assert paths[0].read_text("utf-8") == render_csv(ODD)


def test_columns_of_words_are_found() -> None:
    assert find_words(ODD) == [False, False, True]
    assert find_words(Table("x", "x", "", ["a", "b"], [])) == [False, False]
    assert join_cell("1.9") == "1.9"


def render(source: str) -> str:
    """Markdown as HTML by another implementation, raw HTML let through."""
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(source)


@pytest.mark.parametrize(
    "text",
    [
        HOSTILE,
        r"a*b* _c_ `d` [e](f) \g ~~h~~ a|b & &lt; $x$",
        "# no heading",
        "- no list",
        "+ none",
        "1. none either",
        "12) nor here",
        "> no quotation",
        "0.988 and x_y",
        "**",
    ],
)
def test_markdown_shows_text_as_it_is(text: str) -> None:
    html = render(escape(text))
    assert Outline(html).text.strip() == text
    assert set(Outline(html).tags) == {"p"}
    assert escape("0.988 (×4)") == "0.988 (×4)"


def test_markdown_of_a_report_has_its_parts_tables_and_figures() -> None:
    section = Section("odd", "Odd", ["It is so."], [ODD], methods=["x = a_1 * b"])
    report = make_report(STUDIES["hostile"], [section])
    source = render_markdown(report)
    outline = Outline(render(source))
    assert outline.tags["table"] == len(report.tables) == 6
    assert outline.tags["h2"] == len(report.parts)
    assert outline.tags["tr"] == sum(1 + len(table.rows) for table in report.tables)
    images = [value for tag, name, value in outline.attributes if (tag, name) == ("img", "src")]
    assert images == [f"figures/{plot.name}.svg" for plot in report.plots]
    assert "script" not in outline.tags
    assert HOSTILE in outline.text
    assert "x = a_1 * b" in outline.text
    assert render_markdown(make_report(STUDIES["hostile"], [section])) == source


def test_two_of_one_name_are_refused() -> None:
    part = Part("a", "A", tables=[ODD])
    with pytest.raises(ValueError, match="more than one part named a"):
        check_names(Report("", "", [], [part, part], None))
    with pytest.raises(ValueError, match="more than one table named odd/one"):
        check_names(Report("", "", [], [part, Part("b", "B", tables=[ODD])], None))
    plot = Plot("p", "", "", "", Figure)
    with pytest.raises(ValueError, match="more than one figure named p"):
        check_names(Report("", "", [], [Part("a", "A", plots=[plot, plot])], None))
