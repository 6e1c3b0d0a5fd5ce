"""A configuration, its layout and the mesh: where every array of a run lies."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_rl.config import Config
from jax_rl.mesh.devices import put
from jax_rl.mesh.layout import Layout


@dataclasses.dataclass(frozen=True)
class Placement:
    """What has to be known to place an array."""

    config: Config  # the model's shape as its checkpoint gives it
    layout: Layout
    mesh: Mesh

    @property
    def everywhere(self) -> NamedSharding:
        """The whole array on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    def sharding(self, axes: tuple[str | None, ...]) -> NamedSharding:
        """Where an array with these logical axes lies in the learner."""
        return NamedSharding(self.mesh, self.layout.compute_spec(axes))

    def decoding_sharding(self, axes: tuple[str | None, ...]) -> NamedSharding:
        """Where an array with these logical axes lies in the sampler."""
        return NamedSharding(self.mesh, self.layout.decoding.compute_spec(axes))

    def put_whole(self, values: Any) -> jax.Array:
        """A small host array, or a number, whole on every device; float64 becomes float32."""
        array = np.asarray(values)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        return put(array, NamedSharding(self.mesh, PartitionSpec(*(None for _ in array.shape))))
