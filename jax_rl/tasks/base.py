"""What a task is, and the table of the built-in ones."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeGuard

import numpy as np

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.registry import resolve
from jax_rl.rewards.base import Problem, Reward
from jax_rl.tasks.addition import Addition
from jax_rl.tasks.countdown import load_countdown
from jax_rl.tasks.dataset import load_dataset
from jax_rl.tasks.gsm8k import load_gsm8k
from jax_rl.tasks.math import load_math
from jax_rl.tasks.partition import Partition
from jax_rl.tasks.reasoning_gym import ReasoningGym


class Task(Protocol):
    """What is common to both kinds of task; one that is used is a `DrawnTask` or a `RowsTask`."""

    @property
    def name(self) -> str:
        """Name in messages and records."""

    @property
    def reward(self) -> Reward:
        """Scores a response where the configuration names no verifiers; can be pickled."""

    @property
    def quick_reward(self) -> bool:
        """Whether `reward` takes time linear in the response.

        It is then called in the trainer's own process, and otherwise in a pool of processes
        with a time limit.
        """


class DrawnTask(Task, Protocol):
    """Problems made up from random numbers; all randomness comes in as a generator."""

    @property
    def prompt_space(self) -> int:
        """Number of distinct contents that `draw` can give; a bound where it is not known."""

    def draw(self, rng: np.random.Generator) -> Problem:
        """One problem."""

    def solve(self, problem: Problem, rng: np.random.Generator) -> str:
        """One response that earns the full reward, without an end token."""


class RowsTask(Task, Protocol):
    """Problems read from a data set."""

    @property
    def training(self) -> Sequence[Problem]:
        """Problems of training, in the order of the file."""

    @property
    def held_out(self) -> Sequence[Problem]:
        """Problems of validation; if empty, they are held out of `training`."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out of the data set and why, for the record."""


TASKS: Mapping[str, Callable[[TaskConfig], Task]] = {
    "addition": Addition,
    "partition": Partition,
    "countdown": load_countdown,
    "gsm8k": load_gsm8k,
    "math": load_math,
    "dataset": load_dataset,
    "reasoning_gym": ReasoningGym,
}

_COMMON = ("name", "reward", "quick_reward")
_DRAWN = ("prompt_space", "draw", "solve")
_ROWS = ("training", "held_out", "notes")


def load_task(config: TaskConfig) -> Task:
    """The task that `config.name` names, made as `Class(config)`.

    Raises:
      UserError: no task has this name, the task refuses the configuration, or a class of one's
        own is neither a `DrawnTask` nor a `RowsTask`.
    """
    task: Task = resolve(config.name, TASKS, "task.name")(config)
    missing = [name for name in _COMMON if not _has(task, name)]
    drawn, rows = ([n for n in names if not _has(task, n)] for names in (_DRAWN, _ROWS))
    if missing or (drawn and rows):
        kinds = "" if not (drawn and rows) else _describe_kinds(drawn, rows)
        raise UserError(
            f"task.name = {config.name!r} gives a {type(task).__name__}, which is no task: it has"
            f" no {', '.join(missing) or kinds}{f'; and no {kinds}' if missing and kinds else ''}"
            " (see jax_rl.tasks.base)"
        )
    return task


def is_drawn(task: Task) -> TypeGuard[DrawnTask]:
    """Whether the task makes its problems up."""
    return _has(task, "draw")


def has_rows(task: Task) -> TypeGuard[RowsTask]:
    """Whether the problems of the task come from a data set."""
    return not is_drawn(task)


def _describe_kinds(drawn: list[str], rows: list[str]) -> str:
    return (
        f"{', '.join(drawn)} (problems that are drawn) or {', '.join(rows)} (those of a data set)"
    )


def _has(task: Task, name: str) -> bool:
    # A plain hasattr would compute properties, which may cost time or need a package.
    try:
        inspect.getattr_static(task, name)
    except AttributeError:
        return False
    return True
