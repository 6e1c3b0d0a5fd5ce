"""Loss denominators: what the summed token loss of a minibatch is divided by.

A denominator gives every row of the minibatch a weight, so that

    loss = sum_i weights_i x sum_t token_loss_it.

The weights come from the lengths of the whole minibatch, before it is cut into microbatches or
shards; partial sums then add up to the same loss and gradient for every cut.

A row leaves numerator and denominator together (`counted` False, weight 0) when it is
- a truncated response under objective.mask_truncated,
- an invalid rollout: its reward failed,
- a member of a tied group with objective.count_tied_groups off.
A minibatch of which nothing is counted has weights 0.
"""

from typing import Protocol

import jax
import jax.numpy as jnp

from jax_rl.errors import UserError
from jax_rl.registry import resolve


class Denominator(Protocol):
    """The contract of a denominator.

    Args:
      lengths: [n] int32, response tokens per row; 0 where the row is not counted.
      counted: [n] bool, rows in the denominator.
      group: rollouts per prompt; the rows of a group are neighbours.
      max_response_length: tokens.

    Returns:
      [n] float32, the weight of a counted row's summed token loss.
    """

    def __call__(
        self, lengths: jax.Array, counted: jax.Array, /, *, group: int, max_response_length: int
    ) -> jax.Array: ...


def _inverse(count: jax.Array) -> jax.Array:
    """1 / count, and 1 for a count of 0, which only ever meets empty sums."""
    return 1.0 / jnp.maximum(count, 1).astype(jnp.float32)


def tokens(
    lengths: jax.Array, counted: jax.Array, *, group: int, max_response_length: int
) -> jax.Array:
    """Mean over all tokens of the minibatch: long responses weigh more.

    Shapes: see `Denominator`. Source: DAPO, arXiv:2503.14476.
    """
    del counted, group, max_response_length
    return jnp.ones_like(lengths, dtype=jnp.float32) * _inverse(lengths.sum(keepdims=True))


def sequences(
    lengths: jax.Array, counted: jax.Array, *, group: int, max_response_length: int
) -> jax.Array:
    """Mean over the tokens of a row, then over rows.

    Shapes: see `Denominator`. Source: GRPO, arXiv:2402.03300, equation 3.
    """
    del group, max_response_length
    return _inverse(lengths) * _inverse(counted.sum(keepdims=True))


def groups(
    lengths: jax.Array, counted: jax.Array, *, group: int, max_response_length: int
) -> jax.Array:
    """Mean over the tokens of a group, then over the groups that have a counted row.

    Shapes: see `Denominator`; n is a multiple of group.

    Raises:
      UserError: the minibatch cuts a group.
    """
    del max_response_length
    rows = lengths.shape[0]
    if rows % group:
        raise UserError(
            f"objective.denominator = 'groups' needs whole groups in a minibatch: {rows} rows are"
            f" not a multiple of batch.group = {group}; choose batch.size and batch.updates so"
            " that batch.size / batch.updates is one"
        )
    members = lengths.reshape(rows // group, group)
    any_counted = counted.reshape(rows // group, group).any(axis=1)
    per_group = _inverse(members.sum(axis=1)) * _inverse(any_counted.sum(keepdims=True))
    return jnp.broadcast_to(jnp.expand_dims(per_group, 1), members.shape).reshape(rows)


def max_length(
    lengths: jax.Array, counted: jax.Array, *, group: int, max_response_length: int
) -> jax.Array:
    """Sum over rows x max_response_length: a token's weight depends on no response's length.

    Shapes: see `Denominator`. Source: Dr. GRPO, arXiv:2503.20783.
    """
    del group
    per_row = _inverse(counted.sum(keepdims=True)) / max_response_length
    return jnp.ones_like(lengths, dtype=jnp.float32) * per_row


DENOMINATORS: dict[str, Denominator] = {
    "tokens": tokens,
    "sequences": sequences,
    "groups": groups,
    "max_length": max_length,
}


def row_weights(
    name: str,
    *,
    mask_lengths: jax.Array,
    counted: jax.Array,
    group: int,
    max_response_length: int,
) -> jax.Array:
    """The weight of each row's summed token loss, over a whole minibatch.

    Args:
      name: a key of `DENOMINATORS`, or `module:function`.
      mask_lengths: [n], counted response tokens of each row.
      counted: [n] bool, rows in the denominator; the others weigh 0 whatever their length.
      group: rollouts per prompt; the rows of a group are neighbours.
      max_response_length: tokens.

    Returns:
      [n] float32.

    Raises:
      UserError: no such denominator, or `groups` on a minibatch that cuts a group.
    """
    denominator: Denominator = resolve(name, DENOMINATORS, "objective.denominator")
    # Integer counts add up exactly, so the order of the rows cannot change a weight.
    lengths = jnp.where(counted, mask_lengths, 0).astype(jnp.int32)
    weights = denominator(lengths, counted, group=group, max_response_length=max_response_length)
    return jnp.where(counted, weights, 0.0)
