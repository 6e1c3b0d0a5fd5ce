"""Draws against an inverse of the cumulative distribution in float64, and as frequencies."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from programs import EIGHT, ONE, Place, uniform_by_hand

from jax_rl.sampler.draw import draw_tokens, draw_uniforms, fold_sample_ids

LAST = 1.0 - 2.0**-24  # the largest float32 below 1


@functools.partial(jax.jit, static_argnames="layout")
def draw(logits, uniforms, layout):
    return draw_tokens(logits, uniforms, layout=layout)


def draw_at(place, logits, uniforms):
    with place.entered() as layout:
        rows = place.put(np.asarray(logits, np.float32), "batch", "vocab")
        numbers = place.put(np.asarray(uniforms, np.float32), "batch")
        return np.asarray(draw(rows, numbers, layout))


def shares_of(logits):
    wide = np.asarray(logits, np.float32).astype(np.float64)
    shares = np.exp(wide - wide.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def draw_by_hand(logits, uniforms):
    """First token whose cumulative end exceeds the number; how near that is to being another."""
    ends = np.cumsum(shares_of(logits), axis=-1)
    numbers = np.asarray(uniforms, np.float64)[:, None]
    return np.argmax(ends > numbers, axis=-1), np.abs(ends - numbers).min(-1)


@pytest.mark.parametrize(
    ("place", "vocab"),
    [(ONE, 7), (ONE, 32), (ONE, 512), (ONE, 1000), (EIGHT[0], 7)]
    + [(Place(name, 8), vocab) for name in ("tensor", "fsdp_tensor") for vocab in (32, 1000)],
    ids=str,
)
def test_draws_are_the_inverse_of_the_cumulative_distribution(place, vocab):
    rng = np.random.default_rng(vocab)
    logits = 3.0 * rng.standard_normal((1024, vocab))
    uniforms = rng.integers(0, 2**23, 1024) * 2.0**-23
    expected, margin = draw_by_hand(logits, uniforms)
    found = draw_at(place, logits, uniforms)
    clear = margin > 1e-6
    assert clear.mean() > 0.97
    np.testing.assert_array_equal(found[clear], expected[clear])
    ends = np.pad(np.cumsum(shares_of(logits), axis=-1), ((0, 0), (1, 0)))
    rows = np.arange(len(found))
    assert np.all(ends[rows, found] - 1e-6 <= uniforms)
    assert np.all(uniforms <= ends[rows, found + 1] + 1e-6)


@pytest.mark.parametrize("vocab", [7, 32])
def test_frequencies_are_the_probabilities(vocab):
    rows = 16384
    logits = np.random.default_rng(vocab).standard_normal(vocab)
    numbers = jax.jit(
        lambda key, members: draw_uniforms(
            fold_sample_ids(key, jnp.zeros_like(members), members), jnp.int32(0)
        )
    )(jax.random.key(3), jnp.arange(rows, dtype=jnp.int32))
    counts = np.bincount(
        draw_at(ONE, np.tile(logits, (rows, 1)), np.asarray(numbers)), minlength=vocab
    )
    assert scipy.stats.chisquare(counts, rows * shares_of(logits)).pvalue > 1e-3


@pytest.mark.parametrize("place", [ONE, Place("tensor", 8)], ids=str)
@pytest.mark.parametrize("mask", [-np.inf, -1e30])
def test_tokens_without_probability_are_never_drawn(place, mask):
    vocab, rows = 512, 4096
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((rows, vocab)).astype(np.float32)
    logits[:, ::8] = mask  # the first token of every block among them
    logits[:, -40:] = mask
    logits[: rows // 2, :40] = mask
    # Numbers at the boundaries between tokens, where rounding decides, and at both ends.
    ends = np.cumsum(shares_of(logits), axis=-1)
    uniforms = ends[np.arange(rows), 8 * rng.integers(0, vocab // 8, rows) - 1]
    uniforms = np.clip(uniforms.astype(np.float32), 0.0, LAST)
    uniforms[::16], uniforms[1::16] = 0.0, LAST
    found = draw_at(place, logits, uniforms)
    assert np.all(np.isfinite(logits[np.arange(rows), found]))
    assert np.all(logits[np.arange(rows), found] > -1e29)


def test_both_ends_of_the_numbers_give_the_first_and_last_token():
    logits = np.zeros((2, 12))
    assert draw_at(ONE, logits, [0.0, LAST]).tolist() == [0, 11]
    eighths = np.arange(8) / 8  # a number on a boundary belongs to the token above it
    assert draw_at(ONE, np.zeros((8, 8)), eighths).tolist() == list(range(8))
    one_hot = np.where(np.arange(12) == 5, 0.0, -np.inf)
    assert draw_at(ONE, np.stack([one_hot] * 2), [0.0, LAST]).tolist() == [5, 5]


def test_numbers_are_equal_to_threefry_by_hand_for_each_position():
    keys = fold_sample_ids(jax.random.key(9), jnp.array([2, 70_000]), jnp.array([0, 3]))
    for position in (0, 1, 4095):
        found = np.asarray(draw_uniforms(keys, jnp.int32(position))).tolist()
        expected = [uniform_by_hand(9, 2, 0, position), uniform_by_hand(9, 70_000, 3, position)]
        assert found == expected
        assert all(0.0 <= number <= 1.0 - 2.0**-23 for number in found)
