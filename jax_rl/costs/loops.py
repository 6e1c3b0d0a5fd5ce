"""How often the loops of a compiled program run, as far as its text says so."""

import dataclasses
import re
from collections.abc import Sequence

from jax_rl.costs.hlo import Computation, Instruction, Module

_KNOWN = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_DIRECTION = re.compile(r"direction=(\w+)")
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


@dataclasses.dataclass(frozen=True)
class _Linear:
    """An element of what a loop carries, or 0, plus a number."""

    element: int | None
    offset: int


def count_trips(module: Module, computation: Computation, loop: Instruction) -> int | None:
    """How often the body of a while loop runs, or None if only running it would tell.

    Backends that unroll or pipeline loops write the number down; else it follows from where the
    induction variable begins, what is added to it, and what it is compared with.

    Args:
      module: the program.
      computation: where the loop stands.
      loop: the loop.
    """
    known = _KNOWN.search(loop.attributes)
    if known:
        return int(known[1])
    condition = module.computations[loop.find("condition") or ""]
    body = module.computations[loop.find("body") or ""]
    compared = _find_comparison(module, condition)
    if compared is None:
        return None
    variable, direction, limit = compared
    first = _initial(module, computation, loop, variable.element)
    step = _element(module, body, variable.element)
    last = limit.offset
    if limit.element is not None:
        passed = _element(module, body, limit.element)
        start = _initial(module, computation, loop, limit.element)
        if passed != _Linear(limit.element, 0) or start is None:
            return None
        last += start
    if first is None or step is None or step.element != variable.element:
        return None
    return _divide(first + variable.offset, last, step.offset, direction)


def _divide(first: int, last: int, step: int, direction: str) -> int | None:
    """Steps from `first` on for which the comparison with `last` holds."""
    if direction in ("GT", "GE"):
        first, last, step = -first, -last, -step
    if step <= 0:
        return None
    if direction in ("LE", "GE"):
        last += 1
    return max(0, -(-(last - first) // step))


def _find_comparison(module: Module, condition: Computation) -> tuple[_Linear, str, _Linear] | None:
    """The induction variable, how it is compared, and with what."""
    root, inside, arguments = condition.root, condition, None
    if root.opcode == "fusion":
        arguments = [_trace(module, condition, name, None) for name in root.operands]
        inside = module.computations[root.find("calls") or ""]
        root = inside.root
    direction = _DIRECTION.search(root.attributes)
    if root.opcode != "compare" or direction is None or direction[1] not in _MIRRORED:
        return None
    left, right = (_trace(module, inside, name, arguments) for name in root.operands)
    if left is None or right is None:
        return None
    # A limit that is carried along is told from the variable by being the second of the two.
    if left.element is None:
        return (right, _MIRRORED[direction[1]], left) if right.element is not None else None
    return left, direction[1], right


def _initial(
    module: Module, computation: Computation, loop: Instruction, element: int | None
) -> int | None:
    """The number that an element of what a loop carries begins with."""
    carried = computation.instructions[loop.operands[0]]
    if element is None or carried.opcode != "tuple":
        return None
    found = _trace(module, computation, carried.operands[element], None)
    return found.offset if found is not None and found.element is None else None


def _element(module: Module, body: Computation, element: int | None) -> _Linear | None:
    """What the body of a loop hands on as this element."""
    if element is None or body.root.opcode != "tuple":
        return None
    return _trace(module, body, body.root.operands[element], None)


def _trace(
    module: Module,
    computation: Computation,
    name: str,
    arguments: Sequence[_Linear | None] | None,
) -> _Linear | None:
    """What a scalar is made of; `arguments` are those of the computation if it is fused."""
    one = computation.resolve(name)
    if one.opcode == "constant" and re.fullmatch(r"-?\d+", one.literal):
        return _Linear(None, int(one.literal))
    if one.opcode == "parameter" and arguments is not None:
        return arguments[int(one.literal)]
    if one.opcode == "get-tuple-element":
        if computation.instructions[one.operands[0]].opcode != "parameter":
            return None
        return _Linear(int(one.attributes.partition("index=")[2].partition(",")[0]), 0)
    if one.opcode not in ("fusion", "add", "subtract") or not _is_counter(one):
        return None
    parts = [_trace(module, computation, operand, arguments) for operand in one.operands]
    if one.opcode == "fusion":
        inside = module.computations[one.find("calls") or ""]
        return _trace(module, inside, inside.root.name, parts)
    return _combine(parts[0], parts[1], -1 if one.opcode == "subtract" else 1)


def _is_counter(one: Instruction) -> bool:
    return len(one.arrays) == 1 and one.arrays[0].shape == () and one.arrays[0].dtype[0] in "su"


def _combine(left: _Linear | None, right: _Linear | None, sign: int) -> _Linear | None:
    if left is None or right is None:
        return None
    if right.element is not None and (left.element is not None or sign < 0):
        return None
    element = left.element if left.element is not None else right.element
    return _Linear(element, left.offset + sign * right.offset)
