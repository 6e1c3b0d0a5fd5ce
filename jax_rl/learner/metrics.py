"""Metrics that add up: a mean is a (sum, weight) pair, divided once, by type and never by name."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct


@struct.dataclass
class Mean:
    """A weighted mean in two parts."""

    total: jax.Array
    weight: jax.Array

    @classmethod
    def of(cls, values: jax.Array, mask: jax.Array) -> "Mean":
        """Mean of `values` where `mask`; both of one shape."""
        total = jnp.sum(jnp.where(mask, values, 0.0), dtype=jnp.float32)
        return cls(total, jnp.sum(mask, dtype=jnp.float32))

    def value(self) -> float:
        """The mean on the host; 0 where nothing was counted."""
        return float(self.total) / max(float(self.weight), 1e-30) if float(self.weight) else 0.0


@struct.dataclass
class Max:
    """The largest value seen."""

    peak: jax.Array

    @classmethod
    def of(cls, values: jax.Array, mask: jax.Array) -> "Max":
        """Largest of `values` where `mask`, at least 0."""
        return cls(jnp.max(jnp.where(mask, values, 0.0), initial=0.0))

    def value(self) -> float:
        """The maximum on the host."""
        return float(self.peak)


Metrics = dict[str, Mean | Max]


def is_metric(node: Any) -> bool:
    """Whether a node of a tree is a metric as a whole."""
    return isinstance(node, Mean | Max)


def pool(stacked: Metrics) -> Metrics:
    """Metrics whose parts are stacked on a first axis (microbatches, updates), pooled over it."""

    def reduce(metric: Mean | Max) -> Mean | Max:
        if isinstance(metric, Max):
            return Max(jnp.max(metric.peak, axis=0))
        return Mean(jnp.sum(metric.total, axis=0), jnp.sum(metric.weight, axis=0))

    return {name: reduce(metric) for name, metric in stacked.items()}


def fetch_values(metrics: Metrics) -> dict[str, float]:
    """Metrics that are on the host already, as plain numbers."""
    return {name: metric.value() for name, metric in metrics.items()}
