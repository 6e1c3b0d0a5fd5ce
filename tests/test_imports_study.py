"""Logs of other trainers become a study whose numbers are worked by hand."""

import dataclasses
import json
import math

import pytest
import tyro
from other_logs import (
    EVERY,
    SCORES,
    STEPS,
    TARGET,
    list_rows,
    list_verl_rows,
    seconds_of,
    write_csv,
    write_events,
    write_jsonl,
    write_trl,
    write_verl_console,
)

from jax_rl.commands.importing import ImportLog
from jax_rl.errors import UserError
from jax_rl.imports.runs import LoggedRun, load_runs, parse_map, parse_run
from jax_rl.imports.study import import_study, name_rule
from jax_rl.records import read_run
from jax_rl.report.build import build_report
from jax_rl.study.analyse import analyse

PLAIN = {
    "step": "step",
    "score": "score",
    "seconds": "seconds",
    "length": "mean_length",
    "rate": "learning_rate",
}


def make_log(kind: str, folder, batch: int):
    """A log of each kind, all of the same run."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{kind}_{batch}"
    if kind == "csv":
        return write_csv(folder / f"{name}.csv", list_rows(batch, PLAIN))
    if kind == "jsonl":
        return write_jsonl(folder / f"{name}.jsonl", list_rows(batch, PLAIN))
    if kind == "wandb":
        names = PLAIN | {"step": "_step", "seconds": "_runtime", "score": "val/score"}
        return write_csv(folder / f"{name}.csv", list_rows(batch, names))
    if kind == "verl":
        return write_csv(folder / f"{name}.csv", list_verl_rows(batch))
    if kind == "verl_file":
        rows = [{"step": i, "data": row} for i, row in enumerate(list_verl_rows(batch))]
        return write_jsonl(folder / f"{name}.jsonl", rows)
    if kind == "verl_console":
        return write_verl_console(folder / f"{name}.log", batch)
    if kind == "trl":
        return write_trl(folder / f"{name}.json", batch)
    names = {
        "tensorboard": {"score": "eval/score", "length": "mean_length", "rate": "lr"},
        "tunix": {
            "score": "rewards/eval/mean",
            "length": "completions/train/mean_length",
            "rate": "actor/train/learning_rate",
        },
    }[kind]
    rows = list_rows(batch, names | {"step": "step", "seconds": "seconds"})
    events = [
        (1.7e9 + row.pop("seconds"), int(row.pop("step")), row) for row in rows if len(row) > 2
    ]
    return write_events(folder / name / "events.out.tfevents.1", events).parent


KINDS = (
    "csv",
    "jsonl",
    "wandb",
    "verl",
    "verl_file",
    "verl_console",
    "trl",
    "tensorboard",
    "tunix",
)


@pytest.mark.parametrize("kind", KINDS)
def test_crossing_is_the_one_worked_by_hand(kind, tmp_path) -> None:
    runs = [LoggedRun(make_log(kind, tmp_path, batch), batch) for batch in (64, 128)]
    study = import_study(runs, tmp_path / "study", target=TARGET)
    summary = analyse(study)
    for cell, batch in zip(summary.cells, (64, 128), strict=True):
        assert cell.crossing is not None
        # 0.5 lies half-way between 0.2 and 0.8.
        assert cell.crossing.samples == pytest.approx(batch * STEPS / 2)
        assert cell.crossing.training_seconds == pytest.approx(seconds_of(batch) * STEPS / 2)
        assert cell.samples == batch * STEPS
        assert cell.rollouts_per_second == pytest.approx(6.4)
        assert cell.mean_length == pytest.approx(100.0)
        assert cell.learning_rate == pytest.approx(1e-6)
    assert summary.training.fastest == 64
    assert summary.batches[1].against_reference is not None
    assert summary.batches[1].against_reference.samples.estimate == pytest.approx(2.0)
    assert summary.rate_rule == "none"


def test_phases_of_verl_are_told_apart_and_validation_is_not_training(tmp_path) -> None:
    study = import_study(
        [LoggedRun(make_log("verl", tmp_path, 64), 64)], tmp_path / "s", target=0.5
    )
    summary = analyse(study)
    (cell,) = summary.cells
    assert cell.phases["generate"] == pytest.approx(6.0 * STEPS)
    assert cell.phases["learn"] == pytest.approx(3.0 * STEPS)
    assert cell.phases["other"] == pytest.approx(1.0 * STEPS)
    assert cell.phases["validate"] == pytest.approx(5.0 * len(SCORES))
    assert cell.accounting_gap == pytest.approx(0.0, abs=1e-9)
    assert cell.training_seconds == pytest.approx(10.0 * STEPS)
    assert cell.elapsed_seconds == pytest.approx(10.0 * STEPS + 5.0 * len(SCORES))
    # Before the crossing the policy was validated at steps 0 and 2.
    assert cell.crossing.elapsed_seconds == pytest.approx(40.0 + 2 * 5.0)
    assert not any("phases unknown" in note for note in cell.notes)
    # A validation belongs to the iteration after it; the last one has none.
    iterations = read_run(study / "cells" / "b00064_s0").iterations
    assert sum(e.phases.get("validate", 0.0) for e in iterations) == pytest.approx(5.0 * 4)
    assert iterations[-1].elapsed_seconds == pytest.approx(
        sum(sum(e.phases.values()) for e in iterations)
    )


def test_what_a_log_does_not_tell_is_unknown_and_said(tmp_path) -> None:
    names = {k: v for k, v in PLAIN.items() if k not in ("length", "rate")}
    path = write_csv(tmp_path / "a.csv", list_rows(64, names))
    study = import_study([LoggedRun(path, 64, rate=3e-6)], tmp_path / "study", target=TARGET)
    run = read_run(study / "cells" / "b00064_s0")
    assert math.isnan(run.iterations[0].loss)
    assert run.iterations[0].kl is None
    summary = analyse(study)
    (cell,) = summary.cells
    assert math.isnan(cell.mean_length)
    assert math.isnan(cell.tokens_per_second)
    assert math.isnan(cell.generate_per_second)
    assert cell.phases["other"] == pytest.approx(cell.elapsed_seconds)
    for words in ("phases unknown", "lengths of responses unknown", "number of devices unknown"):
        assert any(words in note for note in summary.notes), words
    assert summary.cells[0].learning_rate == 3e-6


def test_report_is_built(tmp_path) -> None:
    runs = [
        LoggedRun(make_log("verl", tmp_path / str(seed), batch), batch, seed=seed)
        for batch in (64, 128)
        for seed in (0, 1)
    ]
    study = import_study(runs, tmp_path / "study", target=TARGET, task="gsm8k", model="a 7B")
    page = build_report(study)
    shown = page.read_text()
    assert "imported, gsm8k; policy of unknown size" in shown
    assert "whether the target score 0.5 was set before the runs" in shown
    assert "in blocks of one seed" not in shown
    assert "imported: seconds are those of the log" in shown.replace("&#39;", "'")
    summary = json.loads((study / "summary.json").read_text())
    assert summary["training"]["fastest"] == 64


def test_run_that_misses_the_target_is_censored(tmp_path) -> None:
    path = write_csv(tmp_path / "a.csv", list_rows(64, PLAIN))
    summary = analyse(import_study([LoggedRun(path, 64)], tmp_path / "s", target=0.9))
    (cell,) = summary.cells
    assert cell.crossing is None
    assert summary.batches[0].samples_at_least == pytest.approx(64 * STEPS)


def test_settings_become_arms(tmp_path) -> None:
    path = write_csv(tmp_path / "a.csv", list_rows(64, PLAIN))
    slow = write_csv(tmp_path / "b.csv", list_rows(128, PLAIN))
    runs = [LoggedRun(path, 64, setting="fsdp"), LoggedRun(slow, 64, setting="tensor")]
    summary = analyse(import_study(runs, tmp_path / "s", target=TARGET))
    assert [(r.setting, r.batch) for r in summary.batches] == [("fsdp", 64), ("tensor", 64)]
    assert (summary.training.setting, summary.training.fastest) == ("fsdp", 64)


def test_export_of_several_runs_is_taken_apart(tmp_path) -> None:
    rows = []
    for step, score in SCORES.items():
        row = {"Step": step}
        for name, more in (("big run", 0.1), ("small", 0.0)):
            row |= {f"{name} - val/score": score + more, f"{name} - val/score__MIN": 0.0}
            row[f"{name} - _runtime"] = 10.0 * step
        rows.append(row)
    path = write_csv(tmp_path / "wandb.csv", rows)
    run = LoggedRun(path, 64, rate=1e-6, run="big run")
    summary = analyse(import_study([run], tmp_path / "s", target=TARGET))
    # 0.3 to 0.9: a third of the way.
    assert summary.cells[0].crossing.samples == pytest.approx(64 * STEPS / 3)
    with pytest.raises(UserError, match="holds several runs; say which by run=: big run, small"):
        import_study([LoggedRun(path, 64, rate=1e-6)], tmp_path / "t", target=TARGET)
    with pytest.raises(UserError, match="did you mean 'small'"):
        import_study([LoggedRun(path, 64, run="smal")], tmp_path / "t", target=TARGET)


def test_columns_can_be_named(tmp_path) -> None:
    names = {"step": "it", "score": "acc", "seconds": "t"}
    path = write_csv(tmp_path / "a.csv", list_rows(64, names))
    with pytest.raises(UserError, match=r"no column for score .*there are: acc, it, t"):
        import_study([LoggedRun(path, 64, rate=1e-6)], tmp_path / "s", target=TARGET)
    columns = parse_map(["step=it", "score=acc", "seconds=t"])
    run = LoggedRun(path, 64, rate=1e-6)
    summary = analyse(import_study([run], tmp_path / "s", target=TARGET, columns=columns))
    assert summary.cells[0].crossing.samples == pytest.approx(64 * STEPS / 2)
    assert summary.cells[0].curve_samples == [64 * step for step in range(0, STEPS + 1, EVERY)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"score": "scor"}, "no column 'scor' for score; did you mean 'score'"),
        ({"scores": "score"}, "no such role; did you mean 'score'"),
        ({"seconds": "-"}, "no column for seconds"),
        ({"step": "-"}, "no column for samples"),
        ({"rate": "-"}, "the learning rate is not in the log; give it: rate=1e-6"),
    ],
)
def test_wrong_columns_are_named(columns, message, tmp_path) -> None:
    path = write_csv(tmp_path / "a.csv", list_rows(64, PLAIN))
    with pytest.raises(UserError, match=message):
        import_study([LoggedRun(path, 64)], tmp_path / "s", target=TARGET, columns=columns)
    assert not (tmp_path / "s").exists()


def test_several_scores_must_be_chosen_from(tmp_path) -> None:
    rows = [row | {"val-core/math/reward/mean@1": 0.1} for row in list_verl_rows(64)]
    path = write_csv(tmp_path / "a.csv", rows)
    with pytest.raises(
        UserError, match=r"several columns may be the score; .*math.*, val-core.*gsm8k"
    ):
        import_study([LoggedRun(path, 64)], tmp_path / "s", target=TARGET)


def test_runs_on_the_command_line() -> None:
    run = parse_run(["a.csv", "batch=64", "seed=2", "rate=1e-6", "run=x = y"])
    assert (run.batch, run.seed, run.rate, run.run) == (64, 2, 1e-6, "x = y")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the file comes first"),
        (["batch=64"], "the file comes first"),
        (["a.csv"], "lacks batch="),
        (["a.csv", "batch=x"], "batch = 'x' must be a whole number"),
        (["a.csv", "batch=64", "sead=1"], "unknown key 'sead'; did you mean 'seed'"),
        (["a.csv", "batch=64", "seed"], "'seed' must be KEY=VALUE"),
        (["a.csv", "batch=0"], "must be at least 1"),
        (["a.csv", "batch=10", "group=4"], "not a whole number of groups of 4"),
    ],
)
def test_wrong_runs_are_refused(words, message) -> None:
    with pytest.raises(UserError, match=message):
        parse_run(words)


def test_runs_in_a_file(tmp_path) -> None:
    path = tmp_path / "runs.toml"
    path.write_text(
        '[[run]]\nfile = "logs/a.csv"\nbatch = 64\nrate = 1e-6\n[run.map]\nscore = "acc"\n'
        '[[run]]\nfile = "b.csv"\nbatch = 128\nseed = 1\n'
    )
    first, second = load_runs(path)
    assert first.file == tmp_path / "logs" / "a.csv"
    assert first.map == {"score": "acc"}
    assert (second.batch, second.seed) == (128, 1)
    path.write_text("[[run]]\nfile = 'a'\nbatch = 1.5\n")
    with pytest.raises(UserError, match=r"run 1: batch = 1\.5 must be a whole number"):
        load_runs(path)
    path.write_text("runs = 3\n")
    with pytest.raises(UserError, match=r"tables \[\[run\]\] were expected, found runs"):
        load_runs(path)


def test_what_makes_no_study_is_refused(tmp_path) -> None:
    path = write_csv(tmp_path / "a.csv", list_rows(64, PLAIN))
    one = LoggedRun(path, 64)
    with pytest.raises(UserError, match="no run is given"):
        import_study([], tmp_path / "s", target=TARGET)
    with pytest.raises(UserError, match="both batch 64, seed 0"):
        import_study([one, one], tmp_path / "s", target=TARGET)
    with pytest.raises(UserError, match="needs one too"):
        import_study([one, LoggedRun(path, 64, setting="x")], tmp_path / "s", target=TARGET)
    with pytest.raises(UserError, match="must be letters, digits"):
        import_study([LoggedRun(path, 64, setting="../x")], tmp_path / "s", target=TARGET)
    with pytest.raises(UserError, match="target = nan must be a number"):
        import_study([one], tmp_path / "s", target=math.nan)
    assert not (tmp_path / "s").exists()
    with pytest.raises(UserError, match="reference 3: no run has this batch"):
        import_study([one], tmp_path / "s", target=TARGET, reference=3)
    with pytest.raises(UserError, match="is not empty"):
        import_study([one], tmp_path, target=TARGET)


def test_updates_differ_between_settings_alone_and_groups_nowhere(tmp_path) -> None:
    path = write_csv(tmp_path / "a.csv", list_rows(64, PLAIN))
    runs = [parse_run([str(path), f"batch={batch}", *words]) for batch, *words in (
        (64,), (128, "updates=2"), (128, "group=8", "setting=x"))]  # fmt: skip
    with pytest.raises(UserError, match=r"updates = 2, and 1 in .* their own setting=NAME"):
        import_study(runs[:2], tmp_path / "s", target=TARGET)
    with pytest.raises(UserError, match="group = 8, and 1 in"):
        import_study([dataclasses.replace(runs[0], setting="y"), runs[2]], tmp_path, target=TARGET)
    named = [dataclasses.replace(run, setting=name) for run, name in zip(runs, "ab", strict=False)]
    summary = analyse(import_study(named, tmp_path / "s", target=TARGET))
    assert [(r.setting, r.batch) for r in summary.batches] == [("a", 64), ("b", 128)]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("rate=nan", "rate = nan must be a number above 0"),
        ("rate=-1", "rate = -1 must be a number above 0"),
        ("seed=-1", "seed = -1 must be at least 0"),
        ("devices=-8", "devices = -8 must be at least 0"),
    ],
)
def test_a_value_that_cannot_be_is_refused(word, message) -> None:
    with pytest.raises(UserError, match=message):
        parse_run(["a.csv", "batch=64", word])


def test_samples_that_go_backwards_are_refused(tmp_path) -> None:
    samples = [0, 64, 128, 64, *range(256, 64 * STEPS + 1, 64)]
    rows = [
        row | {"samples": made} for row, made in zip(list_rows(64, PLAIN), samples, strict=True)
    ]
    path = write_csv(tmp_path / "a.csv", rows)
    with pytest.raises(UserError, match="samples go backwards from"):
        import_study([LoggedRun(path, 64)], tmp_path / "s", target=TARGET)


@pytest.mark.parametrize(
    ("rates", "rule"),
    [
        ((1e-6, 1e-6), "none"),
        ((1e-6, 2e-6), "sqrt"),
        ((1e-6, 4e-6), "linear"),
        ((1e-6, 3e-6), "the rates logged"),
    ],
)
def test_rate_rule_is_told_from_the_rates(rates, rule, tmp_path) -> None:
    runs = [LoggedRun(tmp_path, 64), LoggedRun(tmp_path, 256)]
    assert name_rule(runs, rates, 64) == rule


def test_command_makes_the_study(tmp_path, capsys) -> None:
    small, large = (make_log("csv", tmp_path, batch) for batch in (64, 128))
    command = tyro.cli(
        ImportLog,
        args=[
            *(str(tmp_path / "study"), "--target", "0.5"),
            *("--run", str(small), "batch=64", "seed=0"),
            *("--run", str(large), "batch=128", "seed=0"),
        ],
        use_underscores=True,
    )
    command.run()
    assert "jax-rl report" in capsys.readouterr().out
    assert len(analyse(tmp_path / "study").cells) == 2


def test_an_unknown_number_of_devices_costs_nothing(tmp_path) -> None:
    path = write_csv(tmp_path / "a.csv", list_rows(64, PLAIN))
    runs = [LoggedRun(path, 64), LoggedRun(path, 64, seed=1, devices=8, device="H100")]
    summary = analyse(import_study(runs[:1], tmp_path / "unknown", target=TARGET))
    assert summary.device == "unknown number of devices of unknown kind (imported)"
    assert summary.cells[0].device_count == 0
    assert [arm.device_hours for costs in summary.answers.costs for arm in costs.arms] in (
        [],
        [None, None],
    )
    known = analyse(import_study(runs[1:], tmp_path / "known", target=TARGET))
    assert known.device == "8 x H100 (imported)"


def test_a_log_that_begins_at_the_target_says_that_it_is_a_bound(tmp_path) -> None:
    rows = [row for row in list_rows(64, PLAIN) if row["step"] >= 6]
    study = import_study(
        [LoggedRun(write_csv(tmp_path / "a.csv", rows), 64)], tmp_path / "s", target=TARGET
    )
    (cell,) = analyse(study).cells
    assert cell.crossing.samples == 6 * 64
    assert any("crossed at most there" in note for note in cell.notes)
