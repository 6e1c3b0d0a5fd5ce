"""Benches: what is measured, what becomes a point that does not fit, and the command line."""

import dataclasses
import math
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from bench_records import record
from trainer_runs import CONFIG, alone, change, write_toml

from jax_rl import cli
from jax_rl.bench import measure
from jax_rl.bench.measure import run_bench
from jax_rl.bench.replay import PARTS, Replay, read_replay
from jax_rl.bench.request import Request, list_requests, parse_batches
from jax_rl.bench.summary import Measurement, summarise
from jax_rl.bench.table import list_remarks, list_rows
from jax_rl.config_file import config_to_dict
from jax_rl.errors import UserError
from jax_rl.records import PHASES, Iteration, Steady
from jax_rl.throughput import ThroughputTable, read_throughput
from jax_rl.trainer.fit import explain_out_of_memory
from jax_rl.trainer.lengths import LENGTH_BINS, count_lengths

THREE = change(CONFIG, run={"devices": 3})


@dataclasses.dataclass
class Bench:
    """A bench that was run."""

    table: ThroughputTable
    directory: Path
    measurements: list[Measurement]


def watch(patch: pytest.MonkeyPatch) -> list[Measurement]:
    """What the benches that follow have measured."""
    seen: list[Measurement] = []

    def keep(request: Request, measurement: Measurement, *rest: Any) -> Any:
        seen.append(measurement)
        return summarise(request, measurement, *rest)

    patch.setattr(measure, "summarise", keep)
    return seen


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """On three devices, where 16 rollouts do not map and 24 do."""
    directory = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        seen = watch(patch)
        table = run_bench(THREE, directory, batches=(24, 16), seconds=0.01, progress=False)
    return Bench(table, directory, seen)


def test_whole_iterations_are_measured(measured: Bench) -> None:
    table = measured.table
    assert (table.kind, table.device_count, table.platform) == ("measured", 3, "cpu")
    assert table.config == config_to_dict(THREE)
    point = table.points[1]
    assert (point.layout, point.batch, point.fits) == ("replicated", 24, True)
    assert point.iterations >= 3
    assert {"generate", "learn"} < set(point.seconds) <= set(PHASES)
    assert not {"compile", "validate", "checkpoint"} & set(point.seconds)
    # The clock of the whole and the phases' agree.
    assert point.rollouts_per_second == pytest.approx(24 / sum(point.seconds.values()), rel=0.2)
    assert 1 <= point.mean_length <= point.decode_steps <= 4
    assert point.by_progress == ()
    assert any("configured rate 0.1 whatever the batch" in note for note in table.notes)


def test_an_iteration_records_its_lengths(measured: Bench) -> None:
    (measurement,) = measured.measurements
    assert len(measurement.iterations) == measurement.steady.iterations
    lengths = np.arange(LENGTH_BINS) // 8 + 1  # four lengths have the bins 0, 8, 16 and 24
    for event in measurement.iterations:
        assert sum(event.length_counts) == 24
        assert np.dot(event.length_counts, lengths) == event.tokens


def test_a_batch_that_does_not_map_is_a_point(measured: Bench) -> None:
    point = measured.table.points[0]
    assert (point.batch, point.fits, point.rollouts_per_second) == (16, False, 0.0)
    assert "does not map onto the mesh" in point.notes[0]
    assert list_rows(measured.table, "replicated")[0][:2] == ["16", "misfit"]
    assert f"replicated, batch 16: {point.notes[0]}" in list_remarks(measured.table)


def test_the_file_is_the_table(measured: Bench) -> None:
    assert read_throughput(measured.directory / "bench.json") == measured.table


# Points without a measurement


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a loop in the place of the real one, and compiles nothing."""

    class FakeLoop:
        program = "update"

        def __init__(self, setup: Any, *args: Any, **kwargs: Any):
            self.setup = setup

        def close(self) -> None:
            pass

    def put(iterate: Callable[[Any], None], compile_programs: Any = None) -> None:
        monkeypatch.setattr(FakeLoop, "iterate", iterate, raising=False)
        monkeypatch.setattr(measure, "Loop", FakeLoop)
        monkeypatch.setattr(
            measure, "compile_programs", compile_programs or (lambda *args, **kwargs: None)
        )
        monkeypatch.setattr(measure, "make_starting_weights", lambda *args: (None, None))
        monkeypatch.setattr(measure, "init_state", lambda *args: None)
        steady = Steady(iterations=3, rollouts=0, tokens=0, seconds=1.0)

        def pretend(loop: Any, seconds: float, *, watch: Any, **kwargs: Any) -> Steady:
            size = loop.setup.plan.size
            for number in range(1, 4):
                watch(make_iteration(number, size, 0.5))
            return dataclasses.replace(steady, rollouts=3 * size)

        monkeypatch.setattr(measure, "measure_steady", pretend)

    return put


def make_iteration(number: int, batch: int, learn: float, **changes: Any) -> Iteration:
    """One of 3 tokens per rollout."""
    return Iteration(**{
        **dict.fromkeys((f.name for f in dataclasses.fields(Iteration)), 0.0),
        "iteration": number,
        "phases": {"generate": 0.25, "learn": learn},
        "tokens": 3 * batch,
        "decode_steps": 4,
        **changes,
    })  # fmt: skip


def exhaust(loop: Any) -> None:
    if loop.setup.plan.size > 16:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99 bytes.")


def test_memory_that_runs_out_is_a_point_and_not_an_end(
    faked: Callable[..., None], tmp_path: Path
) -> None:
    faked(exhaust)
    table = run_bench(CONFIG, tmp_path, batches=(32, 16, 64), seconds=0.01, progress=False)
    assert [(p.batch, p.fits) for p in table.points] == [(16, True), (32, False), (64, False)]
    assert table.points[0].rollouts_per_second == 48.0
    assert "ran out of the devices' memory" in table.points[1].notes[0]
    assert "a smaller batch.microbatch" in table.points[1].notes[0]
    assert read_throughput(tmp_path / "bench.json") == table


def test_among_several_processes_it_ends_all(faked: Callable[..., None], tmp_path: Path) -> None:
    faked(exhaust)
    channel = types.SimpleNamespace(
        index=1, count=2, share=lambda value: value, gather=lambda value: [value, value]
    )
    with pytest.raises(UserError, match="ran out of the devices' memory"):
        run_bench(CONFIG, tmp_path, batches=(32,), progress=False, channel=channel)
    assert not (tmp_path / "bench.json").exists()  # process 0 writes


def test_a_program_that_cannot_be_compiled_is_a_point(
    faked: Callable[..., None], tmp_path: Path
) -> None:
    def refuse(setup: Any, *args: Any, **kwargs: Any) -> None:
        assert kwargs == {"forced_lengths": False, "validates": False}
        error = RuntimeError("RESOURCE_EXHAUSTED")
        raise explain_out_of_memory(error, program="update", doing="compiling")

    faked(lambda loop: None, refuse)
    (point,) = run_bench(CONFIG, tmp_path, batches=(16,), progress=False).points
    assert point.fits is False
    assert point.notes[0].startswith("compiling update ran out of the devices' memory")


def test_other_failures_are_no_points(faked: Callable[..., None], tmp_path: Path) -> None:
    def fail(loop: Any) -> None:
        raise jax.errors.JaxRuntimeError("INTERNAL: lost a device")

    faked(fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="lost a device"):
        run_bench(CONFIG, tmp_path, batches=(16,), progress=False)


# By hand


def test_a_point_by_hand() -> None:
    events = tuple(make_iteration(n, 16, learn) for n, learn in enumerate((0.5, 0.25, 0.75), 3))
    steady = Steady(iterations=3, rollouts=48, tokens=144, seconds=2.25)
    point = summarise(Request("fsdp", 16, CONFIG), Measurement(steady, events, None), None)
    assert point.rollouts_per_second == 48 / 2.25
    assert point.seconds == {"generate": 0.25, "learn": 0.5}
    assert (point.mean_length, point.decode_steps) == (3.0, 4.0)
    assert point.notes == ()


def test_every_tenth_of_a_replayed_run_counts_alike() -> None:
    replay = Replay(lengths=np.ones((1, 16), np.int32), seed=0)
    # Learning takes 0.25 s in all tenths but the sixth, where it takes 1.75 s; visited twice.
    numbers = [*range(3, 13), next(n for n in range(13, 23) if replay.part_of(n - 1) == 5)]
    events = tuple(
        make_iteration(
            n,
            16,
            1.75 if replay.part_of(n - 1) == 5 else 0.25,
            tokens=16 * (4 if replay.part_of(n - 1) == 5 else 2),
        )
        for n in numbers
    )
    steady = Steady(iterations=11, rollouts=176, tokens=0, seconds=9.0)
    point = summarise(Request("fsdp", 16, CONFIG), Measurement(steady, events, None), replay)
    assert point.by_progress == (*[32.0] * 5, 8.0, *[32.0] * 4)
    # Ten tenths of 16 rollouts take 9 x 0.5 + 2 = 6.5 s.
    assert point.rollouts_per_second == pytest.approx(160 / 6.5)
    assert point.seconds == pytest.approx({"generate": 0.25, "learn": 0.4})
    assert point.mean_length == pytest.approx(2.2)


def test_what_makes_a_point_doubtful_is_said() -> None:
    events = (make_iteration(3, 16, 0.5, update_norm=math.nan, failed_rewards=2),)
    steady = Steady(iterations=1, rollouts=16, tokens=48, seconds=0.75)
    point = summarise(Request("fsdp", 16, CONFIG), Measurement(steady, events, None), None)
    assert point.notes == (
        "the weights diverged at this rate; lengths after that mean nothing",
        "2 rewards failed",
    )


# Wrong input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batches": (16, 0)}, "batches: 0 must be at least 1"),
        ({"batches": (16, 32, 16)}, "batches: 16 is named twice"),
        ({"batches": (12,)}, "batch.size = 12 is not a whole number of groups of batch.group = 8"),
        ({"batches": (16,), "layouts": ("fsdb",)}, "Did you mean 'fsdp'"),
        ({"batches": (16,), "layouts": ("fsdp", "fsdp")}, "'fsdp' is named twice"),
        ({"batches": (16,), "seconds": 0.0}, "seconds = 0.0 must be a finite number above 0"),
        ({"batches": (16,), "seconds": math.nan}, "seconds = nan"),
        ({"batches": (16,)}, "batch.size = 16 does not map onto the mesh"),  # no batch does
        ({"batches": (24,), "replay": "nowhere"}, "nowhere: no record of a run is there"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        run_bench(THREE, tmp_path, progress=False, **options)
    assert not (tmp_path / "bench.json").exists()


def test_requests_ascend_in_each_layout() -> None:
    found = list_requests(CONFIG, (32, 8), ("fsdp", "tensor"))
    assert [(r.layout, r.batch) for r in found] == [
        ("fsdp", 8), ("fsdp", 32), ("tensor", 8), ("tensor", 32),
    ]  # fmt: skip
    assert [(r.config.run.layout, r.config.batch.size) for r in found][1] == ("fsdp", 32)
    assert [r.batch for r in list_requests(CONFIG, (), ())] == [8, 16]  # those of the study
    cut = change(CONFIG, batch={"wave": 16, "microbatch": 16})
    (small, large) = list_requests(cut, (8, 32), ())
    assert (small.config.batch.wave, small.config.batch.microbatch) == (8, 8)
    assert (large.config.batch.wave, large.config.batch.microbatch) == (16, 16)


def test_batches_are_read_from_a_list() -> None:
    assert parse_batches("8, 32,128") == (8, 32, 128)
    for text in ("8;32", "8,", "x", "-8", "1e3"):
        with pytest.raises(UserError, match="is not a whole number; right: batch sizes"):
            parse_batches(text)


# The command line, and a replay


def test_a_command_line_replays_a_recorded_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watch(monkeypatch)
    run = record(tmp_path, CONFIG, lengths=(4, 1, 3, 2))
    file = write_toml(tmp_path / "mine.toml")
    line = ["bench", str(file), "--batches", "16", "--seconds", "0.01", "--layouts", "fsdp"]
    there = ["--replay", str(run), "--dir", str(tmp_path / "out")]
    assert cli.main([*line, *there]) == 0
    written = capsys.readouterr()
    assert "Layout fsdp" in written.out
    assert "rollouts/s by tenth of the run" in written.out
    assert "fsdp batch 16" in written.err

    table = read_throughput(tmp_path / "out" / "bench.json")
    assert table.replayed == str(run)
    assert table.replayed_share == read_replay(run, CONFIG, channel=alone()).share
    (point,) = table.points
    assert (point.layout, point.fits) == ("fsdp", True)
    assert point.iterations >= PARTS
    assert len(point.by_progress) == PARTS
    # What the loop generated is what was to be drawn, and all four lengths came up.
    replay = read_replay(run, CONFIG, channel=alone())
    (measurement,) = seen
    for event in measurement.iterations:
        drawn = replay.draw(2 * (event.iteration - 1), prompts=2, group=8)
        assert event.length_counts == count_lengths(drawn, 4)
        assert event.tokens == drawn.sum()
        assert event.decode_steps == drawn.max()
    assert {event.decode_steps for event in measurement.iterations} == {1, 2, 3, 4}

    assert cli.main([*line, *there, "--model.mlp", "64"]) == 2
    assert "model.mlp was 32 there and is 64 here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--batches", "16,x"], "'x' is not a whole number"),
        (["--batches", "12"], "batch.size = 12 is not a whole number of groups"),
        (["--batches", "16", "--layouts", "fsdb"], "Did you mean 'fsdp'"),
        (["--batches", "16", "--seconds", "0"], "seconds = 0.0 must be"),
        (["--batches", "16", "--second", "many"], "--second"),
    ],
)
def test_a_wrong_command_line_is_one_message_and_code_2(
    tmp_path: Path, words: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_toml(tmp_path / "mine.toml")
    assert cli.main(["bench", str(file), *words, "--dir", str(tmp_path / "out")]) == 2
    written = capsys.readouterr()
    assert part in written.err
    assert written.out == ""
    assert not (tmp_path / "out").exists()
