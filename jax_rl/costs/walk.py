"""A compiled program walked as it runs: loops by their trips, conditions by the dearest branch."""

import dataclasses
import re
from collections.abc import Iterator, Mapping

from jax_rl.costs.collectives import Collective, add_collectives, read_collective
from jax_rl.costs.hlo import Computation, Instruction, Module
from jax_rl.costs.loops import count_trips
from jax_rl.costs.slices import read_slice_exchange
from jax_rl.costs.traffic import Traffic, continues_exchange

_BRANCHES = re.compile(r"(?:branch_computations=\{|true_computation=|false_computation=)([^}=]*)")
_NAME = re.compile(r"%([\w.\-]+)")


@dataclasses.dataclass(frozen=True)
class DeviceCosts:
    """What one call moves on one device."""

    bytes: float  # read from and written to its memory
    collectives: tuple[Collective, ...]

    def __mul__(self, times: float) -> "DeviceCosts":
        return DeviceCosts(self.bytes * times, tuple(one * times for one in self.collectives))


def walk_module(
    module: Module,
    mesh_shape: Mapping[str, int],
    *,
    loop_trips: float = 1.0,
    counted: int | None = None,
) -> DeviceCosts:
    """Adds up what a call of the program moves.

    Args:
      module: the program.
      mesh_shape: sizes of the mesh axes in order.
      loop_trips: how often a loop runs whose trips the text does not give away.
      counted: trips of a loop that is taken to run `loop_trips` times instead, the first such one
        on the way in.

    Raises:
      LookupError: not exactly one loop of the program is the counted one.
    """
    walk = _Walk(module, mesh_shape, loop_trips, counted)
    costs = walk.count(module.entry, outside=counted is not None)
    if counted is not None and walk.found != 1:
        raise LookupError(f"{walk.found} loops of {counted} trips where one was looked for")
    return costs


class _Walk:
    def __init__(
        self,
        module: Module,
        mesh_shape: Mapping[str, int],
        loop_trips: float,
        counted: int | None,
    ):
        self._module = module
        self._mesh_shape = mesh_shape
        self._loop_trips = loop_trips
        self._counted = counted
        self.found = 0  # counted loops
        self._traffic = Traffic(module)
        self._known: dict[tuple[str, bool], DeviceCosts] = {}

    def count(self, name: str, *, outside: bool) -> DeviceCosts:
        """One run of a computation, outside of the counted loop or in it, or without one."""
        if (name, outside) not in self._known:
            computation = self._module.computations[name]
            total, collectives = 0.0, []
            for one in computation.instructions.values():
                total += self._traffic.count(computation, one)
                collectives += self._list_collectives(computation, one)
                for part in self._list_called(computation, one, outside):
                    total += part.bytes
                    collectives += part.collectives
            self._known[name, outside] = DeviceCosts(total, add_collectives(collectives))
        return self._known[name, outside]

    def _list_called(
        self, computation: Computation, one: Instruction, outside: bool
    ) -> Iterator[DeviceCosts]:
        if one.opcode == "while":
            trips = count_trips(self._module, computation, one)
            is_counted = outside and trips == self._counted
            self.found += is_counted
            for part in ("condition", "body"):
                run = self.count(one.find(part) or "", outside=outside and not is_counted)
                yield run * (self._loop_trips if trips is None or is_counted else trips)
        elif one.opcode == "conditional":
            names = [n for part in _BRANCHES.findall(one.attributes) for n in _NAME.findall(part)]
            runs = (self.count(name, outside=outside) for name in names)
            yield max(runs, key=lambda costs: costs.bytes)
        elif one.opcode in ("call", "async-start"):
            called = one.find("to_apply") or one.find("calls")
            if called:
                yield self.count(called, outside=outside)

    def _list_collectives(self, computation: Computation, one: Instruction) -> list[Collective]:
        partitions = self._module.partitions
        if one.opcode != "fusion":
            found = read_collective(computation, one, self._mesh_shape, partitions=partitions)
            if found is None and one.opcode == "send":
                found = read_slice_exchange(
                    computation, one, self._mesh_shape, partitions=partitions
                )
            return [found] if found is not None else []
        if continues_exchange(computation, one):
            return []
        inside = self._module.computations[one.find("calls") or ""]
        parts = (
            read_collective(inside, each, self._mesh_shape, partitions=partitions)
            for each in inside.instructions.values()
        )
        return [part for part in parts if part is not None]
