"""What compiling gave, for each program of a point: costs, or why there are none."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jax_rl.costs.collectives import Collective
from jax_rl.costs.program import ProgramCosts
from jax_rl.plan.jobs import Job, Recipe
from jax_rl.plan.pool import Answer


@dataclasses.dataclass(frozen=True)
class Obstacle:
    """Why a program has no costs."""

    text: str
    too_large: bool  # for the compiler's own account of the device's memory
    needs: int | None = None  # bytes, where the compiler tells
    has: int | None = None

    @property
    def summary(self) -> str:
        """In few words."""
        if not self.too_large:
            return self.text
        if self.needs is None or self.has is None:
            return f"does not fit: {self.text}"
        return f"does not fit: needs {self.needs / 2**30:.2f} of {self.has / 2**30:.2f} GiB"


Result = ProgramCosts | Obstacle


def read_result(recipe: Recipe, answers: Mapping[Job, Answer]) -> Result:
    """Costs of a program, put together from what was compiled.

    Args:
      recipe: of the program.
      answers: of the workers.
    """
    parts: list[tuple[float, ProgramCosts]] = []
    for part in recipe:
        answer = answers[part.job]
        obstacle = _find_obstacle(answer)
        if obstacle is not None:
            # What another number of layers or rows needs is not what this program needs.
            own = len(recipe) == 1 and not part.turned
            return obstacle if own else Obstacle(obstacle.text, obstacle.too_large)
        fixed, turned = (ProgramCosts.from_dict(answer[key]) for key in ("fixed", "turned"))
        if fixed.unread:
            return Obstacle(f"its compiled text was not understood: {fixed.unread}", False)
        parts += [(part.weight * (1 - part.trips), fixed), (part.weight * part.trips, turned)]
    return add_weighted(parts)


def add_weighted(parts: Sequence[tuple[float, ProgramCosts]]) -> ProgramCosts:
    """A weighted sum of costs; collectives of the same kind, axes and group are one.

    Nothing is below 0: a straight line through two points may be, where both are almost 0.
    """

    def add(name: str) -> float:
        return max(sum(weight * getattr(costs, name) for weight, costs in parts), 0.0)

    found: dict[tuple[Any, ...], list[float]] = {}
    for weight, costs in parts:
        for one in costs.collectives:
            sums = found.setdefault((one.kind, one.axes, one.group), [0.0, 0.0])
            sums[0] += weight * one.count
            sums[1] += weight * one.bytes
    collectives = tuple(
        Collective(kind=kind, axes=axes, count=count, bytes=size, group=group)
        for (kind, axes, group), (count, size) in found.items()
        if size > 0
    )
    return ProgramCosts(
        flops=add("flops"),
        matmul_flops=add("matmul_flops"),
        bytes=add("bytes"),
        collectives=collectives,
        arguments=round(add("arguments")),
        outputs=round(add("outputs")),
        temporaries=round(add("temporaries")),
        aliased=round(add("aliased")),
        code=round(add("code")),
    )


def _find_obstacle(answer: Answer) -> Obstacle | None:
    if "too_large" in answer:
        return Obstacle(answer["too_large"], True, answer.get("needs"), answer.get("has"))
    trouble = answer.get("refused") or answer.get("failed")
    return Obstacle(trouble, False) if trouble else None
