"""Metrics pool as sums and counts, by type."""

import jax
import jax.numpy as jnp
import numpy as np

from jax_rl.learner.metrics import Max, Mean, fetch_values, is_metric, pool


def test_microbatches_of_12_and_4_rows_pool_to_the_mean_of_16():
    # 12 rows of 1 and 4 rows of 5: (12 + 20) / 16 = 2; the mean of means would be 3.
    parts = [
        Mean.of(jnp.full(12, value), jnp.arange(12) < rows) for value, rows in ((1.0, 12), (5.0, 4))
    ]
    stacked = {"reward": jax.tree.map(lambda *x: jnp.stack(x), *parts)}
    assert pool(stacked)["reward"].value() == 2.0


def test_max_pools_to_the_largest_and_ignores_the_masked():
    values = jnp.array([0.5, 9.0, 2.0])
    peaks = [Max.of(values, jnp.array(mask)) for mask in ([1, 0, 0], [1, 0, 1], [0, 0, 0])]
    assert [peak.value() for peak in peaks] == [0.5, 2.0, 0.0]
    pooled = pool({"gap": jax.tree.map(lambda *x: jnp.stack(x), *peaks)})
    assert pooled["gap"].value() == 2.0


def test_masked_values_never_reach_a_sum():
    values = jnp.array([1.0, jnp.nan, jnp.inf, 3.0])
    mask = jnp.array([True, False, False, True])
    assert Mean.of(values, mask).value() == 2.0
    assert Max.of(values, mask).value() == 3.0


def test_nothing_counted_is_0_and_not_nan():
    assert Mean.of(jnp.ones(3), jnp.zeros(3, bool)).value() == 0.0


def test_values_are_plain_numbers_on_the_host():
    metrics = {"a": Mean(np.float32(3), np.float32(2)), "b": Max(np.float32(4))}
    assert fetch_values(metrics) == {"a": 1.5, "b": 4.0}
    assert all(type(value) is float for value in fetch_values(metrics).values())
    assert is_metric(metrics["a"])
    assert not is_metric(metrics)
