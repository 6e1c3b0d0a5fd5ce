"""Addition: "47+85=" asks for "132"."""

import numpy as np

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem, Response
from jax_rl.rewards.verify import is_integer
from jax_rl.tasks.fields import refuse_unused

# 10**18 is the largest power of ten that a 64-bit draw can reach.
_MOST_DIGITS = 18


def score_sum(problem: Problem, response: Response) -> float:
    """1 for the exact sum, leading zeros allowed, else 0."""
    return float(is_integer(response.text, problem.answer))


class Addition:
    """Two summands, each uniform over 0 .. 10^difficulty - 1, written without padding.

    A short summand makes a short prompt. The order of the summands does not make another
    content, so that no sum of the validation set is trained on in reverse.

    Raises:
      UserError: a difficulty out of range, or a field that the task does not use.
    """

    name = "addition"
    quick_reward = True
    reward = staticmethod(score_sum)

    def __init__(self, config: TaskConfig):
        refuse_unused(config, ("difficulty",))
        if not 1 <= config.difficulty <= _MOST_DIGITS:
            raise UserError(
                f"task.difficulty = {config.difficulty}: addition takes the digits of each"
                f" summand, 1 to {_MOST_DIGITS}"
            )
        self._limit = 10**config.difficulty
        self.prompt_space = self._limit * (self._limit + 1) // 2

    def draw(self, rng: np.random.Generator) -> Problem:
        """Two independent summands."""
        # Two scalar draws are half the cost of one draw of an array of two.
        a, b = int(rng.integers(self._limit)), int(rng.integers(self._limit))
        content = f"{a}+{b}" if a <= b else f"{b}+{a}"
        return Problem(prompt=f"{a}+{b}=", content=content, answer=a + b)

    def solve(self, problem: Problem, rng: np.random.Generator) -> str:
        """The sum; there is one, so `rng` stays unused."""
        return str(problem.answer)
