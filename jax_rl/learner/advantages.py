"""Advantage estimators: how good each rollout was against a baseline.

An estimator is a function `(rewards, valid) -> advantages`, all [groups, members]. Rollouts whose
reward failed (`valid` False) stay out of every mean and have advantage 0, whatever their reward
holds, NaN included. Where the rewards behind a baseline are all equal the advantage is exactly 0:
ties are found by comparison, never by a small standard deviation, which rounding can make
nonzero.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jax_rl.errors import UserError
from jax_rl.registry import resolve

AdvantageEstimator = Callable[[jax.Array, jax.Array], jax.Array]

GRPO_EPSILON = 1e-6


def _mean(values: jax.Array, valid: jax.Array, *, axis: int | None) -> jax.Array:
    """Mean of the valid entries, 0 where there are none; reduced axes stay with size 1."""
    count = valid.sum(axis=axis, keepdims=True, dtype=jnp.float32)
    total = jnp.where(valid, values, 0.0).sum(axis=axis, keepdims=True, dtype=jnp.float32)
    return total / jnp.maximum(count, 1.0)


def _tied(rewards: jax.Array, valid: jax.Array, *, axis: int | None) -> jax.Array:
    """Whether the valid rewards are all equal; true where fewer than two are valid."""
    highest = jnp.where(valid, rewards, -jnp.inf).max(axis=axis, keepdims=True)
    lowest = jnp.where(valid, rewards, jnp.inf).min(axis=axis, keepdims=True)
    return lowest >= highest


def _centre(rewards: jax.Array, valid: jax.Array, *, axis: int | None) -> jax.Array:
    """Valid rewards minus their mean, exactly 0 where tied or invalid."""
    centred = rewards - _mean(rewards, valid, axis=axis)
    return jnp.where(valid & ~_tied(rewards, valid, axis=axis), centred, 0.0)


def grpo(rewards: jax.Array, valid: jax.Array) -> jax.Array:
    """(reward - group mean) / (group standard deviation + 1e-6).

    The standard deviation is the population's: squares are divided by the number of valid
    members, not by one less.

    Args:
      rewards: [g, k].
      valid: [g, k] bool.

    Returns:
      [g, k] float32.

    Source: DeepSeekMath, arXiv:2402.03300.
    """
    centred = _centre(rewards, valid, axis=1)
    deviation = jnp.sqrt(_mean(jnp.square(centred), valid, axis=1))  # [g, 1]
    return centred / (deviation + GRPO_EPSILON)


def dr_grpo(rewards: jax.Array, valid: jax.Array) -> jax.Array:
    """reward - group mean, without the division that favours nearly tied groups.

    Args:
      rewards: [g, k].
      valid: [g, k] bool.

    Returns:
      [g, k] float32.

    Source: Understanding R1-Zero-Like Training, arXiv:2503.20783.
    """
    return _centre(rewards, valid, axis=1)


def rloo(rewards: jax.Array, valid: jax.Array) -> jax.Array:
    """reward - mean reward of the other valid members (leave one out).

    Args:
      rewards: [g, k].
      valid: [g, k] bool.

    Returns:
      [g, k] float32.

    Source: Back to Basics, arXiv:2402.14740.
    """
    # r_i - (S - r_i) / (n - 1) is n / (n - 1) times r_i - S / n.
    count = valid.sum(axis=1, keepdims=True, dtype=jnp.float32)
    return _centre(rewards, valid, axis=1) * (count / jnp.maximum(count - 1.0, 1.0))


def reinforce(rewards: jax.Array, valid: jax.Array) -> jax.Array:
    """reward - mean over the whole batch; works with groups of 1.

    The baseline crosses groups, so a tied group has a nonzero advantage unless the whole batch
    is tied.

    Args:
      rewards: [g, k].
      valid: [g, k] bool.

    Returns:
      [g, k] float32.

    Source: REINFORCE with a baseline, Williams 1992.
    """
    return _centre(rewards, valid, axis=None)


ADVANTAGES: dict[str, AdvantageEstimator] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "reinforce": reinforce,
}

_BASELINE_CROSSES_GROUPS = ("reinforce",)


def estimate_advantages(name: str, rewards: jax.Array, valid: jax.Array) -> jax.Array:
    """Advantages by the estimator called `name`.

    Args:
      name: a key of `ADVANTAGES`, or `module:function`.
      rewards: [g, k], one row per group.
      valid: [g, k] bool, False where the reward failed.

    Returns:
      [g, k] float32.

    Raises:
      UserError: no such estimator.
    """
    estimator: AdvantageEstimator = resolve(name, ADVANTAGES, "objective.advantage")
    return estimator(rewards.astype(jnp.float32), valid)


def tied_groups(rewards: jax.Array, valid: jax.Array) -> jax.Array:
    """Groups whose valid rewards are all equal, those with fewer than two valid ones included.

    Args:
      rewards: [g, k].
      valid: [g, k] bool.

    Returns:
      [g] bool.
    """
    return _tied(rewards.astype(jnp.float32), valid, axis=1).squeeze(1)


def check_group(name: str, group: int, *, count_tied_groups: bool = True) -> None:
    """Refuses a group or a rule for tied groups under which the estimator trains nothing.

    An estimator given as `module:function` is taken to know what it does.

    Args:
      name: a key of `ADVANTAGES`, or `module:function`.
      group: rollouts per prompt.
      count_tied_groups: whether tied groups stay in the loss.

    Raises:
      UserError: no such estimator; a group of 1 whose baseline is its own reward; tied groups
        left out although they carry advantages.
    """
    resolve(name, ADVANTAGES, "objective.advantage")
    if name not in ADVANTAGES:
        return
    crosses = name in _BASELINE_CROSSES_GROUPS
    if group < 2 and not crosses:
        raise UserError(
            f"batch.group = {group} trains nothing with objective.advantage = {name!r}: its"
            " baseline is the group itself, so every advantage is 0; set batch.group to 2 or"
            f" more, or objective.advantage to one that works at 1:"
            f" {', '.join(_BASELINE_CROSSES_GROUPS)}"
        )
    if crosses and not count_tied_groups:
        raise UserError(
            f"objective.count_tied_groups = false drops rollouts that objective.advantage ="
            f" {name!r} learns from: its baseline is the mean of the batch, so a tied group has"
            " advantages too (at batch.group = 1 every group is tied); set"
            " objective.count_tied_groups = true"
        )
