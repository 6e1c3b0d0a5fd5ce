"""Where the time goes: every expected number is worked from the record's own."""

import dataclasses
import math

import pytest
from study_records import build_cell, make_config, make_start, write_run, write_study

from jax_rl.records import Compile, RunRecord, read_run
from jax_rl.report.sections.time_use import show_time_use
from jax_rl.study.analyse import analyse
from jax_rl.study.cells import make_cell
from jax_rl.study.comparable import check_comparable, find_foreign_load, went_in_turn
from jax_rl.study.summary import Arm
from jax_rl.study.use.time import (
    DevicePeaks,
    find_peaks,
    measure_wasted_decoding,
    read_time_use,
    split_throughput,
    study_time_use,
)

PLAN = {"size": 64, "wave": 16, "waves": 4}


def read_one(tmp_path, *, start=None, **options) -> RunRecord:
    write_run(tmp_path, 64, 0, samples=4096, rate=400.0, start=start, **options)
    return read_run(tmp_path / "cells" / "b00064_s0")


def with_costs(run: RunRecord, **costs: float) -> RunRecord:
    """The run with programs of these matrix FLOPs a call, each moving twice as many bytes."""
    compiles = tuple(
        Compile(
            program=name,
            shapes={},
            seconds=1.0,
            costs={"matmul_flops": flops, "bytes": 2 * flops, "temporaries": 7, "unread": ""},
        )
        for name, flops in costs.items()
    )
    return dataclasses.replace(run, compiles=compiles)


def test_seconds_are_those_up_to_the_raw_crossing(tmp_path) -> None:
    run = read_one(tmp_path)
    cell = make_cell(run, "b00064_s0", 1)
    assert cell.crossing is not None
    assert cell.crossing.raw_samples == 4096
    use = read_time_use(run, cell, peaks=None)
    # 4,096 samples at 400 a second; 60 % of it generate.
    assert use.seconds["generate"] == pytest.approx(0.6 * 4096 / 400)
    assert use.shares["learn"] == pytest.approx(0.3)
    assert sum(use.shares.values()) == pytest.approx(1.0)
    assert "validate" not in use.shares


def test_idle_rows_and_padding(tmp_path) -> None:
    config = make_config()
    config["task"] |= {"max_prompt_length": 6, "max_response_length": 10}
    run = read_one(tmp_path, config=config, start={"batch_plan": PLAN})
    # A batch of 64 in 4 waves of 16; 4 decode steps in all x 16 rows hold 64 tokens at most, but
    # the record has 256 tokens, so make the steps 20: 256 / (20 x 16) = 80 % busy.
    waves = tuple(dataclasses.replace(e, decode_steps=20) for e in run.iterations)
    run = dataclasses.replace(run, iterations=waves)
    use = read_time_use(run, make_cell(run, "b00064_s0", 1), peaks=None)
    assert use.wasted_decoding == pytest.approx(0.2)
    # Mean length 4 of 10; 16 columns, of which (6 + 4) or (0 + 4) hold tokens.
    assert use.response_padding == pytest.approx(0.6)
    assert use.padding_low == pytest.approx(6 / 16)
    assert use.padding_high == pytest.approx(12 / 16)


def test_without_a_plan_nothing_is_said_of_rows(tmp_path) -> None:
    run = read_one(tmp_path)
    use = read_time_use(run, make_cell(run, "b00064_s0", 1), peaks=None)
    assert use.wasted_decoding is None
    assert use.padding_low is None
    assert use.generate is None
    assert measure_wasted_decoding([], PLAN) is None


def test_rates_are_the_work_of_the_calls_over_the_phase(tmp_path) -> None:
    config = make_config()
    config["task"]["max_response_length"] = 11
    run = read_one(tmp_path, config=config, start={"batch_plan": PLAN})
    run = with_costs(run, prefill=3e6, decode=50e6, update=200e6, sync=1e9)
    iterations = tuple(dataclasses.replace(e, decode_steps=24) for e in run.iterations)
    run = dataclasses.replace(run, iterations=iterations)
    peaks = DevicePeaks(flops=1e10, memory_bandwidth=4e10, source="test")
    use = read_time_use(run, make_cell(run, "b00064_s0", 1), peaks=peaks)
    assert use.generate is not None
    assert use.learn is not None
    # Per iteration 4 prefills, and (24 - 4) of the 10 passes that the costs of decode are of.
    seconds = 0.6 * 64 / 400
    assert use.generate.flops == pytest.approx((4 * 3e6 + 2 * 50e6) / seconds)
    assert use.generate.bytes == pytest.approx(2 * use.generate.flops)
    assert use.generate.flops_share == pytest.approx(use.generate.flops / 1e10)
    assert use.learn.flops == pytest.approx(200e6 / (0.3 * 64 / 400))
    assert use.learn.bytes_share == pytest.approx(2 * use.learn.flops / 4e10)


def test_bytes_of_an_unreadable_program_are_not_known(tmp_path) -> None:
    run = with_costs(read_one(tmp_path, start={"batch_plan": PLAN}), update=1e6)
    hidden = dataclasses.replace(run.compiles[0], costs=run.compiles[0].costs | {"unread": "why"})
    run = dataclasses.replace(run, compiles=(hidden,))
    use = read_time_use(run, make_cell(run, "b00064_s0", 1), peaks=None)
    assert use.learn is not None
    assert use.learn.bytes is None
    assert use.learn.flops_share is None


def test_throughput_splits_into_tokens_and_length() -> None:
    def cell(batch, seed, rate, length):
        made = build_cell(batch, seed, samples=1000, rate=rate)
        return dataclasses.replace(made, mean_length=length, tokens_per_second=rate * length)

    small = [cell(16, 0, 100.0, 4.0), cell(16, 1, 110.0, 5.0), cell(16, 2, 1.0, 1.0)]
    large = [cell(64, 0, 300.0, 8.0), cell(64, 1, 352.0, 10.0)]
    split = split_throughput(large, small)
    assert split is not None
    # Seeds 0 and 1: rates x3 and x3.2, lengths x2 and x2.
    assert split.seeds == 2
    assert split.throughput == pytest.approx(math.sqrt(3.0 * 3.2))
    assert split.length == pytest.approx(2.0)
    logs = math.log(split.tokens_per_second) - math.log(split.length)
    assert math.log(split.throughput) == pytest.approx(logs, abs=1e-12)
    assert split_throughput(large, [cell(16, 7, 1.0, 1.0)]) is None


def test_published_peaks_belong_to_the_dtype_and_measured_ones_come_first() -> None:
    config = make_config()
    config["model"]["compute_dtype"] = "bfloat16"
    start = make_start(config, 64, 0, platform="gpu", device_kind="NVIDIA H200")
    peaks = find_peaks(start)
    assert peaks is not None
    assert peaks.source == "published for h200"
    assert peaks.flops > 5e14
    measured = find_peaks(start, {"flops": 1.0, "memory_bandwidth": 2.0})
    assert measured is not None
    assert (measured.flops, measured.memory_bandwidth) == (1.0, 2.0)
    assert find_peaks(make_start(config, 64, 0)) is None


def run_with(**changes) -> RunRecord:
    start = make_start(make_config(), 64, 0, **changes)
    return RunRecord(start, (start,), None, None, (), (), (), (), None, None)


def test_runs_of_one_machine_are_comparable() -> None:
    runs = {"a": run_with(), "b": run_with(device_count=4)}
    assert check_comparable(runs) == []


def test_each_difference_is_a_reason() -> None:
    base = {"versions": {"jax": "0.10.2", "numpy": "2"}}
    runs = {"a": run_with(**base), "b": run_with(versions={"jax": "0.10.2", "numpy": "3"})}
    assert check_comparable(runs) == []
    runs["b"] = run_with(versions={"jax": "0.11"})
    assert check_comparable(runs) == ["run with different versions: jax 0.10.2 in a; jax 0.11 in b"]
    gpu = run_with(platform="gpu", device_kind="NVIDIA H200")
    assert check_comparable({"a": run_with(), "b": gpu})[0].startswith(
        "on different kinds of device"
    )
    flagged = run_with(flags={"XLA_FLAGS": "--xla_a=1"})
    assert check_comparable({"a": run_with(), "b": flagged}) == [
        "run with different flags: none in a; XLA_FLAGS=--xla_a=1 in b"
    ]


def test_two_processors_are_two_kinds_though_both_say_cpu() -> None:
    one = run_with(host={"cpu": "Xeon", "cores": 2})
    other = run_with(host={"cpu": "Xeon", "cores": 8})
    assert check_comparable({"a": one, "b": other}) == [
        "on different kinds of device: Xeon, 2 cores in a; Xeon, 8 cores in b"
    ]


@pytest.mark.parametrize(
    ("platform", "cores", "load", "above"),
    [
        ("cpu", 2, 5.0, 0.0),  # both cores and two scorers its own, half of the cores more
        ("cpu", 2, 5.1, 1.1),
        ("gpu", 96, 57.0, 0.0),  # 8 scorers and 2 threads its own, 48 more
        ("gpu", 96, 60.0, 50.0),
        ("gpu", 0, 60.0, 0.0),  # the cores are not known
    ],
)
def test_load_that_the_run_cannot_cause(platform, cores, load, above) -> None:
    run = run_with(platform=platform, host={"cores": cores, "load_average": load})
    assert find_foreign_load(run) == pytest.approx(above)
    assert bool(check_comparable({"a": run})) == bool(above)


def test_section_shows_the_numbers_of_a_study(tmp_path) -> None:
    runs = {(16, 0): (4096, 200), (64, 0): (4096, 400), (16, 1): (4000, 210), (64, 1): (4000, 410)}
    write_study(tmp_path, runs, start={"batch_plan": PLAN})
    summary = analyse(tmp_path)
    records = {c.name: read_run(tmp_path / "cells" / c.name) for c in summary.cells}
    use = study_time_use(summary.cells, records, reference=Arm("replicated", 64))
    assert [(a.batch, a.runs) for a in use.arms] == [(16, 2), (64, 2)]
    assert use.arms[1].split is None
    assert use.arms[0].memory.measured == 1
    # 1,000 rollouts at geometric about 205 a second, the crossing's own grid point in between.
    assert use.arms[0].training_per_thousand == pytest.approx(1000 / 205, rel=0.01)
    section = show_time_use(summary, use)
    assert section is not None
    assert "generate 60.0 % and learn 30.0 %" in section.paragraphs[0]
    split = next(table for table in section.tables if table.id == "time-split")
    assert split.rows[0][1] == "64 (×1)"
    ids = [table.id for table in section.tables]
    assert len(ids) == len(set(ids))


def test_section_draws(tmp_path) -> None:
    from matplotlib.figure import Figure

    write_study(tmp_path, {(16, 0): (4096, 200), (64, 0): (4096, 400)})
    summary = analyse(tmp_path)
    records = {c.name: read_run(tmp_path / "cells" / c.name) for c in summary.cells}
    section = show_time_use(summary, study_time_use(summary.cells, records, reference=Arm("", 0)))
    assert section is not None
    axes = Figure().subplots()
    section.drawings[0].draw(axes)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["16 (×1/4)", "64 (×1)"]


@pytest.mark.parametrize(
    ("times", "in_turn"),
    [
        (("2026-01-01T00:00:00Z", "2026-01-01T00:01:40Z"), True),  # each takes less
        (("2026-01-01T00:01:40+00:00", "2026-01-01T00:00:00+00:00"), True),
        (("2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"), False),
        (("2026-01-01T00:00:00Z", "some day"), False),
    ],
)
def test_runs_went_in_turn_where_their_times_show_it(tmp_path, times, in_turn) -> None:
    # 10 seconds of compiling and 15 of training, and a few of validating.
    runs = []
    for seed, time in enumerate(times):
        write_run(tmp_path, 64, seed, samples=4096, rate=400.0, start={"time": time})
        runs.append(read_run(tmp_path / "cells" / f"b00064_s{seed}"))
    assert went_in_turn(runs) == in_turn


def test_what_the_verdict_does_not_compare_is_not_split_either(tmp_path) -> None:
    write_study(tmp_path, {(16, 0): (4096, 200), (64, 0): (4096, 400)})
    summary = analyse(tmp_path)
    records = {c.name: read_run(tmp_path / "cells" / c.name) for c in summary.cells}
    options = {"reference": Arm("replicated", 64)}
    assert study_time_use(summary.cells, records, **options).arms[0].split is not None
    use = study_time_use(summary.cells, records, list_obstacles=lambda *arms: ["why"], **options)
    assert use.incomparable == ["why"]
    assert [arm.split for arm in use.arms] == [None, None]
