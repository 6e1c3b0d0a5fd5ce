"""Plans end to end: the devices that are here, and small ones for a TPU and for GPUs."""

import importlib.util
import json
from pathlib import Path

import pytest
from trainer_runs import CONFIG, change, write_toml

import jax_rl
from jax_rl.bench.request import list_requests
from jax_rl.cli import main
from jax_rl.config import Config
from jax_rl.costs.chips import load_chips
from jax_rl.costs.program import ProgramCosts
from jax_rl.costs.roofline import UNKNOWN_AXES
from jax_rl.plan.jobs import choose_recipes, map_point
from jax_rl.plan.pool import run_jobs
from jax_rl.plan.results import read_result
from jax_rl.plan.run import Plan
from jax_rl.plan.target import parse_target
from jax_rl.throughput import read_throughput

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="pip install 'jax-rl[aot-tpu]'"
)
needs_cuda = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None, reason="pip install 'jax-rl[aot-cuda]'"
)


def small() -> Config:
    """One layer; sizes that a TPU's tiles divide."""
    return change(
        CONFIG,
        model={"embed": 128, "head_dim": 16, "mlp": 256, "vocab": 128, "compute_dtype": "bfloat16"},
        batch={"size": 32, "wave": 16, "microbatch": 8},
        run={"devices": 0},
    )


def check(plan: Plan, *, devices: int) -> None:
    assert plan.devices["count"] == devices
    (one,) = plan.predictions
    assert one.fits is True
    assert set(one.costs) == {"sync", "prefill", "decode", "join", "update"}
    for costs in one.costs.values():
        assert costs.bytes > 0
    assert one.costs["update"].matmul_flops > one.costs["prefill"].matmul_flops > 0
    gathers = [c for c in one.costs["update"].collectives if c.kind == "all-gather"]
    assert [c.axes for c in gathers] == [("fsdp",)]
    assert not any(UNKNOWN_AXES in bound.network for bound in one.bounds.values())
    assert one.throughput > 0
    assert max(one.memory.values()) < one.capacity


@pytest.mark.slow
def test_a_plan_for_the_devices_that_are_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_toml(tmp_path / "mine.toml", batch={"size": 16}, run={"devices": 0})
    words = ["plan", str(file), "--target", "here", "--layouts", "fsdp", "--batches", "16"]
    assert main([*words, "--jobs", "1", "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "Largest batch, fsdp" in printed
    assert "peaks are estimates, measured here" in printed
    table = read_throughput(tmp_path / "out" / "plan.json")
    assert table.kind == "predicted"
    assert [point.batch for point in table.points] == [16]
    assert all(point.fits and point.rollouts_per_second > 0 for point in table.points)
    details = json.loads((tmp_path / "out" / "plan_details.json").read_text())
    assert details["devices"]["count"] == 8
    assert details["compiled"]["cached"] == 0
    assert details["compiled"]["programs"] == 4  # sync, prefill, decode, update


@pytest.mark.slow
def test_the_largest_update_tells_what_smaller_ones_cost_when_compiled_themselves() -> None:
    target = parse_target("here", load_chips())
    config = change(small(), batch={"microbatch": 8})
    points = [
        map_point(request, devices=8, groups=1)
        for request in list_requests(config, (16, 64), ("fsdp",))
    ]
    told, own = (
        choose_recipes(points, layers=None, every_batch=every, decode_trips=1)[0]["update"]
        for every in (False, True)
    )
    assert told[0].job != own[0].job
    jobs = [told[0].job, own[0].job]
    answers = dict(zip(jobs, run_jobs(target, [j.as_line() for j in jobs], workers=1), strict=True))
    first, second = read_result(told, answers), read_result(own, answers)
    assert isinstance(first, ProgramCosts) and isinstance(second, ProgramCosts), (first, second)
    assert first.flops == pytest.approx(second.flops, rel=0.01)
    assert first.bytes == pytest.approx(second.bytes, rel=0.03)
    assert first.temporaries == pytest.approx(second.temporaries, rel=0.05)
    # How the few bytes of the rows are exchanged may differ between batches.
    sent = [sum(c.bytes for c in one.collectives) for one in (first, second)]
    assert sent[0] == pytest.approx(sent[1], rel=0.05)


def compile_prefill(text: str, layout: str) -> ProgramCosts:
    """What prefill costs on four devices of a target, compiled by a worker."""
    target = parse_target(text, load_chips())
    request = list_requests(small(), (32,), (layout,))[0]
    point = map_point(request, devices=4, groups=1)
    recipe = choose_recipes([point], layers=None, every_batch=True, decode_trips=1)[0]["prefill"]
    (answer,) = run_jobs(target, [recipe[0].job.as_line()], workers=1)
    costs = read_result(recipe, {recipe[0].job: answer})
    assert isinstance(costs, ProgramCosts), costs
    return costs


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("tpu:v5e:2x2", marks=needs_libtpu),
        pytest.param("cuda:h100:4", marks=needs_cuda),
    ],
)
def test_one_program_is_compiled_for_hardware_that_is_not_here(target: str) -> None:
    costs = compile_prefill(target, "tensor")
    config = small()
    model, length = config.model, config.task.max_prompt_length
    rows = 2  # a wave of 16 has two prompts of 8 responses each
    width = model.heads * model.head_dim  # kv_heads are as many
    block = 2 * rows * length * (4 * model.embed * width + 3 * model.embed * model.mlp)
    attention = 2 * 2 * rows * length * length * width
    assert costs.matmul_flops == (block + attention) / 4
    # What the two products of a block leave on each device is summed over them.
    assert ("all-reduce", ("tensor",)) in {(one.kind, one.axes) for one in costs.collectives}
    heads = 3 * model.embed * width + width * model.embed
    weights = heads + 3 * model.embed * model.mlp + model.vocab * model.embed
    assert costs.arguments >= 2 * weights / 4  # bfloat16; norms and prompts besides
    assert costs.arguments < 2 * 1.5 * weights / 4


@needs_libtpu
@pytest.mark.slow
def test_a_small_plan_for_a_tpu() -> None:
    plan = jax_rl.run_plan(small(), "tpu:v5e:2x2", layouts=("fsdp",), jobs=2, progress=False)
    check(plan, devices=4)
    assert plan.devices["kind"] == "TPU v5 lite"


@needs_cuda
@pytest.mark.slow
def test_a_small_plan_for_gpus() -> None:
    plan = jax_rl.run_plan(small(), "cuda:h100:4", layouts=("fsdp",), jobs=2, progress=False)
    check(plan, devices=4)
    assert any("no autotuning" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--target", "tpu:v5x:2x2"], "unknown chip 'v5x'"),
        (["--batches", "16,x"], "'x' is not a whole number"),
        (["--layouts", "fsdb"], "Did you mean 'fsdp'?"),
        (["--layers_compiled", "a,2"], "two numbers of layers"),
        (["--layers_compiled", "2,4"], "from 1 to the model's 1"),
        (["--response_length", "9"], "from 1 to task.max_response_length = 4"),
    ],
)
def test_what_cannot_be_planned_ends_with_one_message(
    words: list[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_toml(tmp_path / "mine.toml")
    assert main(["plan", str(file), *words, "--output", str(tmp_path / "out")]) == 2
    assert part in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
