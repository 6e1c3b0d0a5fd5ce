"""Every learner's layout beside every sampler's on one mesh: the laws hold for all pairs.

The programs of the sampler depend on its own rules alone and those of the learner on its own, so
that each is compiled once; weights and rollouts cross from one to the other through `sync_weights`
and `join_waves` as they do in a run.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from programs import (
    GROUP,
    GROUPS,
    MODEL,
    ONE,
    RESPONSE,
    ROWS,
    Spot,
    differentiate,
    generate,
    gradients_of,
    host_weights,
    largest_gap,
    learner_spec,
    make_batch,
    make_prompts,
    put_weights,
    sample_ids,
    sampler_spec,
    to_host,
)

from jax_rl.learner.update import init_state, score_rollouts, update
from jax_rl.mesh.layout import MESH_AXES, Layout
from jax_rl.mesh.layout_file import CACHE_AXES
from jax_rl.model.weights import describe_weights
from jax_rl.sampler.generate import decode, prefill, sync_weights
from jax_rl.trainer.programs import join_waves

ONE_LAYER = dataclasses.replace(MODEL, layers=1)
"""Enough: how layers follow each other is the same in all layouts, and tested in each."""
GAP = 1e-5  # of log-probabilities in nats, and of gradients relative to their norm
TEMPERATURES = (0.3, 1.0, 1.7)
SIZES = {8: (2, 2, 2), 4: (1, 2, 2), 2: (1, 1, 2), 1: (1, 1, 1)}


def split_over(*names):
    return tuple((axis, names) for axis in ("heads", "kv_heads", "mlp", "vocab"))


KINDS = {  # rules of the stored weights, and of what computes
    "replicated": ((), (("batch", MESH_AXES),)),
    "fsdp": ((("embed", ("fsdp", "tensor")),), (("batch", ("data", "fsdp")),)),
    "tensor": (
        split_over("fsdp", "tensor"),
        (("batch", ("data",)), *split_over("fsdp", "tensor")),
    ),
    "fsdp_tensor": (
        (("embed", ("fsdp",)), *split_over("tensor")),
        (("batch", ("data", "fsdp")), *split_over("tensor")),
    ),
}
PAIRS = [(learner, sampler) for learner in KINDS for sampler in KINDS]
FAST = [  # every learner and every sampler; the learner's programs are shared
    ("fsdp", "fsdp"),
    ("fsdp", "tensor"),
    ("tensor", "replicated"),
    ("replicated", "fsdp_tensor"),
    ("fsdp_tensor", "fsdp"),
]


@functools.cache
def make_pair(learner: str, sampler: str, devices: int, *, cache=None) -> Spot:
    """A layout of two kinds on a mesh that all pairs share."""
    weights, compute = KINDS[learner]
    rules = KINDS[sampler][1]
    table = dict(rules)
    own = tuple((axis, table[axis]) for axis in CACHE_AXES if axis in table)
    layout = Layout(
        name=f"{learner} and {sampler}",
        description="",
        mesh=tuple(zip(MESH_AXES, SIZES[devices], strict=True)),
        weights=weights,
        compute=compute,
        sampler=rules,
        cache=own if cache is None else cache,
    )
    mesh = jax.make_mesh(
        SIZES[devices],
        MESH_AXES,
        axis_types=(AxisType.Explicit,) * 3,
        devices=jax.devices()[:devices],
    )
    return Spot(layout, mesh)


def sampler_of(pair: Spot) -> Spot:
    """The pair as its sampler sees it, alike for all learners."""
    rules = dataclasses.replace(pair.rules.decoding, name="sampler", weights=())
    return Spot(rules, pair.mesh)


def learner_of(pair: Spot) -> Spot:
    """The pair as its learner sees it, alike for all samplers."""
    rules = dataclasses.replace(pair.rules, name="learner", sampler=(), cache=())
    return Spot(rules, pair.mesh)


def sample(pair, stored, temperature=1.0, **changes):
    """Rollouts where the sampler leaves them, and the cache's buffers."""
    sampler = sampler_of(pair)
    spec = sampler_spec(sampler, ONE_LAYER, GROUP, **changes)
    held = sync_weights(stored, ONE_LAYER, pair.rules.decoding)
    ids = sample_ids(range(GROUPS))
    prompts = make_prompts(sampler, *ids, copies=GROUP, vocab=ONE_LAYER.vocab)
    cache, hidden = prefill(held, prompts, spec)
    heat = jnp.float32(temperature)
    rollouts, _, cache = decode(held, cache, hidden, prompts, jax.random.key(5), heat, spec)
    return rollouts, cache


@functools.cache
def expect(temperature=1.0, **changes):
    """The same rollouts on one device."""
    return generate(ONE, ONE_LAYER, temperature=temperature, **changes)[0]


@functools.cache
def batch():
    lengths = np.random.default_rng(1).integers(1, RESPONSE + 1, ROWS)
    return make_batch(ONE_LAYER, lengths)


@functools.cache
def expect_gradients():
    return gradients_of(batch(), model=ONE_LAYER)


def check_on_policy(pair):
    """Tokens are those of one device, and the learner scores them as the sampler did."""
    with pair.entered():
        stored = put_weights(host_weights(ONE_LAYER), ONE_LAYER, pair)
        spec = learner_spec(learner_of(pair), ONE_LAYER, microbatch=8)
        for temperature in TEMPERATURES:
            rollouts, _ = sample(pair, stored, temperature)
            joined = join_waves((rollouts,), pair.rules)
            assert joined.tokens.sharding.spec == pair.rules.compute_spec(("batch", None))
            learnt = np.asarray(score_rollouts(stored, joined, jnp.float32(temperature), spec))
            inside = np.arange(RESPONSE)[None] < np.asarray(joined.lengths)[:, None]
            assert inside.sum() > ROWS
            assert np.abs(learnt - np.asarray(joined.log_probs))[inside].max() <= GAP
            wanted = expect(temperature)
            np.testing.assert_array_equal(joined.tokens, wanted.tokens)
            np.testing.assert_allclose(joined.log_probs, wanted.log_probs, atol=GAP, rtol=0)
        greedy, _ = sample(pair, stored, greedy=True)
        np.testing.assert_array_equal(greedy.tokens, expect(greedy=True).tokens)


def check_gradients(pair, waves):
    """Rollouts that the sampler left give the gradient of one device, wave by wave."""
    made, wanted = batch(), expect_gradients()
    sampler, learner = sampler_of(pair), learner_of(pair)
    with pair.entered():
        stored = put_weights(host_weights(ONE_LAYER), ONE_LAYER, pair)
        parts = [
            sampler.put_rows(jax.tree.map(lambda x, r=rows: x[r], made.rollouts))
            for rows in np.split(np.arange(ROWS), waves)
        ]
        joined = join_waves(tuple(parts), pair.rules)
        args = pair.put(made.rewards, None), pair.put(made.valid, None), jnp.float32(1.0)
        spec = learner_spec(learner, ONE_LAYER, microbatch=8)
        reference = learner.put_rows(made.reference)
        gradients, metrics = differentiate(stored, joined, *args, reference, spec)
        specs = jax.tree.map(lambda x: x.sharding.spec, (gradients, stored))
        assert specs[0] == specs[1]
        gap, name = largest_gap(to_host(gradients), wanted[0])
        assert gap <= GAP, name
        for key, metric in to_host(metrics).items():
            assert metric.value() == pytest.approx(wanted[1][key], rel=1e-5, abs=1e-6), key


SOME_SLOW = [pytest.param(*pair, marks=() if pair in FAST else pytest.mark.slow) for pair in PAIRS]


@pytest.mark.parametrize(("learner", "sampler"), SOME_SLOW)
def test_on_policy_law_and_tokens_on_eight_devices(learner, sampler):
    check_on_policy(make_pair(learner, sampler, 8))


@pytest.mark.parametrize(("learner", "sampler"), SOME_SLOW)
def test_batch_law_on_eight_devices(learner, sampler):
    check_gradients(make_pair(learner, sampler, 8), waves=1)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize(("learner", "sampler"), PAIRS)
def test_both_laws_on_fewer_devices(learner, sampler, devices):
    pair = make_pair(learner, sampler, devices)
    check_on_policy(pair)
    check_gradients(pair, waves=2)


def test_waves_are_joined_in_order_on_the_learners_layout():
    check_gradients(make_pair("fsdp", "tensor", 8), waves=4)


def test_programs_depend_on_their_own_rules_alone():
    """What lets every pair share the programs of its halves."""
    pair = make_pair("fsdp_tensor", "tensor", 8)
    with pair.entered():
        stored = put_weights(host_weights(ONE_LAYER), ONE_LAYER, pair)
        held = sync_weights(stored, ONE_LAYER, pair.rules.decoding)
        sampler, learner = sampler_of(pair), learner_of(pair)
        ids = sample_ids(range(GROUPS))
        prompts = make_prompts(sampler, *ids, copies=GROUP, vocab=ONE_LAYER.vocab)
        real = Spot(pair.rules.decoding, pair.mesh)
        bodies = [
            str(prefill.trace(held, prompts, sampler_spec(spot, ONE_LAYER, GROUP)).jaxpr)
            for spot in (sampler, real)
        ]
        assert bodies[0] == bodies[1]
        rollouts = learner.put_rows(batch().rollouts)
        heat = jnp.float32(1.0)
        bodies = [
            str(score_rollouts.trace(stored, rollouts, heat, learner_spec(spot, ONE_LAYER)).jaxpr)
            for spot in (learner, pair)
        ]
        assert bodies[0] == bodies[1]


# The cache


BY_ROWS = (("batch", MESH_AXES),)


def test_a_cache_on_other_axes_than_the_sampler():
    """Heads on `tensor` and the cache's rows too: attention is data parallel, all else is not."""
    pair = make_pair("fsdp", "fsdp_tensor", 8, cache=BY_ROWS)
    assert pair.rules.count_decoding_shards(dict(pair.mesh.shape)) == 8
    check_on_policy(pair)
    with pair.entered():
        stored = put_weights(host_weights(ONE_LAYER), ONE_LAYER, pair)
        held = sync_weights(stored, ONE_LAYER, pair.rules.decoding)
        assert held["layers"][0]["q"].sharding.spec == jax.P(None, "tensor")
        _, cache = sample(pair, stored)
        columns = cache.columns
        for part in (*cache.keys, *cache.values):
            # 32 rows on eight devices, all eight heads on each.
            assert part.sharding.spec == jax.P(MESH_AXES, None, None, None)
            assert part.addressable_shards[0].data.shape == (4, 8, columns, 4)
        _, usual = sample(make_pair("fsdp", "fsdp_tensor", 8), stored)
        assert usual.keys[0].addressable_shards[0].data.shape == (8, 4, columns, 4)


def test_attention_runs_where_its_cache_lies():
    """In the compiled program: queries, scores and cache of four rows, and no other."""
    pair = make_pair("fsdp", "fsdp_tensor", 8, cache=BY_ROWS)
    sampler = sampler_of(pair)
    with pair.entered():
        held = sync_weights(
            put_weights(host_weights(ONE_LAYER), ONE_LAYER, pair), ONE_LAYER, pair.rules.decoding
        )
        prompts = make_prompts(
            sampler, *sample_ids(range(GROUPS)), copies=GROUP, vocab=ONE_LAYER.vocab
        )
        spec = sampler_spec(sampler, ONE_LAYER, GROUP)
        cache, hidden = prefill(held, prompts, spec)
        args = (held, cache, hidden, prompts, jax.random.key(5), jnp.float32(1.0))
        text = decode.lower(*args, spec).compile().as_text()
    columns = spec.columns
    assert f"f32[4,8,{columns},4]" in text
    assert f"f32[8,4,{columns},4]" not in text  # the cache as the heads would have it
    assert f"f32[32,8,{columns},4]" not in text  # or gathered
    assert " all-to-all(" in text or " collective-permute(" in text or " all-gather(" in text


# Weights


@pytest.mark.parametrize(
    ("learner", "sampler"),
    [
        ("fsdp", "tensor"),
        pytest.param("fsdp_tensor", "replicated", marks=pytest.mark.slow),
        pytest.param("replicated", "fsdp_tensor", marks=pytest.mark.slow),
    ],
)
def test_after_an_update_the_sampler_holds_a_plain_cast(learner, sampler):
    low = dataclasses.replace(ONE_LAYER, compute_dtype="bfloat16")
    pair, made = make_pair(learner, sampler, 8), batch()
    own = learner_of(pair)
    with pair.entered():
        spec = learner_spec(own, low)
        before = host_weights(low)
        state = init_state(put_weights(before, low, pair), spec.optimizer, low)
        held = sync_weights(state.weights, low, pair.rules.decoding)
        check_cast(held, before)
        rollouts, reference = own.put_rows((made.rollouts, made.reference))
        rewards, valid = pair.put(made.rewards, None), pair.put(made.valid, None)
        rates, heat = jnp.full(1, 0.1, jnp.float32), jnp.float32(1.0)
        state, _ = update(state, rollouts, rewards, valid, rates, heat, reference, spec)
        held = sync_weights(state.weights, low, pair.rules.decoding)
        after = to_host(state.weights)
        check_cast(held, after)
        changed = [
            np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True)
        ]
        assert all(changed)
        described = describe_weights(low)
        for name in ("embedding", "head", "final_norm"):
            wanted = pair.rules.decoding.compute_spec(described[name].axes)
            assert held[name].sharding.spec == wanted


def check_cast(held, stored):
    """Every array of the sampler is the stored one, rounded."""
    for name, array in stored.items():
        if name != "layers":
            np.testing.assert_array_equal(held[name], array.astype(jnp.bfloat16))
            assert held[name].dtype == jnp.bfloat16
    (layer,) = held["layers"]
    assert layer.keys() == stored["layers"].keys()
    for name, stack in stored["layers"].items():
        plain = stack[0].astype(jnp.bfloat16)
        np.testing.assert_array_equal(np.asarray(layer[name]).reshape(plain.shape), plain)
