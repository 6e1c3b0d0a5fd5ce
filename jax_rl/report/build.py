"""From a study's directory to its report."""

from pathlib import Path

from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME
from jax_rl.report.contents import list_sections, make_report
from jax_rl.report.drawings import save_figures
from jax_rl.report.exports import save_tables
from jax_rl.report.markdown import render_markdown
from jax_rl.report.page import render_page
from jax_rl.study.analyse import analyse, write_summary
from jax_rl.study.answers import NO_WISHES, Wishes
from jax_rl.study.material import STUDY_FILE
from jax_rl.study.summary import StudySummary

PAGE_NAME = "report.html"
MARKDOWN_NAME = "report.md"


def build_report(directory: Path, wishes: Wishes = NO_WISHES) -> Path:
    """Rebuilds summary.json, report.html, report.md, figures/ and tables/ from records alone.

    The same records give the same bytes. An unfinished study gives a report that says what is
    missing.

    Args:
      directory: of the study.
      wishes: a price of device-hours, throughput of other hardware.

    Returns:
      The path of report.html.

    Raises:
      UserError: the directory is not that of a study, no run of it has a record, or a table of
        throughput belongs to another experiment.
    """
    return report_study(directory, wishes)[1]


def report_study(directory: Path, wishes: Wishes = NO_WISHES) -> tuple[StudySummary, Path]:
    """The same; returns what the report shows besides its path."""
    directory = Path(directory)
    check_study(directory)
    summary = analyse(directory, wishes)
    write_summary(summary, directory)
    return summary, write_report(summary, directory)


def write_report(summary: StudySummary, directory: Path) -> Path:
    """Writes the page, the Markdown, each figure and each table; returns the page's path."""
    report = make_report(summary, list_sections(summary))
    figures = save_figures(report.plots, directory / "figures")
    save_tables(report.tables, directory / "tables")
    page = directory / PAGE_NAME
    page.write_text(render_page(report, figures), encoding="utf-8")
    (directory / MARKDOWN_NAME).write_text(render_markdown(report), encoding="utf-8")
    return page


def check_study(directory: Path) -> None:
    """Refuses a directory that is not a study's.

    Raises:
      UserError: it says what is there and what would be right.
    """
    right = f"give the directory of a study, the one that holds {STUDY_FILE} and cells/"
    if not directory.exists():
        raise UserError(f"{directory}: no such directory; {right}")
    if not directory.is_dir():
        raise UserError(f"{directory}: a file, not a directory; {right}")
    if (directory / STUDY_FILE).is_file():
        return
    if (directory / FILE_NAME).is_file():
        hint = ""
        if directory.parent.name == "cells":
            hint = f"; this run belongs to the study {directory.parent.parent}"
        raise UserError(f"{directory}: one run ({FILE_NAME}), not a study{hint}; {right}")
    found = sorted(path.name for path in directory.iterdir())
    shown = ", ".join(found[:8]) + (", ..." if len(found) > 8 else "") if found else "nothing"
    raise UserError(f"{directory}: no study is there (found: {shown}); {right}")
