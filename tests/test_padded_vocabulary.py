"""Rows of the embedding that only fill the devices up: never drawn, never learnt, never written.

The model of 30 tokens is run with 32 rows on eight vocabulary shards and compared with itself
without padding on one device.
"""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import (
    MODEL,
    ONE,
    PROMPT,
    RESPONSE,
    ROWS,
    Place,
    generate,
    gradients_of,
    host_weights,
    largest_gap,
    learner_spec,
    make_batch,
    put_weights,
    score,
    to_host,
)
from trainer_runs import CONFIG, change

from jax_rl.config import Config, OptimizerConfig
from jax_rl.errors import UserError
from jax_rl.learner.update import init_state, update
from jax_rl.mesh.layout import Layout
from jax_rl.model.distribution import pick_log_prob, sampled_logits, score_tokens
from jax_rl.model.weights import count_parameters, dimensions, init_weights
from jax_rl.trainer.setup import pad_vocabulary, prepare_run
from jax_rl.trainer.warm_start import cache_folder, make_warm_start

VOCAB, PADDED_VOCAB = 30, 32
SPLIT = Place("tensor", 8)
PLAIN = dataclasses.replace(MODEL, vocab=VOCAB)
PADDED = dataclasses.replace(PLAIN, padded_vocab=PADDED_VOCAB)
TABLES = ("embedding", "head")


def pad(weights):
    """The same weights with rows of zeros at the end of their tables."""
    rows = ((0, PADDED_VOCAB - VOCAB), (0, 0))
    return {**weights, **{name: np.pad(weights[name], rows) for name in TABLES if name in weights}}


def cut(weights, vocab=VOCAB, rows=PADDED_VOCAB):
    """The same weights without the padding, which has to be zero to the bit."""
    for name in TABLES:
        if name in weights:
            assert weights[name].shape[0] == rows
            assert not np.any(np.asarray(weights[name])[vocab:]), name
    return {**weights, **{name: weights[name][:vocab] for name in TABLES if name in weights}}


@functools.cache
def batch(tied=False):
    lengths = np.random.default_rng(1).integers(1, RESPONSE + 1, ROWS)
    return make_batch(dataclasses.replace(PLAIN, tied_head=tied), lengths)


# Sampling


@pytest.mark.parametrize(
    "temperature", [pytest.param(0.5, marks=pytest.mark.slow), 1e3], ids=["sharp", "even"]
)
def test_tokens_are_those_of_the_model_without_padding(temperature):
    weights = host_weights(PLAIN)
    wanted, _ = generate(ONE, PLAIN, weights=weights, temperature=temperature, end_ids=())
    found, _ = generate(SPLIT, PADDED, weights=pad(weights), temperature=temperature, end_ids=())
    np.testing.assert_array_equal(found.tokens, wanted.tokens)
    np.testing.assert_allclose(found.log_probs, wanted.log_probs, atol=1e-5, rtol=0)
    if temperature > 1:  # all tokens alike: two rows more would have a share of 1/16
        responses = found.tokens[:, PROMPT:]
        assert responses.max() == VOCAB - 1
        np.testing.assert_allclose(found.log_probs, -np.log(VOCAB), atol=0.01)


def test_padding_is_not_drawn_whatever_its_rows_hold():
    """Even rows that would win: the mask decides, not the zeros."""
    weights = pad(host_weights(PLAIN))
    wanted, _ = generate(SPLIT, PADDED, weights=weights, greedy=True)
    weights["head"] = weights["head"].copy()
    weights["head"][VOCAB:] = 100.0 * np.sign(weights["head"][0])
    found, _ = generate(SPLIT, PADDED, weights=weights, greedy=True)
    np.testing.assert_array_equal(found.tokens, wanted.tokens)
    drawn, _ = generate(SPLIT, PADDED, weights=weights, temperature=2.0)
    assert drawn.tokens[:, PROMPT:].max() < VOCAB


def test_greedy_does_not_take_a_row_of_zeros_where_all_others_are_negative():
    hidden, head = np.ones((4, 8), np.float32), np.zeros((PADDED_VOCAB, 8), np.float32)
    head[:VOCAB] = -np.arange(1.0, VOCAB + 1)[:, None]
    logits = sampled_logits(hidden, head, jnp.float32(1.0), bound=0.0, vocab=VOCAB)
    assert np.argmax(logits, axis=-1).tolist() == [0] * 4
    assert np.all(logits[:, VOCAB:] == -1e30)
    np.testing.assert_allclose(logits[:, 0], -8.0)


@pytest.mark.parametrize("chunk", [2, 256])
def test_log_probabilities_and_entropy_have_no_padding_in_them(chunk):
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((8, 6, 16)).astype(np.float32)
    head = rng.standard_normal((VOCAB, 16)).astype(np.float32)
    tokens = rng.integers(0, VOCAB, (8, 6)).astype(np.int32)
    padded = np.pad(head, ((0, 2), (0, 0)), constant_values=3.0)
    kinds = {"bound": 2.0, "vocab": VOCAB, "chunk": chunk}
    wanted = score_tokens(hidden, head, tokens, jnp.float32(0.7), **kinds)
    with SPLIT.entered():
        rows, places = SPLIT.put_rows((hidden, tokens))
        split = SPLIT.put(padded, "vocab", None)
        found = score_tokens(rows, split, places, jnp.float32(0.7), **kinds)
    for one, other in zip(found, wanted, strict=True):
        assert np.all(np.isfinite(one))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    logits = sampled_logits(hidden, padded, jnp.float32(0.7), bound=2.0, vocab=VOCAB)
    np.testing.assert_allclose(pick_log_prob(logits, tokens), wanted[0], rtol=1e-5, atol=1e-6)


# Learning


@pytest.mark.parametrize(
    "tied", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["untied", "tied"]
)
def test_gradients_and_metrics_are_those_without_padding(tied):
    plain = dataclasses.replace(PLAIN, tied_head=tied)
    padded = dataclasses.replace(PADDED, tied_head=tied)
    weights = host_weights(plain)
    gradients, metrics = gradients_of(batch(tied), model=plain, weights=weights)
    found, same = gradients_of(batch(tied), SPLIT, model=padded, weights=pad(weights))
    gap, name = largest_gap(cut(found), gradients)
    assert gap <= 1e-5, name
    assert same.keys() == metrics.keys()
    assert np.isfinite(same["entropy"])
    for key, value in metrics.items():
        assert same[key] == pytest.approx(value, rel=1e-5, abs=1e-6), key


def test_the_learner_scores_as_without_padding():
    weights, rollouts = host_weights(PLAIN), batch().rollouts
    wanted = score(ONE, rollouts, temperature=0.6, model=PLAIN, weights=weights)
    found = score(SPLIT, rollouts, temperature=0.6, model=PADDED, weights=pad(weights))
    np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_padding_stays_zero_under_weight_decay():
    """Three updates; the other rows go where they go without padding."""
    # A large epsilon: rounding of a gradient near zero must not become a step of full size.
    optimizer = OptimizerConfig(weight_decay=0.5, epsilon=1e-2)

    def learn(place, model, weights):
        made = batch()
        with place.entered():
            spec = learner_spec(place, model, optimizer=optimizer)
            state = init_state(put_weights(weights, model, place), optimizer, model)
            rates = jnp.full(1, 0.05, jnp.float32)
            for _ in range(3):
                rollouts, reference = place.put_rows((made.rollouts, made.reference))
                rewards, valid = place.put(made.rewards, None), place.put(made.valid, None)
                args = (rollouts, rewards, valid, rates, jnp.float32(1.0), reference)
                state, _ = update(state, *args, spec)
            return to_host(state)

    before = host_weights(PLAIN)
    wanted, found = learn(ONE, PLAIN, before), learn(SPLIT, PADDED, pad(before))
    gap, name = largest_gap(cut(found.weights), wanted.weights)
    assert gap <= 1e-5, name
    moved, name = largest_gap(wanted.weights, before)
    assert moved > 0.01
    for moments in (found.optimizer[1].mu, found.optimizer[1].nu):
        cut(moments)


# Weights


@pytest.mark.parametrize(
    "place", [pytest.param(Place("fsdp", 8), marks=pytest.mark.slow), SPLIT], ids=str
)
def test_initial_weights_do_not_depend_on_padding(place):
    with ONE.entered() as layout:
        wanted = to_host(init_weights(jax.random.key(3), PLAIN, layout))
    with place.entered() as layout:
        found = cut(to_host(init_weights(jax.random.key(3), PADDED, layout)))
    jax.tree.map(np.testing.assert_array_equal, found["layers"], wanted["layers"])
    for name in TABLES:
        # A part of the rows is computed by another loop, which may round otherwise.
        ulps = 4 if place == SPLIT else 0
        np.testing.assert_array_max_ulp(found[name], wanted[name], ulps)


def test_padding_is_not_counted_as_parameters():
    for tied in (False, True):
        plain = dataclasses.replace(PLAIN, tied_head=tied)
        padded = dataclasses.replace(PADDED, tied_head=tied)
        assert count_parameters(padded) == count_parameters(plain)
    assert dimensions(PADDED)["vocab"] == 32
    assert dimensions(PLAIN)["vocab"] == 30


def vocabulary_config(vocab: int, padded: int = 0) -> Config:
    return change(CONFIG, model={"vocab": vocab, "padded_vocab": padded})


def test_a_vocabulary_is_padded_as_the_layout_needs():
    rules, sizes = SPLIT.rules, {"data": 1, "fsdp": 1, "tensor": 8}
    for asked, rows in ((30, 32), (32, 32), (33, 40), (151_936, 151_936), (32_003, 32_008)):
        config = pad_vocabulary(vocabulary_config(asked), rules, sizes)
        assert (config.model.vocab, config.model.vocab_rows) == (asked, rows)
        assert (config.model.padded_vocab == 0) == (asked == rows)
    # Said twice it is the same: what a record holds can be given again.
    again = pad_vocabulary(pad_vocabulary(vocabulary_config(33), rules, sizes), rules, sizes)
    assert again.model.vocab_rows == 40
    assert pad_vocabulary(vocabulary_config(30, 48), rules, sizes).model.vocab_rows == 48
    assert pad_vocabulary(vocabulary_config(32, 32), rules, sizes).model.padded_vocab == 0
    whole = pad_vocabulary(vocabulary_config(30), ONE.rules, {"data": 1, "fsdp": 1, "tensor": 1})
    assert whole.model.vocab_rows == 30


def test_the_sampler_may_need_the_padding_alone():
    """Weights and learner split nothing, the sampler its vocabulary over four devices."""
    place = Place("fsdp_sampler_tensor", 8)
    config = pad_vocabulary(vocabulary_config(30), place.rules, dict(place.mesh.shape))
    assert config.model.vocab_rows == 32


@pytest.mark.parametrize("rows", [24, 29, 31, 36])
def test_a_padded_vocabulary_that_cannot_be_is_refused(rows):
    message = (
        rf"model.padded_vocab = {rows} must be at least model.vocab = 30 and a multiple of 8, .*"
        r" layout tensor .*; 32 is the least, and what 0 takes$"
    )
    with pytest.raises(UserError, match=message):
        pad_vocabulary(vocabulary_config(30, rows), SPLIT.rules, {"fsdp": 1, "tensor": 8})


# Files


VOCAB_SPLIT = Layout(
    name="vocab_split",
    description="",
    mesh=(("data", 1), ("fsdp", 1), ("tensor", 8)),
    weights=(("vocab", ("tensor",)),),
    compute=(("vocab", ("tensor",)),),
    sampler=(("vocab", ("tensor",)),),
    cache=(),
)


@pytest.mark.parametrize(
    ("family", "rows"), [("mistral", 96), ("gemma3", 72), ("gemma3", 80)], ids=str
)
def test_checkpoints_have_no_padding(family, rows, tmp_path: Path):
    """Loaded with zeros after the last token, a part of a device or whole ones; written without."""
    from checkpoints import read_json, write_checkpoint
    from safetensors.numpy import load_file

    from jax_rl.config import ModelConfig
    from jax_rl.mesh.devices import make_mesh
    from jax_rl.model.huggingface.export import export_checkpoint
    from jax_rl.model.huggingface.families import read_model_config
    from jax_rl.model.huggingface.load import load_weights

    source, target = tmp_path / "source", tmp_path / "target"
    write_checkpoint(family, source)
    plain = read_model_config(source, base=ModelConfig())
    padded = dataclasses.replace(plain, padded_vocab=rows)
    with ONE.entered() as layout:
        wanted = to_host(load_weights(source, config=plain, layout=layout))
    with jax.set_mesh(make_mesh(VOCAB_SPLIT, jax.devices())):
        weights = load_weights(source, config=padded, layout=VOCAB_SPLIT)
    found = to_host(weights)
    assert found["embedding"].shape[0] == rows
    for name in {*TABLES} & {*found}:
        assert weights[name].addressable_shards[0].data.shape[0] == rows // 8
        np.testing.assert_array_equal(found[name][: plain.vocab], wanted[name])
        assert not np.any(found[name][plain.vocab :])
    jax.tree.map(np.testing.assert_array_equal, found["layers"], wanted["layers"])
    export_checkpoint(weights, target, config=padded, source=source, dtype="float32")
    before, after = (load_file(folder / "model.safetensors") for folder in (source, target))
    assert before.keys() == after.keys()
    for name, values in before.items():
        np.testing.assert_array_equal(after[name], values, err_msg=name, strict=True)
    assert read_json(target)["vocab_size"] == plain.vocab


@pytest.mark.parametrize("first", ["padded", pytest.param("plain", marks=pytest.mark.slow)])
def test_the_warm_start_is_shared_with_layouts_that_need_no_padding(
    first, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAX_RL_CACHE", str(tmp_path))
    vocab, rows = 33, 40  # the tokenizer has 32
    asked = {"warm_start": {"updates": 2, "batch": 16}, "model": {"vocab": vocab}}
    setups = {
        "plain": prepare_run(change(CONFIG, **asked)),
        "padded": prepare_run(change(CONFIG, **asked, run={"devices": 8, "layout": "tensor"})),
    }
    assert setups["plain"].config.model.vocab_rows == vocab
    assert setups["padded"].config.model.vocab_rows == rows
    second = "plain" if first == "padded" else "padded"
    weights, reports = {}, {}
    for name in (first, second):
        with jax.set_mesh(setups[name].mesh):
            made, reports[name] = make_warm_start(setups[name])
            weights[name] = to_host(made)
    assert (reports[first].cached, reports[second].cached) == (False, True)
    assert len([*cache_folder().iterdir()]) == 1
    shared = cut(weights["padded"], vocab, rows)
    jax.tree.map(np.testing.assert_array_equal, shared, weights["plain"])
