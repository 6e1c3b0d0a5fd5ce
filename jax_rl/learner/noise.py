"""What the gradient noise scale is measured from: norms of independent gradients.

The independent unit is a whole group, or several: an advantage is centred on its group, so that
the gradients of a group's rows are not independent of each other, while groups are, each with a
prompt of its own (`jax_rl.units` counts them). A unit's part of the summed gradient, multiplied
by the number of units in the minibatch, is an estimate of the minibatch's gradient: the mean over
units is that gradient exactly. Rows keep the weights that they have in the whole minibatch, so
with a denominator that depends on what was sampled (tokens, for example) a unit's expectation is
the full gradient up to a relative error of the order of 1 / groups in the minibatch.
"""

import jax
import jax.numpy as jnp

from jax_rl.errors import UserError
from jax_rl.learner.advantages import ADVANTAGES, estimate_advantages
from jax_rl.model.weights import Weights


def squared_norm(gradient: Weights) -> jax.Array:
    """Sum of squares over all tensors; [] float32."""
    return inner_product(gradient, gradient)


def inner_product(first: Weights, second: Weights) -> jax.Array:
    """Sum of products over all tensors; [] float32."""
    products = jax.tree.map(lambda a, b: jnp.sum(a * b, dtype=jnp.float32), first, second)
    return jax.tree.reduce(jnp.add, products)


def check_noise_advantage(name: str, group: int) -> None:
    """Refuses advantages of one group that depend on the rewards of another.

    Any estimator is tried on numbers, so that those of a fork are judged as ours are.

    Raises:
      UserError: no such estimator, or groups are not independent under it.
    """
    if not _mixes_groups(name, group):
        return
    independent = [other for other in ADVANTAGES if not _mixes_groups(other, max(group, 2))]
    raise UserError(
        f"measure.noise_scale = true with objective.advantage = {name!r}: an advantage depends on"
        " the rewards of other groups, so that no two gradients of a minibatch are independent and"
        " the noise scale is not defined; it is with"
        f" {', '.join(independent)}"
    )


def _mixes_groups(name: str, group: int) -> bool:
    """Whether another group's rewards move the advantages of the first."""
    members = jnp.arange(group, dtype=jnp.float32)
    first = jnp.square(members) / group
    found = [
        estimate_advantages(name, jnp.stack([first, other]), jnp.ones((2, group), bool))[0]
        for other in (members, 3.0 - members, 10.0 * first + 1.0)
    ]
    return any(bool(jnp.any(advantages != found[0])) for advantages in found[1:])
