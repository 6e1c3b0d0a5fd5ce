"""Regular expressions: one that finds the answer, and one that a whole response has to match.

A pattern can take exponential time; the limit of the pool that it runs in is what bounds it.
"""

import dataclasses
import re

from jax_rl.rewards.answers import require_answer
from jax_rl.rewards.base import Problem, Response


@dataclasses.dataclass(frozen=True)
class Regex:
    """1 if the pattern's first group, where it matches last, equals the answer as text; else 0.

    White space around either is left aside. Raises ValueError: the problem has no answer.
    """

    pattern: str
    """Searched in the response; has at least one group."""

    def __call__(self, problem: Problem, response: Response) -> float:
        answer = str(require_answer(problem)).strip()
        found = None
        for match in re.finditer(self.pattern, response.text):
            found = match[1]
        return float(found is not None and found.strip() == answer)


@dataclasses.dataclass(frozen=True)
class Format:
    """1 if the whole response matches the pattern, in which a dot is any character; else 0."""

    pattern: str

    def __call__(self, problem: Problem, response: Response) -> float:
        return float(re.fullmatch(self.pattern, response.text, re.DOTALL) is not None)
