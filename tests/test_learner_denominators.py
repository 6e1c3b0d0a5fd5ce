"""Loss denominators against a NumPy oracle made of loops, and the same for every split."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType

from jax_rl.errors import UserError
from jax_rl.learner.denominators import DENOMINATORS, row_weights

LIMIT = 128


def weigh(name, lengths, counted=None, *, group=2):
    lengths = np.asarray(lengths, np.int32)
    counted = np.ones(len(lengths), bool) if counted is None else np.asarray(counted)
    weights = row_weights(
        name,
        mask_lengths=jnp.asarray(lengths),
        counted=jnp.asarray(counted),
        group=group,
        max_response_length=LIMIT,
    )
    assert weights.dtype == jnp.float32
    assert weights.shape == lengths.shape
    return np.asarray(weights)


def oracle_loss(name, losses, lengths, counted, group):
    """The loss by its definition in words; float64, one row at a time."""
    rows = [i for i in range(len(lengths)) if counted[i]]
    sums = {i: sum(losses[i][t] for t in range(lengths[i])) for i in rows}
    if not rows:
        return 0.0
    if name == "tokens":
        return sum(sums.values()) / sum(lengths[i] for i in rows)
    if name == "sequences":
        return sum(sums[i] / lengths[i] for i in rows) / len(rows)
    if name == "max_length":
        return sum(sums.values()) / (len(rows) * LIMIT)
    means = []
    for start in range(0, len(lengths), group):
        members = [i for i in rows if start <= i < start + group]
        if members:
            means.append(sum(sums[i] for i in members) / sum(lengths[i] for i in members))
    return sum(means) / len(means)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tokens", [1 / 103] * 4),
        ("sequences", [1 / 4, 1 / 4, 1 / 4, 1 / 400]),
        ("groups", [1 / 4, 1 / 4, 1 / 202, 1 / 202]),
        ("max_length", [1 / 512] * 4),
    ],
)
def test_weights_worked_by_hand(name, expected):
    np.testing.assert_allclose(weigh(name, [1, 1, 1, 100]), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tokens", [0, 0, 1 / 7, 1 / 7, 1 / 7, 0]),
        ("sequences", [0, 0, 1 / 12, 1 / 6, 1 / 3, 0]),
        ("groups", [0, 0, 1 / 12, 1 / 12, 1 / 2, 0]),
        ("max_length", [0, 0, 1 / 384, 1 / 384, 1 / 384, 0]),
    ],
)
@pytest.mark.parametrize("dropped_length", [0, 50])
def test_dropped_rows_leave_numerator_and_denominator(name, expected, dropped_length):
    """A tied group (rows 0, 1) and one masked row (5); a stray length behind it has no effect."""
    lengths = [dropped_length, dropped_length, 4, 2, 1, dropped_length]
    counted = [False, False, True, True, True, False]
    np.testing.assert_allclose(weigh(name, lengths, counted), expected, rtol=1e-6)


@pytest.mark.parametrize("name", list(DENOMINATORS))
def test_entirely_masked_minibatch_has_weights_zero(name):
    assert weigh(name, [0] * 4, [False] * 4).tolist() == [0.0] * 4


@pytest.mark.parametrize("name", list(DENOMINATORS))
def test_counted_row_without_tokens_has_a_finite_weight(name):
    """Times its empty sum that is 0; an infinite weight would make it NaN."""
    weights = weigh(name, [0, 0, 3, 0], [True, True, True, False])
    assert np.isfinite(weights).all()


ROWS = st.integers(1, 12)


@pytest.mark.parametrize("name", list(DENOMINATORS))
@settings(max_examples=30, deadline=None)
@given(
    st.lists(ROWS, min_size=8, max_size=8),
    st.lists(st.booleans(), min_size=8, max_size=8),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(0, 2**31 - 1),
)
def test_loss_equals_the_oracle(name, lengths, counted, group, seed):
    losses = np.random.default_rng(seed).normal(size=(8, 12))
    lengths = [length if keep else 0 for length, keep in zip(lengths, counted, strict=True)]
    row_sums = np.array([losses[i, : lengths[i]].sum() for i in range(8)])
    loss = weigh(name, lengths, counted, group=group) @ row_sums
    expected = oracle_loss(name, losses, lengths, counted, group)
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-6)


def linear_losses(parameter, features, lengths):
    """Summed token loss of each row of a one-parameter model."""
    positions = jnp.broadcast_to(jnp.arange(features.shape[1]), features.shape)
    mask = positions < jnp.expand_dims(lengths, 1)
    return jnp.where(mask, jnp.tanh(parameter * features), 0.0).sum(axis=1)


def oracle_gradient(name, parameter, features, lengths, group):
    slopes = features / np.cosh(parameter * features) ** 2
    return oracle_loss(name, slopes, lengths, [True] * len(lengths), group)


@pytest.mark.parametrize("name", list(DENOMINATORS))
@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param([1, 1, 1, 100], id="one-long-row"),
        pytest.param([5, 5, 500, 500], id="shards-of-10-and-1000-tokens"),
    ],
)
@pytest.mark.parametrize("microbatch", [1, 2, 4])
def test_gradient_is_the_same_for_every_split(name, lengths, microbatch):
    features = np.random.default_rng(0).normal(size=(4, 500))
    weights = weigh(name, lengths)

    def loss(parameter, rows):
        sums = linear_losses(
            parameter, jnp.asarray(features[rows], jnp.float32), jnp.asarray(lengths)[rows]
        )
        return jnp.sum(jnp.asarray(weights)[rows] * sums)

    gradient = sum(
        jax.grad(loss)(jnp.float32(0.7), slice(start, start + microbatch))
        for start in range(0, 4, microbatch)
    )
    expected = oracle_gradient(name, 0.7, features, lengths, 2)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["tokens", "sequences", "max_length"])
def test_row_order_does_not_change_a_bit_of_a_weight(name):
    """Lengths that float32 cannot add up exactly."""
    generator = np.random.default_rng(0)
    lengths, order = generator.integers(1, 2**24, 64), generator.permutation(64)
    assert (weigh(name, lengths[order]) == weigh(name, lengths)[order]).all()


@pytest.mark.parametrize("name", list(DENOMINATORS))
def test_weights_trace_on_an_explicit_mesh(name):
    mesh = jax.make_mesh((8,), ("fsdp",), axis_types=(AxisType.Explicit,))
    lengths, counted = jnp.array([3, 1, 2, 0]), jnp.array([True, True, True, False])
    weights = functools.partial(row_weights, name, group=2, max_response_length=LIMIT)
    with jax.set_mesh(mesh):
        meshed = jax.jit(weights)(mask_lengths=lengths, counted=counted)
    np.testing.assert_allclose(meshed, weigh(name, lengths, counted), rtol=1e-6)


def test_groups_refuses_a_minibatch_that_cuts_a_group():
    with pytest.raises(UserError, match=r"6 rows are not a multiple of batch\.group = 4"):
        weigh("groups", [1] * 6, group=4)


def test_unknown_denominator_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"objective\.denominator = 'token'.*'tokens'"):
        weigh("token", [1, 1])
