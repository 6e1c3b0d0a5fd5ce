"""Events written are events read, also after a kill and after a resume."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
from study_records import make_config, make_start

from jax_rl.errors import UserError
from jax_rl.records import (
    FILE_NAME,
    Checkpoint,
    Compile,
    End,
    Event,
    RecordWriter,
    Steady,
    Validation,
    WarmStart,
    read_events,
    read_run,
)

START = make_start(make_config(), 64, 0)
WARM_START = WarmStart(key="ab12", seconds=1.5, cached=False, loss=None)
STEADY = Steady(iterations=3, rollouts=48, tokens=100, seconds=0.5)


def validate(samples: int, score: float = 0.5) -> Validation:
    return Validation(
        samples=samples,
        iteration=samples // 16,
        update=samples // 16,
        score=score,
        failed_rewards=0,
        rollouts=32,
        mean_length=3.0,
        elapsed_seconds=2.0,
        training_seconds=1.0,
        seconds=0.1,
    )


def save(samples: int) -> Checkpoint:
    return Checkpoint(samples, samples // 16, f"checkpoints/{samples}", 0.2)


def write(directory: Path, *events: Event) -> None:
    writer = RecordWriter(directory)
    for event in events:
        writer.write(event)
    writer.close()


def test_events_come_back_as_they_were(tmp_path: Path) -> None:
    compiled = Compile(program="update", shapes={"tokens": [16, 8]}, seconds=1.0)
    events = [START, WARM_START, compiled, validate(0), save(16), STEADY]
    write(tmp_path / "deep" / "run", *events)
    assert list(read_events(tmp_path / "deep" / "run")) == events
    lines = (tmp_path / "deep" / "run" / FILE_NAME).read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == [
        "start",
        "warm_start",
        "compile",
        "validation",
        "checkpoint",
        "steady",
    ]


def test_each_line_is_on_disk_as_it_is_written(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path)
    writer.write(START)
    writer.write(validate(0))
    assert list(read_events(tmp_path)) == [START, validate(0)]  # the writer is still open
    writer.close()


@pytest.mark.parametrize("lost", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_null_and_read_as_nan(tmp_path: Path, lost: float) -> None:
    write(tmp_path, START, validate(0, lost))
    assert json.loads((tmp_path / FILE_NAME).read_text().splitlines()[1])["score"] is None
    _, read = read_events(tmp_path)
    assert isinstance(read, Validation)
    assert math.isnan(read.score)
    assert dataclasses.replace(read, score=0.5) == validate(0)
    write(tmp_path, WARM_START)
    assert read_run(tmp_path).warm_start == WARM_START  # None where None may be


def test_a_last_line_cut_by_a_kill_is_left_out_and_written_over(tmp_path: Path) -> None:
    write(tmp_path, START, validate(0), validate(16))
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert list(read_events(tmp_path)) == [START, validate(0)]
    write(tmp_path, dataclasses.replace(START, resumed_at_samples=0), validate(16))
    assert [e.samples for e in read_run(tmp_path).validations] == [0, 16]
    assert len(read_run(tmp_path).starts) == 2


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    write(tmp_path, START, validate(0))
    path = tmp_path / FILE_NAME
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], '{"event": "dream"}', lines[1], ""]))
    with pytest.raises(UserError, match=r"records\.jsonl, line 2: not an event of this version"):
        list(read_events(tmp_path))


def test_missing_and_empty_records_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no record of a run is there"):
        read_run(tmp_path)
    (tmp_path / FILE_NAME).write_text("")
    with pytest.raises(UserError, match="no start event"):
        read_run(tmp_path)


def test_what_a_resume_took_back_is_left_out(tmp_path: Path) -> None:
    # Killed at 48 with the newest checkpoint at 32, and resumed: 48 comes again.
    first = [START, validate(0), validate(32), save(32), validate(48, 0.1)]
    resumed = dataclasses.replace(START, resumed_at_samples=32)
    write(tmp_path, *first, resumed, validate(48, 0.9), save(48))
    run = read_run(tmp_path)
    assert [(e.samples, e.score) for e in run.validations] == [(0, 0.5), (32, 0.5), (48, 0.9)]
    assert [e.samples for e in run.checkpoints] == [32, 48]
    assert (run.start, run.starts) == (START, (START, resumed))


def test_a_run_that_ended_and_was_resumed_has_not_ended(tmp_path: Path) -> None:
    end = End(
        reason="sample_budget",
        samples=32,
        learnt=32,
        iterations=2,
        updates=2,
        elapsed_seconds=2.0,
        training_seconds=1.0,
        phases={},
        hidden={},
        compiled={},
        load_average=1.0,
        peak_memory_bytes=1,
    )
    write(tmp_path, START, validate(0), validate(32), save(32), STEADY, end)
    assert read_run(tmp_path).end == end
    write(tmp_path, dataclasses.replace(START, resumed_at_samples=32), validate(48))
    assert read_run(tmp_path).end is None  # killed again, after 48
    later = dataclasses.replace(end, samples=64)
    write(tmp_path, later)
    assert read_run(tmp_path).end == later
