"""What one call of a compiled program costs each device, read off the program."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

from jax_rl.costs.collectives import Collective
from jax_rl.costs.flops import count_flops
from jax_rl.costs.hlo import parse_module
from jax_rl.costs.walk import walk_module


@dataclasses.dataclass(frozen=True)
class ProgramCosts:
    """Costs of one call on each device."""

    flops: float  # all floating-point operations of the traced program / devices
    matmul_flops: float  # those of matrix products and convolutions
    bytes: float  # read from and written to device memory
    collectives: tuple[Collective, ...]  # one per kind and mesh axes
    arguments: int  # bytes, as are the next four
    outputs: int
    temporaries: int
    aliased: int  # of the arguments, which the outputs take over
    code: int
    unread: str = ""  # why bytes and collectives are not known, and 0

    @property
    def peak(self) -> int:
        """Bytes of device memory in use at once, without the code."""
        return self.arguments + self.outputs - self.aliased + self.temporaries

    def as_dict(self) -> dict[str, Any]:
        """Plain values, which JSON can hold."""
        plain = dataclasses.asdict(self)
        plain["collectives"] = [one | {"axes": list(one["axes"])} for one in plain["collectives"]]
        return plain

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "ProgramCosts":
        """The costs that `as_dict` gave."""
        collectives = tuple(
            Collective(**{**one, "axes": tuple(one["axes"])}) for one in data["collectives"]
        )
        return ProgramCosts(**{**data, "collectives": collectives})


def measure_program(
    jaxpr: ClosedJaxpr | Jaxpr,
    compiled: Any,
    mesh_shape: Mapping[str, int],
    *,
    loop_trips: float = 1.0,
    counted: int | None = None,
) -> ProgramCosts:
    """Reads the costs off a program that was traced and compiled, here or for other hardware.

    FLOPs come from the traced program, and are what all devices do together, divided evenly: work
    that a layout repeats on every device is not counted again. Bytes and collectives come from the
    compiled text, where it can be read; memory from the compiler's own analysis, zeros without it.

    Args:
      jaxpr: `traced.jaxpr` of `traced = jitted.trace(*args)`.
      compiled: `traced.lower().compile()`.
      mesh_shape: `dict(mesh.shape)`; device i of the program sits at
        `numpy.unravel_index(i, sizes)`.
      loop_trips: how often a loop runs whose trips the program does not give away.
      counted: trips of an outer loop that is taken to run `loop_trips` times instead.
    """
    flops = count_flops(jaxpr, loop_trips=loop_trips, counted=counted)
    traffic, unread = 0.0, ""
    collectives: tuple[Collective, ...] = ()
    try:
        module = parse_module(compiled.as_text())
        moved = walk_module(module, mesh_shape, loop_trips=loop_trips, counted=counted)
        traffic, collectives = moved.bytes, moved.collectives
    except (jax.errors.JaxRuntimeError, LookupError, ValueError) as error:
        # Not every runtime can write down what it has compiled; the program runs all the same.
        unread = str(error).splitlines()[0][:300] or type(error).__name__
    devices = math.prod(mesh_shape.values())
    memory = compiled.memory_analysis()

    def read(name: str) -> int:
        return int(getattr(memory, f"{name}_size_in_bytes", 0))

    return ProgramCosts(
        flops=flops.total / devices,
        matmul_flops=flops.matmul / devices,
        bytes=traffic,
        collectives=collectives,
        arguments=read("argument"),
        outputs=read("output"),
        temporaries=read("temp"),
        aliased=read("alias"),
        code=read("generated_code"),
        unread=unread,
    )
