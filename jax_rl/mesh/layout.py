"""A layout: rules from logical axes to mesh axes, for the learner and for the sampler.

Four tables of rules. `weights` says where the axes of a stored weight (and its optimizer state)
lie, `compute` where those of the learner's activations and of a weight in its use. What lies
differently in the two is gathered for use and its gradient scattered back. `sampler` is the same
as `compute` for the sampler, and `cache` is for its KV cache and the attention over it. All four
are over one mesh, so that one compiled program can move an array from one table to another.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from jax.sharding import PartitionSpec

LOGICAL_AXES = (
    "batch",
    "length",
    "embed",
    "heads",
    "kv_heads",
    "head_dim",
    "mlp",
    "vocab",
    "layers",
)
MESH_AXES = ("data", "fsdp", "tensor")
SLICES = "slices"
"""Size of a mesh axis that crosses slices: as many as the devices are in."""

Rules = tuple[tuple[str, tuple[str, ...]], ...]
Size = int | str


@dataclasses.dataclass(frozen=True)
class Layout:
    """One way to lie on the devices; hashable, so that programs can be keyed by it."""

    name: str
    description: str
    mesh: tuple[tuple[str, Size], ...]
    weights: Rules
    compute: Rules
    sampler: Rules
    cache: Rules

    def weight_spec(self, axes: Sequence[str | None]) -> PartitionSpec:
        """Partition of a stored weight with these logical axes."""
        return _spec(self.weights, axes)

    def compute_spec(self, axes: Sequence[str | None]) -> PartitionSpec:
        """Partition of an activation, or of a weight in use, with these logical axes."""
        return _spec(self.compute, axes)

    def cache_spec(self, axes: Sequence[str | None]) -> PartitionSpec:
        """Partition of the KV cache, and of what meets it in attention."""
        return _spec(self.cache, axes)

    @property
    def decoding(self) -> "Layout":
        """The same layout as the sampler sees it: it computes by the sampler's rules."""
        return dataclasses.replace(self, compute=self.sampler)

    @property
    def splits(self) -> bool:
        """Whether the sampler computes by other rules than the learner."""
        return self.sampler != self.compute

    @property
    def batch_axes(self) -> tuple[str, ...]:
        """Mesh axes that split the batch."""
        return dict(self.compute).get("batch", ())

    def count_shards(self, sizes: Mapping[str, int]) -> int:
        """Parts that the batch is split into on a mesh with axes of these sizes."""
        return math.prod(sizes[axis] for axis in self.batch_axes)

    def count_decoding_shards(self, sizes: Mapping[str, int]) -> int:
        """Parts that the sampler's rows, or those of its cache, are split into."""
        cache = math.prod(sizes[axis] for axis in dict(self.cache).get("batch", ()))
        return math.lcm(self.decoding.count_shards(sizes), cache)

    def list_tables(self) -> dict[str, Rules]:
        """The tables of rules, by name."""
        return {name: getattr(self, name) for name in TABLES}

    def as_dict(self) -> dict[str, Any]:
        """The layout as it stands in its file."""
        tables = {
            name: {axis: list(mesh) for axis, mesh in rules}
            for name, rules in self.list_tables().items()
        }
        return {
            "name": self.name,
            "description": self.description,
            "mesh": dict(self.mesh),
            **tables,
        }


TABLES = ("weights", "compute", "sampler", "cache")
"""Tables of rules in a layout."""


def _spec(rules: Rules, axes: Sequence[str | None]) -> PartitionSpec:
    table = dict(rules)
    entries: list[str | tuple[str, ...] | None] = []
    for axis in axes:
        mesh_axes = table.get(axis, ()) if axis is not None else ()
        entries.append(mesh_axes[0] if len(mesh_axes) == 1 else mesh_axes or None)
    return PartitionSpec(*entries)
