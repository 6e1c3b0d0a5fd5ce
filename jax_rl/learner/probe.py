"""Gradients of two independent groups of each prompt, at weights that stay as they are."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct

from jax_rl.learner.noise import inner_product, squared_norm
from jax_rl.learner.rows import Rows, cut_rows, weigh_rows
from jax_rl.learner.spec import LearnerSpec
from jax_rl.learner.update import sum_microbatches
from jax_rl.model.weights import Weights
from jax_rl.sampler.generate import Rollouts


@struct.dataclass
class PairNorms:
    """Inner products of g_p1 and g_p2, the gradients of a prompt's groups, for p prompts."""

    first: jax.Array  # [p] |g_p1|^2
    second: jax.Array  # [p] |g_p2|^2
    between: jax.Array  # [p] <g_p1, g_p2>
    first_mean: jax.Array  # [p] <g_p1, mean over all groups>
    second_mean: jax.Array  # [p] <g_p2, mean over all groups>
    mean: jax.Array  # [] |mean over all groups|^2


@partial(jax.jit, static_argnames=("spec",))
def measure_pairs(
    weights: Weights,
    rollouts: Rollouts,
    rewards: jax.Array,
    valid: jax.Array,
    temperature: jax.Array,
    reference_log_probs: jax.Array | None,
    spec: LearnerSpec,
) -> PairNorms:
    """Inner products of all groups' gradients with each other, as far as they are needed.

    Each gradient is scaled to be an estimate of the whole batch's: their mean is the gradient that
    an update on all rows would have. No more than four gradients exist at once: that mean comes
    first, in a pass of its own.

    Args:
      weights: of the policy.
      rollouts: n rows, two groups of one prompt next to each other.
      rewards: [n] float32, replicated.
      valid: [n] bool, replicated.
      temperature: [] float32 that the rollouts were sampled at.
      reference_log_probs: [n, t] or None without a KL term.
      spec: the learner; one update, and a microbatch that divides the group.
    """
    rows, _ = weigh_rows(rollouts, rewards, valid, reference_log_probs, spec)
    groups = rows.lengths.shape[0] // spec.group
    mean, _ = sum_microbatches(weights, rows, temperature, spec)

    def measure(pair: Rows) -> PairNorms:
        halves = cut_rows(pair, 2, spec.layout)
        first, second = (
            _scale(sum_microbatches(weights, _take(halves, half), temperature, spec)[0], groups)
            for half in (0, 1)
        )
        return PairNorms(
            first=squared_norm(first),
            second=squared_norm(second),
            between=inner_product(first, second),
            first_mean=inner_product(first, mean),
            second_mean=inner_product(second, mean),
            mean=jnp.float32(0.0),
        )

    products = jax.lax.map(measure, cut_rows(rows, groups // 2, spec.layout))
    return products.replace(mean=squared_norm(mean))


def _take(parts: Rows, part: int) -> Rows:
    return jax.tree.map(lambda array: array[part], parts)


def _scale(gradient: Weights, factor: int) -> Weights:
    return jax.tree.map(lambda tensor: factor * tensor, gradient)
