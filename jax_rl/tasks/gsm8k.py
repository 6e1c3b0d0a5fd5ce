"""GSM8K: grade-school word problems, in the format that the data set is published in.

Cobbe et al. 2021, "Training verifiers to solve math word problems".
"""

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem
from jax_rl.rewards.numeric import read_number, score_numeric
from jax_rl.tasks.columns import read_text
from jax_rl.tasks.problems import (
    COLUMN_FIELDS,
    ProblemBuilder,
    Rows,
    load_rows,
    make_problem,
    plan_prompt,
)
from jax_rl.tasks.rows import Row

_MARK = "####"
_ENDING = (
    "\n\nThink it through step by step. Then write the final answer, a number, on a last line of"
    f" the form: {_MARK} number"
)


def load_gsm8k(config: TaskConfig) -> Rows:
    """Columns "question" and "answer"; the answer is the number after the last ####.

    The reward is 1 for a response that ends with that number.

    Raises:
      UserError: a file or a row that cannot be used.
    """
    return load_rows(
        config,
        _plan,
        name="gsm8k",
        used=COLUMN_FIELDS,
        quick_reward=True,
        find_reward=lambda problems: score_numeric,
    )


def _plan(config: TaskConfig, first: Row) -> ProblemBuilder:
    read = plan_prompt(config, first, columns=("question",), ending=_ENDING)
    column = config.answer_column or "answer"

    def build(row: Row) -> Problem:
        text = read_text(row.values, column, field="task.answer_column", place=row.place)
        return make_problem(row, read(row), _find_number(text, row.place))

    return build


def _find_number(text: str, place: str) -> str:
    _, mark, number = text.rpartition(_MARK)
    if not mark or read_number(number) is None:
        raise UserError(
            f"{place}: answers of gsm8k end with {_MARK} and a number; this one ends with"
            f" {text[-40:]!r}. Plain answers are for task.name = 'dataset'"
        )
    return number.strip()
