"""A compiled program's text, as `compiled.as_text()` gives it, read into its instructions.

One pass over the lines: the text of a decode program with unrolled layers has many megabytes.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Mapping

DEVICE_MEMORY = 0
"""The memory space that has no mark in a layout; `S(1)` is a TPU's on-chip memory."""

_BITS = {"pred": 8, "token": 0, "opaque": 0, "bf16": 16, "tf32": 32, "c64": 64, "c128": 128}
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([0-9,<=]*)\](?:\{([^}]*)\})?")
_NAME = re.compile(r"%([\w.\-]+)")
_SPACE = re.compile(r"S\((\d+)\)")
_TILE = re.compile(r"T\(([\d,]+)\)")
_PARTITIONS = re.compile(r"num_partitions=(\d+)")
_COMMENT = re.compile(r"/\*.*?\*/")


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """One array of an instruction's result."""

    dtype: str
    shape: tuple[int, ...]
    space: int  # memory space
    size: int  # bytes of its elements
    padded: int  # bytes that it takes up, padded to whole tiles

    @property
    def stored(self) -> int:
        """Bytes in device memory: 0 if it lies on the chip or on the host."""
        return self.padded if self.space == DEVICE_MEMORY else 0


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    type: str
    opcode: str
    operands: tuple[str, ...]
    literal: str  # what stands between the brackets: a number of a constant or a parameter
    attributes: str  # the rest of the line
    is_root: bool

    @functools.cached_property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays of the result, those of a tuple in order."""
        return parse_type(self.type)

    def find(self, attribute: str) -> str | None:
        """The computation that an attribute names, if the instruction has it."""
        found = re.search(rf"\b{attribute}=%?([\w.\-]+)", self.attributes)
        return found[1] if found else None


@dataclasses.dataclass(frozen=True)
class Computation:
    """The instructions of a computation, in order."""

    name: str
    instructions: Mapping[str, Instruction]

    @functools.cached_property
    def root(self) -> Instruction:
        """What the computation returns."""
        return next(one for one in self.instructions.values() if one.is_root)

    @functools.cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """Parameters by number."""
        found = [one for one in self.instructions.values() if one.opcode == "parameter"]
        return tuple(sorted(found, key=lambda one: int(one.literal)))

    @functools.cached_property
    def users(self) -> Mapping[str, tuple[Instruction, ...]]:
        """Who reads each instruction."""
        users: dict[str, list[Instruction]] = {}
        for one in self.instructions.values():
            for operand in dict.fromkeys(one.operands):
                users.setdefault(operand, []).append(one)
        return {name: tuple(found) for name, found in users.items()}

    def resolve(self, name: str) -> Instruction:
        """The instruction behind copies and bitcasts."""
        one = self.instructions[name]
        while one.opcode in ("bitcast", "copy", "convert", "reshape") and one.operands:
            one = self.instructions[one.operands[0]]
        return one


@dataclasses.dataclass(frozen=True)
class Module:
    """A compiled program of one device."""

    computations: Mapping[str, Computation]
    entry: str
    partitions: int  # devices that run it: those of one slice where there are several


@functools.lru_cache(maxsize=65536)
def parse_type(text: str) -> tuple[Array, ...]:
    """The arrays in a type, those of nested tuples in order."""
    return tuple(_parse_array(*found) for found in _ARRAY.findall(text))


def _parse_array(dtype: str, dimensions: str, layout: str) -> Array:
    shape = tuple(int(size.lstrip("<=")) for size in dimensions.split(",") if size)
    order, _, rest = layout.partition(":")
    space = _SPACE.search(rest)
    tile = _TILE.search(rest)
    bits = _count_bits(dtype)
    padded = math.prod(_pad(shape, order, tile[1])) if tile else math.prod(shape)
    return Array(
        dtype=dtype,
        shape=shape,
        space=int(space[1]) if space else DEVICE_MEMORY,
        size=math.ceil(math.prod(shape) * bits / 8),
        padded=math.ceil(padded * bits / 8),
    )


def _count_bits(dtype: str) -> int:
    if dtype in _BITS:
        return _BITS[dtype]
    digits = re.search(r"\d+", dtype)
    return int(digits[0]) if digits else 0


def _pad(shape: tuple[int, ...], order: str, tile: str) -> list[int]:
    """Sizes from the slowest dimension to the fastest, rounded up to whole tiles."""
    minor_to_major = [int(axis) for axis in order.split(",") if axis]
    sizes = [shape[axis] for axis in reversed(minor_to_major)] or [1]
    tiles = [int(size) for size in tile.split(",")]
    for place, size in enumerate(reversed(tiles[-len(sizes) :]), start=1):
        sizes[-place] = -(-sizes[-place] // size) * size
    return sizes


def parse_module(text: str) -> Module:
    """Reads a program's text.

    Raises:
      ValueError: the text has no entry computation.
    """
    computations: dict[str, Computation] = {}
    entry, name, lines = "", "", {}
    for line in text.splitlines():
        if line.startswith("  "):
            one = _parse_instruction(line)
            if one is not None:
                lines[one.name] = one
        elif line.endswith("{") and "->" in line:
            found = _NAME.search(line)
            name = found[1] if found else line.split()[0]
            lines = {}
            if line.startswith("ENTRY"):
                entry = name
        elif line.startswith("}") and name:
            computations[name] = Computation(name, lines)
            name = ""
    if not entry:
        raise ValueError(
            f"the text of a compiled program has an ENTRY; this one begins {text[:80]!r}"
        )
    partitions = _PARTITIONS.search(text.partition("\n")[0])
    return Module(computations, entry, int(partitions[1]) if partitions else 1)


def _parse_instruction(line: str) -> Instruction | None:
    left, equals, right = line.partition(" = ")
    if not equals:
        return None
    left = left.strip()
    is_root = left.startswith("ROOT ")
    type_end = _end_of_type(right)
    opcode, _, _ = right[type_end:].partition("(")
    start = type_end + len(opcode) + 1
    end = _matching_bracket(right, start)
    literal = right[start:end]
    return Instruction(
        name=left.removeprefix("ROOT ").lstrip("%"),
        type=_COMMENT.sub("", right[:type_end]).strip(),
        opcode=opcode.strip(),
        operands=tuple(_NAME.findall(literal)),
        literal=literal if len(literal) < 32 else "",
        attributes=right[end + 1 :],
        is_root=is_root,
    )


def _end_of_type(text: str) -> int:
    """Where the type at the start of a line's right side ends."""
    return _matching_bracket(text, 1) + 1 if text.startswith("(") else text.index(" ")


_BRACKET = re.compile(r"[()]")


def _matching_bracket(text: str, start: int) -> int:
    """The bracket that closes one opened just before `start`."""
    depth = 1
    for found in _BRACKET.finditer(text, start):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.start()
    return len(text)
