"""A small experiment and hand-made costs that the tests of plan share."""

from typing import Any

from trainer_runs import CONFIG, change

from jax_rl.bench.request import list_requests
from jax_rl.config import Config
from jax_rl.costs.chips import Chip
from jax_rl.costs.collectives import Collective
from jax_rl.costs.program import ProgramCosts
from jax_rl.plan.jobs import Point, map_point

CHIP = Chip(
    name="round",
    platform="tpu",
    device_kind=("Round",),
    flops={"bfloat16": 200.0, "float32": 100.0},
    memory_bytes=10_000_000,
    memory_bandwidth=10.0,
    link_bandwidth=5.0,
    network_bandwidth=1.0,
    devices_per_host=4,
    source="made up: round numbers",
)


def list_points(
    *batches: int, layouts: tuple[str, ...] = ("fsdp",), devices: int = 8, **tables: Any
) -> list[Point]:
    """Points of the experiment, its validation set cut as the batch is."""
    config: Config = change(CONFIG, **{"run": {"devices": 0}, **tables})
    requests = list_requests(config, batches, layouts)
    return [map_point(request, devices=devices, groups=1) for request in requests]


def make_costs(
    *,
    flops: float = 0.0,
    size: float = 0.0,
    sent: float = 0.0,
    axes: tuple[str, ...] = ("fsdp",),
    memory: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> ProgramCosts:
    """Costs with one all-gather; memory is arguments, outputs, temporaries, aliased."""
    arguments, outputs, temporaries, aliased = memory
    sends = (Collective("all-gather", axes, 1.0, sent, 8),) if sent else ()
    return ProgramCosts(
        flops=flops,
        matmul_flops=flops,
        bytes=size,
        collectives=sends,
        arguments=arguments,
        outputs=outputs,
        temporaries=temporaries,
        aliased=aliased,
        code=0,
    )
