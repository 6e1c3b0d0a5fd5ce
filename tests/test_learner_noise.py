"""Norms for the noise scale: the same for every cut and layout, and of whole groups."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import (
    EIGHT,
    MODEL,
    ONE,
    gradients_of,
    host_weights,
    largest_gap,
    learner_spec,
    make_batch,
    put_weights,
    to_host,
)

from jax_rl.config import BatchConfig, ObjectiveConfig
from jax_rl.errors import UserError
from jax_rl.learner.noise import check_noise_advantage
from jax_rl.learner.probe import measure_pairs
from jax_rl.learner.rows import Rows, weigh_rows
from jax_rl.learner.update import init_state, sum_microbatches, update
from jax_rl.units import check_units, count_unit_rows, count_units

GROUP, ROWS, RESPONSE = 16, 64, 5  # a group large enough that eight devices cut half of one
OBJECTIVE = ObjectiveConfig(kl_coefficient=0.05)
NAMES = ("unit_norm_squared", "minibatch_norm_squared")


@pytest.fixture(scope="module")
def batch():
    lengths = np.random.default_rng(3).integers(1, RESPONSE + 1, ROWS)
    made = make_batch(MODEL, lengths, prompt=3, response=RESPONSE)
    made.valid[5] = False
    made.rewards[5] = np.nan
    made.rewards[GROUP : 2 * GROUP] = 1.0  # one group is tied
    return made


def norms_of(batch, place=ONE, **changes):
    changes = {"group": GROUP, "objective": OBJECTIVE, **changes}
    gradients, metrics = gradients_of(batch, place, measure_noise=True, **changes)
    return gradients, [metrics[name] for name in NAMES]


@functools.partial(jax.jit, static_argnames=("spec",))
def differentiate_rows(weights, rows, temperature, spec):
    return sum_microbatches(weights, rows, temperature, spec)[0]


def gradients_by_group(batch, *, size=GROUP, **changes):
    """[rows / size, parameters]: of each part alone, by the rows' weights in the minibatch."""
    changes = {"group": GROUP, "objective": OBJECTIVE, **changes}
    with ONE.entered():
        spec = learner_spec(
            ONE,
            MODEL,
            microbatch=size,
            max_prompt_length=3,
            max_response_length=RESPONSE,
            **changes,
        )
        weights = put_weights(host_weights(MODEL), MODEL, ONE)
        args = (batch.rollouts, batch.rewards, batch.valid, batch.reference)
        rows, _ = jax.jit(weigh_rows, static_argnums=4)(*jax.tree.map(jnp.asarray, args), spec)
        parts = []
        for first in range(0, len(batch.rewards), size):
            part = jax.tree.map(lambda x, at=first: x[at : at + size], rows)
            assert isinstance(part, Rows)
            found = differentiate_rows(weights, part, jnp.float32(1.0), spec)
            parts.append(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)]))
    return np.array(parts, np.float64)


def test_norms_are_those_of_each_groups_own_gradient(batch):
    found = norms_of(batch, microbatch=GROUP)[1]
    parts = gradients_by_group(batch)
    units = len(parts)
    assert found[0] == pytest.approx(np.mean(np.sum((units * parts) ** 2, axis=1)), rel=1e-5)
    assert found[1] == pytest.approx(np.sum(parts.sum(0) ** 2), rel=1e-5)
    assert found[0] > 1.5 * found[1] > 0


def test_parts_of_groups_are_put_together_before_a_norm_is_taken(batch):
    found, expected = (norms_of(batch, microbatch=m)[1] for m in (GROUP // 2, GROUP))
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "place", [pytest.param(EIGHT[0], marks=pytest.mark.slow), EIGHT[3]], ids=str
)
def test_norms_are_the_same_on_eight_devices(batch, place):
    found = norms_of(batch, place, microbatch=GROUP // 2)[1]
    assert found == pytest.approx(norms_of(batch, microbatch=GROUP)[1], rel=1e-5)


@pytest.mark.slow
def test_a_unit_of_two_groups_is_the_same_for_every_cut_that_gives_it():
    batch = make_batch(MODEL, np.full(24, RESPONSE), prompt=3, response=RESPONSE, seed=4)
    found, expected = (norms_of(batch, group=6, microbatch=m)[1] for m in (4, 12))
    assert count_unit_rows(4, 6) == count_unit_rows(12, 6) == 12
    assert found == pytest.approx(expected, rel=1e-5)


def test_the_update_is_the_same_with_and_without_norms(batch):
    kinds = {"group": GROUP, "objective": OBJECTIVE, "microbatch": GROUP // 2}
    plain, metrics = gradients_of(batch, **kinds)
    assert not set(NAMES) & set(metrics)
    gap, name = largest_gap(norms_of(batch, microbatch=GROUP // 2)[0], plain)
    assert gap <= 1e-5, name


@pytest.mark.slow
def test_norms_of_an_iteration_are_means_over_its_updates(batch):
    spec = learner_spec(
        ONE,
        MODEL,
        updates=2,
        microbatch=GROUP,
        group=GROUP,
        objective=OBJECTIVE,
        max_prompt_length=3,
        max_response_length=RESPONSE,
        measure_noise=True,
    )
    with ONE.entered():
        state = init_state(put_weights(host_weights(MODEL), MODEL, ONE), spec.optimizer, MODEL)
        args = jax.tree.map(jnp.asarray, (batch.rollouts, batch.rewards, batch.valid))
        # At rate 0 the second minibatch meets the weights of the first.
        rates, heat = jnp.zeros(2), jnp.float32(1.0)
        _, metrics = update(state, *args, rates, heat, jnp.asarray(batch.reference), spec)
    found = [to_host(metrics)[name].value() for name in NAMES]
    halves = [batch.take(np.arange(first, first + 32)) for first in (0, 32)]
    parts = [gradients_by_group(half) for half in halves]
    apart = [(np.mean(np.sum((2 * p) ** 2, axis=1)), np.sum(p.sum(0) ** 2)) for p in parts]
    assert found == pytest.approx(np.mean(apart, axis=0), rel=1e-5)


# Why the unit is a whole group


def noise_scale_of(parts, *, rows):
    """The scale in rollouts if parts of so many rows are taken to be independent."""
    count = len(parts)
    unit, whole = np.mean(np.sum((count * parts) ** 2, axis=1)), np.sum(parts.sum(0) ** 2)
    signal, noise = (count * whole - unit), count * (unit - whole)
    return rows * noise / signal


def test_units_of_rows_or_half_groups_see_noise_where_groups_have_none():
    # Every group is the same, so the gradients of groups do not scatter at all. Its rows pull
    # against each other, because advantages are centred on the group.
    one = make_batch(MODEL, np.full(GROUP, 2), prompt=3, response=RESPONSE, noise=0.0)
    batch = one.take(np.tile(np.arange(GROUP), ROWS // GROUP))
    by_row = gradients_by_group(batch, size=1)  # [rows, parameters]
    scales = {
        rows: noise_scale_of(by_row.reshape(ROWS // rows, rows, -1).sum(1), rows=rows)
        for rows in (1, GROUP // 2, GROUP)
    }
    assert abs(scales[GROUP]) < 1e-6
    # As if batches up to that size were mostly noise.
    assert scales[GROUP // 2] > 5
    assert scales[1] > 5


# What is refused


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_advantages_within_groups_are_measured(name):
    check_noise_advantage(name, 4)


@pytest.mark.parametrize("group", [1, 2, 8])
def test_advantages_that_mix_groups_are_refused(group):
    with pytest.raises(UserError, match=r"other groups.*it is with grpo, dr_grpo, rloo"):
        check_noise_advantage("reinforce", group)


def center_on_batch(rewards, valid):
    return rewards - rewards.mean(1, keepdims=True) / jnp.std(rewards)


def test_an_estimator_of_ones_own_is_tried_on_numbers():
    with pytest.raises(UserError, match=r"test_learner_noise:center_on_batch"):
        check_noise_advantage("test_learner_noise:center_on_batch", 4)


@pytest.mark.parametrize(
    ("size", "microbatch", "group", "units"),
    [(64, 16, 8, 4), (64, 4, 8, 8), (48, 12, 8, 2), (64, 64, 8, 1), (24, 4, 6, 2)],
)
def test_units_are_whole_groups_in_whole_microbatches(size, microbatch, group, units):
    assert count_units(size, microbatch, group) == units


def test_one_unit_is_refused_with_the_microbatches_that_would_do():
    check_units(BatchConfig(size=64, group=8, microbatch=32))
    with pytest.raises(UserError, match=r"64 rollouts in microbatches of 64.*to 8 or 16 or 32"):
        check_units(BatchConfig(size=64, group=8))
    with pytest.raises(UserError, match=r"32 rollouts in microbatches of 32.*to 4 or 8 or 16"):
        check_units(BatchConfig(size=64, updates=2, group=8))
    with pytest.raises(UserError, match=r"raise batch\.size or lower batch\.updates"):
        check_units(BatchConfig(size=16, updates=2, group=8))


# The probe


def probe_products(batch, place=ONE, **changes):
    spec = learner_spec(
        place,
        MODEL,
        group=GROUP,
        objective=OBJECTIVE,
        max_prompt_length=3,
        max_response_length=RESPONSE,
        **changes,
    )
    with place.entered():
        weights = put_weights(host_weights(MODEL), MODEL, place)
        rollouts, reference = place.put_rows((batch.rollouts, batch.reference))
        rewards, valid = place.put(batch.rewards, None), place.put(batch.valid, None)
        heat = jnp.float32(1.0)
        return to_host(measure_pairs(weights, rollouts, rewards, valid, heat, reference, spec))


@pytest.mark.parametrize(
    ("place", "microbatch"),
    [(ONE, GROUP // 4), pytest.param(EIGHT[3], GROUP // 2, marks=pytest.mark.slow)],
    ids=str,
)
def test_the_probe_multiplies_the_gradients_of_each_group(batch, place, microbatch):
    found = dataclasses.asdict(probe_products(batch, place, microbatch=microbatch))
    parts = gradients_by_group(batch)
    scaled = len(parts) * parts
    first, second, mean = scaled[::2], scaled[1::2], scaled.mean(0)
    expected = {
        "first": np.sum(first**2, axis=1),
        "second": np.sum(second**2, axis=1),
        "between": np.sum(first * second, axis=1),
        "first_mean": first @ mean,
        "second_mean": second @ mean,
        "mean": mean @ mean,
    }
    assert found.keys() == expected.keys()
    # An inner product is as exact as the vectors are: near-orthogonal ones cancel.
    sizes = {"first": first, "second": second, "between": first, "first_mean": first}
    sizes |= {"second_mean": second, "mean": mean[None]}
    others = sizes | {"between": second, "first_mean": mean, "second_mean": mean}
    for name, value in expected.items():
        one, other = (np.linalg.norm(v, axis=-1) for v in (sizes[name], others[name]))
        assert np.all(np.abs(found[name] - value) <= 2e-5 * one * other), name
