"""From a directory to the report: what is refused, and that a rebuild changes no byte."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from report_studies import UNFINISHED

from jax_rl.errors import UserError
from jax_rl.report import build, figures
from jax_rl.study.analyse import SUMMARY_FILE


def list_files(directory: Path) -> dict[str, bytes]:
    """Content by relative path."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_rebuilding_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / build.STUDY_FILE).write_text("{}")
    monkeypatch.setattr(build, "analyse", lambda directory, wishes: UNFINISHED)
    # All figures are drawn twice in test_report_figures.
    first_only = dict(list(figures.FIGURES.items())[:1])
    monkeypatch.setattr(figures, "FIGURES", first_only)
    assert build.build_report(tmp_path) == tmp_path / "report.html"
    first = list_files(tmp_path)
    assert json.loads(first[SUMMARY_FILE])["planned_cells"] == 15
    assert {name for name in first if "/" not in name} == {
        *("study.json", "summary.json", "report.html", "report.md"),
    }
    assert {name for name in first if name.startswith("figures/")} == {
        *("figures/validation_samples.svg", "figures/validation_samples.png"),
    }
    tables = {Path(name).stem for name in first if name.startswith("tables/")}
    assert tables == {"target", "throughput", "reference", "smaller", "runs"}
    assert all({f"tables/{name}.csv", f"tables/{name}.tex"} <= first.keys() for name in tables)
    build.build_report(tmp_path)
    assert list_files(tmp_path) == first


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "no study is there (found: nothing)"),
        (["a.txt", "b.txt"], "no study is there (found: a.txt, b.txt)"),
        (["records.jsonl"], "one run (records.jsonl), not a study"),
    ],
)
def test_other_directories_are_refused(tmp_path: Path, files: list[str], words: str) -> None:
    for name in files:
        (tmp_path / name).write_text("")
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        build.build_report(tmp_path)
    assert "the one that holds study.json and cells/" in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_run_of_a_study_points_to_the_study(tmp_path: Path) -> None:
    run = tmp_path / "study" / "cells" / "b00016_s0"
    run.mkdir(parents=True)
    (run / "records.jsonl").write_text("")
    with pytest.raises(UserError, match=f"belongs to the study {tmp_path / 'study'}"):
        build.build_report(run)


def test_missing_directory_and_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such directory"):
        build.build_report(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="a file, not a directory"):
        build.build_report(tmp_path / "file")


def test_report_needs_no_jax() -> None:
    program = (
        "import sys, jax_rl.report.build, jax_rl.report.table\n"
        "heavy = {'jax', 'matplotlib', 'rich', 'jinja2'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    root = Path(__file__).parents[1]
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
