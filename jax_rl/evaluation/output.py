"""The file of an evaluation: a JSON line per prompt, with its responses and their rewards."""

import json
from pathlib import Path

import numpy as np

from jax_rl.errors import UserError
from jax_rl.evaluation.respond import Answers
from jax_rl.rewards.base import Problem


def prepare_output(path: Path) -> None:
    """Makes the file's directory, and sees that the file can be written before work is done.

    Raises:
      UserError: it cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        raise UserError(f"output = {path}: cannot be written: {error.strerror}") from error


def write_output(
    path: Path, answers: Answers, correct: np.ndarray, problems: tuple[Problem, ...]
) -> None:
    """Writes a line per prompt: place, prompt, answer and responses.

    A response has its text, its tokens, whether it ended, its reward, and whether it counts as
    correct; the last two are null where the reward failed.

    Args:
      path: written anew.
      answers: k responses to each of n problems.
      correct: [n k] bool.
      problems: n of them.
    """
    k = len(answers.responses) // len(problems)
    with path.open("w", encoding="utf-8") as file:
        for number, problem in enumerate(problems):
            rows = range(number * k, (number + 1) * k)
            line = {
                "place": problem.place,
                "prompt": problem.prompt,
                "answer": problem.answer,
                "responses": [_list_response(answers, correct, row) for row in rows],
            }
            # An answer may be of any type that a task of one's own gives it.
            file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")


def _list_response(answers: Answers, correct: np.ndarray, row: int) -> dict[str, object]:
    response, valid = answers.responses[row], bool(answers.scores.valid[row])
    return {
        "text": response.text,
        "tokens": response.tokens,
        "ended": response.ended,
        "reward": float(answers.scores.rewards[row]) if valid else None,
        "correct": bool(correct[row]) if valid else None,
    }
