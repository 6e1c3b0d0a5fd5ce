"""Which figures a study has, and their files."""

import functools
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jax_rl.report import axes as shared
from jax_rl.report import figures
from jax_rl.report.captions import CAPTIONS, describe_figure
from jax_rl.report.exports import clear_files
from jax_rl.report.parts import Plot
from jax_rl.report.section import Drawing
from jax_rl.report.setting_figures import SETTING_FIGURES, list_setting_figures
from jax_rl.study.summary import StudySummary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 4.4
"""Inches of a figure that does not choose its own."""


def list_setting_plots(summary: StudySummary) -> list[Plot]:
    """The figures over all settings, in the order of the report; none without a finished run."""
    if not summary.batches:
        return []
    return [
        _make_plot(name, summary, SETTING_FIGURES[name]) for name in list_setting_figures(summary)
    ]


def list_view_plots(view: StudySummary, file: str = "") -> list[Plot]:
    """The figures of one setting, in the order of the report; none without a finished run.

    Args:
      view: the study of the setting.
      file: stands for the setting in the names of files; empty where it is the only one.
    """
    if not view.batches:
        return []
    return [_make_plot(name, view, draw, file=file) for name, draw in figures.FIGURES.items()]


def plot_drawing(drawing: Drawing) -> Plot:
    """A section's drawing as a figure of its own."""
    return Plot(
        name=drawing.name,
        heading=drawing.heading,
        reading=drawing.reading,
        description=drawing.description,
        make=functools.partial(_draw_alone, drawing),
    )


def save_figures(plots: Iterable[Plot], directory: Path) -> dict[str, str]:
    """Writes each figure as NAME.svg and NAME.png; returns the SVG text by name.

    The same summary gives the same bytes: no date and no random id goes into the files.
    """
    plots = list(plots)
    clear_files(directory, kept={plot.name for plot in plots}, endings=(".svg", ".png"))
    sources: dict[str, str] = {}
    if not plots:
        return sources
    with shared.use_style():
        for plot in plots:
            figure = plot.make()
            buffer = io.StringIO()
            unsigned = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(buffer, format="svg", metadata=unsigned)
            sources[plot.name] = buffer.getvalue()
            (directory / f"{plot.name}.svg").write_text(buffer.getvalue(), encoding="utf-8")
            figure.savefig(directory / f"{plot.name}.png", metadata={"Software": None})
    return sources


def _make_plot(
    name: str, view: StudySummary, draw: Callable[[StudySummary], "Figure"], *, file: str = ""
) -> Plot:
    caption = CAPTIONS[name]
    return Plot(
        name=f"{name}_{file}" if file else name,
        heading=f"{caption.heading}: {view.setting}" if file else caption.heading,
        reading=caption.reading,
        description=describe_figure(view, name),
        make=functools.partial(draw, view),
    )


def _draw_alone(drawing: Drawing) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(shared.WIDTH, HEIGHT), layout="constrained")
    drawing.draw(figure.subplots())
    return figure
