"""What the slices of TPUs send each other through their hosts.

The program of a slice has the numbers of its own devices alone. What crosses slices is a `send` to
the host, whose attributes name all devices that take part as 100000 x slice + device.
"""

import re
from collections.abc import Mapping

from jax_rl.costs.collectives import (
    Collective,
    Groups,
    make_collective,
    make_permute,
)
from jax_rl.costs.hlo import Computation, Instruction

_KINDS = {
    "ALL_REDUCE": "all-reduce",
    "ALL_GATHER": "all-gather",
    "REDUCE_SCATTER": "reduce-scatter",
    "ALL_TO_ALL": "all-to-all",
    "ONE_TO_ONE": "collective-permute",
}
_SLICE = 100000
_TYPE = re.compile(r'_xla_megascale_transfer_type="(\w+)"')
_PRODUCT = re.compile(r'_xla_megascale_target="\{([\d,:]+)\}x\{([\d,:]+)\}"')
_LISTS = re.compile(r"_xla_megascale_target=\{(\{[\d,{}\->]*\})\}")


def read_slice_exchange(
    computation: Computation, one: Instruction, mesh_shape: Mapping[str, int], *, partitions: int
) -> Collective | None:
    """One run of an exchange between slices, or None if a `send` is something else.

    Args:
      computation: where the instruction stands.
      one: the `send`.
      mesh_shape: sizes of the mesh axes, of which the first ones cross the slices.
      partitions: devices of a slice.
    """
    kind = _KINDS.get(_find(_TYPE, one.attributes))
    groups = _read_target(one.attributes, partitions)
    if kind is None or not groups:
        return None
    size = sum(array.size for array in computation.instructions[one.operands[0]].arrays)
    if kind == "collective-permute":
        return make_permute(groups, size, mesh_shape)
    return make_collective(kind, groups, size, mesh_shape)


def _find(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""


def _read_target(attributes: str, partitions: int) -> Groups:
    """Groups of device numbers, counted through all slices."""
    product = _PRODUCT.search(attributes)
    if product:
        slices, devices = _list_numbers(product[1]), _list_numbers(product[2])
        named = [[_SLICE * number + device for number in slices] for device in devices]
    else:
        lists = re.findall(r"\{([\d,\->]+)\}", _find(_LISTS, attributes))
        named = [[int(number) for number in re.findall(r"\d+", one)] for one in lists]
    first = min((number // _SLICE for group in named for number in group), default=0)
    return tuple(
        tuple((number // _SLICE - first) * partitions + number % _SLICE for number in group)
        for group in named
    )


def _list_numbers(text: str) -> list[int]:
    """Numbers of `0,1` and `0:1`, both ends included."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition(":")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
