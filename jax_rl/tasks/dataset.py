"""Any file of prompts and answers."""

from collections.abc import Sequence

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem, Reward
from jax_rl.rewards.numeric import read_number, score_numeric
from jax_rl.tasks.columns import show
from jax_rl.tasks.fields import refuse_unused
from jax_rl.tasks.problems import (
    FILE_FIELDS,
    ProblemBuilder,
    Rows,
    make_problem,
    plan_prompt,
    read_answer,
    read_problems,
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
    refuse_unused(config, (*FILE_FIELDS, "prompt_column", "answer_column", "template"))
    training, held_out, notes = read_problems(config, lambda first: _plan(config, first))

    def find_reward() -> Reward:
        _check_numbers((*training, *held_out))
        return score_numeric

    return Rows(
        name="dataset",
        training=training,
        held_out=held_out,
        quick_reward=True,
        find_reward=find_reward,
        notes=notes,
    )


def _check_numbers(problems: Sequence[Problem]) -> None:
    """Refuses answers that no response can be compared with as numbers."""
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


def _plan(config: TaskConfig, first: Row) -> ProblemBuilder:
    read = plan_prompt(config, first, columns=("prompt", "messages"))
    column = config.answer_column or (_ANSWER if _ANSWER in first.values else "")

    def build(row: Row) -> Problem:
        return make_problem(row, read(row), read_answer(row, column) if column else None)

    return build
