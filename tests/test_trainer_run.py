"""Whole runs: the reward rises, the record is complete and true, and a run ends when it should."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from trainer_runs import (
    CONFIG,
    MEASURED,
    VARIED,
    change,
    drop_measured,
    read_lines,
    run,
    write_toml,
)

from jax_rl import cli
from jax_rl.config_file import config_to_dict
from jax_rl.errors import DivergedError, UserError
from jax_rl.records import PHASES, UNCOUNTED_PHASES, RunRecord, Validation, read_events, read_run
from jax_rl.trainer import loop as loop_module
from jax_rl.trainer import position as position_module
from jax_rl.trainer.describe import RateOrigin
from jax_rl.trainer.run import train


@pytest.fixture(scope="module", params=[1, 8], ids=["1 device", "8 devices"])
def devices(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture(scope="module")
def directory(devices: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six iterations with a checkpoint and a steady measurement."""
    directory = tmp_path_factory.mktemp("runs") / "main"
    config = change(CONFIG, run={"devices": devices}, checkpoint={"every_samples": 64})
    train(config, directory, progress=False, steady_seconds=0.01)
    return directory


@pytest.fixture(scope="module")
def record(directory: Path) -> RunRecord:
    return read_run(directory)


@pytest.fixture(scope="module")
def varied(devices: int, tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return run(tmp_path_factory.mktemp("runs") / "varied", run={"devices": devices}, **VARIED)


def test_reward_rises_in_three_iterations(devices: int, tmp_path: Path) -> None:
    record = run(
        tmp_path / "run",
        run={"devices": devices},
        budget={"samples": 48},
        validation={"every_samples": 48},
    )
    first, _, third = (iteration.reward for iteration in record.iterations)
    assert third > first + 0.2
    start, end = (validation.score for validation in record.validations)
    assert end > start + 0.2


def test_events_come_in_order(directory: Path) -> None:
    names = [line["event"] for line in read_lines(directory)]
    pair = ["iteration", "iteration", "validation"]
    middle = ["validation", *pair, *pair, "checkpoint", *pair]
    assert names == ["start", *["compile"] * 6, "warm_start", *middle, "steady", "end"]


def test_start_says_what_the_rest_needs(record: RunRecord, devices: int) -> None:
    start = record.start
    assert start.config == config_to_dict(
        change(CONFIG, run={"devices": devices}, checkpoint={"every_samples": 64})
    )
    assert start.layout["name"] == "replicated"
    assert start.layout["axis_sizes"] == {"data": devices, "fsdp": 1, "tensor": 1}
    assert (start.device_count, start.process_count, start.platform) == (devices, 1, "cpu")
    assert start.batch_plan["rows_per_shard"] == 16 // devices
    # Embedding, then norms, projections and feed-forward of one block, then the last norm.
    assert start.parameters == 32 * 32 + (2 * 32 + 2 * 4 + 4 * 32 * 32 + 3 * 32 * 32) + 32
    assert (start.learning_rate, start.rate_rule, start.reference_batch) == (0.1, "none", 16)
    assert (start.warmup_updates, start.notes, start.resumed_at_samples) == (5, [], None)
    assert set(start.versions) >= {"python", "jax", "jaxlib", "numpy", "optax"}
    assert "--xla_force_host_platform_device_count=8" in start.flags["XLA_FLAGS"]


def test_counts_add_up(record: RunRecord) -> None:
    samples = [16, 32, 48, 64, 80, 96]
    assert [e.iteration for e in record.iterations] == [1, 2, 3, 4, 5, 6]
    assert [e.samples for e in record.iterations] == samples
    assert [e.learnt for e in record.iterations] == samples  # no reward failed
    assert [e.update for e in record.iterations] == [1, 2, 3, 4, 5, 6]
    for e in record.iterations:
        assert e.tokens == pytest.approx(16 * e.mean_length)
        assert 1 <= e.mean_length <= e.decode_steps <= 4
        assert (e.failed_rewards, e.kl) == (0, None)
        assert e.mismatch_mean <= e.mismatch_max <= 1e-5  # the on-policy law
        assert e.entropy > 0
    assert record.end is not None and record.steady is not None
    end = record.end
    assert (end.samples, end.learnt, end.iterations, end.updates) == (96, 96, 6, 6)
    assert end.reason == "sample_budget"
    assert record.steady.rollouts == 16 * record.steady.iterations


def test_the_recorded_rate_follows_the_warm_up(record: RunRecord) -> None:
    # warmup_samples 80 are 5 updates of 16.
    rates = [e.learning_rate for e in record.iterations]
    assert rates == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1], rel=1e-12)


def test_validation_is_at_the_grid_points(record: RunRecord) -> None:
    assert [e.samples for e in record.validations] == [0, 32, 64, 96]
    assert [e.update for e in record.validations] == [0, 2, 4, 6]
    assert [e.rollouts for e in record.validations] == [16] * 4
    by_iteration = {e.iteration: e for e in record.iterations}
    for point in record.validations[1:]:
        learnt = by_iteration[point.iteration]
        assert point.elapsed_seconds >= learnt.elapsed_seconds  # then its weights were synced
        assert point.training_seconds >= learnt.training_seconds


def test_phases_account_for_every_second(record: RunRecord) -> None:
    end = record.end
    assert end is not None
    assert set(end.phases) == set(PHASES)
    assert sum(end.phases.values()) == pytest.approx(end.elapsed_seconds, rel=1e-9)
    uncounted = sum(end.phases[phase] for phase in UNCOUNTED_PHASES)
    assert end.training_seconds == pytest.approx(end.elapsed_seconds - uncounted, rel=1e-9)
    assert end.phases["compile"] >= sum(e.seconds for e in record.compiles)
    assert end.phases["validate"] == pytest.approx(
        sum(e.seconds for e in record.validations), rel=1e-6
    )
    (checkpoint,) = record.checkpoints
    assert end.phases["checkpoint"] == pytest.approx(checkpoint.seconds, rel=1e-2)


def test_phases_of_iterations_leave_no_second_out(record: RunRecord) -> None:
    elapsed = 0.0
    for e in record.iterations:
        elapsed += sum(e.phases.values())
        assert elapsed == pytest.approx(e.elapsed_seconds, rel=1e-9)
        assert min(e.phases.values()) >= 0
        assert e.phases["generate"] > 0 and e.phases["learn"] > 0 and e.phases["reward"] > 0


def test_each_program_is_compiled_once_and_none_in_the_loop(
    record: RunRecord, varied: RunRecord
) -> None:
    programs = ["sync", "prefill", "decode", "validation_prefill", "validation_decode", "update"]
    for run_record, names in [(record, programs), (varied, [*programs, "join", "score"])]:
        assert run_record.end is not None
        once = dict.fromkeys(names, 1)
        assert run_record.end.compiled == once | {"inside the loop": 0}
        assert sorted(e.program for e in run_record.compiles) == sorted(names)


def test_waves_updates_and_kl_reach_the_record(varied: RunRecord, devices: int) -> None:
    plan = varied.start.batch_plan
    assert (plan["waves"], plan["updates"], plan["accumulation"]) == (2, 2, 2)
    assert [e.update for e in varied.iterations] == [2, 4]
    # Minibatches of 16, so 5 updates of warm-up; each record has its last update's rate.
    assert [e.learning_rate for e in varied.iterations] == pytest.approx([0.04, 0.08])
    first, second = (e.kl for e in varied.iterations)
    assert first is not None and second is not None
    assert 0 < first < second  # the reference stays where training began
    assert varied.start.warmup_updates == 5


def test_waves_sample_what_the_whole_batch_samples(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", batch={"size": 32}, budget={"samples": 32})
    cut = run(tmp_path / "cut", batch={"size": 32, "wave": 16}, budget={"samples": 32})
    assert [record.start.batch_plan["waves"] for record in (whole, cut)] == [1, 2]
    first, same = whole.iterations[0], cut.iterations[0]
    assert (first.tokens, first.reward, first.truncated) == (
        same.tokens,
        same.reward,
        same.truncated,
    )
    # Each reward goes with its own row, whichever wave that was in.
    assert first.grad_norm == pytest.approx(same.grad_norm, rel=1e-5)


def test_start_score_and_grid_do_not_depend_on_the_batch(
    record: RunRecord, varied: RunRecord
) -> None:
    assert record.start.config["batch"]["size"] != varied.start.config["batch"]["size"]
    for small, large in zip(record.validations, varied.validations, strict=False):
        assert (small.samples, small.rollouts) == (large.samples, large.rollouts)
    assert record.validations[0].score == varied.validations[0].score
    assert record.validations[0].mean_length == varied.validations[0].mean_length


def test_the_same_seed_gives_the_same_record(directory: Path, devices: int, tmp_path: Path) -> None:
    def repeat(name: str, seed: int) -> list[dict[str, Any]]:
        config = change(
            CONFIG, run={"devices": devices, "seed": seed}, checkpoint={"every_samples": 64}
        )
        train(config, tmp_path / name, progress=False)
        return read_lines(tmp_path / name)

    def keep(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = [line for line in lines if line["event"] not in ("warm_start", "steady")]
        return drop_measured(kept)

    first = read_lines(directory)
    assert keep(repeat("same", 0)) == keep(first)
    assert {"seconds", "phases", "time"} < MEASURED  # what is left is what was computed
    other = [line for line in repeat("other", 1) if line["event"] == "iteration"]
    rewards = [line["reward"] for line in first if line["event"] == "iteration"]
    assert [line["reward"] for line in other] != rewards


@pytest.mark.parametrize("devices", [8], ids=["8 devices"], indirect=True)
def test_one_and_eight_devices_sample_the_same_responses(record: RunRecord, tmp_path: Path) -> None:
    other = run(tmp_path / "run", run={"devices": 1})
    assert record.start.device_count == 8
    first, same = record.iterations[0], other.iterations[0]
    assert (first.tokens, first.reward) == (same.tokens, same.reward)
    assert first.grad_norm == pytest.approx(same.grad_norm, rel=1e-4)


@pytest.mark.parametrize(
    "layout",
    [*(pytest.param(n, marks=pytest.mark.slow) for n in ("fsdp", "tensor")), "fsdp_tensor"],
)
def test_every_layout_trains(layout: str, tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", run={"devices": 8}, budget={"samples": 32})
    other = run(tmp_path / layout, run={"devices": 8, "layout": layout}, budget={"samples": 32})
    assert other.start.layout["name"] == layout
    assert other.end is not None and set(other.end.compiled.values()) == {0, 1}
    assert other.end.compiled["inside the loop"] == 0
    assert other.validations[0].score == plain.validations[0].score
    for one, same in zip(other.iterations, plain.iterations, strict=True):
        assert (one.tokens, one.reward) == (same.tokens, same.reward)
        assert one.mismatch_max <= 1e-5
    first, expected = other.iterations[0], plain.iterations[0]
    assert first.grad_norm == pytest.approx(expected.grad_norm, rel=1e-4)
    assert first.update_norm == pytest.approx(expected.update_norm, rel=1e-3)


def test_a_run_stops_at_its_target(tmp_path: Path) -> None:
    record = run(tmp_path / "run", budget={"target": 0.3})
    assert record.end is not None and record.end.reason == "target"
    *before, last = (e.score for e in record.validations)
    assert last >= 0.3 and all(score < 0.3 for score in before)
    assert record.end.samples == record.validations[-1].samples < 96


def test_a_run_stops_at_its_time_budget(tmp_path: Path) -> None:
    record = run(tmp_path / "run", budget={"seconds": 1e-3})
    assert record.end is not None and record.end.reason == "time_budget"
    assert record.end.elapsed_seconds >= 1e-3
    assert record.end.samples == 0
    assert [e.samples for e in record.validations] == [0]  # the start score is there


def test_a_stop_rule_of_ones_own_sees_the_validations(tmp_path: Path) -> None:
    def stop(validations: Sequence[Validation], target: float) -> str | None:
        return f"enough of {target}" if len(validations) == 2 else None

    origin = RateOrigin(rule="sqrt", reference_batch=64)
    record = train(CONFIG, tmp_path / "run", progress=False, stop=stop, origin=origin)
    assert record.end is not None
    assert (record.end.reason, record.end.samples) == ("enough of 1.0", 32)
    assert (record.start.rate_rule, record.start.reference_batch) == ("sqrt", 64)


def lose_the_weights(monkeypatch: pytest.MonkeyPatch, *, at_update: int) -> None:
    """An infinite rate at one update."""
    rate_at = position_module.rate_at

    def explode(update: int, *, peak: float, warmup: int) -> float:
        return math.inf if update == at_update else rate_at(update, peak=peak, warmup=warmup)

    monkeypatch.setattr(position_module, "rate_at", explode)


@pytest.mark.parametrize(("at_update", "every", "samples"), [(2, 16, 48), (2, 32, 64), (5, 16, 96)])
def test_numbers_that_are_not_finite_end_the_run(
    at_update: int, every: int, samples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_the_weights(monkeypatch, at_update=at_update)
    saves = {"every_samples": every, "at_end": True}
    with pytest.raises(DivergedError, match=rf"iteration {at_update + 1}: .*learning_rate"):
        run(tmp_path / "run", checkpoint=saves)
    record = read_run(tmp_path / "run")
    assert record.end is not None
    assert (record.end.reason, record.end.samples) == ("not_finite", samples)
    assert sum(record.end.phases.values()) == pytest.approx(record.end.elapsed_seconds, rel=1e-9)
    assert math.isnan(record.iterations[at_update].update_norm)
    # No state that is lost is saved over one that can be used.
    assert record.checkpoints[-1].samples == 16 * at_update
    # Nothing but the last, pipelined iteration came after the loss.
    assert record.end.iterations - (at_update + 1) <= 1


def test_a_time_budget_that_ends_on_lost_weights_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_the_weights(monkeypatch, at_update=2)

    def stop_after_three(validations: Sequence[Validation], target: float) -> str | None:
        counted.append(1)
        return "time_budget" if len(counted) == 4 else None

    counted: list[int] = []
    config = change(CONFIG, checkpoint={"at_end": True})
    with pytest.raises(DivergedError):
        train(config, tmp_path / "run", progress=False, stop=stop_after_three)
    record = read_run(tmp_path / "run")
    assert record.end is not None
    assert (record.end.reason, record.end.iterations) == ("not_finite", 3)
    assert record.checkpoints == ()


def test_a_reward_that_sometimes_fails_is_masked_counted_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = change(
        CONFIG, task={"name": "trainer_runs:SometimesBroken"}, optimizer={"warmup_samples": 16}
    )
    record = train(config, tmp_path / "run")
    failed = [e.failed_rewards for e in record.iterations]
    assert 0 < failed[0] < 16
    assert [e.learnt for e in record.iterations] == [
        e.samples - sum(failed[: e.iteration]) for e in record.iterations
    ]
    assert record.iterations[-1].reward > record.iterations[0].reward
    written = capsys.readouterr().err
    # Of the validation at the start, which comes first.
    assert "rewards failed and count as 0; the first: row" in written
    assert "RuntimeError: no verdict on" in written
    assert written.count("no verdict on") == 1
    # Law 7: a warm-up of fewer than five updates is said, and in the record.
    assert "The warm-up is 1 update" in written
    assert record.start.notes[0] in written


def test_a_reward_that_always_fails_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the reward failed on all 16 responses"):
        run(tmp_path / "run", task={"name": "trainer_runs:Broken"})
    assert [e.event for e in read_events(tmp_path / "run")][:2] == ["start", "compile"]


def test_a_reward_that_fails_on_wrong_answers_does_not_reach_the_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = change(
        CONFIG,
        task={"name": "trainer_runs:Demanding"},
        validation={"temperature": 1.0, "samples_per_prompt": 4},
        budget={"samples": 32},
    )
    record = train(config, tmp_path / "run")
    first = record.validations[0]
    assert 0 < first.failed_rewards < first.rollouts == 64
    assert first.score == pytest.approx(1 - first.failed_rewards / 64)
    assert "rewards failed and count as 0; the first: row" in capsys.readouterr().err


def test_what_was_learnt_before_all_rewards_failed_is_recorded_and_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, calls = loop_module.exchange_scores, []

    def fail_later(*parts: Any, **named: Any) -> Any:
        calls.append(named)
        if len(calls) == 5:  # validation, two iterations, validation, iteration
            raise UserError("the reward failed on all 16 responses")
        return exchange(*parts, **named)

    monkeypatch.setattr(loop_module, "exchange_scores", fail_later)
    with pytest.raises(UserError, match="failed on all 16"):
        run(tmp_path / "run", checkpoint={"at_end": True})
    record = read_run(tmp_path / "run")
    assert [e.iteration for e in record.iterations] == [1, 2]
    assert [e.samples for e in record.checkpoints] == [32]
    monkeypatch.setattr(loop_module, "exchange_scores", exchange)
    resumed = run(tmp_path / "run", resume=True, checkpoint={"at_end": True})
    assert [e.iteration for e in resumed.iterations] == [1, 2, 3, 4, 5, 6]


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/run: the run's record cannot be written there"):
        run(tmp_path / "file" / "run")


def test_a_directory_that_holds_a_run_is_refused(directory: Path, tmp_path: Path) -> None:
    before = read_lines(directory)
    with pytest.raises(UserError, match="already holds a run; continue it with --resume"):
        run(directory)
    assert read_lines(directory) == before
    # A run that was killed before its first event has left nothing to continue.
    (tmp_path / "records.jsonl").write_text("")
    assert run(tmp_path, budget={"samples": 32}).end is not None


def test_the_command_line_trains_and_says_how_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_toml(tmp_path / "sevens.toml")
    line = ["train", str(file), "--dir", str(tmp_path / "run"), "--checkpoint.at_end"]
    assert cli.main(line) == 0
    written = capsys.readouterr().err.splitlines()
    assert "16 rollouts = 2 prompts x 8; 1 wave(s) of 16 on 1 shard(s)" in written[0]
    assert written[1].startswith("train  score 0.0")
    assert "96 samples in" in written[-1] and "ended: sample_budget" in written[-1]
    end = read_run(tmp_path / "run").end
    assert end is not None and end.samples == 96
    assert cli.main(line) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert cli.main([*line, "--resume", "--optimizer.learning_rate", "0.2"]) == 2
    assert "optimizer.learning_rate was 0.1 and is now 0.2" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "records.jsonl").read_text().splitlines()[-1])["event"]


def test_an_interrupt_says_where_the_record_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: loop_module.Loop) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop_module.Loop, "iterate", interrupt)
    file = write_toml(tmp_path / "sevens.toml")
    assert cli.main(["train", str(file), "--dir", str(tmp_path / "run")]) == 130
    assert f"interrupted: what was recorded is in {tmp_path / 'run'}" in capsys.readouterr().err
    assert [e.samples for e in read_run(tmp_path / "run").validations] == [0]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("fsdp_tensor", "replicated"),  # other tests here have compiled both
        pytest.param("fsdp", "tensor", marks=pytest.mark.slow),
        pytest.param("tensor", "replicated", marks=pytest.mark.slow),
    ],
)
def test_a_run_resumes_in_another_layout(first: str, then: str, tmp_path: Path) -> None:
    # A vocabulary of 33 is padded to 40 on eight parts, and not at all where it is whole.
    model = {"vocab": 33}
    whole = run(tmp_path / "whole", run={"devices": 8, "layout": first}, model=model)
    at_end = {"at_end": True}
    stopped = {"samples": 32}
    here = tmp_path / "run"
    run(here, run={"devices": 8, "layout": first}, model=model, checkpoint=at_end, budget=stopped)
    found = run(
        here, resume=True, run={"devices": 8, "layout": then}, model=model, checkpoint=at_end
    )
    assert [start.layout["name"] for start in found.starts] == [first, then]
    for one, other in zip(found.iterations, whole.iterations, strict=True):
        assert (one.samples, one.tokens, one.reward) == (other.samples, other.tokens, other.reward)
        assert one.loss == pytest.approx(other.loss, rel=1e-4, abs=1e-6)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-4)
