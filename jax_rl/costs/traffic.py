"""Bytes that one instruction of a compiled program reads from and writes to device memory."""

from jax_rl.costs.collectives import KINDS
from jax_rl.costs.fusions import SLICES, Fusions, count_padded, is_exchanged
from jax_rl.costs.hlo import Array, Computation, Instruction, Module

_FREE_NAMES = """
    parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id
    opt-barrier add-dependency domain while conditional call async-start async-update
"""
_FREE = frozenset(_FREE_NAMES.split())
_NAMING = ("ConcatBitcast", "AllocateBuffer", "AssumeGatherIndicesInBound")
"""Custom calls that name memory and move nothing."""
_LIBRARIES = ("__cublas", "__cudnn")
"""Custom calls whose last result is their scratch space."""
_FLAGS = 2
"""The memory space of a TPU's synchronisation flags."""


class Traffic:
    """Counts the bytes of instructions.

    An instruction reads its operands and writes its result once. A slice or a gather reads what it
    takes; an update in place writes the update, and the rest stays where it is. What lies on the
    chip is neither read nor written. Of an asynchronous pair the first half moves everything.
    """

    def __init__(self, module: Module):
        self._fusions = Fusions(module)

    def count(self, computation: Computation, one: Instruction) -> int:
        """Bytes read and written by an instruction, without what it calls."""
        opcode = one.opcode
        if opcode in _FREE or opcode.endswith("-done"):
            return 0
        operands = [computation.instructions[name] for name in one.operands]
        if opcode == "fusion":
            return self._count_fusion(computation, one, operands)
        if opcode.endswith("-start"):
            return _count_start(one, operands)
        if opcode == "send":
            return _count_stored(operands[0])
        if opcode == "recv":
            return one.arrays[0].stored
        if opcode in SLICES:
            indices = sum(map(_count_read, operands[1:]))
            return _count_part(operands[0], one) + indices + _count_stored(one)
        if opcode == "dynamic-update-slice":
            return _count_stored(operands[1]) + _count_part(one, operands[1])
        if opcode == "scatter":
            # What is added to is read as well as written.
            return sum(map(_count_read, operands[1:])) + 2 * _count_part(one, operands[-1])
        return _count_plain(one, operands)

    def _count_fusion(
        self, computation: Computation, one: Instruction, operands: list[Instruction]
    ) -> int:
        inside = self._fusions.find(one)
        if "AsyncCollectiveStart" in inside.root.attributes:
            return _count_start(one, operands)
        if "AsyncCollectiveDone" in inside.root.attributes:
            return 0
        is_under_way = continues_exchange(computation, one)
        total = 0
        for operand, parameter in zip(operands, inside.parameters, strict=True):
            stored = _count_read(operand)
            if stored and not (is_under_way and is_exchanged(inside, parameter)):
                total += min(stored, self._fusions.count_reads(inside, parameter))
        for root, array in _pair_results(inside, one):
            if array.stored and not (is_under_way and root.opcode in KINDS):
                total += min(array.stored, self._fusions.count_written(inside, root, array))
        return total


def continues_exchange(computation: Computation, one: Instruction) -> bool:
    """Whether a fusion goes on with an exchange that another has started.

    A TPU computes while it sends: the exchange stands in the fusion that starts it, in those that
    run meanwhile, and in the one that waits for it; the later ones are handed its flags.
    """
    arrays = (a for name in one.operands for a in computation.instructions[name].arrays)
    return any(array.space == _FLAGS for array in arrays)


def _pair_results(inside: Computation, one: Instruction) -> list[tuple[Instruction, Array]]:
    """What each result of a fusion is made of."""
    roots = [inside.root] * len(one.arrays)
    if inside.root.opcode == "tuple":
        roots = [inside.instructions[name] for name in inside.root.operands]
    return list(zip(roots, one.arrays, strict=True))


def _count_start(one: Instruction, operands: list[Instruction]) -> int:
    """The first half of a pair, whose result holds the operands, the real result, and flags."""
    if one.opcode == "all-reduce-start":
        return _count_plain(one, operands)
    read = sum(map(_count_read, operands))
    if one.opcode == "copy-start":
        return read + one.arrays[0].stored
    written = one.arrays[len(operands) :]
    if one.opcode in ("slice-start", "dynamic-slice-start"):
        read = _count_part(operands[0], written[0])
        return read + written[0].stored
    return read + sum(array.stored for array in written)


def _count_plain(one: Instruction, operands: list[Instruction]) -> int:
    name = one.attributes
    if one.opcode == "custom-call" and any(known in name for known in _NAMING):
        return 0
    written = one.arrays
    if one.opcode == "custom-call" and any(known in name for known in _LIBRARIES):
        written = written[:-1] if len(written) > 1 else written
    different = {operand.name: operand for operand in operands}
    return sum(map(_count_read, different.values())) + sum(array.stored for array in written)


def _count_part(whole: Instruction, part: Instruction | Array) -> int:
    """Bytes of a part in the memory where the whole lies."""
    size = part.padded if isinstance(part, Array) else count_padded(part)
    return min(_count_stored(whole), size)


def _count_read(operand: Instruction) -> int:
    """Bytes of an operand in device memory; single constants stand in the program."""
    if operand.opcode == "constant" and operand.arrays[0].shape == ():
        return 0
    return _count_stored(operand)


def _count_stored(one: Instruction) -> int:
    return sum(array.stored for array in one.arrays)
