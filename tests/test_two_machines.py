"""The script that predicts one machine from another: its comparison, and how it holds cores."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from script_files import load_script
from study_records import make_config, write_study
from test_study_decisions_transfer import point, table

from jax_rl.config_checks import validate
from jax_rl.config_file import load_config
from jax_rl.throughput import read_throughput, write_throughput


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("two_machines")


def test_the_study_is_a_valid_one(script: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text(script.CONFIG, encoding="utf-8")
    config = load_config(file)
    validate(config, study=True)
    assert config.batch.size == script.REFERENCE
    assert (config.study.smaller + 1 + config.study.larger, config.study.seeds) == (
        script.BATCHES,
        script.SEEDS,
    )


def test_predicted_stands_beside_measured(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(reference=32)
    runs = {(b, s): (4000.0, 50.0) for s in range(2) for b in (32, 64, 128)}
    slower = dict.fromkeys(runs, (4000.0, 40.0))
    write_study(tmp_path / "first", runs, config=config)
    write_study(tmp_path / "second", slower, config=config)
    points = [point(32, 80.0), point(64, 44.0)]
    write_throughput(table(*points, config=config), tmp_path / "bench.json")
    there = read_throughput(tmp_path / "bench.json")
    rows = script.compare(tmp_path / "first", tmp_path / "second", there)
    assert [(row.batch, row.predicted, row.measured) for row in rows] == [
        (32, pytest.approx(50), pytest.approx(100)),
        (64, pytest.approx(4000 / 44), pytest.approx(100)),
    ]
    assert rows[0].rates == pytest.approx((50, 80, 40))
    script.print_rows(rows)
    printed = capsys.readouterr().out
    assert "would reach the target first" in printed
    assert printed.splitlines()[-2].split()[-4:] == ["0.500", "0.50", "to", "0.50"]


def test_medians_stand_below_the_single_ratios(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        script.Row(32, (1.0, 1.0), (1.0, 1.0, 1.0), predicted, measured)
        for predicted, measured in ((2.0, 4.0), (3.0, 3.0), (4.0, 2.0), (6.0, 5.0), (1.0, 5.0))
    ]
    script.print_rows(rows)
    (line,) = capsys.readouterr().out.split("medians")[1].splitlines()[2:]
    assert line.split() == ["32", "3.00", "4.00", "0.750", "0.20", "to", "2.00"]


def test_rates_of_several_benches_are_averaged_as_times(script: ModuleType) -> None:
    merged = script.merge_tables(
        [
            table(point(64, 100.0, by_progress=(100.0, 50.0))),
            table(point(32, 80.0, by_progress=(80.0, 80.0))),
            table(point(64, 300.0, by_progress=(300.0, 150.0))),
        ]
    )
    assert [(p.batch, p.rollouts_per_second, p.by_progress) for p in merged.points] == [
        (32, pytest.approx(80), pytest.approx((80, 80))),
        (64, pytest.approx(150), pytest.approx((150, 75))),
    ]


def test_cells_are_run_one_by_one_and_named(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(words: list[object], *, cores: int) -> None:
        number = int(str(words[-1]).split("/")[0])
        (tmp_path / "cells" / f"b{number:05d}_s0").mkdir(parents=True)

    monkeypatch.setattr(script, "run_command", run)
    found = list(script.run_cells(tmp_path / "c.toml", tmp_path, cores=1))
    assert found == [f"b{number:05d}_s0" for number in range(script.BATCHES * script.SEEDS)]


def test_a_command_may_use_so_many_cores(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    count = "import os, pathlib, sys; n = str(len(os.sched_getaffinity(0)))"
    code = f"{count}; pathlib.Path(sys.argv[1]).write_text(n)"
    monkeypatch.setattr(script, "COMMAND", (sys.executable, "-c", code))
    script.run_command([tmp_path / "cores"], cores=1)
    assert (tmp_path / "cores").read_text() == "1"
    with pytest.raises(SystemExit, match="cores are asked for"):
        script.run_command([], cores=len(os.sched_getaffinity(0)) + 1)
