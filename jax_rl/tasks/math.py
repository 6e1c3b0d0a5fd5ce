r"""MATH-style problems, whose solutions end in \boxed{answer}.

Hendrycks et al. 2021, "Measuring mathematical problem solving with the MATH dataset".
"""

from collections.abc import Sequence

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.answers import find_boxed
from jax_rl.rewards.base import Problem, Reward
from jax_rl.tasks.columns import choose_column
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

_SOLUTION = "solution"
_ENDING = "\n\nThink it through step by step, and put the final answer in \\boxed{}."


def load_math(config: TaskConfig) -> Rows:
    r"""Columns "problem" and "answer" or "solution"; of an answer with \boxed{}, what is inside.

    Raises:
      UserError: a file or a row that cannot be used.
    """
    return load_rows(
        config,
        _plan,
        name="math",
        used=COLUMN_FIELDS,
        quick_reward=False,
        find_reward=_find_reward,
    )


def _find_reward(problems: Sequence[Problem]) -> Reward:
    try:
        from jax_rl.rewards.math_answer import score_math
    except ImportError as error:
        raise UserError(
            f"task.name = 'math' compares answers with the package math-verify ({error}); run"
            " pip install 'jax-rl[math]', or reward.verifiers = [\"numeric\"] compares numbers"
            " without it"
        ) from error
    return score_math


def _plan(config: TaskConfig, first: Row) -> ProblemBuilder:
    read = plan_prompt(config, first, columns=("problem",), ending=_ENDING)
    column = config.answer_column or choose_column(first.values, ("answer", _SOLUTION))

    def build(row: Row) -> Problem:
        text = str(read_answer(row, column))
        boxed = find_boxed(text)
        # A whole solution is no answer; what another column has is taken as it is.
        if boxed is None and column == _SOLUTION:
            raise UserError(
                f"{row.place}: no \\boxed{{}} with an answer in column {column!r}, which ends with"
                f" {text[-40:]!r}; task.answer_column names a column of plain answers"
            )
        return make_problem(row, read(row), text.strip() if boxed is None else boxed)

    return build
