"""Any file of prompts and answers."""

from collections.abc import Sequence

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem, Reward
from jax_rl.rewards.numeric import read_number, score_numeric
from jax_rl.tasks.columns import show
from jax_rl.tasks.problems import (
    COLUMN_FIELDS,
    ProblemBuilder,
    Rows,
    load_rows,
    make_problem,
    plan_prompt,
    read_answer,
)
from jax_rl.tasks.rows import Row

_ANSWER = "answer"


def load_dataset(config: TaskConfig) -> Rows:
    """A prompt column, "prompt" or "messages", or a template; and an answer column, "answer".

    The answer may be left out of all rows if the configured verifiers need none. Without
    verifiers, the number that a response ends with is compared with the answer.

    Raises:
      UserError: a file or a row that cannot be used.
    """
    return load_rows(
        config,
        _plan,
        name="dataset",
        used=COLUMN_FIELDS,
        quick_reward=True,
        find_reward=_compare_numbers,
    )


def _compare_numbers(problems: Sequence[Problem]) -> Reward:
    """The numeric verifier; refuses answers that it can compare no response with."""
    for problem in problems:
        if problem.answer is None:
            raise UserError(
                f"{problem.place}: no column {_ANSWER!r} to compare responses with; name one"
                " (task.answer_column), or verifiers that need no answer (reward.verifiers)"
            )
        if read_number(str(problem.answer)) is None:
            raise UserError(
                f"{problem.place}: the answer {show(problem.answer)} is not one number, and"
                " numbers are compared if reward.verifiers is empty; name a verifier for such"
                " answers, such as exact or math"
            )
    return score_numeric


def _plan(config: TaskConfig, first: Row) -> ProblemBuilder:
    read = plan_prompt(config, first, columns=("prompt", "messages"))
    column = config.answer_column or (_ANSWER if _ANSWER in first.values else "")

    def build(row: Row) -> Problem:
        return make_problem(row, read(row), read_answer(row, column) if column else None)

    return build
