"""Rotary frequencies against numbers worked by hand."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jax_rl.config import RopeConfig
from jax_rl.model.rope import frequencies, rotate, rotations

# head_dim 8 and theta 10^4: one radian per position, then a tenth, a hundredth, a thousandth.
PLAIN = [1.0, 0.1, 0.01, 0.001]


def test_plain_and_linear_frequencies() -> None:
    np.testing.assert_allclose(frequencies(RopeConfig(), 8), PLAIN, rtol=1e-12)
    stretched = frequencies(RopeConfig(scaling="linear", factor=4.0), 8)
    np.testing.assert_allclose(stretched, [0.25, 0.025, 0.0025, 0.00025], rtol=1e-12)


def test_llama3_stretches_by_rotations_over_the_original_length() -> None:
    # 200 pi positions: 100, 10, 1 and 0.1 rotations; kept in full from 40 on, stretched below 1.
    rope = RopeConfig(
        scaling="llama3",
        factor=8.0,
        low_frequency_factor=1.0,
        high_frequency_factor=40.0,
        original_length=628,
    )
    length = 628 / (200 * math.pi)
    kept = (10 * length - 1) / 39
    wanted = [1.0, 0.1 * kept + 0.1 / 8 * (1 - kept), 0.01 / 8, 0.001 / 8]
    np.testing.assert_allclose(frequencies(rope, 8), wanted, rtol=1e-12)


def test_yarn_stretches_by_dimension() -> None:
    # Dimension i turns 628 / (2 pi 10^i) = 99.95 / 10^i times: 10 rotations at 0.9998, 0.1 at
    # 2.9998, rounded outwards to 0 and 3.
    rope = RopeConfig(
        scaling="yarn", factor=4.0, original_length=628, beta_fast=10.0, beta_slow=0.1
    )
    kept = [1.0, 2 / 3, 1 / 3, 0.0]
    wanted = [f * (k + (1 - k) / 4) for f, k in zip(PLAIN, kept, strict=True)]
    np.testing.assert_allclose(frequencies(rope, 8), wanted, rtol=1e-12)
    exact = frequencies(RopeConfig(**{**vars(rope), "truncate": False}), 8)
    # Not rounded, from 0.9998 to 2.9998: the second is still kept, the third by 0.9998 / 2.
    np.testing.assert_allclose(exact[1], 0.1, rtol=1e-3)
    np.testing.assert_allclose(exact[2], 0.01 * (0.5 + 0.5 / 4), rtol=1e-3)


def test_local_layers_have_a_base_of_their_own_and_are_not_stretched() -> None:
    rope = RopeConfig(theta=1e6, local_theta=1e4, scaling="linear", factor=8.0)
    np.testing.assert_allclose(frequencies(rope, 8, local=True), PLAIN, rtol=1e-12)
    np.testing.assert_allclose(frequencies(rope, 8)[0], 1 / 8, rtol=1e-12)
    shared = RopeConfig(theta=1e4, scaling="linear", factor=8.0)
    np.testing.assert_array_equal(frequencies(shared, 8, local=True), frequencies(shared, 8))


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_a_rotation_turns_each_pair_by_its_angle(factor: float) -> None:
    rope = RopeConfig(
        scaling="yarn",
        factor=1.0,
        original_length=10_000,
        beta_fast=1e-9,
        beta_slow=1e-9,
        attention_factor=factor,
    )
    x = jnp.array([3.0, 0.0, 0.0, 4.0]).reshape(1, 1, 1, 4)  # pairs (3, 0) and (0, 4)
    turned = rotate(x, rotations(jnp.array([[5]]), rope, 4))
    angles = 5.0, 5.0 / 100
    wanted = [
        3 * math.cos(angles[0]),
        -4 * math.sin(angles[1]),
        3 * math.sin(angles[0]),
        4 * math.cos(angles[1]),
    ]
    np.testing.assert_allclose(turned.ravel(), np.array(wanted) * factor, rtol=1e-5)
