"""The forward pass against Hugging Face's, and what padding and later tokens may not do."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest
import torch_models
from programs import EIGHT, ONE, PROMPT, RESPONSE, host_weights, prompt_of, put_weights

from jax_rl.config import ModelConfig, RopeConfig
from jax_rl.model.distribution import sampled_logits
from jax_rl.model.forward import forward, head_in_use

BASE = ModelConfig(
    layers=2, embed=32, heads=4, kv_heads=2, head_dim=8, mlp=24, vocab=32, qk_norm=False
)
FAMILIES = {
    "Llama": BASE,
    "Qwen2": dataclasses.replace(BASE, attention_bias=True, rope=RopeConfig(theta=1e6), kv_heads=1),
    "Qwen3": dataclasses.replace(BASE, qk_norm=True, head_dim=16, kv_heads=4),
}


@functools.partial(jax.jit, static_argnames=("config", "layout"))
def compute_logits(weights, tokens, starts, config, layout):
    hidden, _ = forward(weights, tokens, starts, config=config, layout=layout)
    head = head_in_use(weights, config=config, layout=layout)
    return sampled_logits(hidden, head, jnp.float32(1.0), bound=0.0, vocab=head.shape[0])


def logits_of(weights, tokens, starts, config, place=ONE):
    with place.entered() as layout:
        stored = put_weights(weights, config, place)
        rows = place.put_rows((tokens, starts))
        return np.asarray(compute_logits(stored, *rows, config, layout))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 32, (8, 12)).astype(np.int32)
    return tokens, np.array([0, 1, 2, 3, 5, 8, 10, 11], np.int32)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_logits_equal_the_reference_implementation(family, tied, rows):
    config = dataclasses.replace(FAMILIES[family], tied_head=tied)
    weights = host_weights(config)
    model = torch_models.make_model(family, config, weights)
    expected = torch_models.run_model(model, *rows).detach().numpy()
    found = logits_of(weights, *rows, config)
    valid = np.arange(12)[None] >= rows[1][:, None]
    assert np.abs(expected[valid]).max() > 1.0
    assert np.abs(found - expected)[valid].max() <= 1e-4


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_greedy_responses_equal_the_reference_implementation(family):
    config = FAMILIES[family]
    weights = host_weights(config)
    model = torch_models.make_model(family, config, weights)
    found, _ = programs.generate(ONE, config, greedy=True, end_ids=(), copies=1)
    tokens = found.tokens[:, :PROMPT]
    for _ in range(RESPONSE):
        logits = torch_models.run_model(model, tokens, found.starts)[:, -1]
        chosen = logits.argmax(-1).numpy().astype(np.int32)
        tokens = np.concatenate([tokens, chosen[:, None]], axis=1)
    np.testing.assert_array_equal(found.tokens, tokens)
    assert len(np.unique(found.tokens[:, PROMPT:])) > 4


def test_rows_equal_their_own_prompts_whatever_the_padding_holds(rows):
    tokens, starts = rows
    config = FAMILIES["Qwen3"]
    weights = host_weights(config)
    expected = logits_of(weights, tokens, starts, config)
    padding = np.arange(12)[None] < starts[:, None]
    other = logits_of(weights, np.where(padding, 31 - tokens, tokens), starts, config)
    np.testing.assert_array_equal(other[~padding], expected[~padding])
    assert np.all(np.isfinite(other))
    alone = logits_of(weights, tokens[5:6, 8:], np.zeros(1, np.int32), config)
    np.testing.assert_allclose(alone[0], expected[5, 8:], atol=1e-5)


def test_a_later_token_changes_nothing_before_it(rows):
    tokens, starts = rows
    config = FAMILIES["Qwen3"]
    weights = host_weights(config)
    expected = logits_of(weights, tokens, starts, config)
    changed = tokens.copy()
    changed[:, 7] = (changed[:, 7] + 1) % 32
    found = logits_of(weights, changed, starts, config)
    earlier = (np.arange(12)[None] >= starts[:, None]) & (np.arange(12)[None] < 7)
    np.testing.assert_array_equal(found[earlier], expected[earlier])
    assert np.all(np.any(found[:5, 7:] != expected[:5, 7:], axis=-1))


@pytest.mark.parametrize("place", EIGHT, ids=str)
def test_logits_do_not_depend_on_the_layout(place):
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 32, (8, 12)).astype(np.int32)
    starts = rng.integers(0, 8, 8).astype(np.int32)
    weights = host_weights(programs.MODEL)
    expected = logits_of(weights, tokens, starts, programs.MODEL)
    found = logits_of(weights, tokens, starts, programs.MODEL, place)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_activations_and_logits_have_the_configured_types():
    config = dataclasses.replace(BASE, compute_dtype="bfloat16")
    with ONE.entered() as layout:
        weights = put_weights(host_weights(config), config, ONE)
        tokens, _ = prompt_of(0, 32)
        rows = ONE.put_rows((tokens[None], np.zeros(1, np.int32)))
        hidden, _ = jax.eval_shape(
            lambda w, t, s: forward(w, t, s, config=config, layout=layout), weights, *rows
        )
    assert hidden.dtype == jnp.bfloat16
    wide = logits_of(host_weights(config), tokens[None], np.zeros(1, np.int32), config)
    exact = logits_of(host_weights(config), tokens[None], np.zeros(1, np.int32), BASE)
    assert wide.dtype == np.float32
    assert 1e-4 < np.abs(wide - exact).max() < 0.2
