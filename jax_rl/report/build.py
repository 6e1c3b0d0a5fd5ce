"""From a study's directory to its report."""

from pathlib import Path

from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME
from jax_rl.report.drawings import save_figures
from jax_rl.report.page import render_page
from jax_rl.study.analyse import STUDY_FILE, analyse, write_summary
from jax_rl.study.summary import StudySummary

PAGE_NAME = "report.html"


def build_report(directory: Path) -> Path:
    """Rebuilds summary.json, figures/ and report.html of a study from its records alone.

    The same records give the same bytes. An unfinished study gives a report that says what is
    missing.

    Returns:
      The path of report.html.

    Raises:
      UserError: the directory is not that of a study, or no run of it has a record.
    """
    directory = Path(directory)
    check_study(directory)
    summary = analyse(directory)
    write_summary(summary, directory)
    return write_report(summary, directory)


def write_report(summary: StudySummary, directory: Path) -> Path:
    """Writes figures/NAME.svg, figures/NAME.png and report.html; returns the page's path."""
    figures = save_figures(summary, directory / "figures")
    page = directory / PAGE_NAME
    page.write_text(render_page(summary, figures), encoding="utf-8")
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
