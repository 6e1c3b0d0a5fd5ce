"""One run read from its record: clocks, counts, and the accounting law."""

import json

import pytest
from study_records import (
    BUDGET,
    COMPILE,
    STEP,
    TARGET,
    VALIDATE,
    make_config,
    make_start,
    write_run,
)

from jax_rl.errors import UserError
from jax_rl.study.cells import Planned, describe_device, read_cell


def read(tmp_path, batch=64, **options):
    write_run(tmp_path, batch, 1, **{"samples": 2.5 * STEP, "rate": 500.0, **options})
    name = Planned("", batch, 1).name
    return read_cell(tmp_path / "cells" / name, name, 3)


def test_reads_a_run(tmp_path):
    cell = read(tmp_path, failed=2)
    assert (cell.name, cell.batch, cell.seed, cell.order) == ("b00064_s1", 64, 1, 3)
    # The line meets the target at 2,560 samples, half-way between the grid points 2 and 3.
    crossing = cell.crossing
    assert crossing.samples == pytest.approx(2560)
    assert crossing.updates == pytest.approx(40)
    assert crossing.training_seconds == pytest.approx(2560 / 500)
    # Compile, and the validations of the grid points 0, 1 and, half-way, 2.
    assert crossing.elapsed_seconds == pytest.approx(COMPILE + 2560 / 500 + 2.5 * VALIDATE)
    assert crossing.raw_samples == 3 * STEP
    assert (crossing.learnt, crossing.in_flight) == (3 * STEP - 2 * 48, 0)
    assert crossing.held
    assert cell.finished
    # To the bit: throughput is one division of the other two.
    assert cell.rollouts_per_second == crossing.samples / crossing.training_seconds
    assert cell.tokens_per_second == pytest.approx(2000)
    assert cell.generate_per_second == pytest.approx(500 / 0.6)
    assert cell.learn_per_second == pytest.approx(500 / 0.3)
    assert cell.phases_to_crossing["generate"] == pytest.approx(0.6 * 3 * STEP / 500)
    assert "validate" not in cell.phases_to_crossing
    # 1.25 x 2,560 = 3,200, but two grid points more than the crossing are 4,608, i.e. grid point 5.
    assert cell.samples == 5 * STEP
    assert cell.accounting_gap < 1e-12
    assert cell.other_share == pytest.approx(0.01 * 10.24 / (10.24 + COMPILE + 6 * VALIDATE))
    assert cell.steady_gap == pytest.approx(0, abs=1e-12)
    assert (cell.mean_length, cell.p95_length, cell.start_score) == (4.0, 5.0, 0.25)
    assert cell.notes == []


def test_in_flight_rollouts_are_counted_apart(tmp_path):
    write_run(tmp_path, 64, 1, samples=2.5 * STEP, rate=500.0)
    path = tmp_path / "cells" / "b00064_s1" / "records.jsonl"
    # The policy scored at 3,072 had learnt from iteration 47, i.e. 3,008 rollouts.
    text = path.read_text()
    assert text.count('"samples": 3072, "iteration": 48') == 1
    path.write_text(
        text.replace('"samples": 3072, "iteration": 48', '"samples": 3072, "iteration": 47')
    )
    crossing = read_cell(path.parent, "b00064_s1", 1).crossing
    assert (crossing.raw_samples, crossing.learnt, crossing.in_flight) == (3072, 3008, 64)


def test_censored_run_keeps_what_it_generated(tmp_path):
    cell = read(tmp_path, samples=2.0 * BUDGET, bumps={9: 0.6})
    assert cell.crossing is None
    assert cell.finished
    assert cell.samples == BUDGET
    assert cell.rollouts_per_second == pytest.approx(500)
    assert cell.phases_to_crossing["learn"] == pytest.approx(0.3 * BUDGET / 500)
    # One bump above the target is said and is no crossing.
    assert cell.best_score > TARGET
    [note] = cell.notes
    assert note.startswith("censored: > 16,384 samples, > 32.8 training seconds; single scores")


def test_notes_what_the_checks_find(tmp_path):
    cell = read(tmp_path, batch=128, other=2.0, steady=1.1, bumps={5: -0.6})
    assert cell.steady_gap == pytest.approx(0.1)
    texts = " | ".join(cell.notes)
    assert "of elapsed belongs to no named phase" in texts
    assert "steady throughput is +10.0% against the run's" in texts
    assert "4.40 tokens on average there and 4.00 in the run" in texts
    assert "warm-up of 4 updates: fewer than 5" in texts


def test_not_held_and_a_gap_in_the_accounting(tmp_path):
    write_run(tmp_path, 64, 1, samples=2.5 * STEP, rate=500.0, bumps={4: -0.4})
    path = tmp_path / "cells" / "b00064_s1" / "records.jsonl"
    path.write_text(path.read_text().replace('"compile": 10.0', '"compile": 9.0'))
    cell = read_cell(path.parent, "b00064_s1", 1)
    # Scores 0.85, 0.65, 1.25 after 0.65 at grid points 3, 4, 5: 3 and 4 pool to 0.75.
    assert not cell.crossing.held
    total = COMPILE + 5 * STEP / 500 + 6 * VALIDATE
    assert cell.accounting_gap == pytest.approx(1 / total)
    assert any(note.startswith("phases add up to elapsed only within 4.3%") for note in cell.notes)
    assert any(note.startswith("not held") for note in cell.notes)


def test_killed_run_is_unfinished(tmp_path):
    cell = read(tmp_path, killed_at=2 * STEP)
    assert not cell.finished
    assert cell.crossing is None
    assert cell.samples == 2 * STEP
    assert cell.notes == ["unfinished: the record has no end event"]


def test_start_score_above_the_target_is_refused(tmp_path):
    config = make_config()
    config["budget"]["target"] = 0.2
    with pytest.raises(UserError, match="start score is above the target"):
        read(tmp_path, config=config)


def change_record(tmp_path, change, **options):
    """The cell of a run whose events were changed; an event that becomes None is left out."""
    write_run(tmp_path, 64, 1, **{"samples": 2.5 * STEP, "rate": 500.0, **options})
    path = tmp_path / "cells" / "b00064_s1" / "records.jsonl"
    events = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(event) + "\n" for event in events if event is not None))
    return read_cell(path.parent, "b00064_s1", 1)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("not_finite", "it diverged"),
        ("early_stop", "stopped early, as it could not win any more"),
        ("time_budget", "at its time budget"),
        ("sample_budget", "training seconds"),
    ],
)
def test_why_a_censored_run_ended_is_said(tmp_path, reason, words):
    def end(event):
        return event | {"reason": reason} if event["event"] == "end" else event

    cell = change_record(tmp_path, end, samples=2.0 * BUDGET)
    assert cell.ended == reason
    [note] = cell.notes
    assert note.startswith("censored: ") and note.endswith(words)


def test_a_run_that_diverged_after_its_crossing_says_so(tmp_path):
    def end(event):
        return event | {"reason": "not_finite"} if event["event"] == "end" else event

    assert change_record(tmp_path, end).notes == ["it diverged after the crossing"]


def test_a_censored_run_is_known_up_to_its_last_score(tmp_path):
    def end(event):
        if event["event"] != "end":
            return event
        return event | {"samples": BUDGET + 640, "training_seconds": 40.0}

    cell = change_record(tmp_path, end, samples=2.0 * BUDGET)
    [note] = [note for note in cell.notes if note.startswith("censored")]
    assert note.startswith("censored: > 16,384 samples, > 32.8 training seconds")


def test_a_first_score_at_the_target_is_an_upper_bound(tmp_path):
    def drop(event):
        early = event["event"] == "validation" and event["samples"] < 3 * STEP
        return None if early else event

    cell = change_record(tmp_path, drop)
    assert cell.crossing.samples == 3 * STEP
    assert "crossed at most there: its first score, at 3,072, is at the target" in cell.notes
    assert not any("at most" in note for note in read(tmp_path / "whole").notes)


def test_a_number_of_devices_that_is_not_known_is_not_one():
    start = make_start(make_config(), 64, 0, device_count=0, device_kind="H100", platform="gpu")
    assert describe_device(start) == "unknown number of H100 (gpu)"
