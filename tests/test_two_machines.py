"""The script that predicts one machine from another: its comparison, and how it holds cores."""

import os
from pathlib import Path
from types import ModuleType

import pytest
from script_files import load_script
from study_records import make_config, write_study
from test_study_decisions_transfer import point, table

from jax_rl.config_checks import validate
from jax_rl.config_file import load_config
from jax_rl.throughput import write_throughput


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("two_machines")


def test_the_study_is_a_valid_one(script: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text(script.CONFIG, encoding="utf-8")
    config = load_config(file)
    validate(config, study=True)
    assert config.batch.size == script.REFERENCE


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
    rows = script.compare(tmp_path / "first", tmp_path / "second", tmp_path / "bench.json")
    assert [(row.batch, row.predicted, row.measured) for row in rows] == [
        (32, pytest.approx(50), pytest.approx(100)),
        (64, pytest.approx(4000 / 44), pytest.approx(100)),
    ]
    assert rows[0].rates == pytest.approx((50, 80, 40))
    script.print_rows(rows)
    printed = capsys.readouterr().out
    assert "would reach the target first" in printed
    assert printed.splitlines()[-2].split()[-1] == "0.500"


def test_a_command_may_use_so_many_cores(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    count = "import os, pathlib, sys; n = str(len(os.sched_getaffinity(0)))"
    monkeypatch.setattr(script, "COMMAND", f"{count}; pathlib.Path(sys.argv[1]).write_text(n)")
    script.run_command([tmp_path / "cores"], cores=1)
    assert (tmp_path / "cores").read_text() == "1"
    with pytest.raises(SystemExit, match="cores are asked for"):
        script.run_command([], cores=len(os.sched_getaffinity(0)) + 1)
