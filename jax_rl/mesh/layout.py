"""A layout file read into rules from logical axes to mesh axes, and into a mesh.

A layout has two tables of rules: `weights` says where the axes of a stored weight (and its
optimizer state) lie, `compute` where the axes of activations and of a weight in use lie. What
lies differently in the two is gathered for use and its gradient scattered back.
"""

import dataclasses
import itertools
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, PartitionSpec

from jax_rl.errors import UserError, suggest

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
SCANNED_AXES = ("layers", "length")
"""Axes that a loop runs over; splitting them over devices is refused."""
MET_IN_ONE_ARRAY = (
    ("embed", "heads", "head_dim"),
    ("embed", "kv_heads", "head_dim"),
    ("embed", "mlp"),
    ("embed", "vocab"),
    ("batch", "heads", "head_dim"),
    ("batch", "kv_heads", "head_dim"),
    ("batch", "mlp"),
    ("batch", "vocab"),
)
"""Logical axes of one weight or activation, which cannot lie on the same mesh axis."""

Rules = tuple[tuple[str, tuple[str, ...]], ...]


@dataclasses.dataclass(frozen=True)
class Layout:
    """One way to lie on the devices; hashable, so that programs can be keyed by it."""

    name: str
    description: str
    mesh: tuple[tuple[str, int], ...]
    weights: Rules
    compute: Rules

    def weight_spec(self, axes: Sequence[str | None]) -> PartitionSpec:
        """Partition of a stored weight with these logical axes."""
        return _spec(self.weights, axes)

    def compute_spec(self, axes: Sequence[str | None]) -> PartitionSpec:
        """Partition of an activation, or of a weight in use, with these logical axes."""
        return _spec(self.compute, axes)

    @property
    def batch_axes(self) -> tuple[str, ...]:
        """Mesh axes that split the batch."""
        return dict(self.compute).get("batch", ())

    def count_shards(self, sizes: Mapping[str, int]) -> int:
        """Parts that the batch is split into on a mesh with axes of these sizes."""
        return math.prod(sizes[axis] for axis in self.batch_axes)

    def as_dict(self) -> dict[str, Any]:
        """The layout as it stands in its file."""
        return {
            "name": self.name,
            "description": self.description,
            "mesh": dict(self.mesh),
            "weights": {axis: list(mesh) for axis, mesh in self.weights},
            "compute": {axis: list(mesh) for axis, mesh in self.compute},
        }


def _spec(rules: Rules, axes: Sequence[str | None]) -> PartitionSpec:
    table = dict(rules)
    entries: list[str | tuple[str, ...] | None] = []
    for axis in axes:
        mesh_axes = table.get(axis, ()) if axis is not None else ()
        entries.append(mesh_axes[0] if len(mesh_axes) == 1 else mesh_axes or None)
    return PartitionSpec(*entries)


def load_layout(path: Path) -> Layout:
    """Reads and checks one layout file.

    Raises:
      UserError: not TOML, an unknown table, axis or mesh axis, or a rule that cannot hold.
    """
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: the layout file cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not TOML: {error}") from None
    _check_keys(data, ("description", "mesh", "weights", "compute"), f"{path}")
    sizes = data.get("mesh", {})
    _check_keys(sizes, MESH_AXES, f"{path} [mesh]")
    for axis, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size == 0 or size < -1:
            raise UserError(f"{path} [mesh] {axis} = {size!r}: a size is 1, 2, ... or -1")
    if sum(size == -1 for size in sizes.values()) > 1:
        raise UserError(f"{path} [mesh]: only one axis may be -1 (the devices left)")
    return Layout(
        name=Path(path).stem,
        description=str(data.get("description", "")),
        mesh=tuple((axis, sizes.get(axis, 1)) for axis in MESH_AXES),
        weights=_read_rules(data.get("weights", {}), f"{path} [weights]"),
        compute=_read_rules(data.get("compute", {}), f"{path} [compute]"),
    )


def _check_keys(table: Any, known: Sequence[str], where: str) -> None:
    if not isinstance(table, Mapping):
        raise UserError(f"{where}: a table was expected, found {table!r}")
    for key in table:
        if key not in known:
            hint = suggest(key, known)
            raise UserError(f"{where}: unknown key {key!r}{hint} Known: {', '.join(known)}")


def _read_rules(table: Any, where: str) -> Rules:
    _check_keys(table, LOGICAL_AXES, where)
    rules: list[tuple[str, tuple[str, ...]]] = []
    for axis, value in table.items():
        names = (value,) if isinstance(value, str) else value
        if not isinstance(names, tuple | list) or not all(isinstance(n, str) for n in names):
            raise UserError(f"{where} {axis} = {value!r}: a mesh axis or a list of them is right")
        for name in names:
            if name not in MESH_AXES:
                raise UserError(
                    f"{where} {axis}: unknown mesh axis {name!r}; known: {', '.join(MESH_AXES)}"
                )
            if names.count(name) > 1:
                raise UserError(f"{where} {axis} names the mesh axis {name!r} twice")
        if axis in SCANNED_AXES and names:
            raise UserError(f"{where}: {axis} cannot be split; a loop runs over it")
        rules.append((axis, tuple(names)))
    _check_collisions(dict(rules), where)
    return tuple(rules)


def _check_collisions(rules: Mapping[str, tuple[str, ...]], where: str) -> None:
    for axes in MET_IN_ONE_ARRAY:
        for one, other in itertools.combinations(axes, 2):
            for name in set(rules.get(one, ())) & set(rules.get(other, ())):
                raise UserError(
                    f"{where}: {one} and {other} both lie on {name!r}, but one array has both;"
                    " give one of them another mesh axis"
                )


def resolve_sizes(layout: Layout, device_count: int) -> dict[str, int]:
    """Sizes of the mesh axes on so many devices.

    Raises:
      UserError: the fixed sizes do not divide the number of devices.
    """
    sizes = dict(layout.mesh)
    fixed = math.prod(size for size in sizes.values() if size != -1)
    free = [axis for axis, size in sizes.items() if size == -1]
    if device_count % fixed or (not free and fixed != device_count):
        raise UserError(
            f"layout {layout.name}: mesh {sizes} does not fit {device_count} devices;"
            f" the fixed sizes multiply to {fixed}, which must"
            f" {'divide' if free else 'equal'} the number of devices"
        )
    return {axis: device_count // fixed if size == -1 else size for axis, size in sizes.items()}


def make_mesh(layout: Layout, devices: Sequence[jax.Device]) -> Mesh:
    """The mesh of a layout over these devices, every axis Explicit."""
    sizes = resolve_sizes(layout, len(devices))
    return jax.make_mesh(
        tuple(sizes.values()),
        tuple(sizes),
        axis_types=(AxisType.Explicit,) * len(sizes),
        devices=devices,
    )


def check_divides(layout: Layout, sizes: Mapping[str, int], dimensions: Mapping[str, int]) -> None:
    """Refuses a model dimension that its mesh axes do not divide.

    Args:
      layout: the layout.
      sizes: sizes of the mesh axes.
      dimensions: size of each logical axis of the model.
    """
    for rules, table in ((layout.weights, "weights"), (layout.compute, "compute")):
        for axis, mesh_axes in rules:
            parts = math.prod(sizes[name] for name in mesh_axes)
            if axis in dimensions and dimensions[axis] % parts:
                right = [d for d in range(1, parts + 1) if dimensions[axis] % d == 0]
                raise UserError(
                    f"layout {layout.name} [{table}] splits {axis} = {dimensions[axis]} over"
                    f" {'x'.join(mesh_axes)} = {parts} devices, which does not divide;"
                    f" {right[-1]} would"
                )
