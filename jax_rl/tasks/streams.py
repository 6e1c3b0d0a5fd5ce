"""Random numbers of problems: one Philox stream for every seed, purpose and group."""

import numpy as np

from jax_rl.errors import UserError

GROUPS = 2**31 - 1
"""Groups that can be told apart; more than any run reads."""

# Word 3 of the Philox counter: streams of one (seed, g) that no number of draws can join.
TRAINING, VALIDATION, EXAMPLES = 0, 1, 2


class Streams:
    """The generators of one (seed, stream), by group; one Philox is re-keyed for all of them.

    Re-keying takes a seventh of the time that a new bit generator does.

    Raises:
      UserError: the seed is not from 0 to 2^64 - 1.
    """

    def __init__(self, seed: int, stream: int):
        if not 0 <= seed < 2**64:
            raise UserError(f"seed = {seed}: a seed of prompts is from 0 to 2^64 - 1")
        self._bits = np.random.Philox(key=seed, counter=stream << 192)
        self._rng = np.random.Generator(self._bits)
        self._state = self._bits.state

    def at(self, group: int) -> np.random.Generator:
        """The generator of this group, at its start; the one before it is no longer valid."""
        self._state["state"]["key"][1] = group
        self._bits.state = self._state
        return self._rng


def check_group(group: int) -> int:
    """The group, if there is such a one.

    Raises:
      IndexError: there is not.
    """
    if not 0 <= group < GROUPS:
        raise IndexError(f"group {group} is not in 0 .. {GROUPS - 1}")
    return group
