"""One run on one process and on several: the same records, and nobody left waiting."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from jax_rl.records import RunRecord, read_run

ROOT = Path(__file__).parent.parent
CLUSTER = ROOT / "scripts" / "local_cluster.sh"
EXACT = ("samples", "iteration", "tokens", "decode_steps", "reward", "truncated", "learnt")
CLOSE = ("loss", "grad_norm", "update_norm", "entropy")


def command(directory: Path, *options: str, job: str = "train") -> list[str]:
    # A reward in steps, which a random policy has some of: equal zeros would show nothing.
    task = ["--task.name", "trainer_runs:Sevens", "--task.max_prompt_length", "4"]
    task += ["--task.max_response_length", "4", "--warm_start.updates", "0"]
    run = ["--run.layout", "fsdp", "--validation.prompts", "16", "--optimizer.learning_rate", "0.1"]
    start = [sys.executable, "-m", "jax_rl.cli", job, "tiny", "--dir", str(directory)]
    return [*start, *task, *run, "--budget.target", "1.0", *options]


def start(
    processes: int, devices: int, directory: Path, *options: str, job: str = "train"
) -> subprocess.Popen[str]:
    own = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    what = command(directory, *options, job=job)
    return subprocess.Popen(
        [str(CLUSTER), str(processes), "--devices", str(devices), *what],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str], seconds: float = 300) -> str:
    try:
        text, _ = process.communicate(timeout=seconds)
    finally:
        process.terminate()  # the script then ends all that it has started
        process.wait()
    return text


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    directory = tmp_path_factory.mktemp("alone") / "run"
    process = start(1, 4, directory)
    text = finish(process)
    assert process.returncode == 0, text
    record = read_run(directory)
    assert (record.start.process_count, record.start.device_count) == (1, 4)
    rewards = [event.reward for event in record.iterations]
    assert len(set(rewards)) > 3 and min(rewards) > 0
    assert len({v.score for v in record.validations}) > 1
    return record


def check_same(found: RunRecord, expected: RunRecord) -> None:
    assert len(found.iterations) == len(expected.iterations) == 6
    for one, other in zip(found.iterations, expected.iterations, strict=True):
        for field in EXACT:
            assert getattr(one, field) == getattr(other, field), field
        for field in CLOSE:
            assert getattr(one, field) == pytest.approx(
                getattr(other, field), rel=1e-4, abs=1e-6
            ), field
    scores = [[(v.samples, v.score) for v in r.validations] for r in (found, expected)]
    assert scores[0] == scores[1]
    assert [c.samples for c in found.checkpoints] == [c.samples for c in expected.checkpoints]


@pytest.mark.parametrize(
    ("processes", "devices"), [(2, 2), pytest.param(4, 1, marks=pytest.mark.slow)]
)
def test_the_records_do_not_depend_on_the_number_of_processes(
    alone: RunRecord, processes: int, devices: int, tmp_path: Path
) -> None:
    process = start(processes, devices, tmp_path / "run")
    text = finish(process)
    assert process.returncode == 0, text
    record = read_run(tmp_path / "run")
    assert (record.start.process_count, record.start.device_count) == (processes, 4)
    check_same(record, alone)


@pytest.mark.slow
def test_a_run_on_two_processes_resumes_on_one(alone: RunRecord, tmp_path: Path) -> None:
    process = start(2, 2, tmp_path / "run", "--budget.samples", "32")
    assert finish(process) and process.returncode == 0
    process = start(1, 4, tmp_path / "run", "--resume", "--run.layout", "replicated")
    text = finish(process)
    assert process.returncode == 0, text
    record = read_run(tmp_path / "run")
    assert [s.process_count for s in record.starts] == [2, 1]
    assert [i.samples for i in record.iterations] == [i.samples for i in alone.iterations]


@pytest.mark.slow
def test_a_study_on_two_processes_is_that_on_one(tmp_path: Path) -> None:
    sweep = ["--study.factor", "2", "--study.smaller", "1", "--study.larger", "0"]
    sweep += ["--study.seeds", "1", "--study.steady_seconds", "0.01"]
    found = []
    for processes in (1, 2):
        directory = tmp_path / str(processes)
        process = start(processes, 4 // processes, directory, *sweep, job="study")
        text = finish(process)
        assert process.returncode == 0, text
        assert text.count("report: ") == 1, text
        assert (directory / "report.html").exists()
        cells = sorted((directory / "cells").iterdir())
        records = [read_run(cell) for cell in cells]
        assert [record.start.process_count for record in records] == [processes] * 2
        found.append([(cell.name, *list_exact(r)) for cell, r in zip(cells, records, strict=True)])
    assert found[0] == found[1]


def list_exact(record: RunRecord) -> list[Any]:
    """What does not depend on how sums are split."""
    iterations = [[getattr(event, field) for field in EXACT] for event in record.iterations]
    return [iterations, [(v.samples, v.score) for v in record.validations]]


@pytest.mark.slow
def test_a_killed_process_ends_the_others_with_a_message(tmp_path: Path) -> None:
    process = start(2, 1, tmp_path / "run", "--budget.samples", "3200000")
    try:
        wait_for_iterations(tmp_path / "run")
        victim = find_process(str(tmp_path / "run"), number="1")
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        text = finish(process, 60)
    finally:
        process.terminate()
    assert time.monotonic() - killed < 60
    assert process.returncode != 0
    assert "process 1" in text and "ended without a word" in text
    assert read_run(tmp_path / "run").iterations


@pytest.mark.slow
def test_wrong_input_is_said_and_ends_all(tmp_path: Path) -> None:
    process = start(2, 2, tmp_path / "run", "--batch.size", "12", "--batch.group", "6")
    text = finish(process, 120)
    assert process.returncode == 2
    assert "error: " in text and "Traceback" not in text


def wait_for_iterations(directory: Path) -> None:
    deadline = time.monotonic() + 200
    record = directory / "records.jsonl"
    while time.monotonic() < deadline:
        if record.exists() and any(_is_iteration(line) for line in record.read_text().splitlines()):
            return
        time.sleep(0.5)
    raise AssertionError("no iteration came")


def _is_iteration(line: str) -> bool:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return False
    return event["event"] == "iteration"


def find_process(word: str, *, number: str) -> int:
    """The process with this word on its command line and this number among the processes."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_text().split("\0")
            variables = (folder / "environ").read_text().split("\0")
        except OSError:
            continue
        of_python = arguments[0] == sys.executable and word in arguments
        if of_python and f"JAX_PROCESS_ID={number}" in variables:
            return int(folder.name)
    raise AssertionError(f"no process {number} with {word}")
