"""Estimators of KL(policy || reference) from sampled tokens, as losses.

An estimator is a function `(log_probs, reference_log_probs) -> [b, t]` of the log-probabilities
that the policy and the reference give the sampled token. A loss is differentiated with the
samples held fixed, so an estimator whose value is right need not have the right gradient:

    name   value                expected gradient, on-policy
    k1     unbiased             0: the expectation of grad log p; refused as a loss
    k2     biased               that of KL(policy || reference), exactly
    k3     unbiased, never < 0  that of KL(reference || policy), equal to first order near it

Both gradients are of each token's own distribution, given the tokens before it; what a token does
to the divergence of later ones is left out.

Source: Schulman 2020, "Approximating KL divergence", for the values; Tang and Munos,
arXiv:2506.09477, for the gradients.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jax_rl.errors import UserError
from jax_rl.registry import resolve

KLEstimator = Callable[[jax.Array, jax.Array], jax.Array]

LOG_RATIO_LIMIT = 20.0


def k2(log_probs: jax.Array, reference_log_probs: jax.Array) -> jax.Array:
    """(log p - log q)^2 / 2: biased value, exact on-policy gradient of KL(policy || reference).

    Gradient in log_prob: log p - log q.

    Args:
      log_probs: [b, t], of the policy.
      reference_log_probs: [b, t], constant.

    Returns:
      [b, t].
    """
    return 0.5 * jnp.square(log_probs - reference_log_probs)


def k3(log_probs: jax.Array, reference_log_probs: jax.Array) -> jax.Array:
    """q/p - 1 - log(q/p): unbiased and never negative; its gradient is KL(reference || policy)'s.

    Gradient in log_prob: 1 - q/p. log(q/p) is limited to 20, beyond which q/p would overflow.

    Args:
      log_probs: [b, t], of the policy.
      reference_log_probs: [b, t], constant.

    Returns:
      [b, t].

    Source: also DeepSeekMath, arXiv:2402.03300, equation 4.
    """
    log_ratio = jnp.minimum(reference_log_probs - log_probs, LOG_RATIO_LIMIT)
    return jnp.expm1(log_ratio) - log_ratio


KL_ESTIMATORS: dict[str, KLEstimator] = {"k2": k2, "k3": k3}


def find_kl_estimator(name: str) -> KLEstimator:
    """The estimator called `name`: a key of `KL_ESTIMATORS`, or `module:function`.

    Raises:
      UserError: no such estimator, or k1, whose gradient is noise around 0.
    """
    if name == "k1":
        raise UserError(
            "objective.kl_estimator = 'k1' cannot be a loss: the gradient of log p - log q is"
            " grad log p, whose mean over the policy's own samples is 0, so it adds noise and"
            " holds nothing near the reference; use 'k2' (exact gradient) or 'k3'"
        )
    estimator: KLEstimator = resolve(name, KL_ESTIMATORS, "objective.kl_estimator")
    return estimator
