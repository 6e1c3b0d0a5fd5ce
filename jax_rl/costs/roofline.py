"""How fast a program can be at best on a chip: the slowest of arithmetic, memory and network.

Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009.
"""

import dataclasses
from collections.abc import Collection, Mapping

from jax_rl.costs.chips import Chip
from jax_rl.costs.program import ProgramCosts
from jax_rl.errors import UserError, suggest

UNKNOWN_AXES = "unknown"
"""Stands for the axes of collectives whose groups fit no axes of the mesh."""


@dataclasses.dataclass(frozen=True)
class Roofline:
    """Least seconds of one call: each part at its peak, and all of them at once."""

    compute: float  # matrix products
    memory: float
    network: Mapping[str, float]  # by mesh axis, or by "axis+axis"

    @property
    def seconds(self) -> float:
        """The largest of the three; the axes of the network are used one after the other."""
        return max(self.compute, self.memory, sum(self.network.values()))

    @property
    def bound(self) -> str:
        """compute, memory or network: which of them takes longest."""
        times = {
            "compute": self.compute,
            "memory": self.memory,
            "network": sum(self.network.values()),
        }
        return max(times, key=lambda name: times[name])

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation at this bound: the matrix products' share of the time."""
        return self.compute / self.seconds if self.seconds else 0.0


def bound_program(
    costs: ProgramCosts, chip: Chip, *, dtype: str, slow_axes: Collection[str] = ()
) -> Roofline:
    """The least time that a call can take on a chip.

    Args:
      costs: of the program.
      chip: what it runs on.
      dtype: of the operands of its matrix products, bfloat16 or float32.
      slow_axes: mesh axes that cross slices or hosts; what is exchanged over one of them, or over
        one of them and others, goes at the speed of the network.

    Raises:
      UserError: the chip's rate for this dtype is not known.
    """
    if dtype not in chip.flops:
        raise UserError(
            f"chip {chip.name}: no FLOP/s are known for {dtype!r}{suggest(dtype, chip.flops)}"
            f" (known: {', '.join(chip.flops)})"
        )
    network: dict[str, float] = {}
    for one in costs.collectives:
        is_slow = any(axis in slow_axes for axis in one.axes) or (not one.axes and slow_axes)
        bandwidth = chip.network_bandwidth if is_slow else chip.link_bandwidth
        name = "+".join(one.axes) or UNKNOWN_AXES
        network[name] = network.get(name, 0.0) + one.bytes / bandwidth
    return Roofline(
        compute=costs.matmul_flops / chip.flops[dtype],
        memory=costs.bytes / chip.memory_bandwidth,
        network=network,
    )
