"""Which figures a study has, and their files."""

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jax_rl.report import axes as shared
from jax_rl.report import figures
from jax_rl.report.setting_figures import SETTING_FIGURES, list_setting_figures
from jax_rl.report.views import has_several, list_views, name_files
from jax_rl.study.summary import StudySummary

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure of a study."""

    name: str  # of its files
    caption: str  # key of CAPTIONS
    view: StudySummary  # what it shows: the study, or that of one setting
    setting: str  # the setting, if the study has several and this shows one of them
    draw: Callable[[StudySummary], "Figure"]


def list_drawings(summary: StudySummary) -> list[Drawing]:
    """Every figure of a study in the order of the page; none without a finished run.

    With several settings those over all of them come first, then the figures of each.
    """
    if not summary.batches:
        return []
    drawings = [
        Drawing(name, name, summary, "", SETTING_FIGURES[name])
        for name in list_setting_figures(summary)
    ]
    files, several = name_files(summary), has_several(summary)
    for view in list_views(summary):
        drawings += [
            Drawing(
                f"{name}_{files[view.setting]}" if several else name,
                name,
                view,
                view.setting if several else "",
                draw,
            )
            for name, draw in figures.FIGURES.items()
            if view.batches
        ]
    return drawings


def save_figures(summary: StudySummary, directory: Path) -> dict[str, str]:
    """Writes each figure as NAME.svg and NAME.png; returns the SVG text by name.

    The same summary gives the same bytes: no date and no random id goes into the files. A study
    without a finished run has no figures.
    """
    directory.mkdir(parents=True, exist_ok=True)
    sources: dict[str, str] = {}
    drawings = list_drawings(summary)
    if not drawings:
        return sources
    with shared.use_style():
        for drawing in drawings:
            figure = drawing.draw(drawing.view)
            buffer = io.StringIO()
            unsigned = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(buffer, format="svg", metadata=unsigned)
            sources[drawing.name] = buffer.getvalue()
            (directory / f"{drawing.name}.svg").write_text(buffer.getvalue(), encoding="utf-8")
            figure.savefig(directory / f"{drawing.name}.png", metadata={"Software": None})
    return sources
