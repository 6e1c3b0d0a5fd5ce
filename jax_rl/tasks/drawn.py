"""Problems that are made up: those of training by group, held-out ones, worked examples."""

import dataclasses
from collections.abc import Callable, Container, Iterable

import numpy as np

from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem
from jax_rl.tasks.base import DrawnTask
from jax_rl.tasks.grouped import GroupedProblems
from jax_rl.tasks.streams import EXAMPLES, TRAINING, VALIDATION, Streams, check_group

# Fruitless draws in a row, after which what is left of the task is taken to be out of reach.
_PATIENCE = 10_000

Fits = Callable[[Problem], bool]
"""Whether a problem can be asked; one that cannot is drawn again."""


@dataclasses.dataclass(frozen=True)
class DrawnProblems(GroupedProblems):
    """Drawn problems by group; in a slice one costs less than half of what it costs alone."""

    task: DrawnTask
    seed: int = dataclasses.field(kw_only=True)
    """From 0 to 2^64 - 1."""
    held_out: frozenset[str] = dataclasses.field(kw_only=True)
    """Contents that never come up."""
    fits: Fits | None = dataclasses.field(kw_only=True, default=None)
    """None: all do."""

    def find(self, groups: Iterable[int]) -> list[Problem]:
        """The problems of these groups; UserError: nothing but held-out ones is drawn."""
        streams = Streams(self.seed, TRAINING)
        return [
            _draw_outside(self.task, streams.at(group), self.held_out, self.fits)
            for group in groups
        ]


def draw_validation(
    task: DrawnTask, count: int, *, seed: int, fits: Fits | None = None
) -> tuple[Problem, ...]:
    """`count` problems, all of different content; a smaller set is the start of a larger one.

    Raises:
      UserError: the set would take more than half of the task's contents from training.
    """
    if not 1 <= count <= task.prompt_space // 2:
        raise UserError(
            f"validation.prompts = {count}: task {task.name!r} has {task.prompt_space} different"
            f" prompts, and at least 1 and at most half of them ({task.prompt_space // 2}) can be"
            " held out; change validation.prompts or raise task.difficulty"
        )
    rng = Streams(seed, VALIDATION).at(0)
    problems: dict[str, Problem] = {}  # by content
    for _ in range(count):
        problem = _draw_outside(task, rng, problems, fits)
        problems[problem.content] = problem
    return tuple(problems.values())


def draw_example(source: DrawnProblems, g: int) -> tuple[Problem, str]:
    """Problem and response of supervised example g, of another stream than that of group g."""
    rng = Streams(source.seed, EXAMPLES).at(check_group(g))
    problem = _draw_outside(source.task, rng, source.held_out, source.fits)
    return problem, source.task.solve(problem, rng)


def _draw_outside(
    task: DrawnTask, rng: np.random.Generator, contents: Container[str], fits: Fits | None
) -> Problem:
    """The next problem that is not among the contents, and fits."""
    for _ in range(_PATIENCE):
        problem = task.draw(rng)
        if problem.content not in contents and (fits is None or fits(problem)):
            return problem
    long = "" if fits is None else " or too long"
    raise UserError(
        f"task {task.name!r}: {_PATIENCE} prompts in a row were held out or taken already{long},"
        f" though the task states prompt_space = {task.prompt_space}; lower validation.prompts or"
        f" raise task.{'difficulty' if fits is None else 'max_prompt_length'}"
    )
