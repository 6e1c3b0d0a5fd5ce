"""Problems of a data set: one permutation of the rows after another."""

from collections.abc import Iterable

import numpy as np

from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem
from jax_rl.tasks.base import RowsTask
from jax_rl.tasks.grouped import GroupedProblems
from jax_rl.tasks.streams import TRAINING, VALIDATION, Streams

_KEPT_ORDERS = 2  # an iteration may read from the end of one epoch and the start of the next


class EpochProblems(GroupedProblems):
    """Problems of rows by group.

    Group g is row g % n of epoch g // n, whose order is a permutation that depends on the seed
    and the epoch alone; n is the number of rows whose content is not held out.

    Raises:
      UserError: there are no rows, or every row is held out.
    """

    def __init__(self, task: RowsTask, *, seed: int, held_out: frozenset[str]):
        if not task.training:
            raise UserError(
                f"task {task.name!r} has no rows to train on: task.train has to name their file"
            )
        self._rows = [problem for problem in task.training if problem.content not in held_out]
        if not self._rows:
            raise UserError(
                f"task {task.name!r}: all {len(task.training)} rows of task.train are held out for"
                " validation, so none is left to train on; lower validation.prompts or add rows"
            )
        self._seed = seed
        self._orders: dict[int, np.ndarray] = {}  # by epoch

    @property
    def rows(self) -> int:
        """Rows in an epoch, n."""
        return len(self._rows)

    def find(self, groups: Iterable[int]) -> list[Problem]:
        """The problems of these groups."""
        return [self._find(group) for group in groups]

    def _find(self, group: int) -> Problem:
        epoch, place = divmod(group, len(self._rows))
        order = self._orders.get(epoch)
        if order is None:
            order = Streams(self._seed, TRAINING).at(epoch).permutation(len(self._rows))
            # A new dictionary each time: two threads may read.
            kept = list(self._orders.items())[1 - _KEPT_ORDERS :]
            self._orders = {**dict(kept), epoch: order}
        return self._rows[order[place]]


def hold_out(task: RowsTask, count: int, *, seed: int) -> tuple[Problem, ...]:
    """The first `count` of a permutation of the held-out rows, or else of the training rows.

    Their contents are all different; a smaller set is the start of a larger one.

    Raises:
      UserError: there are fewer held-out rows, or more than half of the training rows would go.
    """
    own = bool(task.held_out)
    rows = task.held_out if own else task.training
    distinct = {problem.content: problem for problem in reversed(rows)}
    problems = list(distinct.values())[::-1]  # the first of each content, in the file's order
    most = len(problems) if own else len(problems) // 2
    if not 1 <= count <= most:
        where = (
            f"task.validation has {most} different prompts"
            if own
            else f"task.train has {len(problems)} different prompts, of which at most half ({most})"
            " can be held out"
        )
        raise UserError(
            f"validation.prompts = {count}: {where}; a number from 1 to {most} is right"
            + ("" if own else ", or a file of held-out rows (task.validation)")
        )
    order = Streams(seed, VALIDATION).at(0).permutation(len(problems))
    return tuple(problems[i] for i in order[:count])
