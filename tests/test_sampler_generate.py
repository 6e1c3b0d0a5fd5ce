"""Generation: how responses end, what is returned past the end, refusals, memory."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import NamedSharding
from programs import (
    EIGHT,
    GROUPS,
    MODEL,
    ONE,
    PROMPT,
    RESPONSE,
    ROWS,
    Place,
    generate,
    host_weights,
    make_prompts,
    prompt_of,
    put_weights,
    sample_ids,
    sampler_spec,
    score,
    to_host,
)

from jax_rl.config import ModelConfig
from jax_rl.mesh.devices import make_mesh
from jax_rl.model.cache import CACHE_AXES, KVCache, make_cache
from jax_rl.model.weights import describe_weights
from jax_rl.sampler.generate import Prompts, SamplerSpec, decode, prefill, sync_weights


@pytest.fixture(scope="module")
def endless():
    """Responses without an end token; draws depend on nothing that follows them."""
    return generate(ONE, end_ids=())[0]


@pytest.mark.parametrize(
    ("ends", "pad"),
    [((2, 9), 0), ((9,), 9), ((1, 4, 7, 12, 15, 20), 3), ((31,), 0)],
    ids=["two", "pad-is-end", "six", "one"],
)
@pytest.mark.parametrize("place", [ONE, EIGHT[3]], ids=str)
def test_responses_are_cut_after_the_first_end_token(endless, place, ends, pad):
    if place != ONE and len(ends) != 6:
        pytest.skip("one set of end tokens is enough on eight devices")
    found, steps = generate(place, end_ids=ends, pad_id=pad)
    full = endless.tokens[:, PROMPT:]
    is_end = np.isin(full, ends)
    ended = is_end.any(1)
    lengths = np.where(ended, is_end.argmax(1) + 1, RESPONSE)
    assert found.lengths.tolist() == lengths.tolist()
    assert found.ended.tolist() == ended.tolist()
    assert steps == lengths.max()
    kept = np.arange(RESPONSE)[None] < lengths[:, None]
    written = np.arange(RESPONSE) < steps
    np.testing.assert_array_equal(found.tokens[:, PROMPT:], np.where(kept, full, pad))
    np.testing.assert_array_equal(found.tokens[:, :PROMPT], endless.tokens[:, :PROMPT])
    np.testing.assert_allclose(
        found.log_probs[:, written],
        np.where(kept, endless.log_probs, 0.0)[:, written],
        atol=1e-5,
    )
    if len(ends) == 6:
        assert (lengths == 1).any()
        assert not ended.all()


def test_the_loop_stops_when_every_row_has_ended():
    found, steps = generate(ONE, end_ids=tuple(range(32)))
    assert steps == 1
    assert np.all(found.lengths == 1)
    assert np.all(found.ended)
    assert np.all(found.log_probs[:, 1:] == 0)


def test_rows_keep_their_prompts(endless):
    groups, members = sample_ids(range(GROUPS))
    for row in range(ROWS):
        tokens, start = prompt_of(groups[row], MODEL.vocab)
        assert endless.tokens[row, :PROMPT].tolist() == tokens.tolist()
        assert endless.starts[row] == start
    responses = {tuple(row) for row in endless.tokens[:, PROMPT:]}
    assert len(responses) == ROWS
    assert members.max() == 3


def test_greedy_takes_the_most_probable_token_whatever_the_seed():
    first, _ = generate(ONE, greedy=True, seed=0)
    second, _ = generate(ONE, greedy=True, seed=1)
    np.testing.assert_array_equal(first.tokens, second.tokens)
    same = first.tokens.reshape(GROUPS, -1, PROMPT + RESPONSE)
    assert np.all(same == same[:, :1])
    cold, _ = generate(ONE, temperature=1e-3, seed=3)
    np.testing.assert_array_equal(cold.tokens, first.tokens)


def prefilled(place, model, columns=None):
    """What the decode program is given."""
    ids = sample_ids(range(GROUPS))
    spec = sampler_spec(place, model, 4)
    layout = place.rules
    weights = put_weights(host_weights(model), model, place)
    held = sync_weights(weights, model, layout)
    prompts = make_prompts(place, *ids, copies=4, vocab=model.vocab)
    cache, hidden = prefill(held, prompts, spec)
    if columns is not None:
        starts = cache.starts
        cache = make_cache(ROWS, columns, starts=starts, config=model, layout=layout)
    return held, cache, hidden, prompts, jax.random.key(0), jnp.float32(1.0), spec


@pytest.mark.parametrize(
    "place", [ONE, pytest.param(EIGHT[1], marks=pytest.mark.slow), EIGHT[3]], ids=str
)
def test_forced_lengths_are_obeyed_and_change_nothing_else(endless, place):
    # Every length up to the limit; the end tokens 2 and 9 are drawn and end nothing.
    forced = np.random.default_rng(4).permutation(np.arange(ROWS) % RESPONSE + 1).astype(np.int32)
    with place.entered():
        held, _, _, prompts, _, heat, spec = prefilled(place, MODEL)
        prompts = dataclasses.replace(prompts, lengths=place.put(forced, "batch"))
        cache, hidden = prefill(held, prompts, spec)
        found, steps, _ = decode(held, cache, hidden, prompts, jax.random.key(5), heat, spec)
        found = to_host(found)
    assert found.lengths.tolist() == forced.tolist()
    assert np.all(found.ended)
    assert steps == RESPONSE
    kept = np.arange(RESPONSE)[None] < forced[:, None]
    drawn = endless.tokens[:, PROMPT:]
    early = kept & (np.arange(RESPONSE)[None] < forced[:, None] - 1)
    assert np.any(np.isin(drawn, spec.end_ids) & early)
    np.testing.assert_array_equal(found.tokens[:, PROMPT:], np.where(kept, drawn, spec.pad_id))
    learnt = score(place, found)
    np.testing.assert_allclose(found.log_probs[kept], learnt[kept], atol=1e-5)
    assert np.all(found.log_probs[~kept] == 0)


def test_the_loop_stops_at_the_longest_forced_length():
    with ONE.entered():
        held, _, _, prompts, key, heat, spec = prefilled(ONE, MODEL)
        forced = np.full(ROWS, 2, np.int32)
        forced[5] = 4
        prompts = dataclasses.replace(prompts, lengths=ONE.put(forced, "batch"))
        cache, hidden = prefill(held, prompts, spec)
        found, steps, _ = decode(held, cache, hidden, prompts, key, heat, spec)
    assert steps == 4
    assert found.lengths.tolist() == forced.tolist()


def test_a_cache_without_room_is_refused_before_the_loop():
    with ONE.entered():
        inputs = prefilled(ONE, MODEL, columns=PROMPT + RESPONSE - 1)
        with pytest.raises(ValueError, match="13 columns, 14 are needed"):
            decode(*inputs)


def test_prompts_of_another_length_are_refused():
    with ONE.entered():
        held, _, _, prompts, *_, spec = prefilled(ONE, MODEL)
        other = dataclasses.replace(spec, max_prompt_length=PROMPT + 1)
        with pytest.raises(ValueError, match="8 columns, the sampler 9"):
            prefill(held, prompts, other)


def test_weights_are_held_as_they_compute():
    low = dataclasses.replace(MODEL, compute_dtype="bfloat16")
    with EIGHT[1].entered() as layout:
        held = sync_weights(put_weights(host_weights(low), low, EIGHT[1]), low, layout)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(held)} == {"bfloat16"}
    assert all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(held))
    assert len(held["layers"]) == low.layers


@pytest.mark.parametrize("place", [ONE, EIGHT[3]], ids=str)
def test_the_decode_program_writes_to_the_cache_that_it_was_given(place):
    with place.entered():
        inputs = prefilled(place, MODEL)
        cache = inputs[1]
        compiled = decode.lower(*inputs).compile()
        memory = compiled.memory_analysis()
        keys = [x.addressable_shards[0].data for x in (*cache.keys, *cache.values)]
        held = sum(x.nbytes for x in keys)
        assert memory.alias_size_in_bytes >= held
        shape = ",".join(str(size) for size in keys[0].shape)
        copies = [
            line
            for line in compiled.as_text().splitlines()
            if f"f32[{shape}]" in line.split("copy(")[0] and " copy(" in line
        ]
        assert not copies, "\n".join(copies)
        rollouts, _, after = decode(*inputs)
    assert all(x.is_deleted() for x in (*cache.keys, *cache.values))
    assert not any(x.is_deleted() for x in (*after.keys, *after.values))
    assert rollouts.tokens.shape == (ROWS, PROMPT + RESPONSE)


@pytest.mark.slow
def test_temporaries_of_decode_on_a_tpu_are_small_beside_the_cache(monkeypatch):
    """Compiled ahead of time for four v5e chips that need not be there."""
    pytest.importorskip("libtpu", reason="compiling for a TPU needs libtpu")
    monkeypatch.setenv("XLA_FLAGS", "")  # libtpu would read it too, and knows other flags
    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "localhost")
    chips = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    model = ModelConfig(
        layers=4,
        embed=1024,
        heads=16,
        kv_heads=8,
        head_dim=128,
        mlp=3072,
        vocab=32_768,
        compute_dtype="bfloat16",
    )
    layout, rows = Place("replicated", 4).rules, 64
    spec = SamplerSpec(model, layout, 1024, 1024, 8, end_ids=(2,), pad_id=0)
    mesh = make_mesh(layout, chips)

    def shaped(shape, dtype, axes=()):
        sharding = NamedSharding(mesh, layout.compute_spec(axes))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    described = describe_weights(model)
    held = jax.tree.map(lambda w: shaped(w.shape, jnp.bfloat16, w.axes), described)
    layer = jax.tree.map(
        lambda w: shaped(w.shape[1:], jnp.bfloat16, w.axes[1:]), described["layers"]
    )
    held["layers"] = (layer,) * model.layers
    sizes = {"batch": rows, "kv_heads": 8, None: spec.columns, "head_dim": 128}
    part = shaped(tuple(sizes[axis] for axis in CACHE_AXES), jnp.bfloat16, CACHE_AXES)
    ids = shaped((rows,), jnp.int32, ("batch",))
    cache = KVCache((part,) * 4, (part,) * 4, starts=ids, cursor=shaped((), jnp.int32))
    prompts = Prompts(
        shaped((rows // 8, 1024), jnp.int32, ("batch", None)),
        shaped((rows // 8,), jnp.int32, ("batch",)),
        groups=ids,
        members=ids,
    )
    hidden = shaped((rows, model.embed), jnp.bfloat16, ("batch", None))
    key = shaped((), jax.eval_shape(lambda: jax.random.key(0)).dtype)
    with jax.set_mesh(mesh):
        compiled = decode.lower(
            held, cache, hidden, prompts, key, shaped((), jnp.float32), spec
        ).compile()
    held_bytes = 8 * part.size * 2 // len(chips)
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= held_bytes
    assert memory.temp_size_in_bytes < 0.1 * held_bytes
