"""Which runs of a study one worker of several makes."""

import dataclasses

from jax_rl.errors import UserError


@dataclasses.dataclass(frozen=True)
class Part:
    """The runs of one worker among several: those whose place is `index` modulo `count`."""

    index: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> "Part":
        """The part that `2/8` stands for, the third of eight.

        Raises:
          UserError: not two whole numbers, or the first is not below the second.
        """
        index, _, count = text.partition("/")
        if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
            raise UserError(
                f"--cell {text} must be i/n with i from 0 to n - 1, such as 0/8 to 7/8 for the"
                " eight jobs of an array"
            )
        return cls(int(index), int(count))

    def has(self, place: int) -> bool:
        """Whether the run at a place is this worker's."""
        return place % self.count == self.index
