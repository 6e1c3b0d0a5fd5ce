"""Memory, seconds and throughput of a point from made-up costs, worked by hand."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from plan_points import CHIP, list_points, make_costs

from jax_rl.costs.collectives import Collective
from jax_rl.plan.capacity import find_largest
from jax_rl.plan.jobs import choose_recipes
from jax_rl.plan.predict import Prediction, as_throughput, describe, predict
from jax_rl.plan.results import Obstacle, Result, add_weighted, read_result
from jax_rl.throughput import ThroughputTable, read_throughput, write_throughput
from jax_rl.trainer.memory import estimate_validation_bytes

FIXED: dict[str, Any] = {"batch": {"wave": 16, "microbatch": 8}}
# Arguments, outputs, temporaries, aliased.
COSTS: dict[str, Result] = {
    "sync": make_costs(size=20.0, sent=15.0, memory=(1_000, 5_000, 2_000, 0)),
    "prefill": make_costs(flops=400.0, size=10.0, memory=(5_000, 7_000, 1_000, 0)),
    "decode": make_costs(flops=100.0, size=80.0, memory=(12_000, 7_500, 500, 7_000)),
    "join": make_costs(size=5.0, memory=(100, 100, 0, 0)),
    "update": make_costs(
        flops=2_000.0, size=100.0, sent=10.0, memory=(20_000, 20_000, 9_000, 20_000)
    ),
}


def predict_one(
    batch: int = 32,
    *,
    capacity: int = 10_000_000,
    crossed: dict[str, int] | None = None,
    **changed: Result,
) -> Prediction:
    (point,) = list_points(batch, **FIXED)
    (recipes,) = choose_recipes([point], layers=None, every_batch=True, decode_trips=20)
    chip = dataclasses.replace(CHIP, memory_bytes=capacity)
    results = {name: {**COSTS, **changed}[name] for name in point.programs}
    return predict(point, results, chip, crossed=crossed or {}, recipes=recipes)


def test_memory_is_the_state_and_what_each_stage_needs_besides() -> None:
    one = predict_one()
    state = one.state
    # Weights of a layer 32 wide, three times in float32, over eight devices.
    model = one.point.config.model
    embed, mlp, heads = model.embed, model.mlp, model.heads * model.head_dim
    layer = 4 * embed * heads + 3 * embed * mlp + 2 * embed
    split = layer + model.vocab * embed + embed  # norms over the whole width, split by it
    assert state == 3 * 4 * (split // 8 + 2 * model.head_dim)
    validate = state + estimate_validation_bytes(
        one.point.config, one.point.layout, one.point.sizes
    )
    assert one.memory == {
        "validate": validate,  # on paper
        "sync": state + 5_000 + 2_000,  # the weights that it reads are in the state
        # decode: 12,000 + 7,500 - 7,000 + 500; prefill: 5,000 + 7,000 + 1,000
        "generate": state + 13_000,
        "learn": 20_000 + 9_000,  # the state is its argument, and its output takes it over
    }
    assert one.fits is True


def test_seconds_are_rooflines_times_calls() -> None:
    one = predict_one()
    assert one.calls == {"sync": 1, "prefill": 2, "decode": 2, "join": 1, "update": 1}
    assert one.bounds["sync"].bound == "links"  # 15 / 5 = 3 s; memory 20 / 10 = 2 s
    assert one.bounds["prefill"].bound == "compute"  # float32: 400 / 100 = 4 s
    assert one.bounds["decode"].bound == "memory"  # 80 / 10 = 8 s
    assert one.seconds == {"sync": 3.0, "generate": 2 * (4.0 + 8.0), "learn": 0.5 + 20.0}
    assert one.throughput == pytest.approx(32 / 47.5)
    assert one.mfu == pytest.approx((2 * (4.0 + 1.0) + 20.0) / 47.5)


def test_a_slow_axis_goes_at_the_speed_of_the_network() -> None:
    one = predict_one(crossed={"fsdp": 8})
    assert one.seconds["sync"] == 15.0  # 15 bytes at 1 instead of 5 bytes/s
    assert one.bounds["update"].network == {"fsdp": 10.0}


def test_what_does_not_fit_has_no_throughput_and_names_a_knob() -> None:
    one = predict_one(capacity=20_000)
    assert one.fits is False
    assert one.throughput == 0.0
    assert any(
        note.startswith("update needs the most; a smaller batch.micro") for note in one.notes
    )


def test_memory_that_the_compiler_refuses_is_a_result() -> None:
    too_large = Obstacle("Ran out of memory", True, needs=20 * 2**30, has=16 * 2**30)
    one = predict_one(update=too_large)
    assert one.fits is False
    assert one.seconds == {}
    assert set(one.memory) == {"sync", "generate", "validate"}
    assert one.notes == ("update: does not fit: needs 20.00 of 16.00 GiB",)


def test_a_program_that_was_not_compiled_leaves_it_open() -> None:
    one = predict_one(decode=Obstacle("the compiling process ended", False))
    assert one.fits is None
    assert one.throughput == 0.0
    assert one.notes == ("decode: the compiling process ended",)


def test_a_point_is_written_as_bench_writes_one(tmp_path: Path) -> None:
    one = predict_one()
    point = as_throughput(one, length=4)
    assert point.decode_steps == 8.0  # two waves
    assert point.peak_memory_bytes == max(one.memory.values())
    assert point.iterations == 0
    table = ThroughputTable("predicted", "now", {}, "tpu", "Round", 8, 1, {}, (point,))
    write_throughput(table, tmp_path / "plan.json")
    assert read_throughput(tmp_path / "plan.json") == table
    details = json.loads(json.dumps(describe(one)))
    assert details["programs"]["update"]["costs"]["flops"] == 2_000.0
    assert details["programs"]["decode"]["bound"] == "memory"


def test_costs_on_a_line_are_weighted_sums() -> None:
    low = make_costs(flops=10.0, size=100.0, sent=4.0, memory=(50, 10, 6, 0))
    high = make_costs(flops=30.0, size=120.0, sent=8.0, memory=(80, 10, 4, 0))
    sum_ = add_weighted([(-1.0, low), (2.0, high)])
    assert (sum_.flops, sum_.bytes) == (50.0, 140.0)
    assert (sum_.arguments, sum_.outputs, sum_.temporaries) == (110, 10, 2)
    assert sum_.collectives == (Collective("all-gather", ("fsdp",), 1.0, 12.0, 8),)
    assert add_weighted([(-9.0, low), (1.0, low)]).flops == 0.0


def test_the_loop_turns_as_often_as_it_is_told() -> None:
    (point,) = list_points(16, **FIXED)
    ((part,),) = [
        choose_recipes([point], layers=None, every_batch=True, decode_trips=20)[0][name]
        for name in ("decode",)
    ]
    fixed, turned = make_costs(flops=100.0, size=7.0), make_costs(flops=103.0, size=12.0)
    answer = {"fixed": fixed.as_dict(), "turned": turned.as_dict(), "seconds": 1.0}
    result = read_result((part,), {part.job: answer})
    assert not isinstance(result, Obstacle)
    assert (result.flops, result.bytes) == (160.0, 107.0)


def grow(batch: int, learn: int, **memory: int) -> Prediction:
    one = predict_one(batch, capacity=100_000)
    return dataclasses.replace(
        one, memory={"sync": 10, "generate": 20, "learn": learn, "validate": 15, **memory}
    )


def test_the_largest_batch_is_where_memory_meets_the_capacity() -> None:
    # 1,000 bytes a rollout and 8,000 besides: 92 rollouts, 80 in whole waves of 16.
    largest = find_largest([grow(16, 24_000), grow(32, 40_000)])
    assert largest.batch == 80
    assert largest.text == "80 (extrapolated)"
    between = find_largest([grow(16, 24_000), grow(128, 136_000)])
    assert between.text == "80 (between compiled batches)"
    assert find_largest([grow(16, 40_000), grow(80, 100_000)]).text == "80 (compiled)"


def test_memory_that_does_not_grow_limits_no_batch() -> None:
    largest = find_largest([grow(32, 24_000), grow(64, 24_000)])
    assert largest.batch is None
    assert largest.text == (
        "256 and more: memory hardly grows with the batch, as wave and microbatch are fixed"
    )


def test_a_constant_stage_that_is_too_large_fits_no_batch() -> None:
    largest = find_largest([grow(32, 24_000, sync=200_000), grow(64, 30_000, sync=200_000)])
    assert largest.batch is None
    assert largest.text.startswith("none")


def test_what_was_seen_not_to_fit_bounds_the_batch() -> None:
    # The line says 80; 48 was compiled and does not fit, as the compiler counts otherwise.
    failed = dataclasses.replace(
        grow(48, 56_000), obstacles={"update": Obstacle("Ran out of memory", True)}
    )
    assert find_largest([grow(16, 24_000), grow(32, 40_000), failed]).batch == 32


def test_one_batch_tells_only_of_itself() -> None:
    assert find_largest([grow(32, 24_000)]).batch == 32
    assert "name a second batch" in find_largest([grow(32, 24_000)]).text
