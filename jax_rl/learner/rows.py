"""Rollouts as the learner takes them: what a row weighs, and how rows are cut into parts.

What a row weighs is fixed from the whole minibatch before it is cut, so that gradients and metrics
of the parts are sums.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct

from jax_rl.learner.advantages import estimate_advantages, tied_groups
from jax_rl.learner.denominators import row_weights
from jax_rl.learner.metrics import Mean, Metrics
from jax_rl.learner.spec import LearnerSpec
from jax_rl.mesh.layout import Layout
from jax_rl.sampler.generate import Rollouts


@struct.dataclass
class Rows:
    """One minibatch or microbatch, all leaves [n, ...]."""

    tokens: jax.Array  # [n, p + t]
    starts: jax.Array  # [n]
    lengths: jax.Array  # [n], 0 for a row that is not counted
    old_log_probs: jax.Array  # [n, t]
    reference_log_probs: jax.Array | None  # [n, t]
    advantages: jax.Array  # [n]
    weights: jax.Array  # [n], weight of the row's summed token loss


def weigh_rows(
    rollouts: Rollouts,
    rewards: jax.Array,
    valid: jax.Array,
    reference_log_probs: jax.Array | None,
    spec: LearnerSpec,
) -> tuple[Rows, Metrics]:
    """Advantages of all groups, and each row's weight inside its minibatch."""
    objective, group = spec.objective, spec.group
    whole = jax.sharding.PartitionSpec(None)
    split = spec.layout.compute_spec(("batch",))
    lengths = jax.sharding.reshard(rollouts.lengths, whole)
    ended = jax.sharding.reshard(rollouts.ended, whole)
    by_group = (rewards.reshape(-1, group), valid.reshape(-1, group))
    advantages = estimate_advantages(objective.advantage, *by_group).reshape(-1)
    tied = tied_groups(*by_group)
    counted = valid
    if objective.mask_truncated:
        counted = counted & ended
    if not objective.count_tied_groups:
        counted = counted & ~jnp.repeat(tied, group)
    counted_lengths = jnp.where(counted, lengths, 0)
    weigh = partial(
        row_weights,
        objective.denominator,
        group=group,
        max_response_length=spec.max_response_length,
    )
    weights = jax.vmap(lambda n, c: weigh(mask_lengths=n, counted=c))(
        counted_lengths.reshape(spec.updates, -1), counted.reshape(spec.updates, -1)
    ).reshape(-1)
    rows = Rows(
        tokens=rollouts.tokens,
        starts=rollouts.starts,
        lengths=jax.sharding.reshard(counted_lengths, split),
        old_log_probs=rollouts.log_probs,
        reference_log_probs=reference_log_probs,
        advantages=jax.sharding.reshard(advantages, split),
        weights=jax.sharding.reshard(weights, split),
    )
    everything = jnp.ones_like(valid)
    return rows, {
        "reward": Mean.of(rewards, valid),
        "counted": Mean.of(counted.astype(jnp.float32), everything),
        "tied_groups": Mean.of(tied.astype(jnp.float32), jnp.ones_like(tied)),
    }


def cut_rows(rows: Rows, parts: int, layout: Layout) -> Rows:
    """Rows [n, ...] as [parts, n / parts, ...], in global order and each part over all shards."""

    def cut(array: jax.Array) -> jax.Array:
        axes = (None, "batch", *(None for _ in array.shape[1:]))
        shape = (parts, array.shape[0] // parts, *array.shape[1:])
        return jnp.reshape(array, shape, out_sharding=layout.compute_spec(axes))

    return jax.tree.map(cut, rows)
