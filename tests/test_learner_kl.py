"""KL estimators against the exact divergence of a three-token policy.

Expectations are sums over the three tokens weighted by the policy's probabilities, with the
weights held fixed under differentiation, as samples are.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_rl.errors import UserError
from jax_rl.learner.kl import KL_ESTIMATORS, find_kl_estimator, k2, k3

LOGITS = np.array([0.3, -1.0, 0.8])
REFERENCE_LOGITS = np.array([1.1, 0.2, -0.5])


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum()


def exact_kl(logits, other_logits):
    p, q = softmax(logits), softmax(other_logits)
    return sum(p[i] * (np.log(p[i]) - np.log(q[i])) for i in range(3))


def differentiate(function, logits, step=1e-5):
    """Central differences in float64."""
    return np.array(
        [
            (function(logits + step * unit) - function(logits - step * unit)) / (2 * step)
            for unit in np.eye(3)
        ]
    )


def expectation(estimator):
    """Value and gradient in the logits of the estimator over the policy's own samples."""
    weights = jnp.asarray(softmax(LOGITS), jnp.float32)
    reference = jax.nn.log_softmax(jnp.asarray(REFERENCE_LOGITS, jnp.float32))

    def mean(logits):
        return jnp.sum(weights * estimator(jax.nn.log_softmax(logits), reference))

    return jax.value_and_grad(mean)(jnp.asarray(LOGITS, jnp.float32))


def test_k2_has_the_exact_kl_gradient_and_a_biased_value():
    value, gradient = expectation(k2)
    exact = differentiate(lambda logits: exact_kl(logits, REFERENCE_LOGITS), LOGITS)
    np.testing.assert_allclose(gradient, exact, atol=1e-5)
    assert abs(value - exact_kl(LOGITS, REFERENCE_LOGITS)) > 0.05


def test_k3_has_the_exact_kl_value_and_the_reversed_kl_gradient():
    value, gradient = expectation(k3)
    np.testing.assert_allclose(value, exact_kl(LOGITS, REFERENCE_LOGITS), rtol=1e-5)
    reversed_kl = differentiate(lambda logits: exact_kl(REFERENCE_LOGITS, logits), LOGITS)
    np.testing.assert_allclose(gradient, reversed_kl, atol=1e-5)
    exact = differentiate(lambda logits: exact_kl(logits, REFERENCE_LOGITS), LOGITS)
    assert np.abs(gradient - exact).max() > 0.05


def test_k1_has_no_gradient_and_is_refused_with_that_reason():
    value, gradient = expectation(lambda log_probs, reference: log_probs - reference)
    np.testing.assert_allclose(value, exact_kl(LOGITS, REFERENCE_LOGITS), rtol=1e-5)
    np.testing.assert_allclose(gradient, np.zeros(3), atol=1e-6)
    with pytest.raises(UserError, match=r"'k1' cannot be a loss.*mean.*is 0.*'k2'"):
        find_kl_estimator("k1")


def test_values_and_gradients_worked_by_hand():
    # p = 1/2, q = 1/4: log p - log q = log 2. Then p = 1/4, q = 1/2. Then p = q.
    log_probs = jnp.log(jnp.array([[0.5, 0.25, 0.3]]))
    reference = jnp.log(jnp.array([[0.25, 0.5, 0.3]]))
    half_square = 0.5 * 0.6931472**2
    np.testing.assert_allclose(
        k2(log_probs, reference), [[half_square, half_square, 0.0]], rtol=1e-5
    )
    np.testing.assert_allclose(
        k3(log_probs, reference), [[-0.5 + 0.6931472, 1 - 0.6931472, 0.0]], rtol=1e-5
    )
    gradients = [
        jax.grad(lambda x, estimator=estimator: estimator(x, reference).sum())(log_probs)
        for estimator in (k2, k3)
    ]
    np.testing.assert_allclose(gradients[0], [[0.6931472, -0.6931472, 0.0]], rtol=1e-5)
    np.testing.assert_allclose(gradients[1], [[0.5, -1.0, 0.0]], rtol=1e-5)


def test_k3_keeps_its_digits_near_the_reference():
    # exp(d) - 1 - d with d = 1e-3 is 5.0017e-7, less than a float32 step from 1.
    value = k3(jnp.array([[-1e-3]]), jnp.array([[0.0]]))
    np.testing.assert_allclose(value, [[5.0017e-7]], rtol=1e-3)


def test_k3_is_finite_where_the_policy_left_the_reference_far_behind():
    value, gradient = jax.value_and_grad(lambda x: k3(x, jnp.array([[0.0]])).sum())(
        jnp.array([[-500.0]])
    )
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", list(KL_ESTIMATORS))
def test_estimators_trace_on_an_explicit_mesh(name):
    mesh = jax.make_mesh((8,), ("fsdp",), axis_types=(AxisType.Explicit,))
    log_probs = np.linspace(-3, -0.1, 48, dtype=np.float32).reshape(16, 3)
    reference = log_probs[::-1].copy()
    expected = find_kl_estimator(name)(jnp.asarray(log_probs), jnp.asarray(reference))
    with jax.set_mesh(mesh):
        rows = NamedSharding(mesh, P("fsdp", None))
        placed = jax.device_put((log_probs, reference), rows)
        values = jax.jit(find_kl_estimator(name))(*placed)
    assert values.sharding.spec[0] == "fsdp"
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-7)


def test_unknown_estimator_is_refused():
    with pytest.raises(UserError, match=r"objective\.kl_estimator = 'k4'"):
        find_kl_estimator("k4")
