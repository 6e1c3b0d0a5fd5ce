"""Rows of data sets to problems: validated, without duplicates, none in both sets."""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem, Reward
from jax_rl.tasks.columns import choose_column, find_content, find_value, is_blank, read_prompt
from jax_rl.tasks.columns import read_text as read_text_column
from jax_rl.tasks.fields import refuse_unused
from jax_rl.tasks.rows import Row, read_rows
from jax_rl.tasks.template import parse_template
from jax_rl.text.base import Message

FILE_FIELDS = ("train", "validation", "duplicates", "long_prompts")
"""Fields of the configuration that `read_problems` and `jax_rl.tasks.prompts.drop_long` use."""
COLUMN_FIELDS = ("prompt_column", "answer_column", "template")
"""Fields that say what a row's prompt and answer are."""

PromptReader = Callable[[Row], str | tuple[Message, ...]]
ProblemBuilder = Callable[[Row], Problem]


@dataclasses.dataclass(frozen=True)
class Rows:
    """A `RowsTask` of problems that have been read."""

    name: str
    training: tuple[Problem, ...]
    held_out: tuple[Problem, ...]
    quick_reward: bool
    find_reward: Callable[[], Reward]
    """Gives the reward; may raise, which is no matter where other verifiers are configured."""
    notes: tuple[str, ...] = ()

    @property
    def reward(self) -> Reward:
        """Scores a response.

        Raises:
          UserError: it needs a package that is not there, or answers that the rows do not have.
        """
        return self.find_reward()


def load_rows(
    config: TaskConfig,
    plan: Callable[[TaskConfig, Row], ProblemBuilder],
    *,
    name: str,
    used: Collection[str],
    quick_reward: bool,
    find_reward: Callable[[Sequence[Problem]], Reward],
    why: str = "",
) -> Rows:
    """The task of the files that the configuration names.

    Args:
      config: names the files; fields that are not of files are refused unless they are `used`.
      plan: from the configuration and the first row of a file to what makes its problems.
      name: of the task.
      used: fields of the configuration that the task uses besides the files'.
      quick_reward: as `jax_rl.tasks.base.Task` has it.
      find_reward: gives the reward for these rows; may raise, as that of `Rows`.
      why: as for `refuse_unused`.

    Raises:
      UserError: a file or a row that cannot be used, or a field that is not used.
    """
    refuse_unused(config, (*FILE_FIELDS, *used), why=why)
    training, held_out, notes = read_problems(config, lambda first: plan(config, first))
    return Rows(
        name=name,
        training=training,
        held_out=held_out,
        quick_reward=quick_reward,
        find_reward=lambda: find_reward((*training, *held_out)),
        notes=notes,
    )


def read_problems(
    config: TaskConfig, plan: Callable[[Row], ProblemBuilder]
) -> tuple[tuple[Problem, ...], tuple[Problem, ...], tuple[str, ...]]:
    """Training problems, held-out problems, and notes of what was left out.

    A training row that asks for what an earlier one asked for is treated as `config.duplicates`
    says. One that asks for what a held-out row asks for is left out whatever the policy.

    Args:
      config: names the files.
      plan: from the first row of a file to what makes a problem of each of its rows.

    Raises:
      UserError: no file is named, a file or a row cannot be used, or no training row is left.
    """
    if not config.train and not config.validation:
        raise UserError(
            f"task.train has to name the file of training rows of task {config.name!r}"
            " (.jsonl, .json, .csv or .parquet), or task.validation that of the held-out rows if"
            " nothing is to be trained"
        )
    training = _build(config.train, "task.train", plan) if config.train else []
    held_out: list[Problem] = []
    notes: list[str] = []
    if config.validation:
        held_out = _build(config.validation, "task.validation", plan)
        held_out = _drop_duplicates(held_out, "task.validation", notes)
    if config.duplicates == "refuse":
        _refuse_duplicates(training)
    elif config.duplicates == "drop":
        training = _drop_duplicates(training, "task.train", notes)
    places = {problem.content: problem.place for problem in held_out}
    shared = [problem for problem in training if problem.content in places]
    if shared:
        training = [problem for problem in training if problem.content not in places]
        notes.append(
            "task.train: rows left out that ask for what a row of task.validation asks for:"
            f" {len(shared)}; the first is {shared[0].place}, as {places[shared[0].content]}"
        )
    if config.train and not training:
        raise UserError(
            f"task.train = {config.train!r}: every row is also in task.validation ="
            f" {config.validation!r}, so none is left to train on"
        )
    return tuple(training), tuple(held_out), tuple(notes)


def plan_prompt(
    config: TaskConfig, first: Row, *, columns: Sequence[str], ending: str = ""
) -> PromptReader:
    """What makes the prompt of a row: `config.template`, or a column.

    Args:
      config: its template goes before its prompt_column, which goes before `columns`.
      first: a row of the file, in which the column is looked for.
      columns: the task's own columns; the first that is there.
      ending: what the task says after the column's text; with one, the column has to be text.

    Raises:
      UserError: a template that cannot be used, or a template and a prompt_column.
    """
    if config.template:
        if config.prompt_column:
            raise UserError(
                f"task.prompt_column = {config.prompt_column!r} is not used with task.template,"
                " which names its own columns; leave one of them out"
            )
        template = parse_template(config.template)
        return lambda row: template.render(row.values, place=row.place)
    column = config.prompt_column or choose_column(first.values, columns)
    where = "task.prompt_column"
    if not ending:
        return lambda row: read_prompt(row.values, column, field=where, place=row.place)
    return lambda row: (
        read_text_column(row.values, column, field=where, place=row.place).strip() + ending
    )


def read_answer(row: Row, column: str) -> Any:
    """The answer of a row, as the file has it.

    Raises:
      UserError: no such column, null, or a blank text.
    """
    value = find_value(row.values, column, field="task.answer_column", place=row.place)
    if is_blank(value):
        raise UserError(
            f"{row.place}: column {column!r} (task.answer_column) is empty: {value!r}; each row"
            " needs an answer"
        )
    return value


def make_problem(row: Row, prompt: str | tuple[Message, ...], answer: Any) -> Problem:
    """The problem of a row, its content found from its prompt."""
    return Problem(prompt=prompt, content=find_content(prompt), answer=answer, place=row.place)


def _build(path: str, field: str, plan: Callable[[Row], ProblemBuilder]) -> list[Problem]:
    rows = read_rows(path, field=field)
    build = plan(rows[0])
    return [build(row) for row in rows]


def _drop_duplicates(problems: list[Problem], field: str, notes: list[str]) -> list[Problem]:
    """The first problem of each content; a note says what was left out, if anything was."""
    kept: dict[str, Problem] = {}
    dropped = []
    for problem in problems:
        if problem is not kept.setdefault(problem.content, problem):
            dropped.append(problem)
    if dropped:
        first = dropped[0]
        differing = sum(problem.answer != kept[problem.content].answer for problem in dropped)
        notes.append(
            f"{field}: rows left out that ask for what an earlier row asks for: {len(dropped)},"
            f" with another answer: {differing}; the first is {first.place}, as"
            f" {kept[first.content].place}"
        )
    return list(kept.values())


def _refuse_duplicates(problems: list[Problem]) -> None:
    seen: dict[str, Problem] = {}
    for problem in problems:
        earlier = seen.setdefault(problem.content, problem)
        if earlier is not problem:
            raise UserError(
                f"{problem.place} asks for what {earlier.place} asks for; remove one of them, or"
                " task.duplicates = 'drop' or 'keep'"
            )
