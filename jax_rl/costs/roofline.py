"""How fast a program can be at best on a chip: its arithmetic, memory or exchange.

Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009.
"""

import dataclasses
import math
from collections.abc import Mapping

from jax_rl.costs.chips import Chip
from jax_rl.costs.collectives import Collective
from jax_rl.costs.program import ProgramCosts
from jax_rl.errors import UserError, suggest

UNKNOWN_AXES = "unknown"
"""Stands for the axes of collectives whose groups fit no axes of the mesh."""


@dataclasses.dataclass(frozen=True)
class Roofline:
    """Least seconds of one call: each part at its peak, and all of them at once."""

    compute: float  # matrix products
    memory: float
    links: Mapping[str, float]  # inside a slice or host, by mesh axis, or by "axis+axis"
    network: Mapping[str, float]  # between slices or hosts, alike

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of compute, memory, links and network; axes are used one after the other."""
        return {
            "compute": self.compute,
            "memory": self.memory,
            "links": sum(self.links.values()),
            "network": sum(self.network.values()),
        }

    @property
    def seconds(self) -> float:
        """The largest part."""
        return max(self.parts.values())

    @property
    def bound(self) -> str:
        """The part that takes longest."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def mfu(self) -> float:
        """The matrix products' share of the time at this bound; what remat repeats is counted."""
        return self.compute / self.seconds if self.seconds else 0.0


def bound_program(
    costs: ProgramCosts, chip: Chip, *, dtype: str, crossed: Mapping[str, int] | None = None
) -> Roofline:
    """The least time that a call can take on a chip.

    Args:
      costs: of the program.
      chip: what it runs on.
      dtype: of the operands of its matrix products, bfloat16 or float32.
      crossed: slices or hosts along each mesh axis that crosses several.

    Raises:
      UserError: the chip's rate for this dtype is not known.
    """
    if dtype not in chip.flops:
        raise UserError(
            f"chip {chip.name}: no FLOP/s are known for {dtype!r}{suggest(dtype, chip.flops)}"
            f" (known: {', '.join(chip.flops)})"
        )
    links: dict[str, float] = {}
    network: dict[str, float] = {}
    for one in costs.collectives:
        name = "+".join(one.axes) or UNKNOWN_AXES
        near, far = _split_bytes(one, crossed or {})
        if near:
            links[name] = links.get(name, 0.0) + near / chip.link_bandwidth
        if far:
            network[name] = network.get(name, 0.0) + far / chip.network_bandwidth
    return Roofline(
        compute=costs.matmul_flops / chip.flops[dtype],
        memory=costs.bytes / chip.memory_bandwidth,
        links=links,
        network=network,
    )


def _split_bytes(one: Collective, crossed: Mapping[str, int]) -> tuple[float, float]:
    """Bytes of one device over its links and over its share of the network, at the least.

    In a group of g devices on h hosts each host receives what it lacks once, over the adapters of
    all its g / h devices together, and hands it on inside.
    """
    hosts = math.prod(crossed.get(axis, 1) for axis in one.axes)
    if hosts == 1 and (one.axes or not crossed):
        return one.bytes, 0.0
    if one.kind == "collective-permute" or not one.axes:
        return 0.0, one.bytes
    inside = one.group // hosts
    missing = (1 - 1 / hosts) / (1 - 1 / one.group)  # of a host, against that of a device
    far = one.bytes * missing / (1 if one.kind == "all-to-all" else inside)
    return one.bytes if inside > 1 else 0.0, far
