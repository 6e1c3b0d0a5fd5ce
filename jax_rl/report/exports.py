"""Tables as files of their own: CSV for other programs, LaTeX for papers."""

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from jax_rl.report.parts import find_words, join_cell
from jax_rl.report.section import Table
from jax_rl.report.text import clean

FORMULA_STARTS = ("=", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins so for a formula; free text must not be run."""

_SIGNED = re.compile(r"[-+][\d.,]+(e[-+]?\d+)?(\s*%)?(\s\(.*\))?$")
"""A number with its sign, which is no formula."""

LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}",
    '"': r"{\ttfamily\char34}",
    "×": r"\ensuremath{\times}",
    "·": r"\ensuremath{\cdot}",
    "±": r"\ensuremath{\pm}",
    "≥": r"\ensuremath{\geq}",
    "≤": r"\ensuremath{\leq}",
    "≈": r"\ensuremath{\approx}",
    "√": r"\ensuremath{\surd}",
    "∝": r"\ensuremath{\propto}",
    "∞": r"\ensuremath{\infty}",
    "−": r"\ensuremath{-}",
    "°": r"\textdegree{}",
    "²": r"\ensuremath{^2}",
    "½": r"\ensuremath{\frac12}",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "α": r"\ensuremath{\alpha}",
    "β": r"\ensuremath{\beta}",
    "κ": r"\ensuremath{\kappa}",
    "μ": r"\ensuremath{\mu}",
    "σ": r"\ensuremath{\sigma}",
    "Σ": r"\ensuremath{\Sigma}",
    "\N{NO-BREAK SPACE}": "~",
}


def name_file(name: str) -> str:
    """An id as a file's name without its ending."""
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip(".-") or "table"


def clear_files(directory: Path, *, kept: Collection[str], endings: Sequence[str]) -> None:
    """Makes the folder, and removes what an earlier report has left that this one has not."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.iterdir():
        if path.suffix in endings and path.stem not in kept:
            path.unlink()


def save_tables(tables: Iterable[Table], directory: Path) -> list[Path]:
    """Writes each table as ID.csv and ID.tex; returns the paths."""
    tables = list(tables)
    kept = {name_file(table.id) for table in tables}
    clear_files(directory, kept=kept, endings=(".csv", ".tex"))
    paths = []
    for table in tables:
        for ending, source in (("csv", render_csv(table)), ("tex", render_latex(table))):
            path = directory / f"{name_file(table.id)}.{ending}"
            path.write_text(source, encoding="utf-8")
            paths.append(path)
    return paths


def render_csv(table: Table) -> str:
    """A header line and a line a row, each cell as the page shows it."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([_guard(column) for column in table.header])
    writer.writerows([_guard(join_cell(cell)) for cell in row] for row in table.rows)
    return buffer.getvalue()


def render_latex(table: Table) -> str:
    r"""A table environment in the style of booktabs, which its document has to load."""
    words = find_words(table)
    columns = "".join(
        "l" if place == 0 else r"p{0.3\linewidth}" if is_words else "r"
        for place, is_words in enumerate(words)
    )
    caption = escape_latex(f"{table.title}. {table.about}".strip())
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{caption}}}",
            rf"  \label{{tab:{name_file(table.id)}}}",
            rf"  \begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            f"    {_join_latex(table.header)}",
            r"    \midrule",
            *(f"    {_join_latex(row)}" for row in table.rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escape_latex(text: str) -> str:
    """Free text that LaTeX prints as it is."""
    return "".join(LATEX.get(character, character) for character in clean(text))


def _join_latex(cells: Sequence[str]) -> str:
    return " & ".join(escape_latex(join_cell(cell)) for cell in cells) + r" \\"


def _guard(cell: str) -> str:
    signed = cell[:1] in ("+", "-") and not _SIGNED.match(cell)
    return f"'{cell}" if signed or cell.startswith(FORMULA_STARTS) else cell
