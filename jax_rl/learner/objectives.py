"""Policy-gradient objectives, per token.

An objective is a function `(log_probs, old_log_probs, advantages, *, clip_low, clip_high) ->
PerToken`, with a loss to be minimised. It is elementwise: the caller masks and divides. Masked
positions must hold finite log-probabilities, since a NaN there survives the multiplication by 0.

The ratio of a token is exp(log_prob - old_log_prob), exactly 1 where the two are equal; its
logarithm is limited to +-20, so that a zero advantage times a huge ratio is 0 and not NaN.
"""

from typing import Protocol

import flax.struct
import jax
import jax.numpy as jnp

from jax_rl.registry import resolve

LOG_RATIO_LIMIT = 20.0


@flax.struct.dataclass
class PerToken:
    """What an objective says about each token.

    loss: [b, t] float32, to be minimised.
    clipped: [b, t] bool, where the clip replaced the ratio.
    """

    loss: jax.Array
    clipped: jax.Array


class Objective(Protocol):
    """The contract of an objective.

    Args:
      log_probs: [b, t], of the policy that learns.
      old_log_probs: [b, t], of the policy that sampled; constant.
      advantages: [b], one per rollout, or [b, t]; constant.
      clip_low: the ratio's lower bound is 1 - clip_low.
      clip_high: the ratio's upper bound is 1 + clip_high.
    """

    def __call__(
        self,
        log_probs: jax.Array,
        old_log_probs: jax.Array,
        advantages: jax.Array,
        /,
        *,
        clip_low: float,
        clip_high: float,
    ) -> PerToken: ...


def _spread_over_tokens(advantages: jax.Array) -> jax.Array:
    return jnp.expand_dims(advantages, 1) if advantages.ndim == 1 else advantages


def _probability_ratio(log_probs: jax.Array, old_log_probs: jax.Array) -> jax.Array:
    log_ratio = log_probs - old_log_probs
    return jnp.exp(jnp.clip(log_ratio, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))


def clip(
    log_probs: jax.Array,
    old_log_probs: jax.Array,
    advantages: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
) -> PerToken:
    """-min(ratio x A, clip(ratio, 1 - clip_low, 1 + clip_high) x A): PPO and GRPO.

    Gradient in log_prob: -A x ratio; 0 where clipped, that is where A > 0 and the ratio is above
    its upper bound, or A < 0 and the ratio is below its lower bound. Before the first update it
    is -A.

    Shapes: see `Objective`.

    Source: PPO, arXiv:1707.06347, equation 7; clip_high > clip_low is DAPO, arXiv:2503.14476.
    """
    advantages = _spread_over_tokens(advantages)
    ratio = _probability_ratio(log_probs, old_log_probs)
    above = (advantages > 0) & (ratio > 1.0 + clip_high)
    below = (advantages < 0) & (ratio < 1.0 - clip_low)
    # Spelled out instead of minimum(): its gradient is halved where both arguments are equal,
    # which the first update meets at ratio 1 when a bound is 0.
    limited = jnp.where(above, 1.0 + clip_high, jnp.where(below, 1.0 - clip_low, ratio))
    return PerToken(loss=-advantages * limited, clipped=above | below)


def cispo(
    log_probs: jax.Array,
    old_log_probs: jax.Array,
    advantages: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
) -> PerToken:
    """-constant(clip(ratio, 1 - clip_low, 1 + clip_high)) x A x log_prob.

    Gradient in log_prob: -A x clipped ratio. No token loses its gradient; the weight is a
    constant, none flows through it. The paper sets no lower bound: clip_low = 1.

    Shapes: see `Objective`.

    Source: MiniMax-M1, arXiv:2506.13585, equations 4 and 5.
    """
    advantages = _spread_over_tokens(advantages)
    ratio = jax.lax.stop_gradient(_probability_ratio(log_probs, old_log_probs))
    weight = jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high)
    return PerToken(loss=-weight * advantages * log_probs, clipped=weight != ratio)


def reinforce(
    log_probs: jax.Array,
    old_log_probs: jax.Array,
    advantages: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
) -> PerToken:
    """-A x log_prob; no ratio, so right on-policy only, and nothing is clipped.

    Gradient in log_prob: -A.

    Shapes: see `Objective`.

    Source: REINFORCE, Williams 1992.
    """
    del old_log_probs, clip_low, clip_high
    loss = -_spread_over_tokens(advantages) * log_probs
    return PerToken(loss=loss, clipped=jnp.zeros_like(loss, dtype=bool))


OBJECTIVES: dict[str, Objective] = {"clip": clip, "cispo": cispo, "reinforce": reinforce}


def find_objective(name: str) -> Objective:
    """The objective called `name`: a key of `OBJECTIVES`, or `module:function`.

    Raises:
      UserError: no such objective.
    """
    objective: Objective = resolve(name, OBJECTIVES, "objective.loss")
    return objective
