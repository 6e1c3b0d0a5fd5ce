"""Rotary positions (arXiv:2104.09864), and the ways to stretch them beyond pre-training.

Frequencies are constants of the model, worked out in float64 on the host.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from jax_rl.config import RopeConfig

Rotation = tuple[jax.Array, jax.Array]
"""Cosine and sine of the angles, each [b, t, 1, h/2] float32."""


def frequencies(rope: RopeConfig, head_dim: int, *, local: bool = False) -> np.ndarray:
    """Radians per position of each pair of dimensions, [h/2] float64.

    Args:
      rope: the model's rotary positions.
      head_dim: width of one head, h.
      local: of layers with a sliding window, where those have a base of their own.

    Source: linear (arXiv:2306.15595), YaRN (arXiv:2309.00071), llama3 (arXiv:2407.21783).
    """
    half = head_dim // 2
    own = local and rope.local_theta > 0
    theta = rope.local_theta if own else rope.theta
    plain = theta ** (-np.arange(half, dtype=np.float64) / half)
    if own or rope.scaling == "none":
        return plain
    if rope.scaling == "linear":
        return plain / rope.factor
    kept = _kept_by_llama3(plain, rope) if rope.scaling == "llama3" else _kept_by_yarn(half, rope)
    return plain * kept + plain / rope.factor * (1.0 - kept)


def _kept_by_llama3(plain: np.ndarray, rope: RopeConfig) -> np.ndarray:
    """Share of each frequency that stays unstretched, linear in rotations over the length."""
    rotations = rope.original_length * plain / (2 * math.pi)
    low, high = rope.low_frequency_factor, rope.high_frequency_factor
    return np.clip((rotations - low) / (high - low), 0.0, 1.0)


def _kept_by_yarn(half: int, rope: RopeConfig) -> np.ndarray:
    """Share of each frequency that stays unstretched, linear in the dimension."""

    def dimension_with(rotations: float) -> float:
        period = rope.original_length / (2 * math.pi * rotations)
        return half * math.log(period) / math.log(rope.theta)

    first, last = dimension_with(rope.beta_fast), dimension_with(rope.beta_slow)
    if rope.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * half - 1)
    width = (last - first) or 0.001  # a border without width is a step
    return 1.0 - np.clip((np.arange(half) - first) / width, 0.0, 1.0)


def rotations(
    positions: jax.Array, rope: RopeConfig, head_dim: int, *, local: bool = False
) -> Rotation:
    """Cosine and sine of the angles at positions [b, t]."""
    frequency = jnp.asarray(frequencies(rope, head_dim, local=local), jnp.float32)
    angle = positions.astype(jnp.float32)[:, :, None, None] * frequency[None, None, None, :]
    stretched = rope.scaling == "yarn" and not (local and rope.local_theta > 0)
    factor = rope.attention_factor if stretched else 1.0
    return jnp.cos(angle) * factor, jnp.sin(angle) * factor


def rotate(x: jax.Array, rotation: Rotation) -> jax.Array:
    """Queries or keys [b, t, n, h] turned to their positions; the first half pairs the second."""
    cos, sin = rotation
    low, high = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
    return rotated.astype(x.dtype)
