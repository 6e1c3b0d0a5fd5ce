"""Objectives: value and gradient of each against numbers worked by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_rl.errors import UserError
from jax_rl.learner.objectives import OBJECTIVES, find_objective

# Four ratios in each of two rollouts, of advantage 2 and -3; the bounds are 0.8 and 1.2.
RATIOS = np.array([[0.5, 0.9, 1.1, 1.5]] * 2)
OLD = np.log([[0.4, 0.5, 0.6, 0.3]] * 2).astype(np.float32)
ADVANTAGES = np.array([2.0, -3.0], np.float32)


def evaluate(name, *, ratios=RATIOS, old=OLD, advantages=ADVANTAGES, clip_low=0.2, clip_high=0.2):
    """Loss, clipped and d loss / d log_prob per token."""
    objective = functools.partial(find_objective(name), clip_low=clip_low, clip_high=clip_high)
    old, advantages = jnp.asarray(old), jnp.asarray(advantages)
    log_probs = jnp.asarray(np.log(ratios) + np.asarray(old), jnp.float32)

    def summed(log_probs):
        tokens = objective(log_probs, old, advantages)
        return tokens.loss.sum(), tokens

    # Tokens do not mix, so the gradient of the sum is the gradient of each.
    (_, tokens), gradient = jax.value_and_grad(summed, has_aux=True)(log_probs)
    assert tokens.loss.dtype == jnp.float32
    assert tokens.clipped.dtype == jnp.bool
    return np.asarray(tokens.loss), np.asarray(tokens.clipped), np.asarray(gradient)


def test_clip_worked_by_hand():
    loss, clipped, gradient = evaluate("clip")
    np.testing.assert_allclose(loss, [[-1, -1.8, -2.2, -2.4], [2.4, 2.7, 3.3, 4.5]], rtol=1e-5)
    assert clipped.tolist() == [[False, False, False, True], [True, False, False, False]]
    np.testing.assert_allclose(gradient, [[-1, -1.8, -2.2, 0], [0, 2.7, 3.3, 4.5]], rtol=1e-5)


def test_clip_is_the_smaller_of_the_two_surrogates():
    ratios = np.linspace(0.05, 3.0, 60).reshape(2, 30)
    loss, _, _ = evaluate("clip", ratios=ratios, old=np.zeros((2, 30)), clip_high=0.28)
    weighted = ADVANTAGES[:, None] * ratios
    limited = ADVANTAGES[:, None] * np.clip(ratios, 0.8, 1.28)
    np.testing.assert_allclose(loss, -np.minimum(weighted, limited), rtol=1e-5)


def test_clip_bounds_are_independent():
    arguments = {"ratios": [[1.25, 0.75]], "old": np.zeros((1, 2), np.float32)}
    up = evaluate("clip", **arguments, advantages=[1.0], clip_high=0.28)
    assert up[1].tolist() == [[False, False]]
    np.testing.assert_allclose(up[2], [[-1.25, -0.75]], rtol=1e-5)
    down = evaluate("clip", **arguments, advantages=[-1.0], clip_high=0.28)
    assert down[1].tolist() == [[False, True]]
    np.testing.assert_allclose(down[2], [[1.25, 0.0]], rtol=1e-5)


def test_cispo_worked_by_hand():
    loss, clipped, gradient = evaluate("cispo")
    weights = np.array([0.8, 0.9, 1.1, 1.2])
    log_probs = np.log([0.2, 0.45, 0.66, 0.45])
    expected = -ADVANTAGES[:, None] * weights * log_probs
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert clipped.tolist() == [[True, False, False, True]] * 2
    # The weight is a constant: with gradient through it there would be a log_prob in here.
    np.testing.assert_allclose(gradient, -ADVANTAGES[:, None] * weights, rtol=1e-5)


def test_cispo_has_no_lower_bound_at_one():
    _, clipped, gradient = evaluate("cispo", clip_low=1.0, clip_high=4.0)
    assert not clipped.any()
    np.testing.assert_allclose(gradient, -ADVANTAGES[:, None] * RATIOS, rtol=1e-5)


def test_reinforce_worked_by_hand():
    loss, clipped, gradient = evaluate("reinforce")
    log_probs = np.log([0.2, 0.45, 0.66, 0.45])
    np.testing.assert_allclose(loss, [-2 * log_probs, 3 * log_probs], rtol=1e-5)
    assert not clipped.any()
    np.testing.assert_allclose(gradient, [[-2.0] * 4, [3.0] * 4], rtol=1e-6)


@pytest.mark.parametrize("name", list(OBJECTIVES))
@pytest.mark.parametrize("bound", [0.0, 0.2])
def test_first_update_has_the_policy_gradient_exactly(name, bound):
    """The ratio is exactly 1, unclipped even by bounds of 0, and the gradient is -A."""
    loss, clipped, gradient = evaluate(
        name, ratios=np.ones((2, 4)), clip_low=bound, clip_high=bound
    )
    assert not clipped.any()
    assert gradient.tolist() == [[-2.0] * 4, [3.0] * 4]
    if name == "clip":
        assert loss.tolist() == [[-2.0] * 4, [3.0] * 4]


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_zero_advantage_gives_zero_even_where_the_ratio_overflows(name):
    ratios = np.exp(np.array([[0.0, 60.0, -60.0, 0.1]]))
    old = np.array([[-0.1, -80.0, -0.1, -80.0]], np.float32) * 2.0
    loss, clipped, gradient = evaluate(name, ratios=ratios**2, old=old, advantages=[0.0])
    assert (loss == 0.0).all()
    assert (gradient == 0.0).all()
    if name == "clip":
        assert not clipped.any()


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_advantages_may_differ_by_token(name):
    by_row = evaluate(name)
    by_token = evaluate(name, advantages=np.repeat(ADVANTAGES[:, None], 4, axis=1))
    for row, token in zip(by_row, by_token, strict=True):
        assert (row == token).all()


@pytest.mark.parametrize("name", list(OBJECTIVES))
@pytest.mark.parametrize("advantage_spec", [P("fsdp"), P()])
def test_objectives_trace_on_an_explicit_mesh(name, advantage_spec):
    mesh = jax.make_mesh((8,), ("fsdp",), axis_types=(AxisType.Explicit,))
    ratios, old = np.tile(RATIOS, (8, 1)), np.tile(OLD, (8, 1))
    advantages = np.tile(ADVANTAGES, 8)
    expected = evaluate(name, ratios=ratios, old=old, advantages=advantages)
    objective = functools.partial(find_objective(name), clip_low=0.2, clip_high=0.2)
    with jax.set_mesh(mesh):
        rows = NamedSharding(mesh, P("fsdp", None))
        log_probs = jax.device_put(np.float32(np.log(ratios) + old), rows)
        placed = jax.device_put(advantages, NamedSharding(mesh, advantage_spec))
        tokens = jax.jit(objective)(log_probs, jax.device_put(old, rows), placed)
    assert tokens.loss.sharding.spec[0] == "fsdp"
    assert tokens.clipped.sharding.spec[0] == "fsdp"
    np.testing.assert_allclose(tokens.loss, expected[0], rtol=1e-6)
    assert (np.asarray(tokens.clipped) == expected[1]).all()


def test_objective_of_a_fork_is_found_by_module_and_function():
    from jax_rl.learner.objectives import clip

    assert find_objective("jax_rl.learner.objectives:clip") is clip


def test_unknown_objective_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"objective\.loss = 'clipp'.*'clip'"):
        find_objective("clipp")
