"""The bound of a program on a chip, by hand."""

import dataclasses

import pytest

from jax_rl.costs.chips import Chip
from jax_rl.costs.collectives import Collective
from jax_rl.costs.program import ProgramCosts
from jax_rl.costs.roofline import bound_program
from jax_rl.errors import UserError

CHIP = Chip(
    name="round",
    platform="tpu",
    device_kind=(),
    flops={"bfloat16": 100.0, "float32": 50.0},
    memory_bytes=1000,
    memory_bandwidth=10.0,
    link_bandwidth=4.0,
    network_bandwidth=0.5,
    devices_per_host=4,
    source="made up",
)
COSTS = ProgramCosts(
    flops=400.0,
    matmul_flops=300.0,
    bytes=20.0,
    collectives=(
        Collective("all-gather", ("fsdp",), 1.0, 2.0, 4),
        Collective("reduce-scatter", ("fsdp",), 1.0, 1.0, 4),
        Collective("all-reduce", ("data",), 1.0, 0.25, 2),
        Collective("all-reduce", ("data", "fsdp"), 1.0, 0.5, 8),
    ),
    arguments=0,
    outputs=0,
    temporaries=0,
    aliased=0,
    code=0,
)


def test_bound_by_arithmetic() -> None:
    bound = bound_program(COSTS, CHIP, dtype="bfloat16")
    assert bound.compute == 3.0
    assert bound.memory == 2.0
    assert bound.links == {"fsdp": 3.0 / 4, "data": 0.25 / 4, "data+fsdp": 0.5 / 4}
    assert bound.network == {}
    assert (bound.seconds, bound.bound, bound.mfu) == (3.0, "compute", 1.0)
    assert bound_program(COSTS, CHIP, dtype="float32").compute == 6.0


def test_bound_by_memory() -> None:
    bound = bound_program(dataclasses.replace(COSTS, bytes=60.0), CHIP, dtype="bfloat16")
    assert (bound.seconds, bound.bound, bound.mfu) == (6.0, "memory", 0.5)


def test_bound_by_the_network_when_an_axis_crosses_slices() -> None:
    slow = dataclasses.replace(COSTS, matmul_flops=50.0, bytes=5.0)
    bound = bound_program(slow, CHIP, dtype="bfloat16", crossed={"data": 2})
    # 8 devices in two slices: a slice lacks 1/2 of the array where a device lacks 7/8, and brings
    # it in over four adapters.
    far = 0.5 * (1 / 2) / (7 / 8) / 4
    assert bound.links == {"fsdp": 3.0 / 4, "data+fsdp": 0.5 / 4}
    assert bound.network == pytest.approx({"data": 0.25 / 0.5, "data+fsdp": far / 0.5})
    assert bound.seconds == pytest.approx(0.875)
    assert bound.bound == "links"
    assert bound.mfu == pytest.approx(0.5 / 0.875)


def test_links_and_network_work_at_once() -> None:
    # 16 GB gathered over two hosts of eight: links 450 GB/s, adapters 50 GB/s.
    chip = dataclasses.replace(CHIP, link_bandwidth=450e9, network_bandwidth=50e9)
    gather = Collective("all-gather", ("fsdp",), 1.0, 16e9 * 15 / 16, 16)
    costs = dataclasses.replace(COSTS, matmul_flops=0.0, bytes=0.0, collectives=(gather,))
    bound = bound_program(costs, chip, dtype="bfloat16", crossed={"fsdp": 2})
    assert bound.links == pytest.approx({"fsdp": 15e9 / 450e9})
    assert bound.network == pytest.approx({"fsdp": 8e9 / 8 / 50e9})
    assert bound.seconds == pytest.approx(1 / 30)
    swap = Collective("all-to-all", ("fsdp",), 1.0, 16e9 * 15 / 16, 16)
    costs = dataclasses.replace(costs, collectives=(swap,))
    bound = bound_program(costs, chip, dtype="bfloat16", crossed={"fsdp": 2})
    assert bound.network == pytest.approx({"fsdp": 8e9 / 50e9})
    shift = Collective("collective-permute", ("fsdp",), 1.0, 1e9, 16)
    costs = dataclasses.replace(costs, collectives=(shift,))
    bound = bound_program(costs, chip, dtype="bfloat16", crossed={"fsdp": 2})
    assert (bound.links, bound.network) == ({}, pytest.approx({"fsdp": 1 / 50}))


def test_exchanges_over_unknown_axes_are_taken_for_slow_where_any_axis_is() -> None:
    costs = dataclasses.replace(COSTS, collectives=(Collective("all-reduce", (), 1.0, 2.0, 3),))
    assert bound_program(costs, CHIP, dtype="bfloat16").links == {"unknown": 0.5}
    bound = bound_program(costs, CHIP, dtype="bfloat16", crossed={"data": 2})
    assert bound.network == {"unknown": 4.0}


def test_nothing_to_do_takes_no_time() -> None:
    idle = dataclasses.replace(COSTS, matmul_flops=0.0, bytes=0.0, collectives=())
    bound = bound_program(idle, CHIP, dtype="bfloat16")
    assert (bound.seconds, bound.mfu) == (0.0, 0.0)


def test_a_dtype_without_a_rate() -> None:
    with pytest.raises(UserError, match="chip round: no FLOP/s are known for 'float16'"):
        bound_program(COSTS, CHIP, dtype="float16")
