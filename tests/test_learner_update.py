"""Updates: against PyTorch and optax, masks and ends, state that keeps its type."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch_models
from programs import (
    EIGHT,
    GROUP,
    MODEL,
    ONE,
    PROMPT,
    RESPONSE,
    ROWS,
    SMALL,
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

from jax_rl.config import ModelConfig, ObjectiveConfig, OptimizerConfig
from jax_rl.learner.update import init_state, update
from jax_rl.model.weights import decay_mask

QWEN3 = ModelConfig(layers=2, embed=16, heads=4, kv_heads=2, head_dim=8, mlp=24, vocab=24)


def take_updates(batches, place=ONE, *, rates, model=SMALL, weights=None, **changes):
    """Weights, metrics and state after some calls of `update`, each on its batch."""
    rows, columns = batches[0].rollouts.tokens.shape
    response = batches[0].rollouts.log_probs.shape[1]
    changes.setdefault("microbatch", rows)
    spec = learner_spec(
        place,
        model,
        max_prompt_length=columns - response,
        max_response_length=response,
        **changes,
    )
    metrics = {}
    with place.entered():
        state = init_state(
            put_weights(weights or host_weights(model), model, place), spec.optimizer, spec.model
        )
        for batch, rate in zip(batches, rates, strict=True):
            rollouts, reference = place.put_rows((batch.rollouts, batch.reference))
            state, metrics = update(
                state,
                rollouts,
                place.put(batch.rewards, None),
                place.put(batch.valid, None),
                jnp.asarray(rate, jnp.float32).reshape(-1),
                jnp.float32(1.0),
                reference,
                spec,
            )
        return state, {name: metric.value() for name, metric in to_host(metrics).items()}


def norm_of(tree):
    return (
        sum(float(np.sum(np.square(leaf, dtype=np.float64))) for leaf in jax.tree.leaves(tree))
        ** 0.5
    )


# Against PyTorch


@pytest.mark.parametrize("denominator", ["tokens", "sequences"])
def test_gradient_equals_that_of_the_loss_written_in_pytorch(denominator):
    lengths = [6, 1, 3, 2, 1, 6, 5, 1]
    ended = np.array([True, True, True, False, True, True, True, True])
    batch = make_batch(QWEN3, np.array(lengths), ended=ended)
    batch.rewards[:] = [0, 1, 2, 0, 1, 1, 3, 0]
    batch.valid[4] = False
    batch.rewards[4] = np.nan
    objective = ObjectiveConfig(
        clip_low=0.1,
        clip_high=0.15,
        denominator=denominator,
        kl_coefficient=0.3,
        mask_truncated=True,
    )
    found, metrics = gradients_of(
        batch, model=QWEN3, objective=objective, temperature=0.7, microbatch=2
    )
    weights = host_weights(QWEN3)
    model = torch_models.make_model("Qwen3", QWEN3, weights, torch_models.torch.float64)
    loss = torch_models.grpo_loss(
        model,
        batch,
        group=GROUP,
        temperature=0.7,
        clip_low=0.1,
        clip_high=0.15,
        kl_coefficient=0.3,
        denominator=denominator,
        mask_truncated=True,
    )
    loss.backward()
    expected = {name: p.grad.numpy() for name, p in model.named_parameters()}
    gap, name = largest_gap(torch_models.name_weights(found), expected)
    assert gap <= 1e-4, name
    assert metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert metrics["ratio_clipped"] > 0.1
    assert metrics["counted"] == 6 / 8
    assert metrics["reward"] == pytest.approx(7 / 7)


# The optimizer


def test_three_updates_equal_optax_on_the_same_gradients():
    config = OptimizerConfig(weight_decay=0.1, max_grad_norm=0.05)
    batches = [make_batch(SMALL, np.full(8, 5), prompt=3, response=5, seed=s) for s in range(3)]
    rates = [1e-3, 3e-3, 2e-3]
    found, metrics = take_updates(batches, rates=rates, optimizer=config)
    weights = host_weights(SMALL)
    optimizer = optax.chain(
        optax.clip_by_global_norm(0.05),
        optax.adamw(
            lambda count: jnp.array(rates)[count],
            b1=0.9,
            b2=0.99,
            eps=1e-8,
            weight_decay=0.1,
            mask=decay_mask(SMALL),
        ),
    )
    moments = jax.jit(optimizer.init)(weights)
    for batch in batches:
        gradients, _ = gradients_of(batch, model=SMALL, weights=to_host(weights))
        steps, moments = jax.jit(optimizer.update)(gradients, moments, weights)
        weights = jax.tree.map(np.add, to_host(weights), to_host(steps))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        to_host(found.weights),
        to_host(weights),
    )
    assert int(found.update) == 3
    assert metrics["grad_norm"] == pytest.approx(norm_of(gradients), rel=1e-4)
    assert metrics["update_norm"] == pytest.approx(norm_of(steps), rel=1e-4)
    assert metrics["clipped_gradient"] == 1.0


def update_thrice(place):
    """The state after three calls of two updates, its types before each, and compiled programs."""
    batch = make_batch(MODEL, np.full(ROWS, RESPONSE), noise=0.05)
    spec = learner_spec(place, updates=2, microbatch=8)
    with place.entered():
        state = init_state(
            put_weights(host_weights(MODEL), MODEL, place), spec.optimizer, spec.model
        )
        rollouts, reference = place.put_rows((batch.rollouts, batch.reference))
        rewards, valid = place.put(batch.rewards, None), place.put(batch.valid, None)
        rates, heat = jnp.full(2, 1e-3, jnp.float32), jnp.float32(1.0)
        types, programs = [], []
        for _ in range(3):
            types.append(jax.tree.map(jax.typeof, state))
            state, _ = update(state, rollouts, rewards, valid, rates, heat, reference, spec)
            programs.append(update._cache_size())
    return state, types, programs


SOME_SLOW = [*(pytest.param(place, marks=pytest.mark.slow) for place in EIGHT[:3]), EIGHT[3]]


@pytest.fixture(scope="module")
def thrice():
    return functools.cache(update_thrice)


@pytest.mark.parametrize("place", [ONE, *SOME_SLOW], ids=str)
def test_the_state_keeps_its_type_and_the_program_is_compiled_once(thrice, place):
    state, types, programs = thrice(place)
    assert types[0] == types[1] == types[2]
    assert programs[0] == programs[1] == programs[2]
    adam = state.optimizer[1]
    for moments in (adam.mu, adam.nu):
        assert jax.tree.map(jax.typeof, moments) == jax.tree.map(jax.typeof, state.weights)
    assert int(state.update) == 6


@pytest.mark.parametrize("place", SOME_SLOW, ids=str)
def test_every_weight_moves_and_alike_in_every_layout(thrice, place):
    found, expected = (to_host(thrice(where)[0].weights) for where in (place, ONE))
    # Adam divides by the root of the second moment, so a rounded gradient near 0 still makes a
    # full step: a thousandth of the distance moved.
    gaps = jax.tree.map(
        lambda x, y, start: np.linalg.norm(x - y) / np.linalg.norm(y - start),
        found,
        expected,
        host_weights(MODEL),
    )
    assert np.max(jax.tree.leaves(gaps)) < 1e-3  # and no weight stayed: its gap would be NaN


def test_the_rate_is_the_rate_of_the_update():
    batch = make_batch(SMALL, np.full(8, 5), prompt=3, response=5)
    plain = OptimizerConfig(weight_decay=0.0)
    norms = []
    for rate in (0.0, 1e-3, 2e-3):
        state, metrics = take_updates([batch], rates=[rate], optimizer=plain)
        start = host_weights(SMALL)
        moved = jax.tree.map(lambda x, y: x - y, to_host(state.weights), start)
        norms.append(norm_of(moved))
        assert metrics["update_norm"] == pytest.approx(norms[-1], rel=1e-3)
    assert norms[0] == 0
    assert norms[1] > 0
    assert norms[2] == pytest.approx(2 * norms[1], rel=1e-3)


def test_several_updates_are_the_minibatches_in_turn():
    batch = make_batch(SMALL, np.array([5, 1, 2, 5, 3, 3, 1, 4]), prompt=3, response=5)
    batch.rewards[:] = [0, 1, 2, 0, 1, 1, 3, 0]
    together, metrics = take_updates([batch], rates=[[1e-3, 2e-3]], updates=2, microbatch=4)
    halves = [batch.take(np.arange(4)), batch.take(np.arange(4, 8))]
    apart, _ = take_updates(halves, rates=[1e-3, 2e-3])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        to_host(together.weights),
        to_host(apart.weights),
    )
    # The second minibatch meets weights that have moved; only the first is a mismatch.
    _, first = take_updates(halves[:1], rates=[1e-3])
    assert metrics["mismatch_mean"] == pytest.approx(first["mismatch_mean"], rel=1e-5)
    assert metrics["mismatch_max"] == pytest.approx(first["mismatch_max"], rel=1e-5)


def test_master_weights_stay_float32_and_small_steps_add_up_under_bfloat16():
    low = dataclasses.replace(SMALL, compute_dtype="bfloat16")
    batch = make_batch(SMALL, np.full(8, 5), prompt=3, response=5)
    state, _ = take_updates(
        [batch] * 20, rates=[1e-6] * 20, model=low, optimizer=OptimizerConfig(weight_decay=0.0)
    )
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(state.weights)} == {"float32"}
    start = host_weights(SMALL)
    # 20 steps of about 1e-6, each far below bfloat16's resolution near 0.3 (1e-3).
    moved = np.abs(np.asarray(state.weights["embedding"]) - start["embedding"])
    assert 1e-5 < moved.max() < 3e-5


@pytest.mark.parametrize("remat", ["dots", "full"])
def test_what_is_recomputed_changes_no_gradient(remat):
    batch = make_batch(SMALL, np.full(8, 5), prompt=3, response=5)
    expected, _ = gradients_of(batch, model=SMALL)
    found, _ = gradients_of(batch, model=dataclasses.replace(SMALL, remat=remat))
    assert largest_gap(found, expected)[0] <= 1e-6


# What may not reach the loss


def test_ratio_is_1_and_the_divergence_0_before_the_first_update():
    rollouts, _ = generate(ONE, temperature=0.6)
    batch = make_batch(MODEL, np.full(ROWS, RESPONSE))
    own = score(ONE, rollouts, temperature=0.6)
    batch = dataclasses.replace(batch, rollouts=rollouts, reference=own)
    _, metrics = gradients_of(batch, temperature=0.6)
    assert metrics["ratio_clipped"] == 0
    assert metrics["mismatch_max"] <= 1e-5
    assert 0 < metrics["mismatch_mean"] <= metrics["mismatch_max"]
    assert metrics["kl"] == pytest.approx(0, abs=1e-9)


def test_tokens_outside_a_row_have_no_gradient_and_no_say():
    model = dataclasses.replace(SMALL, vocab=24, tied_head=False)
    batch = make_batch(model, np.array([5, 1, 2, 4, 3, 3, 1, 4]), prompt=4, response=5)
    columns = np.arange(9)[None]
    outside = columns >= 4 + batch.rollouts.lengths[:, None]
    outside |= columns < batch.rollouts.starts[:, None]
    assert outside.any(0).sum() > 5

    def fill(token):
        tokens = np.where(outside, token, batch.rollouts.tokens % 20)
        rollouts = dataclasses.replace(batch.rollouts, tokens=tokens.astype(np.int32))
        return dataclasses.replace(batch, rollouts=rollouts)

    found, metrics = gradients_of(fill(22), model=model)
    other, others = gradients_of(fill(23), model=model)
    assert not np.any(found["embedding"][20:])
    assert np.all(np.any(found["embedding"][:4], axis=1))
    jax.tree.map(np.testing.assert_array_equal, found["layers"], other["layers"])
    assert metrics == others


def test_an_invalid_row_has_no_say():
    batch = make_batch(SMALL, np.full(8, 5), prompt=3, response=5)
    batch.rewards[:] = [0, 1, 2, 0, 1, 1, 3, 0]
    batch.valid[2] = False
    expected, metrics = gradients_of(batch, model=SMALL)
    assert metrics["reward"] == pytest.approx(6 / 7)
    assert metrics["counted"] == 7 / 8
    batch.rewards[2] = np.nan
    batch.rollouts.log_probs[2] = np.nan
    batch.reference[2] = np.nan
    batch.rollouts.tokens[2] = 1
    found, others = gradients_of(batch, model=SMALL)
    assert largest_gap(found, expected)[0] <= 1e-6
    assert others["loss"] == pytest.approx(metrics["loss"], rel=1e-6)


def test_truncated_rows_leave_numerator_and_denominator_together():
    lengths, ended = np.array([5, 1, 2, 5, 3, 3, 5, 4]), np.ones(8, bool)
    ended[[0, 3, 6]] = False
    batch = make_batch(SMALL, lengths, prompt=3, response=5, ended=ended)
    batch.rewards[:] = [0, 1, 2, 0, 1, 1, 3, 0]
    kinds = {"denominator": "sequences", "kl_coefficient": 0.1}
    found, metrics = gradients_of(
        batch, model=SMALL, objective=ObjectiveConfig(mask_truncated=True, **kinds)
    )
    assert metrics["counted"] == 5 / 8
    # Their rewards stay in the baseline. The same rows with a length of 0 have the same
    # numerator, over 8 rows instead of 5.
    cut = dataclasses.replace(
        batch.rollouts, lengths=np.where(ended, lengths, 0), ended=np.ones(8, bool)
    )
    short = dataclasses.replace(batch, rollouts=cut)
    kept, _ = gradients_of(short, model=SMALL, objective=ObjectiveConfig(**kinds))
    scaled = jax.tree.map(lambda g: g * np.float32(8 / 5), kept)
    assert largest_gap(found, scaled)[0] <= 1e-5


def test_nothing_counted_gives_a_gradient_of_0():
    batch = make_batch(SMALL, np.full(8, 5), prompt=3, response=5)
    batch.valid[:] = False
    batch.rewards[:] = np.nan
    found, metrics = gradients_of(batch, model=SMALL)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(found))
    assert all(np.isfinite(value) for value in metrics.values())
    state, _ = take_updates([batch], rates=[1e-3], optimizer=OptimizerConfig(weight_decay=0.0))
    jax.tree.map(np.testing.assert_array_equal, to_host(state.weights), host_weights(SMALL))


def test_tied_groups_dilute_the_mean_or_leave_it():
    batch = make_batch(SMALL, np.full(8, 5), prompt=3, response=5)
    batch.rewards[:] = [0, 1, 2, 0, 1, 1, 1, 1]
    plain = {"model": SMALL}
    counted, metrics = gradients_of(batch, objective=ObjectiveConfig(), **plain)
    without = ObjectiveConfig(count_tied_groups=False)
    dropped, others = gradients_of(batch, objective=without, **plain)
    assert metrics["tied_groups"] == others["tied_groups"] == 0.5
    assert (metrics["counted"], others["counted"]) == (1.0, 0.5)
    doubled = jax.tree.map(lambda g: 2 * g, counted)
    assert largest_gap(dropped, doubled)[0] <= 1e-6
    batch.rewards[:4] = 0.3
    found, metrics = gradients_of(batch, objective=ObjectiveConfig(), **plain)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(found))
    assert metrics["tied_groups"] == 1.0


def test_scoring_does_not_depend_on_the_microbatch():
    batch = make_batch(MODEL, np.full(ROWS, RESPONSE))
    expected = score(ONE, batch.rollouts)
    assert expected.shape == (ROWS, RESPONSE)
    found = score(ONE, batch.rollouts, microbatch=8)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert batch.rollouts.tokens.shape[1] == PROMPT + RESPONSE
