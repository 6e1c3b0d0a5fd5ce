"""What a fused computation looks at of its operands, and what it writes of its results."""

from jax_rl.costs.collectives import KINDS
from jax_rl.costs.hlo import Array, Computation, Instruction, Module

SLICES = ("slice", "dynamic-slice", "gather")
"""Operations that read of their first operand what they return."""


class Fusions:
    """Counts bytes of fused computations, which call each other; each value is counted once."""

    def __init__(self, module: Module):
        self._module = module
        self._reads: dict[tuple[str, str], int] = {}

    def find(self, fusion: Instruction) -> Computation:
        """The computation of a fusion."""
        return self._module.computations[fusion.find("calls") or ""]

    def count_reads(self, inside: Computation, value: Instruction) -> int:
        """Bytes that are looked at of a parameter, or of another value, of a computation."""
        key = (inside.name, value.name)
        if key not in self._reads:
            whole = count_padded(value)
            users = inside.users.get(value.name, ())
            self._reads[key] = min(
                whole, sum(self._count_reads_by(inside, value, user) for user in users)
            )
        return self._reads[key]

    def _count_reads_by(self, inside: Computation, value: Instruction, user: Instruction) -> int:
        is_first = user.operands[0] == value.name
        if user.opcode in SLICES and is_first:
            return count_padded(user)
        if user.opcode == "dynamic-update-slice" and is_first and self._is_result(inside, user):
            return 0
        if user.opcode == "tuple":
            return 0
        if user.opcode == "bitcast" or self._is_renaming(user):
            return self.count_reads(inside, user)
        if user.opcode == "fusion":
            nested = self.find(user)
            pairs = zip(user.operands, nested.parameters, strict=True)
            return sum(self.count_reads(nested, p) for name, p in pairs if name == value.name)
        return count_padded(value)

    def count_written(self, inside: Computation, root: Instruction, array: Array) -> int:
        """Bytes that are written of one result, of which `root` says what it is made of.

        What is updated in place is written as far as it changes; an operand that is handed on is
        not written.
        """
        root, updates = self._find_source(inside, root), 0
        while root.opcode == "dynamic-update-slice":
            updates += count_padded(inside.instructions[root.operands[1]])
            root = self._find_source(inside, inside.instructions[root.operands[0]])
        if root.opcode == "parameter":
            return updates
        if root.opcode == "fusion":
            nested = self.find(root)
            return self.count_written(nested, nested.root, array)
        return array.padded

    def _find_source(self, inside: Computation, value: Instruction) -> Instruction:
        while value.opcode == "bitcast" or self._is_renaming(value):
            value = inside.instructions[value.operands[0]]
        return value

    def _is_renaming(self, one: Instruction) -> bool:
        """Whether a nested fusion of one operand only sees the same memory as another type."""
        if one.opcode != "fusion" or len(one.operands) != 1:
            return False
        nested = self.find(one)
        source = nested.resolve(nested.root.name)
        return source.opcode == "parameter" and source.arrays[0].dtype == one.arrays[0].dtype

    def _is_result(self, inside: Computation, one: Instruction) -> bool:
        """Whether an updated value is only handed out, or updated again."""
        return all(
            user.opcode == "tuple"
            or (
                user.opcode in ("bitcast", "dynamic-update-slice")
                and user.operands[0] == one.name
                and self._is_result(inside, user)
            )
            for user in inside.users.get(one.name, ())
        )


def is_exchanged(inside: Computation, value: Instruction) -> bool:
    """Whether a value is only sent to other devices."""
    users = inside.users.get(value.name, ())
    return bool(users) and all(user.opcode in (*KINDS, "tuple") for user in users)


def count_padded(one: Instruction) -> int:
    """Bytes that a value takes up, in whichever memory."""
    return sum(array.padded for array in one.arrays)
