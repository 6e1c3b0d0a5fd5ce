"""The problems of training as a sequence by group, whatever they come from."""

import abc
from collections.abc import Iterable, Sequence
from typing import overload

from jax_rl.rewards.base import Problem
from jax_rl.tasks.streams import GROUPS, check_group


class GroupedProblems(Sequence[Problem], abc.ABC):
    """The problems of training by group, as a random-access source in grain's protocol.

    `source[g]` is the problem of group g, `source[a:b]` the list of those of groups a .. b - 1.
    """

    @abc.abstractmethod
    def find(self, groups: Iterable[int]) -> list[Problem]:
        """The problems of these groups."""

    def __len__(self) -> int:
        """Number of groups; more than any run reads."""
        return GROUPS

    @overload
    def __getitem__(self, group: int) -> Problem: ...

    @overload
    def __getitem__(self, group: slice) -> list[Problem]: ...

    def __getitem__(self, group: int | slice) -> Problem | list[Problem]:
        """The problem of a group, or the problems of a range of groups.

        Raises:
          IndexError: there is no such group.
          UserError: `find` has none for it.
        """
        if isinstance(group, slice):
            return self.find(range(GROUPS)[group])
        return self.find([check_group(group)])[0]
