"""Addition: "47+85=" asks for "132"."""

import re

import numpy as np

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.verify import is_integer
from jax_rl.tasks.tokenizer import CharTokenizer

# 10**18 is the largest power of ten that a 64-bit draw can reach.
_MOST_DIGITS = 18
_PROMPT = re.compile(r"(\d+)\+(\d+)=", re.ASCII)


class Addition:
    """Two summands, each uniform over 0 .. 10^difficulty - 1, written without padding.

    A short summand makes a short prompt. The order of the summands does not make another
    content, so that no sum of the validation set is trained on in reverse.
    """

    name = "addition"

    def __init__(self, config: TaskConfig):
        if not 1 <= config.difficulty <= _MOST_DIGITS:
            raise UserError(
                f"task.difficulty = {config.difficulty}: addition takes the digits of each"
                f" summand, 1 to {_MOST_DIGITS}"
            )
        self.tokenizer = CharTokenizer()
        self._limit = 10**config.difficulty
        self.prompt_space = self._limit * (self._limit + 1) // 2

    def draw_prompt(self, rng: np.random.Generator) -> str:
        """Two independent summands."""
        # Two scalar draws are half the cost of one draw of an array of two.
        return f"{rng.integers(self._limit)}+{rng.integers(self._limit)}="

    def solve(self, prompt: str, rng: np.random.Generator) -> str:
        """The sum; there is one, so `rng` stays unused."""
        return str(sum(_read_prompt(prompt)))

    def reward(self, prompt: str, response: str) -> float:
        """1 for the exact sum, leading zeros allowed, else 0."""
        return float(is_integer(response, sum(_read_prompt(prompt))))

    def content(self, prompt: str) -> str:
        """The summands in ascending order."""
        smaller, larger = sorted(_read_prompt(prompt))
        return f"{smaller}+{larger}"


def _read_prompt(prompt: str) -> tuple[int, int]:
    match = _PROMPT.fullmatch(prompt)
    if match is None:
        raise UserError(f"{prompt!r} is not a prompt of addition, which are like '47+85='")
    return int(match[1]), int(match[2])
