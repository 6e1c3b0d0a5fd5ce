"""Advantage estimators against numbers worked by hand and a NumPy oracle."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType

from jax_rl.errors import UserError
from jax_rl.learner.advantages import (
    ADVANTAGES,
    check_group,
    estimate_advantages,
    tied_groups,
)

GROUP_ESTIMATORS = ["grpo", "dr_grpo", "rloo"]


def estimate(name, rewards, valid=None):
    rewards = np.asarray(rewards, np.float32)
    valid = np.ones(rewards.shape, bool) if valid is None else np.asarray(valid)
    return np.asarray(estimate_advantages(name, jnp.asarray(rewards), jnp.asarray(valid)))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Group 1: mean 1/4, population deviation sqrt(3)/4. Group 2: mean 1/2, deviation 1/2.
        ("grpo", [[3**0.5] + [-1 / 3**0.5] * 3, [1, 1, -1, -1]]),
        ("dr_grpo", [[0.75, -0.25, -0.25, -0.25], [1, 1, -1, -1]]),
        # The others' means: 0 and 1/3 in group 1; 1/3 of 2 and 2/3 of 2 in group 2.
        ("rloo", [[1, -1 / 3, -1 / 3, -1 / 3], [4 / 3, 4 / 3, -4 / 3, -4 / 3]]),
        # Batch mean: (1 + 4) / 8.
        ("reinforce", [[0.375, -0.625, -0.625, -0.625], [1.375, 1.375, -0.625, -0.625]]),
    ],
)
def test_advantages_worked_by_hand(name, expected):
    advantages = estimate(name, [[1, 0, 0, 0], [2, 2, 0, 0]])
    assert advantages.dtype == np.float32
    np.testing.assert_allclose(advantages, expected, rtol=5e-6)


def test_grpo_adds_epsilon_to_the_deviation():
    # Mean 1e-6, deviation 1e-6: half of what plain standardisation gives.
    np.testing.assert_allclose(estimate("grpo", [[2e-6, 0.0]]), [[0.5, -0.5]], rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grpo", [2**0.5, 0, -(0.5**0.5), -(0.5**0.5)]),
        ("dr_grpo", [2 / 3, 0, -1 / 3, -1 / 3]),
        ("rloo", [1, 0, -0.5, -0.5]),
        ("reinforce", [2 / 3, 0, -1 / 3, -1 / 3]),
    ],
)
@pytest.mark.parametrize("failed", [np.nan, np.inf, 100.0])
def test_invalid_rollout_is_in_no_mean_and_has_no_advantage(name, expected, failed):
    advantages = estimate(name, [[1, failed, 0, 0]], [[True, False, True, True]])
    np.testing.assert_allclose(advantages, [expected], rtol=5e-6)


@pytest.mark.parametrize("name", GROUP_ESTIMATORS)
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e-8, 123456.7])
def test_tied_groups_have_advantage_exactly_zero(name, reward):
    rewards = [[reward] * 3, [reward, reward, reward + 1.0]]
    advantages = estimate(name, rewards)
    assert (advantages[0] == 0.0).all()
    assert (advantages[1] != 0.0).all()


@pytest.mark.parametrize("name", list(ADVANTAGES))
def test_tied_batch_and_empty_groups_have_advantage_exactly_zero(name):
    assert (estimate(name, [[0.1] * 3] * 7) == 0.0).all()
    nothing_valid = estimate(name, [[np.nan, np.nan]], [[False, False]])
    assert (nothing_valid == 0.0).all()
    one_valid = estimate(name, [[0.7, np.nan]], [[True, False]])
    assert (one_valid == 0.0).all()


def test_reinforce_trains_groups_of_one():
    np.testing.assert_allclose(estimate("reinforce", [[1.0], [0.0], [0.5]]), [[0.5], [-0.5], [0]])


def oracle(name, rewards, valid):
    advantages = np.zeros(rewards.shape)
    for g, k in np.argwhere(valid):
        group = [rewards[g, j] for j in range(rewards.shape[1]) if valid[g, j]]
        others = [rewards[g, j] for j in range(rewards.shape[1]) if valid[g, j] and j != k]
        batch = [rewards[i, j] for i, j in np.argwhere(valid)]
        if name == "grpo":
            advantages[g, k] = (rewards[g, k] - np.mean(group)) / (np.std(group) + 1e-6)
        elif name == "dr_grpo":
            advantages[g, k] = rewards[g, k] - np.mean(group)
        elif name == "rloo":
            advantages[g, k] = rewards[g, k] - np.mean(others) if others else 0.0
        else:
            advantages[g, k] = rewards[g, k] - np.mean(batch)
    return advantages


@pytest.mark.parametrize("name", list(ADVANTAGES))
@settings(max_examples=30, deadline=None)
@given(
    # Quarters have exact means in groups of four, so that the oracle has no rounding on ties.
    st.lists(st.integers(0, 4), min_size=12, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_advantages_equal_the_oracle(name, quarters, valid):
    rewards = np.reshape(quarters, (3, 4)) / 4.0
    mask = np.reshape(valid, (3, 4))
    np.testing.assert_allclose(
        estimate(name, rewards, mask), oracle(name, rewards, mask), rtol=1e-5, atol=1e-6
    )


def test_tied_groups_looks_at_valid_rewards_only():
    rewards = jnp.array([[0.1, 0.1, 0.1], [0, 0, 1], [0, 0, 1], [jnp.nan, 1, 1], [0, 1, 2]])
    valid = jnp.array([[1, 1, 1], [1, 1, 1], [1, 1, 0], [0, 1, 1], [0, 0, 0]], bool)
    assert tied_groups(rewards, valid).tolist() == [True, False, True, True, True]


@pytest.mark.parametrize("name", list(ADVANTAGES))
def test_advantages_trace_on_an_explicit_mesh(name):
    mesh = jax.make_mesh((8,), ("fsdp",), axis_types=(AxisType.Explicit,))
    rewards, valid = jnp.array([[1.0, 0.0], [0.0, 0.0]]), jnp.ones((2, 2), bool)
    with jax.set_mesh(mesh):
        meshed = jax.jit(functools.partial(estimate_advantages, name))(rewards, valid)
        tied = jax.jit(tied_groups)(rewards, valid)
    np.testing.assert_allclose(meshed, estimate(name, rewards), rtol=1e-6)
    assert tied.tolist() == [False, True]


@pytest.mark.parametrize("name", GROUP_ESTIMATORS)
def test_group_of_one_is_refused_with_the_estimators_that_work(name):
    with pytest.raises(UserError, match=r"batch\.group = 1 .*every advantage is 0.*: reinforce$"):
        check_group(name, 1)
    check_group(name, 2)
    check_group(name, 2, count_tied_groups=False)


def test_reinforce_takes_a_group_of_one_but_must_count_tied_groups():
    check_group("reinforce", 1)
    with pytest.raises(UserError, match="count_tied_groups = false drops rollouts"):
        check_group("reinforce", 8, count_tied_groups=False)


def twice_the_reward(rewards, valid):
    return 2.0 * rewards * valid


def test_estimator_of_a_fork_is_found_by_module_and_function():
    name = f"{__name__}:twice_the_reward"
    assert estimate(name, [[1.0, 3.0]]).tolist() == [[2.0, 6.0]]
    check_group(name, 1)


def test_unknown_estimator_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"objective\.advantage = 'gpro'.*'grpo'"):
        check_group("gpro", 8)
