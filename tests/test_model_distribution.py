"""Log-probabilities and entropies against float64, whole and in chunks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import EIGHT, ONE, Place

from jax_rl.model.distribution import pick_log_prob, sampled_logits, score_tokens

ROWS, LENGTH, WIDTH, VOCAB = 8, 6, 16, 24


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((ROWS, LENGTH, WIDTH)).astype(np.float32)
    head = (rng.standard_normal((VOCAB, WIDTH)) / WIDTH**0.5).astype(np.float32)
    return hidden, head, rng.integers(0, VOCAB, (ROWS, LENGTH)).astype(np.int32)


@functools.partial(jax.jit, static_argnames="chunk")
def score(hidden, head, tokens, temperature, chunk):
    return score_tokens(
        hidden, head, tokens, temperature, bound=0.0, vocab=head.shape[0], chunk=chunk
    )


@functools.partial(jax.jit, static_argnames="chunk")
def differentiate(hidden, head, tokens, temperature, chunk):
    def loss(hidden, head):
        return jnp.sum(score(hidden, head, tokens, temperature, chunk)[0] ** 2)

    return jax.grad(loss, argnums=(0, 1))(hidden, head)


def score_by_hand(hidden, head, tokens, temperature):
    logits = hidden.astype(np.float64) @ head.T.astype(np.float64) / temperature
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    picked = np.take_along_axis(logs, tokens[..., None], -1)[..., 0]
    return picked, -(np.exp(logs) * logs).sum(-1), np.exp(logs)


@pytest.mark.parametrize("chunk", [1, 2, 4, 256])  # 4 does not divide 6: cut to 3
@pytest.mark.parametrize("temperature", [0.3, 1.7])
def test_scores_equal_float64_for_every_chunk(inputs, chunk, temperature):
    with ONE.entered():
        found = score(*inputs, jnp.float32(temperature), chunk)
    expected = score_by_hand(*inputs, temperature)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("place", [Place("tensor", 8), EIGHT[3]], ids=str)
def test_scores_do_not_depend_on_how_the_vocabulary_lies(inputs, place):
    hidden, head, tokens = inputs
    with place.entered():
        split = place.put(hidden, "batch", None, None), place.put(head, "vocab", "embed")
        found = score(*split, place.put(tokens, "batch", None), jnp.float32(0.7), 2)
    expected = score_by_hand(*inputs, 0.7)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunk", [1, 256])
def test_gradient_is_the_analytic_one(inputs, chunk):
    hidden, head, tokens = inputs
    with ONE.entered():
        found = differentiate(*inputs, jnp.float32(0.5), chunk)
    picked, _, shares = score_by_hand(*inputs, 0.5)
    # d log p(token) / d logits = one_hot - p, and logits = hidden . head / temperature.
    by_logit = 2 * picked[..., None] * (np.eye(VOCAB)[tokens] - shares) / 0.5
    np.testing.assert_allclose(found[0], by_logit @ head, rtol=1e-3, atol=1e-4)
    wanted = np.einsum("btv,btd->vd", by_logit, hidden)
    np.testing.assert_allclose(found[1], wanted, rtol=1e-3, atol=1e-3)


def test_entropy_has_no_gradient(inputs):
    with ONE.entered():
        gradient = jax.grad(
            lambda hidden: jnp.sum(score(hidden, *inputs[1:], jnp.float32(1.0), 256)[1])
        )(inputs[0])
    assert not np.any(gradient)


def test_logits_are_float32_whatever_the_compute_type(inputs):
    low = jnp.asarray(inputs[0], jnp.bfloat16), jnp.asarray(inputs[1], jnp.bfloat16)
    assert (
        sampled_logits(*low, jnp.float32(1.0), bound=0.0, vocab=low[1].shape[0]).dtype
        == jnp.float32
    )


def test_large_logits_stay_finite():
    logits = jnp.array([[1e4, 0.0, -1e4]])
    found = [float(pick_log_prob(logits, jnp.array([token]))[0]) for token in range(3)]
    assert found == [0.0, -1e4, -2e4]


def test_no_array_holds_the_logits_of_the_whole_response(inputs):
    shape = jax.jit(
        lambda *args: jax.grad(lambda h: jnp.sum(score(h, *args[1:], 1)[0]))(args[0])
    ).lower(*inputs, jnp.float32(1.0))
    text = shape.as_text()
    assert f"{ROWS}x{LENGTH}x{VOCAB}xf32" not in text
    assert f"{LENGTH}x{ROWS}x1x{VOCAB}xf32" not in text
    assert f"{ROWS}x1x{VOCAB}xf32" in text


def test_soft_cap_comes_before_the_temperature():
    hidden, head = np.float32([[1.0]]), np.float32([[3.0], [-30.0], [0.0]])
    logits = sampled_logits(hidden, head, jnp.float32(0.5), bound=2.0, vocab=head.shape[0])
    wanted = [2 * np.tanh(1.5) / 0.5, -2 / 0.5, 0.0]
    np.testing.assert_allclose(logits[0], wanted, rtol=1e-6)
