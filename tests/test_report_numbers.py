"""Every number that the page shows can be found in summary.json, up to the page's rounding."""

import bisect
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_studies import STUDIES
from study_records import write_study

from jax_rl.report.contents import list_sections, make_report
from jax_rl.report.curves import POSITIONS, gather_curves
from jax_rl.report.section import Table
from jax_rl.study.analyse import analyse, write_summary
from jax_rl.study.summary import StudySummary

NUMBER = re.compile(r"(?<![\w.])[-+−]?(\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)(?:/(\d+))?( ?%)?")
COUNT = re.compile(r"^\d+ of \d+$")  # of runs
SCALES = {
    "min": 60.0,
    "h": 3600.0,
    "device-hours": 3600.0,
    "MiB": 2.0**20,
    "GFLOP/s": 1e9,
    "GB/s": 1e9,
}


class Known:
    """What is in summary.json: its numbers, to be looked up by nearness, and its texts."""

    def __init__(self, summary: StudySummary, directory: Path):
        path = write_summary(summary, directory)
        values = list(walk(json.loads(path.read_text("utf-8"))))
        self.texts = [value for value in values if isinstance(value, str)]
        self._numbers = sorted({abs(float(v)) for v in values if not isinstance(v, str)})

    def has(self, value: float, within: float) -> bool:
        """Whether some number, whatever its sign, is as near as this."""
        place = bisect.bisect_left(self._numbers, value - within)
        return place < len(self._numbers) and self._numbers[place] <= value + within


def walk(value: Any) -> Iterator[float | str]:
    """All numbers and texts in a value of JSON, keys included."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from walk(item)
    elif value is not None and not isinstance(value, bool):
        yield value


def find_unknown(text: str, known: Known, scale: float = 1.0) -> list[str]:
    """The numbers of a text of the page that are in no number of the JSON."""
    if COUNT.match(text) or any(text in other for other in known.texts):
        return []
    unknown = []
    for match in NUMBER.finditer(text):
        digits, divisor, percent = match.groups()
        plain = digits.replace(",", "")
        mantissa, _, exponent = plain.partition("e")
        decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
        unit = scale * (0.01 if percent else 1.0) / float(divisor or 1)
        # Half a unit of the last digit, and what doubles lose on the way.
        within = 0.0 if divisor else 0.5 * 10.0**-decimals * unit
        value = float(plain) * unit
        if not known.has(value, within + 1e-9 * value):
            unknown.append(match.group())
    return unknown


def check_table(table: Table, known: Known) -> list[str]:
    unknown = []
    for row in table.rows:
        for column, cell in zip(table.header, row, strict=True):
            # A column is in the unit of its header, or the table in that of its title.
            unit = column.rpartition(", ")[2], table.title.rpartition(", ")[2]
            scale = next((SCALES[name] for name in unit if name in SCALES), 1.0)
            if column == "batch":
                scale = 1.0
            unknown += [f"{table.id}, {column}: {n}" for n in find_unknown(cell, known, scale)]
    return unknown


def make_minutes(summary: StudySummary) -> StudySummary:
    """The same study a hundred times slower, so that the page shows it in minutes."""
    cells = [
        dataclasses.replace(
            cell,
            training_seconds=100 * cell.training_seconds,
            elapsed_seconds=100 * cell.elapsed_seconds,
            crossing=cell.crossing
            and dataclasses.replace(
                cell.crossing,
                training_seconds=100 * cell.crossing.training_seconds,
                elapsed_seconds=100 * cell.crossing.elapsed_seconds,
            ),
        )
        for cell in summary.cells
    ]
    return dataclasses.replace(summary, cells=cells)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> StudySummary:
    """A study of two settings from records, one arm of which misses the target."""
    directory = tmp_path_factory.mktemp("several")
    rates = {"replicated": 200.0, "fsdp": 317.0}
    runs = {
        (name, batch, seed): (
            40_000.0 if (name, batch) == ("fsdp", 256) else 5000.0 + 113 * seed + batch,
            rate * batch**0.4,
        )
        for seed in (0, 1, 2)
        for name, rate in rates.items()
        for batch in (16, 64, 256)
    }
    write_study(directory, runs)
    return analyse(directory)


@pytest.mark.parametrize("name", ["normal", "partly", "unfinished", "several"])
def test_every_number_of_a_table_is_in_the_summary(
    name: str, several: StudySummary, tmp_path: Path
) -> None:
    summary = several if name == "several" else STUDIES[name]
    known = Known(summary, tmp_path)
    tables = make_report(summary, list_sections(summary)).tables
    assert len(tables) >= 5
    assert [words for table in tables for words in check_table(table, known)] == []


def test_numbers_in_other_units_are_found_too(tmp_path: Path) -> None:
    summary = make_minutes(STUDIES["normal"])
    table = next(table for table in make_report(summary).tables if table.id == "runs")
    assert "training time, min" in table.header
    assert check_table(table, Known(summary, tmp_path)) == []


def test_the_check_sees_a_number_that_is_nowhere(tmp_path: Path) -> None:
    known = Known(STUDIES["normal"], tmp_path)
    # 12,177 samples and ×1/4 are in the study of test_report_table; their neighbours are not.
    assert find_unknown("> 12,177 (×1/4)", known) == []
    assert find_unknown("12,165 or ×1/7; 3.14159 %", known) == ["12,165", "1/7", "3.14159 %"]


def test_every_point_of_the_chart_is_in_the_summary(several: StudySummary, tmp_path: Path) -> None:
    content = json.loads(write_summary(several, tmp_path).read_text("utf-8"))
    curves = gather_curves(several)
    assert curves is not None
    assert curves["target"] == content["target"]
    assert set(curves["axes"]) == {*POSITIONS, "device_hours"}
    assert len(curves["runs"]) == len(content["cells"]) == 18
    for run, cell in zip(curves["runs"], content["cells"], strict=True):
        assert [run["setting"], run["batch"], run["seed"]] == [
            *(cell["setting"], cell["batch"], cell["seed"]),
        ]
        assert run["devices"] == cell["device_count"]
        assert run["scores"] == pytest.approx(cell["curve_scores"], rel=1e-6)
        assert run["fit"] == pytest.approx(cell["curve_fit"], rel=1e-6)
        for key, field in POSITIONS.items():
            assert run[key] == pytest.approx(cell[field], rel=1e-6)
        if cell["crossing"] is None:
            assert run["crossing"] is None
            continue
        for key, value in run["crossing"].items():
            assert value == pytest.approx(cell["crossing"][key], rel=1e-6)


def test_a_position_that_a_run_lacks_is_offered_for_none() -> None:
    study = STUDIES["normal"]
    cells = [dataclasses.replace(study.cells[0], curve_tokens=[]), *study.cells[1:]]
    curves = gather_curves(dataclasses.replace(study, cells=cells))
    assert curves is not None
    assert "tokens" not in curves["axes"] and "samples" in curves["axes"]
    assert len(curves["runs"]) == 15
    assert gather_curves(dataclasses.replace(study, cells=[])) is None
