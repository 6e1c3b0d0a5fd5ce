"""The script that holds a plan against a bench: what it runs, and what it prints."""

from pathlib import Path
from types import ModuleType

import pytest
from script_files import load_script
from test_study_decisions_transfer import point, table

from jax_rl.cli import main
from jax_rl.throughput import write_throughput


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("check_plan")


def test_the_plan_runs_as_many_steps_as_were_measured(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[list[str]] = []

    def run(words: list[object]) -> None:
        said.append([str(word) for word in words])
        place = Path(said[-1][said[-1].index("--dir" if words[0] == "bench" else "--output") + 1])
        points = [point(b, 10.0, decode_steps=steps) for b, steps in ((8, 3.0), (32, 5.0))]
        write_throughput(table(*points), place / f"{words[0]}.json")

    monkeypatch.setattr(script, "run_command", run)
    predicted, measured = script.predict_and_measure(script.LARGER, tmp_path)
    assert [words[0] for words in said] == ["bench", "plan"]
    assert said[1][said[1].index("--response_length") + 1] == "4"
    assert [p.batch for p in predicted] == [p.batch for p in measured] == [8, 32]


@pytest.mark.parametrize("name", ["BUILT_IN", "LARGER"])
def test_its_experiments_are_valid(
    script: ModuleType, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = getattr(script, name)
    words = ["plan", experiment.config, *experiment.changes, "--target", "tpu:nowhere"]
    assert main([*words, "--output", str(tmp_path)]) == 2
    assert "tpu:nowhere" in capsys.readouterr().err


def test_growth_is_over_the_batch_before(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    gib = 2**30
    plan = [point(b, 1.0, peak_memory_bytes=n * gib) for b, n in ((1, 1), (2, 2), (4, 4))]
    bench = [point(b, 1.0, peak_memory_bytes=n * gib) for b, n in ((1, 3), (2, 5), (4, 9))]
    script.print_memory(plan, bench)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[3:]]
    assert lines == [
        ["1", "1.00", "3.00"],
        ["2", "2.00", "5.00", "1.00", "2.00", "0.50"],
        ["4", "4.00", "9.00", "2.00", "4.00", "0.50"],
    ]


def test_throughput_stands_beside_its_bound(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    script.print_throughput([point(8, 100.0), point(32, 300.0)], [point(8, 50.0), point(32, 100.0)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[3:]]
    assert lines == [
        ["8", "100", "50", "0.50", "1.00", "1.00"],
        ["32", "300", "100", "0.33", "3.00", "2.00"],
    ]
