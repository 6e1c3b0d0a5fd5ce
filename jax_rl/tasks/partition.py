"""Partition: "137/3!5:" asks for 137 as a sum of 3 different two-digit numbers without a 5."""

import functools

import numpy as np

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem, Response
from jax_rl.rewards.verify import is_distinct_sum
from jax_rl.tasks.fields import refuse_unused

_FEWEST, _MOST = 2, 4  # parts of a sum
_MOST_DIGITS = 3


def score_partition(problem: Problem, response: Response) -> float:
    """1 for different allowed numbers, as many as asked for, with the asked sum; else 0."""
    return float(is_distinct_sum(response.text, **problem.answer))


class Partition:
    """Many responses are right, "98+27+12" as well as "12+98+27"; a property is checked.

    `config.difficulty` is the digits of each part, which does not begin with 0. How many
    parts and which digit is forbidden are uniform; the total is that of parts drawn uniformly,
    so every prompt has an answer.

    Raises:
      UserError: a difficulty out of range, or a field that the task does not use.
    """

    name = "partition"
    quick_reward = True
    reward = staticmethod(score_partition)

    def __init__(self, config: TaskConfig):
        refuse_unused(config, ("difficulty",))
        if not 1 <= config.difficulty <= _MOST_DIGITS:
            raise UserError(
                f"task.difficulty = {config.difficulty}: partition takes the digits of each"
                f" part, 1 to {_MOST_DIGITS}"
            )
        self._digits = config.difficulty
        numbers = range(10 ** (self._digits - 1), 10**self._digits)
        # _allowed[f]: the numbers that parts may be when f is the forbidden digit, ascending.
        self._allowed = tuple(
            tuple(n for n in numbers if str(forbidden) not in str(n)) for forbidden in range(10)
        )

    @functools.cached_property
    def prompt_space(self) -> int:
        """Totals that can be reached, over all numbers of parts and forbidden digits."""
        return sum(_count_totals(numbers) for numbers in self._allowed)

    def draw(self, rng: np.random.Generator) -> Problem:
        """The total of randomly drawn parts."""
        extra, forbidden = divmod(int(rng.integers((_MOST - _FEWEST + 1) * 10)), 10)
        numbers = self._allowed[forbidden]
        parts: set[int] = set()
        while len(parts) < _FEWEST + extra:
            parts.add(numbers[rng.integers(len(numbers))])
        return self.ask(sum(parts), parts=len(parts), forbidden=forbidden)

    def ask(self, total: int, *, parts: int, forbidden: int) -> Problem:
        """The problem of `total` as a sum of `parts` numbers without the digit `forbidden`."""
        content = f"{total}/{parts}!{forbidden}"
        answer = {
            "total": total,
            "parts": parts,
            "digits": self._digits,
            "forbidden": str(forbidden),
        }
        return Problem(prompt=f"{content}:", content=content, answer=answer)

    def solve(self, problem: Problem, rng: np.random.Generator) -> str:
        """One of the right responses; every one of them can come up.

        Raises:
          UserError: the problem has no solution.
        """
        asked = problem.answer
        numbers = self._allowed[int(asked["forbidden"])]
        parts = _find_parts(numbers, asked["total"], asked["parts"], (), rng)
        if parts is None:
            raise UserError(
                f"{problem.prompt!r} has no solution in numbers of task.difficulty ="
                f" {self._digits} digits"
            )
        return "+".join(map(str, parts))


def _find_parts(
    numbers: tuple[int, ...],
    total: int,
    count: int,
    taken: tuple[int, ...],
    rng: np.random.Generator,
) -> tuple[int, ...] | None:
    """`taken` and `count` more of `numbers`, all different, the new ones adding up to `total`."""
    if count == 1:
        return (*taken, total) if total in numbers and total not in taken else None
    others = count - 1
    least, most = sum(numbers[:others]), sum(numbers[-others:])
    start = int(rng.integers(len(numbers)))
    for part in numbers[start:] + numbers[:start]:
        if part not in taken and least <= total - part <= most:
            found = _find_parts(numbers, total - part, others, (*taken, part), rng)
            if found is not None:
                return found
    return None


def _count_totals(numbers: tuple[int, ...]) -> int:
    """How many pairs (total, count) have a sum of `count` different `numbers`."""
    # Bit s of reached[c] is set where s is the sum of c of the numbers seen so far.
    reached = [1] + [0] * _MOST
    for number in numbers:
        for count in range(_MOST, 0, -1):
            reached[count] |= reached[count - 1] << number
    return sum(totals.bit_count() for totals in reached[_FEWEST:])
