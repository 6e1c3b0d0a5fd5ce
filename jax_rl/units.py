"""Independent units of a minibatch, from which the gradient noise scale is measured.

A unit is a whole group, or several: the fewest rows that are whole groups and whole microbatches.
"""

import math

from jax_rl.config import BatchConfig
from jax_rl.errors import UserError

FEWEST_UNITS = 2
"""Units in a minibatch, at least: with one there is nothing to compare it with."""


def count_unit_rows(microbatch: int, group: int) -> int:
    """Rows of an independent unit."""
    return math.lcm(microbatch, group)


def count_units(minibatch: int, microbatch: int, group: int) -> int:
    """Independent units in a minibatch that both sizes divide."""
    return minibatch // count_unit_rows(microbatch, group)


def check_units(batch: BatchConfig) -> None:
    """Refuses a batch whose minibatches have fewer than two independent units.

    Raises:
      UserError: with the microbatches that would do.
    """
    minibatch, group = batch.size // batch.updates, batch.group
    microbatch = batch.microbatch or minibatch
    if count_units(minibatch, microbatch, group) >= FEWEST_UNITS:
        return
    fitting = [
        size
        for size in range(1, minibatch // FEWEST_UNITS + 1)
        if minibatch % size == 0 and count_units(minibatch, size, group) >= FEWEST_UNITS
    ]
    right = (
        f"set batch.microbatch to {' or '.join(map(str, fitting[-3:]))}"
        if fitting
        else "an update has one group only, so raise batch.size or lower batch.updates"
    )
    raise UserError(
        "measure.noise_scale = true needs two independent gradients of whole groups in an update:"
        f" a minibatch of {minibatch} rollouts in microbatches of {microbatch}, with batch.group ="
        f" {group}, gives one; {right}"
    )
