"""The live view: what it reads of growing records, what it shows, when it ends."""

import io
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from study_records import BUDGET, make_config, make_start, write_run, write_study

from jax_rl import cli
from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME, RecordWriter
from jax_rl.watch.live import watch
from jax_rl.watch.progress import Progress, Tail, advance
from jax_rl.watch.state import Watcher

START = {"event": "start", "config": make_config(), "resumed_at_samples": None}


def make_iteration(samples: int, seconds: float, **changes: Any) -> dict[str, Any]:
    event = {"event": "iteration", "samples": samples, "update": samples // 64, "reward": 0.5}
    return {**event, "training_seconds": seconds, "elapsed_seconds": 10 + 2 * seconds, **changes}


def make_validation(samples: int, score: float) -> dict[str, Any]:
    return {"event": "validation", "samples": samples, "score": score}


def show(directory: Path, *, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    watch(directory, once=True, console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Four runs: one is finished, one has begun, two wait."""
    write_study(tmp_path, {(64, 0): (5000.0, 100.0)})
    plan = json.loads((tmp_path / "study.json").read_text())
    plan["order"] = [[64, 0], [256, 0], [64, 1], [256, 1]]
    (tmp_path / "study.json").write_text(json.dumps(plan))
    write_run(tmp_path, 256, 0, samples=8000.0, rate=200.0, killed_at=4096)
    return tmp_path


def test_rate_and_time_left_by_hand() -> None:
    events = [START, *(make_iteration(100 * i, float(i)) for i in range(1, 31))]
    progress = advance(None, events)
    assert progress is not None
    assert progress.samples == 3000
    assert progress.rollouts_per_second == pytest.approx(100.0)
    # 2 elapsed seconds for 100 samples: the rest of the budget takes this, less than an hour.
    assert progress.seconds_left == pytest.approx((BUDGET - 3000) / 50)
    late = advance(progress, [make_iteration(3100, 1790.0)])
    assert late is not None
    assert late.seconds_left == pytest.approx(3600 - 3590)  # by the budget of seconds


def test_time_left_is_not_known_at_once() -> None:
    assert Progress(0.8, 100, 60.0).seconds_left is None
    one = advance(None, [START, make_iteration(100, 1.0)])
    assert one is not None and (one.seconds_left, one.rollouts_per_second) == (None, None)


def test_resume_takes_back_what_it_does_again() -> None:
    events = [START, make_validation(0, 0.2), make_iteration(2048, 5.0)]
    events += [make_validation(1024, 0.3), make_validation(2048, 0.4)]
    events += [{"event": "end", "reason": "time_budget"}]
    progress = advance(None, events)
    assert progress is not None and progress.reason == "time_budget"
    resumed = advance(progress, [{**START, "resumed_at_samples": 1024}])
    assert resumed is not None
    assert [(v.samples, v.score) for v in resumed.validations] == [(0, 0.2), (1024, 0.3)]
    assert resumed.reason == ""
    assert resumed.seconds_left is None
    again = advance(resumed, [START])  # a run that begins anew in the same directory
    assert again is not None and again.validations == ()


def test_numbers_that_were_not_finite_do_not_stop_it() -> None:
    progress = advance(None, [START, make_iteration(64, 1.0, reward=None)])
    assert progress is not None and math.isnan(progress.reward)


def test_tail_reads_each_complete_line_once(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    tail = Tail(path)
    assert tail.read() == []
    path.write_text('{"a": 1}\n{"b": ')
    assert tail.read() == [{"a": 1}]
    assert tail.read() == []
    with path.open("a") as file:
        file.write("2}\n")
    assert tail.read() == [{"b": 2}]
    path.write_text('{"c": 3}\n')  # shorter: another run in its place
    assert tail.read() == [{"c": 3}]
    with path.open("a") as file:
        file.write("no json\n")
    with pytest.raises(UserError, match="a line is not an event"):
        tail.read()


def test_study_as_it_goes(study: Path) -> None:
    shown = show(study)
    flat = " ".join(shown.split())
    assert "test: 1 of 4 runs finished, 1 started, 2 waiting" in flat
    assert "batch 256, seed 0" in shown
    # At 4,096 samples the line from 0.25 through 0.75 at 8,000 has passed 0.25 + 0.5 x 0.384.
    assert "4,096 of 16,384, 16 updates" in shown
    assert "200 rollouts/s" in shown
    assert "3,072: 0.442" in shown
    rows = {
        line.split()[0]: " ".join(line.split()[1:])
        for line in shown.splitlines()[-4:]
        if line.strip()
    }
    assert rows["64"] == "target 7,168 waiting"
    assert rows["256"] == "25 % of budget waiting"
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown


def test_rest_of_a_study_by_hand(study: Path) -> None:
    snapshot = Watcher(study).look()
    one = snapshot.runs[0].progress
    begun = snapshot.runs[1].progress
    assert one is not None and begun is not None
    # 64, seed 1 as 64, seed 0; both of batch 256 by the only finished run too.
    expected = 3 * one.elapsed_seconds - begun.elapsed_seconds
    assert snapshot.estimate_seconds_left() == pytest.approx(expected)


def test_silence_is_said_and_is_no_verdict(study: Path) -> None:
    assert "silent" not in show(study)
    path = study / "cells" / "b00256_s0" / FILE_NAME
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 600))
    assert "silent for 10.0 min: compiling, validating, or stopped" in show(study)


def test_trials_have_a_line_of_their_own(study: Path) -> None:
    writer = RecordWriter(study / "trials" / "b00064_x0.5_s1000")
    writer.write(make_start(make_config(), 64, 1000))
    writer.close()
    shown = show(study)
    assert "trials of the rate: 0 of 1 begun are finished" in shown
    assert "b00064_x0.5_s1000" in shown


def test_one_run_is_shown_alone(study: Path) -> None:
    shown = show(study / "cells" / "b00064_s0")
    assert "ended: target" in shown
    assert "batch" not in shown.replace("b00064", "")


def test_names_steer_no_terminal(tmp_path: Path) -> None:
    write_study(tmp_path, {(64, 0): (5000.0, 100.0)})
    plan = json.loads((tmp_path / "study.json").read_text())
    (tmp_path / "study.json").write_text(json.dumps({**plan, "name": "[red]x[/red]\x1b[2J"}))
    assert "[red]x[/red] [2J" in show(tmp_path)


def test_it_follows_until_the_study_is_finished(study: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, highlight=False)
    todo = [(256, 0), (64, 1), (256, 1)]

    def run_one(seconds: float) -> None:
        assert seconds == 0.5
        batch, seed = todo.pop(0)  # an IndexError if it does not end
        if (cell := study / "cells" / f"b{batch:05d}_s{seed}").exists():
            cell.rename(study / "aside")  # as a study does with what a kill has left
        write_run(study, batch, seed, samples=5000.0, rate=100.0)

    watch(study, interval=0.5, console=console, sleep=run_one)
    assert todo == []
    assert isinstance(console.file, io.StringIO)
    assert "4 of 4 runs finished" in console.file.getvalue()


def test_other_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither a study .* nor a run .* is there yet"):
        Watcher(tmp_path)
    (tmp_path / "study.json").write_text('{"name": "x"}')
    with pytest.raises(UserError, match="not the description of a study"):
        Watcher(tmp_path)


def test_command_prints_one_frame(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["watch", str(study), "--once"]) == 0
    assert "1 of 4 runs finished" in capsys.readouterr().out
    assert cli.main(["watch", str(study), "--interval", "0"]) == 2
    assert "give more than 0" in capsys.readouterr().err


def test_interrupt_ends_the_view_without_an_error(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("jax_rl.watch.live.watch", interrupt)
    assert cli.main(["watch", str(study)]) == 0
    assert capsys.readouterr().err == ""
