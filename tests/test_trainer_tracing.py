"""A trace is asked for from outside, and written by the job itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from trainer_runs import read_lines

from jax_rl.cli import main
from jax_rl.errors import UserError
from jax_rl.trainer.tracing import request_trace, take_request

ROOT = Path(__file__).parent.parent


JOB = """
import sys
from pathlib import Path
from trainer_runs import CONFIG, change
from jax_rl.trainer.run import train
from jax_rl.trainer.tracing import request_trace

directory, after, iterations = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

def ask(validations, target):
    if len(validations) == after and not (directory / "traces").exists():
        request_trace(directory, iterations=iterations)

train(CONFIG, directory, progress=False, stop=ask)
"""
"""A job that is asked for a trace after so many validations; in a process of its own, since other
libraries of the tests have profilers too, and two of them in one process can crash it."""


def run_job(directory: Path, *, after: int, iterations: int) -> None:
    own = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    subprocess.run(
        [sys.executable, "-c", JOB, str(directory), str(after), str(iterations)],
        env={**os.environ, **own},
        check=True,
        timeout=300,
    )


def test_a_running_job_writes_the_trace_that_was_asked_for(tmp_path):
    directory = tmp_path / "run"
    run_job(directory, after=2, iterations=2)
    events = read_lines(directory)
    (trace,) = [event for event in events if event["event"] == "trace"]
    assert (trace["samples"], trace["iterations"], trace["path"]) == (48, 2, "traces/48")
    assert list((directory / trace["path"]).rglob("*.xplane.pb"))
    assert take_request(directory) == 0
    # The iterations are all there, and each second still belongs to a phase.
    assert [e["samples"] for e in events if e["event"] == "iteration"] == [16, 32, 48, 64, 80, 96]
    (end,) = [event for event in events if event["event"] == "end"]
    assert sum(end["phases"].values()) == pytest.approx(end["elapsed_seconds"])


@pytest.mark.slow
def test_a_trace_still_running_at_the_end_is_written(tmp_path):
    run_job(tmp_path / "run", after=1, iterations=100)
    assert list((tmp_path / "run" / "traces").rglob("*.xplane.pb"))


def test_a_request_is_taken_once(tmp_path):
    (tmp_path / "records.jsonl").write_text("")
    assert take_request(tmp_path) == 0
    assert request_trace(tmp_path, iterations=3) == tmp_path / "traces"
    assert take_request(tmp_path) == 3
    assert take_request(tmp_path) == 0


def test_there_has_to_be_a_run(tmp_path, capsys):
    with pytest.raises(UserError, match="no record of a run is there"):
        request_trace(tmp_path, iterations=1)
    assert main(["trace", str(tmp_path / "none")]) == 2
    assert "no record of a run is there" in capsys.readouterr().err
    (tmp_path / "records.jsonl").write_text("")
    assert main(["trace", str(tmp_path), "--iterations", "0"]) == 2
