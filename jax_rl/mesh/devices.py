"""A layout on real devices: sizes of the mesh axes, the mesh, and arrays placed on it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding

from jax_rl.errors import UserError
from jax_rl.mesh.layout import SLICES, Layout


def resolve_sizes(layout: Layout, device_count: int, *, slices: int = 1) -> dict[str, int]:
    """Sizes of the mesh axes on so many devices.

    Args:
      layout: the layout.
      device_count: of all slices together.
      slices: groups of devices that are joined by a slower network.

    Raises:
      UserError: the fixed sizes do not divide the number of devices.
    """
    sizes = {axis: slices if size == SLICES else int(size) for axis, size in layout.mesh}
    fixed = math.prod(size for size in sizes.values() if size != -1)
    free = [axis for axis, size in sizes.items() if size == -1]
    if device_count % fixed or (not free and fixed != device_count):
        raise UserError(
            f"layout {layout.name}: mesh {sizes} does not fit {device_count} devices;"
            f" the fixed sizes multiply to {fixed}, which must"
            f" {'divide' if free else 'equal'} the number of devices"
        )
    return {axis: device_count // fixed if size == -1 else size for axis, size in sizes.items()}


def list_slices(devices: Sequence[jax.Device]) -> list[list[jax.Device]]:
    """The devices by slice: a TPU slice or NVLink domain, else a process.

    What is inside one is joined by a fast network; between two it is slower.
    """
    by_slice: dict[int, list[jax.Device]] = {}
    for device in devices:
        index = getattr(device, "slice_index", None)
        index = device.process_index if index is None else index
        by_slice.setdefault(index, []).append(device)
    return [by_slice[index] for index in sorted(by_slice)]


def make_mesh(
    layout: Layout,
    devices: Sequence[jax.Device],
    *,
    slices: Sequence[Sequence[jax.Device]] | None = None,
) -> Mesh:
    """The mesh of a layout over these devices, every axis Explicit.

    On several slices the mesh axis `data` crosses them where it can, so that all else stays inside
    of one; hosts of GPUs may be crossed by any axis.

    Args:
      layout: the layout.
      devices: all of them.
      slices: the same by slice, where the devices do not tell; left out, as `list_slices` has them.

    Raises:
      UserError: the layout does not fit so many devices or slices.
    """
    slices = list_slices(devices) if slices is None else slices
    sizes = resolve_sizes(layout, len(devices), slices=len(slices))
    explicit = (AxisType.Explicit,) * len(sizes)
    if len(slices) == 1:
        # A pair of devices is no axis of a 4x4x4 torus: an axis of it may be split.
        placed = mesh_utils.create_device_mesh(
            tuple(sizes.values()), devices, allow_split_physical_axes=True
        )
        return Mesh(placed, tuple(sizes), axis_types=explicit)
    if sizes["data"] % len(slices) == 0:
        inside = (sizes["data"] // len(slices), sizes["fsdp"], sizes["tensor"])
        parts = [
            mesh_utils.create_device_mesh(inside, part, allow_split_physical_axes=True)
            for part in slices
        ]
        return Mesh(np.concatenate(parts, axis=0), tuple(sizes), axis_types=explicit)
    if devices[0].platform == "tpu":
        raise UserError(
            f"layout {layout.name}: {len(devices)} devices are in {len(slices)} slices, and the"
            f" mesh axis data = {sizes['data']} cannot cross them; it must be a multiple of"
            f" {len(slices)}, as in the layout multislice"
        )
    ordered = [device for part in slices for device in part]
    return Mesh(np.array(ordered).reshape(tuple(sizes.values())), tuple(sizes), axis_types=explicit)


def check_divides(layout: Layout, sizes: Mapping[str, int], dimensions: Mapping[str, int]) -> None:
    """Refuses a model dimension that its mesh axes do not divide.

    Args:
      layout: the layout.
      sizes: sizes of the mesh axes.
      dimensions: size of each logical axis of the model.
    """
    for table, rules in layout.list_tables().items():
        for axis, mesh_axes in rules:
            parts = math.prod(sizes[name] for name in mesh_axes)
            if axis in dimensions and dimensions[axis] % parts:
                right = [d for d in range(1, parts + 1) if dimensions[axis] % d == 0]
                raise UserError(
                    f"layout {layout.name} [{table}] splits {axis} = {dimensions[axis]} over"
                    f" {'x'.join(mesh_axes)} = {parts} devices, which does not divide;"
                    f" {right[-1]} would"
                )


def count_vocab_shards(layout: Layout, sizes: Mapping[str, int]) -> int:
    """What the rows of the embedding have to be a multiple of, for every table."""
    parts = [
        math.prod(sizes[name] for name in dict(rules).get("vocab", ()))
        for rules in layout.list_tables().values()
    ]
    return math.lcm(*parts)


def put(array: Any, sharding: NamedSharding) -> jax.Array:
    """A host array on the mesh; with several processes each has the same array and puts its part.

    Args:
      array: NumPy, the whole of it.
      sharding: where it lies.
    """
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    array = np.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
