"""One token per row from one uniform number per row.

Randomness law: the number behind a token depends on the seed, the sample id (group, member)
and the token's place in the response, and on nothing else.
"""

import math

import jax
import jax.numpy as jnp

from jax_rl.mesh.layout import Layout


def fold_sample_ids(key: jax.Array, groups: jax.Array, members: jax.Array) -> jax.Array:
    """A key per row, [b]: `key` folded with the sample id (group, member).

    Args:
      key: the seed's typed threefry key.
      groups: [b] int32 group of each row.
      members: [b] int32 place of each row in its group.
    """
    return jax.vmap(lambda g, j: jax.random.fold_in(jax.random.fold_in(key, g), j))(groups, members)


def draw_uniforms(row_keys: jax.Array, position: jax.Array) -> jax.Array:
    """A number in [0, 1) per row, [b] float32, for the response position; resolution 2^-23."""
    return jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, position)))(row_keys)


def draw_tokens(logits: jax.Array, uniforms: jax.Array, *, layout: Layout) -> jax.Array:
    """Tokens [b] int32 by the inverse of the cumulative distribution.

    The vocabulary is cut into blocks: block sums locate the block, a cumulative sum inside it
    the token. Blocks lie on the devices as the vocabulary does, so only block sums and one
    block per row cross devices. A token of probability zero is never drawn.

    Args:
      logits: [b, v] float32.
      uniforms: [b] float32 in [0, 1).
      layout: where batch and vocabulary lie.
    """
    rows, vocab = logits.shape
    blocks = _count_blocks(vocab, layout)
    shape = (rows, blocks, vocab // blocks)
    split = layout.compute_spec(("batch", "vocab", None))
    whole = layout.compute_spec(("batch", None))
    scaled = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    parts = jnp.reshape(scaled, shape, out_sharding=split)  # [b, blocks, w]
    sums = jax.sharding.reshard(jnp.sum(parts, axis=-1), whole)  # [b, blocks]

    ends = jnp.cumsum(sums, axis=-1)
    threshold = uniforms * ends[:, -1]
    block = _first_above(ends, threshold, sums)
    before = jnp.sum(jnp.where(_iota(sums) < block[:, None], sums, 0.0), axis=-1)

    chosen = jax.lax.broadcasted_iota(jnp.int32, (1, blocks, 1), 1) == block[:, None, None]
    inside = jnp.sum(jnp.where(chosen, parts, 0.0), axis=1)  # [b, w], exact: one term is not 0
    offset = _first_above(jnp.cumsum(inside, axis=-1), threshold - before, inside)
    return block * (vocab // blocks) + offset


def _count_blocks(vocab: int, layout: Layout) -> int:
    """A divisor of the vocabulary near its square root, a multiple of its shards."""
    axes = dict(layout.compute).get("vocab", ())
    shards = math.prod(jax.sharding.get_abstract_mesh().shape[axis] for axis in axes)
    divisors = [d * shards for d in range(1, vocab // shards + 1) if vocab % (d * shards) == 0]
    return min(divisors, key=lambda d: abs(math.log(d / math.sqrt(vocab))))


def _first_above(ends: jax.Array, threshold: jax.Array, masses: jax.Array) -> jax.Array:
    """First index with mass whose cumulative end exceeds the threshold.

    Rounding can leave the threshold at or past the last end (the last index with mass is then
    the right one), below the first, or between two ends that a mass of zero keeps equal.
    """
    index = _iota(masses)
    above = (ends > threshold[:, None]) & (masses > 0)
    first = jnp.min(jnp.where(above, index, masses.shape[1]), axis=-1)
    last = jnp.max(jnp.where(masses > 0, index, 0), axis=-1)
    return jnp.minimum(first, last)


def _iota(array: jax.Array) -> jax.Array:
    return jax.lax.broadcasted_iota(jnp.int32, (1, array.shape[1]), 1)
