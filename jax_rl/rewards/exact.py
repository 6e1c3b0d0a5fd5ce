"""The response is the answer, character for character."""

from jax_rl.rewards.answers import require_answer
from jax_rl.rewards.base import Problem, Response


def score_exact(problem: Problem, response: Response) -> float:
    """1 if the response equals the answer as text, white space around either left aside; else 0.

    Raises:
      ValueError: the problem has no answer.
    """
    return float(response.text.strip() == str(require_answer(problem)).strip())
