"""A whole study from records on disk to summary.json."""

import dataclasses
import json
import math

import pytest
from study_records import BUDGET, STEP, build_cell, make_config, write_run, write_study

from jax_rl.errors import UserError
from jax_rl.study.analyse import analyse, estimate_noise, write_summary
from jax_rl.study.crossing import fit_isotonic

# Samples to target and rollouts per second; 64 is the reference.
RUNS = {
    (64, 0): (5000.0, 400.0),
    (256, 0): (5200.0, 800.0),
    (16, 0): (5100.0, 200.0),
    (16, 1): (5600.0, 210.0),
    (64, 1): (5500.0, 380.0),
    (256, 1): (5900.0, 820.0),
}


def test_summary_by_hand(tmp_path):
    write_study(tmp_path, RUNS)
    summary = analyse(tmp_path)
    assert [cell.name for cell in summary.cells][:3] == ["b00064_s0", "b00256_s0", "b00016_s0"]
    assert [cell.order for cell in summary.cells] == [1, 2, 3, 4, 5, 6]
    assert summary.planned_cells == 6
    assert (summary.reference_batch, summary.target, summary.sample_budget) == (64, 0.75, BUDGET)
    assert (summary.setting, summary.device) == ("replicated", "1 x cpu (cpu)")
    assert summary.task == "addition, difficulty 2"
    assert summary.start_score == pytest.approx(0.25)
    assert [r.batch for r in summary.batches] == [16, 64, 256]
    small, middle, large = summary.batches
    assert middle.samples_to_target == pytest.approx(math.sqrt(5000 * 5500))
    assert middle.throughput == pytest.approx(math.sqrt(400 * 380))
    assert middle.training_time == pytest.approx(math.sqrt(5000 / 400 * 5500 / 380))
    assert middle.updates_to_target == pytest.approx(math.sqrt(5000 * 5500) / 64)
    assert (middle.multiple, middle.against_reference) == (1, None)
    assert (small.multiple, small.against_smaller) == (0.25, None)
    assert large.against_smaller.against == 64
    ratio = math.sqrt(5200 * 5900 / 5000 / 5500)
    assert large.against_reference.samples.estimate == pytest.approx(ratio)
    assert summary.degrees_of_freedom == 2
    logs = {key: math.log(samples) for key, (samples, _) in RUNS.items()}
    rows = [[logs[b, s] for s in (0, 1)] for b in (16, 64, 256)]
    gaps = [row[0] - row[1] for row in rows]
    ssr = sum((gap - sum(gaps) / 3) ** 2 for gap in gaps) / 2
    assert summary.residual_sd["samples"] == pytest.approx(math.sqrt(ssr / 2))
    assert summary.training.fastest == 256
    assert summary.elapsed.fastest == 256
    assert summary.clocks_agree
    assert not summary.training.inside_range
    assert large.phase_shares["generate"] > 0.1
    assert large.steady_per_second == pytest.approx(math.sqrt(800 * 820))
    assert not any("5 %" in note for note in summary.notes)


def test_what_the_runs_read_and_start_from_is_named(tmp_path):
    config = make_config()
    config["task"] |= {"name": "gsm8k", "train": "data/train.jsonl"}
    config["model"]["checkpoint"] = "models/tiny"
    write_study(tmp_path, RUNS, config=config)
    summary = analyse(tmp_path)
    assert (summary.task, summary.checkpoint) == ("gsm8k, data/train.jsonl", "models/tiny")


def test_log_time_is_log_samples_minus_log_throughput(tmp_path):
    write_study(tmp_path, RUNS)
    for cell in analyse(tmp_path).cells:
        time = math.log(cell.crossing.samples) - math.log(cell.rollouts_per_second)
        assert time == pytest.approx(math.log(cell.crossing.training_seconds), abs=1e-12)


def test_killed_and_missing_runs_are_counted_and_not_compared(tmp_path):
    write_study(tmp_path, {key: RUNS[key] for key in list(RUNS)[:4]})
    description = json.loads((tmp_path / "study.json").read_text())
    description["order"] += [[64, 1], [256, 1]]
    (tmp_path / "study.json").write_text(json.dumps(description))
    write_run(tmp_path, 64, 1, samples=5500.0, rate=380.0, killed_at=2 * STEP)
    # Killed in the middle of its first line.
    (tmp_path / "cells" / "b00256_s1").mkdir()
    (tmp_path / "cells" / "b00256_s1" / "records.jsonl").write_text('{"event": "sta')
    summary = analyse(tmp_path)
    assert summary.planned_cells == 6
    assert len(summary.cells) == 5
    assert [r.seeds for r in summary.batches] == [[0, 1], [0], [0]]
    notes = " | ".join(summary.notes)
    assert "1 of 6 (b00256_s1) planned runs have not started" in notes
    assert "1 of 6 (b00064_s1) planned runs are unfinished and not compared" in notes
    assert "not every batch has the same seeds" in notes
    assert summary.degrees_of_freedom == 0
    assert json.loads(write_summary(summary, tmp_path).read_text())["residual_sd"] == {
        "samples": None,
        "throughput": None,
        "training_time": None,
        "elapsed_time": None,
    }


def test_censored_runs_stay(tmp_path):
    runs = {**RUNS, (1024, 0): (2.0 * BUDGET, 900.0), (1024, 1): (9000.0, 900.0)}
    write_study(tmp_path, runs)
    summary = analyse(tmp_path)
    worst = summary.batches[-1]
    assert (worst.censored, worst.samples_to_target) == (1, None)
    assert worst.samples_at_least == pytest.approx(math.sqrt(BUDGET * 9000))
    assert worst.against_reference.samples.bound == "at least"
    assert worst.too_coarse
    assert summary.training.undistinguished == [256]
    assert summary.degrees_of_freedom == 2


def test_summary_file_is_strict_json(tmp_path):
    write_study(tmp_path, {(64, 0): (5000.0, 400.0)})
    summary = analyse(tmp_path)
    assert math.isnan(summary.validation_noise)

    def refuse(name):
        raise AssertionError(name)

    read = json.loads(write_summary(summary, tmp_path).read_text(), parse_constant=refuse)
    assert read["validation_noise"] is None
    assert read["cells"][0]["crossing"]["samples"] == pytest.approx(5000)
    assert "one seed per batch: estimates have no intervals" in read["notes"]


def test_noise_is_pooled_over_runs_with_the_levels_as_degrees_of_freedom(tmp_path):
    # A score lowered by 0.2 pools with the one before, which is 0.1024 below its old place.
    write_study(tmp_path, {(64, 0): (5000.0, 400.0), (64, 1): (5000.0, 400.0)}, bumps={3: -0.2})
    gap = 0.2 - 0.5 * STEP / 5000
    assert analyse(tmp_path).validation_noise == pytest.approx(math.sqrt(gap**2 / 2))


def test_clocks_that_differ_are_said(tmp_path):
    # 64 needs 40 % of the samples: few validations, which only the elapsed clock counts.
    runs = {(64, 0): (2.5 * STEP, 400.0), (256, 0): (10 * STEP, 1700.0)}
    write_study(tmp_path, runs)
    summary = analyse(tmp_path)
    assert (summary.training.fastest, summary.elapsed.fastest) == (256, 64)
    assert not summary.clocks_agree
    sentence = "The clocks differ: batch 256 is the fastest by the training clock, batch 64 by"
    assert summary.training.sentences[-1].startswith(sentence)


def test_devices_grid_and_checks_are_noted(tmp_path):
    write_study(tmp_path, {(64, 0): (5000.0, 400.0)}, steady=1.2)
    description = json.loads((tmp_path / "study.json").read_text())
    description["order"].append([256, 0])
    (tmp_path / "study.json").write_text(json.dumps(description))
    start = {
        "device_kind": "TPU v5e",
        "platform": "tpu",
        "versions": {"jax": "0.12"},
        "notes": ["warm-up of 2 updates"],
    }
    write_run(tmp_path, 256, 0, samples=2000.0, rate=800.0, start=start)
    path = tmp_path / "cells" / "b00256_s0" / "records.jsonl"
    path.write_text(
        path.read_text().replace('"validation", "samples": 1024', '"validation", "samples": 1280')
    )
    summary = analyse(tmp_path)
    assert summary.device == "1 x TPU v5e (tpu); 1 x cpu (cpu)"
    assert summary.incomparable
    notes = " | ".join(summary.notes)
    assert "runs were on different devices (1 x TPU v5e (tpu); 1 x cpu (cpu))" in notes
    assert "run with different versions: jax 0.10.2 in b00064_s0; jax 0.12 in b00256_s0" in notes
    assert "(cpu)): their throughput and times are not comparable, only their samples" in notes
    assert "1 of 2 (b00256_s0) runs were not validated on the common grid" in notes
    assert "coarse grid: " in notes
    assert (
        "steady throughput is more than 5 % off the run's: 1 of 2 runs, most in b00064_s0" in notes
    )
    assert "warm-up of 2 updates (b00256_s0)" in notes


def test_run_moved_to_other_hardware_gives_samples_only(tmp_path):
    write_study(tmp_path, RUNS)
    path = tmp_path / "cells" / "b00256_s1" / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    moved = json.loads(lines[0]) | {"device_count": 4, "resumed_at_samples": 0}
    path.write_text("".join([lines[0], json.dumps(moved) + "\n", *lines[1:]]))
    summary = analyse(tmp_path)
    assert summary.batches[-1].seeds == [0]
    [note] = [n for n in summary.notes if n.startswith("b00256_s1 has no comparable seconds")]
    assert "5,900 samples to target, 8,192 generated" in note


def test_what_cannot_be_analysed_is_refused(tmp_path):
    with pytest.raises(UserError, match="no study is there"):
        analyse(tmp_path)
    write_study(tmp_path, {})
    with pytest.raises(UserError, match="none of the 0 planned runs"):
        analyse(tmp_path)
    (tmp_path / "study.json").write_text("[]")
    with pytest.raises(UserError, match="not the description of a study"):
        analyse(tmp_path)
    (tmp_path / "study.json").write_text('{"name": "x"}')
    with pytest.raises(UserError, match="lacks config, order"):
        analyse(tmp_path)
    other = tmp_path / "other"
    write_study(other, {(64, 0): (5000.0, 400.0)})
    config = make_config(seconds=10.0)
    write_run(other, 64, 1, samples=5000.0, rate=400.0, config=config)
    description = json.loads((other / "study.json").read_text())
    description["order"].append([64, 1])
    (other / "study.json").write_text(json.dumps(description))
    with pytest.raises(UserError, match=r"cells/b00064_s1: ran with budget.seconds = 10.0"):
        analyse(other)


def test_runs_that_shared_the_machine_are_compared_by_samples_alone(tmp_path):
    write_study(tmp_path, {(b, s): (5000.0, 10.0 * b) for b in (64, 256) for s in (0, 1)})
    assert analyse(tmp_path).training.fastest == 256
    for path in (tmp_path / "cells").iterdir():
        record = path / "records.jsonl"
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        lines[0]["host"] |= {"cores": 2, "load_average": 6.0}
        record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = analyse(tmp_path)
    assert summary.training.fastest is None
    assert "not alone on the machine" in summary.training.sentences[0]
    ratio = summary.batches[1].against_reference
    assert ratio.samples.estimate == pytest.approx(1.0)
    assert ratio.training_time.estimate is None


def rewrite_starts(study, change):
    """Changes the first event of every run: `change` takes the name of its cell and the event."""
    for path in (study / "cells").iterdir():
        record = path / "records.jsonl"
        first, *lines = record.read_text().splitlines()
        changed = json.dumps(change(path.name, json.loads(first)))
        record.write_text("\n".join([changed, *lines]) + "\n")


def test_devices_that_grow_by_design_are_compared_and_not_warned_of(tmp_path):
    write_study(tmp_path, {(b, s): (5000.0 + 50 * s, 10.0 * b) for b in (64, 256) for s in (0, 1)})
    content = json.loads((tmp_path / "study.json").read_text())
    content["settings"] = {
        "replicated": {
            "layout": "replicated",
            "rule": "sqrt",
            "growth": "prompts",
            "updates": 1,
            "devices": "batch",
        }
    }
    (tmp_path / "study.json").write_text(json.dumps(content))
    rewrite_starts(tmp_path, lambda name, e: e | {"device_count": 4 if "256" in name else 1})
    summary = analyse(tmp_path)
    assert summary.training.fastest == 256
    assert summary.incomparable == []
    notes = " | ".join(summary.notes)
    assert "devices grow with the batch, and times are compared: 1 x cpu (cpu); 4 x cpu" in notes
    assert "not comparable" not in notes


def test_versions_that_change_no_program_are_a_plain_note(tmp_path):
    write_study(tmp_path, RUNS)
    rewrite_starts(
        tmp_path,
        lambda name, e: e | {"versions": {"jax": "0.10.2", "numpy": "3" if "256" in name else "2"}},
    )
    summary = analyse(tmp_path)
    assert summary.training.fastest == 256
    assert "runs were with different versions of numpy" in summary.notes
    assert not any("not comparable" in note for note in summary.notes)


def test_that_runs_went_in_turn_is_read_from_their_times(tmp_path):
    write_study(tmp_path, RUNS)
    assert not analyse(tmp_path).one_at_a_time  # all began at once
    order = [f"b{batch:05d}_s{seed}" for batch, seed in RUNS]
    rewrite_starts(tmp_path, lambda name, e: e | {"time": f"2026-01-0{order.index(name) + 1}"})
    assert analyse(tmp_path).one_at_a_time


def test_a_collapse_after_the_crossing_is_no_noise():
    scores = [0.2, 0.5, 0.7, 0.82, 0.78, 0.1, 0.0, 0.0]
    cell = dataclasses.replace(
        build_cell(64, 0, samples=2500.0, rate=100.0),
        curve_samples=[1000 * k for k in range(8)],
        curve_scores=scores,
        curve_fit=[float(value) for value in fit_isotonic(scores)],
    )
    cell = dataclasses.replace(
        cell, crossing=dataclasses.replace(cell.crossing, samples=1900.0, raw_samples=2000)
    )
    # Two points past the raw crossing: 0.82 and 0.78 pool to 0.8, one degree of freedom.
    assert estimate_noise([cell]) == pytest.approx(math.sqrt(2 * 0.02**2))
    # Without a crossing, two points past the best: 0.7, 0.82, 0.78 and 0.1 pool, above 0.5.
    pooled = [0.7, 0.82, 0.78, 0.1]
    squares = sum((score - sum(pooled) / 4) ** 2 for score in pooled)
    censored = dataclasses.replace(cell, crossing=None)
    assert estimate_noise([censored]) == pytest.approx(math.sqrt(squares / 3))


def test_every_run_has_the_updates_of_its_setting(tmp_path):
    """The study's own may be others, where study.updates names a single value."""
    config = make_config()
    config["batch"]["updates"] = 4
    write_study(tmp_path, RUNS, config=config)
    path = tmp_path / "study.json"
    study = json.loads(path.read_text())
    study["config"]["batch"]["updates"] = 1
    setting = {"layout": "replicated", "rule": "sqrt", "growth": "prompts", "devices": "fixed"}
    study["settings"] = {"replicated": setting | {"updates": 4}}
    path.write_text(json.dumps(study))
    assert analyse(tmp_path).cells[0].setting == "replicated"
    study["settings"] = {"replicated": setting | {"updates": 2}}
    path.write_text(json.dumps(study))
    with pytest.raises(UserError, match=r"ran with batch.updates = 4, the study has 2"):
        analyse(tmp_path)
