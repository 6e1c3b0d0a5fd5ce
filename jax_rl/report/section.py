"""What a report says about one question: words, tables and figures, the same for every format."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of text under a header; the first column names the row."""

    id: str  # unique in the report; names its CSV file
    title: str
    about: str  # what the columns mean
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure; `draw` puts it on an empty pair of axes."""

    name: str  # unique in the report; names its SVG and PNG files
    heading: str
    reading: str  # how to read it
    description: str  # what a screen reader says
    draw: Callable[["Axes"], None]


@dataclasses.dataclass(frozen=True)
class Section:
    """One question and its answer."""

    id: str
    title: str
    paragraphs: Sequence[str]  # the answer first
    tables: Sequence[Table] = ()
    drawings: Sequence[Drawing] = ()
    methods: Sequence[str] = ()  # formulas and assumptions, one sentence or two each
