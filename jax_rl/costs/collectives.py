"""What devices send each other: the collective operations of a compiled program."""

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Mapping

import numpy as np

from jax_rl.costs.hlo import Computation, Instruction

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

_LIST = re.compile(r"replica_groups=\{(\{[\d,{} ]*\})?\}")
_IOTA = re.compile(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(
    r"replica_groups=mesh\[([^\]]*)\]"
    r"(?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{([^}]*)\}"
)
_AXIS = re.compile(r"'([^']+)'=(\d+)")
_VARIED = re.compile(r"'([^']+)'(?::\((\d+)\)(\d+))?")
_PAIRS = re.compile(r"source_target_pairs=\{([\d,{} ]*)\}")
_PAIR = re.compile(r"\{(\d+),\s*(\d+)\}")

Groups = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Collective:
    """One kind of exchange over the same mesh axes, in one call of a program.

    Attributes:
      kind: all-reduce, all-gather, reduce-scatter, all-to-all or collective-permute.
      axes: mesh axes that vary inside a group, in mesh order; () if it cannot be told.
      count: how often it runs.
      bytes: what leaves, and as much enters, one device over its links, for an algorithm that
        sends no more than it must: of n bytes on the large side, in a group of g, all-gather,
        reduce-scatter and all-to-all n (g - 1) / g, all-reduce twice that, permute n.
      group: devices in a group.
    """

    kind: str
    axes: tuple[str, ...]
    count: float
    bytes: float
    group: int

    def __mul__(self, times: float) -> "Collective":
        return dataclasses.replace(self, count=self.count * times, bytes=self.bytes * times)


def read_collective(
    computation: Computation, one: Instruction, mesh_shape: Mapping[str, int], *, partitions: int
) -> Collective | None:
    """One run of an instruction, or None if nothing is exchanged.

    Args:
      computation: where the instruction stands.
      one: the instruction, synchronous or the first half of an asynchronous pair.
      mesh_shape: sizes of the mesh axes in order; device i of the program sits at
        `numpy.unravel_index(i, sizes)`.
      partitions: devices that run the program.
    """
    kind = one.opcode.removesuffix("-start")
    if kind not in KINDS:
        return None
    operands = [computation.instructions[name] for name in one.operands]
    size = sum(array.size for operand in operands for array in operand.arrays)
    if kind == "collective-permute":
        found = _PAIRS.search(one.attributes)
        pairs = _PAIR.findall(found[1]) if found else []
        return make_permute(tuple((int(a), int(b)) for a, b in pairs), size, mesh_shape)
    if kind == "all-reduce" and _is_scattered(computation, one):
        kind = "reduce-scatter"
    return make_collective(kind, parse_groups(one.attributes, partitions), size, mesh_shape)


def make_collective(
    kind: str, groups: Groups, size: int, mesh_shape: Mapping[str, int]
) -> Collective | None:
    """One run of a collective whose operands have `size` bytes, or None in groups of one."""
    group = max(map(len, groups), default=1)
    if group == 1:
        return None
    large = size * group if kind == "all-gather" else size
    sent = large * (group - 1) / group * (2 if kind == "all-reduce" else 1)
    return Collective(kind, find_axes(groups, tuple(mesh_shape.items())), 1.0, sent, group)


def make_permute(pairs: Groups, size: int, mesh_shape: Mapping[str, int]) -> Collective | None:
    """One run of a collective-permute from source to target devices, or None if none differ."""
    moved = tuple(pair for pair in pairs if pair[0] != pair[1])
    if not moved:
        return None
    axes = find_axes(moved, tuple(mesh_shape.items()))
    group = math.prod(mesh_shape[axis] for axis in axes)
    return Collective("collective-permute", axes, 1.0, float(size), group)


def _is_scattered(computation: Computation, one: Instruction) -> bool:
    """Whether a fused sum is only handed out in parts: that is how a TPU scatters a sum."""
    root = computation.resolve(computation.root.name)
    return (
        root.opcode in ("dynamic-slice", "slice")
        and computation.resolve(root.operands[0]).name == one.name
    )


def add_collectives(parts: Iterable[Collective]) -> tuple[Collective, ...]:
    """Collectives summed per kind and axes, in the order of their first occurrence."""
    total: dict[tuple[str, tuple[str, ...]], Collective] = {}
    for part in parts:
        key = (part.kind, part.axes)
        known = total.get(key)
        total[key] = part if known is None else _add(known, part)
    return tuple(total.values())


def _add(one: Collective, other: Collective) -> Collective:
    return dataclasses.replace(
        one,
        count=one.count + other.count,
        bytes=one.bytes + other.bytes,
        group=max(one.group, other.group),
    )


@functools.lru_cache(maxsize=4096)
def find_axes(groups: Groups, mesh: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """Mesh axes along which the devices of a group differ.

    Args:
      groups: numbers of devices.
      mesh: names and sizes of the mesh axes.
    """
    sizes = tuple(size for _, size in mesh)
    if any(device >= math.prod(sizes) for group in groups for device in group):
        return ()
    varies = np.zeros(len(sizes), bool)
    for group in groups:
        places = np.stack(np.unravel_index(np.asarray(group), sizes))  # [axes, g]
        varies |= (places != places[:, :1]).any(axis=1)
    return tuple(name for (name, _), varied in zip(mesh, varies, strict=True) if varied)


@functools.lru_cache(maxsize=4096)
def parse_groups(attributes: str, devices: int) -> Groups:
    """Groups of device numbers, in any of the three forms of `replica_groups`.

    They are lists `{{0,1},{2,3}}`; a reshaped and transposed count `[2,2]<=[2,2]T(1,0)`; or a
    mesh and the axes that vary, `mesh['a'=2,'b'=2] {'b'}`, where `'a':(1)2` is a part of an axis
    and `device_ids` says how the devices fill the mesh.

    Args:
      attributes: the attributes of an instruction.
      devices: how many devices there are; no groups at all means one of them all.
    """
    found = _IOTA.search(attributes)
    if found:
        order = _count_off(found[3], found[4])
        return _as_groups(order.reshape(int(found[1]), int(found[2])))
    found = _MESH.search(attributes)
    if found:
        return _parse_mesh(*found.groups())
    found = _LIST.search(attributes)
    if found and found[1]:
        lists = re.findall(r"\{([\d, ]*)\}", found[1])
        return tuple(tuple(int(n) for n in one.split(",")) for one in lists if one.strip())
    return (tuple(range(devices)),)


def _count_off(sizes: str, permutation: str | None) -> np.ndarray:
    """Device numbers 0, 1, ... in a shape, transposed."""
    shape = [int(size) for size in sizes.split(",")]
    numbers = np.arange(math.prod(shape)).reshape(shape)
    return numbers.transpose(
        [int(axis) for axis in permutation.split(",")] if permutation else None
    )


def _parse_mesh(axes: str, sizes: str | None, permutation: str | None, varied: str) -> Groups:
    shape = {name: int(size) for name, size in _AXIS.findall(axes)}
    total = math.prod(shape.values())
    numbers = (_count_off(sizes, permutation) if sizes else np.arange(total)).reshape(-1)
    places = dict(
        zip(shape, np.unravel_index(np.arange(total), tuple(shape.values())), strict=True)
    )
    fixed = {name: place.copy() for name, place in places.items()}
    for name, before, part in _VARIED.findall(varied):
        size = int(part) if part else shape[name]
        weight = shape[name] // (int(before or 1) * size)
        fixed[name] -= places[name] // weight % size * weight
    keys = np.ravel_multi_index(tuple(fixed.values()), tuple(shape.values()))
    return _as_groups([numbers[keys == key] for key in np.unique(keys)])


def _as_groups(rows: Iterable[np.ndarray]) -> Groups:
    return tuple(tuple(int(device) for device in row) for row in rows)
