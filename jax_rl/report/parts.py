"""A report before it is written: the same parts for the page, for Markdown and for LaTeX."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from jax_rl.report.section import Drawing, Section, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class ShadedTable(Table):
    """A table with one row or some cells set off."""

    marked: int = -1  # the row that is set off; -1 for none
    shades: Sequence[Sequence[float]] = ()  # of the cells after the first of a row, 0 to 1


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure of the report before it is drawn."""

    name: str  # unique in the report; names its SVG and PNG files
    heading: str
    reading: str  # how to read it
    description: str  # what a screen reader says
    make: Callable[[], "Figure"]


@dataclasses.dataclass(frozen=True)
class Card:
    """A verdict: what it names in large letters, then its sentences."""

    title: str
    headline: str
    aside: str
    sentences: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Part:
    """What a report says under one heading, in this order."""

    id: str
    title: str
    about: str = ""
    cards: Sequence[Card] = ()
    paragraphs: Sequence[str] = ()
    alerts: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()  # a term and its sentences
    tables: Sequence[Table] = ()
    remarks: Sequence[str] = ()  # what marks in the tables mean
    plots: Sequence[Plot] = ()
    methods: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Report:
    """All that is written of a study."""

    title: str
    about: str
    alerts: Sequence[str]
    parts: Sequence[Part]
    curves: dict[str, Any] | None  # data of the interactive chart, from `gather_curves`

    @property
    def tables(self) -> list[Table]:
        """Every table, in the order of the report."""
        return [table for part in self.parts for table in part.tables]

    @property
    def plots(self) -> list[Plot]:
        """Every figure, in the order of the report."""
        return [plot for part in self.parts for plot in part.plots]


def make_part(section: Section, plot: Callable[[Drawing], Plot]) -> Part:
    """A question's section as a part; `plot` makes figures of its drawings."""
    return Part(
        id=section.id,
        title=section.title,
        paragraphs=section.paragraphs,
        tables=section.tables,
        plots=[plot(drawing) for drawing in section.drawings],
        methods=section.methods,
    )


def check_names(report: Report) -> None:
    """Refuses two parts, tables or figures of one name, of which one would hide the other."""
    for kind, names in (
        ("part", [part.id for part in report.parts]),
        ("table", [table.id for table in report.tables]),
        ("figure", [plot.name for plot in report.plots]),
    ):
        if repeated := _find_repeated(names):
            raise ValueError(f"the report has more than one {kind} named {', '.join(repeated)}")


def split_cell(cell: str) -> tuple[str, str]:
    """A value and what stands under it, e.g. its interval; they are parted by a line break."""
    value, _, aside = cell.partition("\n")
    return value, aside


def join_cell(cell: str) -> str:
    """A cell on one line: `1.9 (1.7–2.2)`."""
    value, aside = split_cell(cell)
    return f"{value} ({aside})" if aside else value


def find_words(table: Table) -> list[bool]:
    """Which columns are free text and no numbers: those with a cell of several words."""
    columns = zip(*table.rows, strict=True) if table.rows else ((),) * len(table.header)
    return [any(len(split_cell(cell)[0]) > 28 for cell in column) for column in columns]


def _find_repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]
