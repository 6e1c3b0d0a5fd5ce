"""Costs of programs that are compiled here, for eight CPU devices, against numbers by hand."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jax_rl.costs.collectives import Collective
from jax_rl.costs.program import ProgramCosts, measure_program

F32 = jnp.float32
MESH_SHAPE = {"data": 2, "fsdp": 4}


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return jax.make_mesh((2, 4), ("data", "fsdp"), axis_types=(AxisType.Explicit,) * 2)


def measure(
    function: Any, *arguments: jax.ShapeDtypeStruct, shape: Any = None, trips: float = 1.0
) -> ProgramCosts:
    traced = jax.jit(function).trace(*arguments)
    compiled = traced.lower().compile()
    return measure_program(traced.jaxpr, compiled, shape or {"data": 1}, loop_trips=trips)


def place(mesh: Mesh, shape: tuple[int, ...], *axes: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, F32, sharding=NamedSharding(mesh, PartitionSpec(*axes)))


def multiply_all(x: jax.Array, weights: jax.Array) -> jax.Array:
    return lax.scan(lambda c, w: (c @ w, None), x, weights)[0]


def test_a_scan_costs_as_often_as_it_runs() -> None:
    size = 256
    array = 4 * size**2
    state = jax.ShapeDtypeStruct((size, size), F32)
    five, ten, fifteen = (
        measure(multiply_all, state, jax.ShapeDtypeStruct((n, size, size), F32))
        for n in (5, 10, 15)
    )
    assert (five.flops, ten.flops) == (5 * 2 * size**3, 10 * 2 * size**3)
    assert five.flops == five.matmul_flops
    assert ten.bytes - five.bytes == fifteen.bytes - ten.bytes
    # A step reads state and weight and writes a state; it may copy both. The stack stays there.
    step = (ten.bytes - five.bytes) / 5
    assert 3 * array <= step <= 8 * array
    assert 5 * step <= five.bytes <= 5 * step + 4 * array
    assert five.collectives == ()


def multiply_twice(x: jax.Array, weights: jax.Array) -> jax.Array:
    return lax.scan(lambda c, w: (multiply_all(c, w), None), x, weights)[0]


def test_an_outer_loop_told_to_turn_less_often_costs_as_a_shorter_one() -> None:
    size = 128
    state = jax.ShapeDtypeStruct((size, size), F32)

    def take(outer: int, **options: Any) -> ProgramCosts:
        weights = jax.ShapeDtypeStruct((outer, 5, size, size), F32)
        traced = jax.jit(multiply_twice).trace(state, weights)
        return measure_program(traced.jaxpr, traced.lower().compile(), {"data": 1}, **options)

    # The inner loop has five turns as well where the outer has: the first on the way in counts.
    for long in (5, 12):
        told, short = take(long, loop_trips=3.0, counted=long), take(3)
        assert told.unread == ""
        assert told.flops == short.flops == 3 * 5 * 2 * size**3
        assert told.bytes == pytest.approx(short.bytes, rel=0.02)
    assert "0 loops of 7 trips" in take(5, counted=7).unread


def test_memory_is_what_the_compiler_says() -> None:
    state = jax.ShapeDtypeStruct((64, 64), F32)
    traced = jax.jit(lambda x, y: (x + y, x @ y), donate_argnums=0).trace(state, state)
    costs = measure_program(traced.jaxpr, traced.lower().compile(), {"data": 1})
    array = 4 * 64 * 64
    assert costs.arguments == 2 * array
    assert 2 * array <= costs.outputs <= 2 * array + 64  # a table of pointers
    assert costs.aliased == array
    assert costs.peak == costs.arguments + costs.outputs - array + costs.temporaries


def test_weights_are_gathered_over_fsdp(mesh: Mesh) -> None:
    def apply(x: jax.Array, w: jax.Array) -> jax.Array:
        return x @ jax.sharding.reshard(w, PartitionSpec(None, None))

    with jax.set_mesh(mesh):
        costs = measure(
            apply,
            place(mesh, (16, 64), ("data", "fsdp"), None),
            place(mesh, (64, 128), "fsdp", None),
            shape=MESH_SHAPE,
        )
    weight = 64 * 128 * 4
    assert costs.collectives == (Collective("all-gather", ("fsdp",), 1.0, weight * 3 / 4, 4),)
    assert costs.flops == 2 * 16 * 64 * 128 / 8
    rows, out = 2 * 64 * 4, 2 * 128 * 4
    assert costs.bytes == pytest.approx(weight / 4 + weight + rows + weight + out, rel=0.01)


def test_sums_in_a_loop_count_as_often_as_it_runs(mesh: Mesh) -> None:
    spec = PartitionSpec("data", "fsdp")

    @jax.shard_map(in_specs=spec, out_specs=spec)
    def known(x: jax.Array) -> jax.Array:
        return lax.scan(lambda c, _: (lax.psum(c, "fsdp") * 0.1 + c, None), x, None, length=7)[0]

    @jax.shard_map(in_specs=spec, out_specs=spec)
    def unknown(x: jax.Array) -> jax.Array:
        def go(c: jax.Array) -> jax.Array:
            return lax.psum(jnp.sum(c), ("data", "fsdp")) < 1e6

        return lax.while_loop(go, lambda c: lax.psum(c, "data") * 0.1 + c, x)

    with jax.set_mesh(mesh):
        argument = place(mesh, (16, 64), "data", "fsdp")
        seven = measure(known, argument, shape=MESH_SHAPE)
        some = measure(unknown, argument, shape=MESH_SHAPE, trips=12.5)
    part = 8 * 16 * 4
    assert seven.collectives == (Collective("all-reduce", ("fsdp",), 7.0, 7 * 2 * part * 3 / 4, 4),)
    both = {one.axes: one for one in some.collectives}
    assert both["data",] == Collective("all-reduce", ("data",), 12.5, 12.5 * part, 2)
    assert both["data", "fsdp"].bytes == 12.5 * 2 * 4 * 7 / 8


def test_every_kind_of_exchange(mesh: Mesh) -> None:
    spec = PartitionSpec(("data", "fsdp"), None)

    @jax.shard_map(in_specs=spec, out_specs=spec)
    def exchange(x: jax.Array) -> jax.Array:
        ring = lax.ppermute(x, "fsdp", [(i, (i + 1) % 4) for i in range(4)])
        swapped = lax.all_to_all(ring, "data", 1, 0, tiled=True)
        return lax.psum_scatter(swapped, ("data", "fsdp"), scatter_dimension=0, tiled=True)

    with jax.set_mesh(mesh):
        costs = measure(exchange, place(mesh, (64, 64), ("data", "fsdp"), None), shape=MESH_SHAPE)
    part = 8 * 64 * 4
    assert set(costs.collectives) == {
        Collective("collective-permute", ("fsdp",), 1.0, part, 4),
        Collective("all-to-all", ("data",), 1.0, part / 2, 2),
        Collective("reduce-scatter", ("data", "fsdp"), 1.0, part * 7 / 8, 8),
    }


def test_costs_survive_json() -> None:
    costs = ProgramCosts(
        flops=3.5,
        matmul_flops=3.0,
        bytes=7.0,
        collectives=(Collective("all-gather", ("data", "fsdp"), 2.0, 96.0, 8),),
        arguments=10,
        outputs=8,
        temporaries=5,
        aliased=6,
        code=3,
    )
    assert costs.peak == 10 + 8 - 6 + 5
    assert ProgramCosts.from_dict(json.loads(json.dumps(costs.as_dict()))) == costs


class Silent:
    """A compiled program of a backend that does not analyse memory."""

    def as_text(self) -> str:
        return "HloModule m\n\nENTRY %e (x: f32[]) -> f32[] {\n  ROOT %x = f32[] parameter(0)\n}\n"

    def memory_analysis(self) -> None:
        return None


def test_memory_that_is_not_known_is_zero() -> None:
    jaxpr = jax.make_jaxpr(lambda x: x * 2)(jax.ShapeDtypeStruct((), F32))
    costs = measure_program(jaxpr, Silent(), {"data": 4})
    assert costs == ProgramCosts(0.25, 0.0, 0.0, (), 0, 0, 0, 0, 0)


def test_a_text_that_cannot_be_read_leaves_flops_and_memory():
    class Silent:
        def as_text(self):
            raise jax.errors.JaxRuntimeError("INTERNAL: RET_CHECK failure\nsecond line")

        def memory_analysis(self):
            return compiled.memory_analysis()

    traced = jax.jit(lambda x: x @ x).trace(jnp.ones((4, 4)))
    compiled = traced.lower().compile()
    costs = measure_program(traced.jaxpr, Silent(), {"x": 1})
    assert (costs.matmul_flops, costs.bytes, costs.collectives) == (128.0, 0.0, ())
    assert costs.arguments == 64
    assert costs.unread == "INTERNAL: RET_CHECK failure"
    assert ProgramCosts.from_dict(costs.as_dict()) == costs
