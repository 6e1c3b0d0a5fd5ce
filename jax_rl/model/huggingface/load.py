"""Safetensors of a Hugging Face checkpoint -> sharded arrays, one tensor at a time."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jax_rl.config import ModelConfig
from jax_rl.errors import UserError
from jax_rl.mesh.devices import check_divides, put
from jax_rl.mesh.layout import Layout
from jax_rl.model.huggingface.files import HEAD, Header, check_checkpoint, open_file
from jax_rl.model.huggingface.names import TOP_NAMES, Tensor, list_tensors
from jax_rl.model.weights import Weights, describe_weights, dimensions

Index = tuple[slice, ...]
COMPARED_ROWS = 4096
"""Rows of a tied head and the embedding that are in memory at once."""


def load_weights(
    directory: Path, *, config: ModelConfig, layout: Layout, dtype: Any = jnp.float32
) -> Weights:
    """Stored weights from a checkpoint, laid out on the mesh in context.

    Each process reads only what its own devices hold, and holds at most one tensor of the
    checkpoint in host memory; the cast is done on the devices.

    Args:
      directory: the checkpoint.
      config: the model, as `read_model_config` gives it.
      layout: where the weights lie.
      dtype: type of the arrays.

    Raises:
      UserError: whatever `check_checkpoint` refuses, a second head that differs from the
        embedding though both are tied, or a dimension that the layout does not divide.
    """
    mesh = jax.sharding.get_mesh()
    check_divides(layout, dict(mesh.shape), dimensions(config))
    headers = check_checkpoint(Path(directory), config)
    if config.tied_head and HEAD in headers:
        _compare_head(headers)
    weights = _allocate(config=config, layout=layout, dtype=jnp.dtype(dtype))
    for tensor in list_tensors(config):
        sharding = NamedSharding(mesh, layout.weight_spec(tensor.axes))
        # Opened anew for each: a mapping counts what was read as memory until it is closed.
        with open_file(headers[tensor.name].file) as opened:
            values = _read_tensor(opened, tensor, sharding)
        if tensor.layer is None:
            tree = weights
            tree[tensor.weight] = _replace(tree[tensor.weight], values)
        else:
            tree = weights["layers"]
            layer = put(np.int32(tensor.layer), NamedSharding(mesh, PartitionSpec()))
            tree[tensor.weight] = _replace_layer(tree[tensor.weight], values, layer)
        # Otherwise the loop runs ahead of the devices, with many tensors in memory.
        tree[tensor.weight].block_until_ready()
    return weights


@partial(jax.jit, static_argnames=("config", "layout", "dtype"))
def _allocate(*, config: ModelConfig, layout: Layout, dtype: Any) -> Weights:
    zeros: Weights = jax.tree.map(
        lambda w: jnp.zeros(w.shape, dtype, out_sharding=layout.weight_spec(w.axes)),
        describe_weights(config),
    )
    return zeros


@partial(jax.jit, donate_argnums=0)
def _replace(array: jax.Array, values: jax.Array) -> jax.Array:
    return array.at[...].set(values.astype(array.dtype))


@partial(jax.jit, donate_argnums=0)
def _replace_layer(stack: jax.Array, values: jax.Array, layer: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_index_in_dim(stack, values.astype(stack.dtype), layer, 0)


def _read_tensor(opened: Any, tensor: Tensor, sharding: NamedSharding) -> jax.Array:
    """One tensor [stored] with its own type, of which this process reads its devices' blocks."""
    view = opened.get_slice(tensor.name)
    blocks: dict[Any, np.ndarray] = {}  # devices that hold the same block share one read

    def read(index: Index | None) -> np.ndarray:
        index = index or (slice(None),) * len(tensor.stored)
        bounds = tuple(
            part.indices(size)[:2] for part, size in zip(index, tensor.stored, strict=True)
        )
        if bounds not in blocks:
            blocks[bounds] = _read_padded(view, tensor, bounds)
        return blocks[bounds]

    return jax.make_array_from_callback(tensor.stored, sharding, read)


def _read_padded(view: Any, tensor: Tensor, bounds: tuple[tuple[int, int], ...]) -> np.ndarray:
    """The block `bounds` of a weight, with zeros where only its padding is."""
    if any(start >= size for (start, _), size in zip(bounds, tensor.inner, strict=True)):
        first = _read_block(view, tensor, ((0, 1),) * len(bounds))  # for its type
        return np.zeros([end - start for start, end in bounds], first.dtype)
    there = tuple(
        (start, min(end, size)) for (start, end), size in zip(bounds, tensor.inner, strict=True)
    )
    block = _read_block(view, tensor, there)
    missing = [end - start - held for (start, end), held in zip(bounds, block.shape, strict=True)]
    return np.pad(block, [(0, count) for count in missing]) if any(missing) else block


def _read_block(view: Any, tensor: Tensor, bounds: tuple[tuple[int, int], ...]) -> np.ndarray:
    """The block `bounds` (from, to) of a weight.

    Of merged axes the first is cut while reading and the others after it: only a layout that
    splits head_dim reads more than it keeps.
    """
    outer: list[slice] = []
    inner = list(tensor.inner)
    cut = [slice(None)] * len(inner)
    for group in tensor.groups:
        first, *rest = group
        width = int(np.prod([tensor.inner[axis] for axis in rest], initial=1))
        outer.append(slice(bounds[first][0] * width, bounds[first][1] * width))
        inner[first] = bounds[first][1] - bounds[first][0]
        for axis in rest:
            cut[axis] = slice(*bounds[axis])
    return tensor.to_weight(view[tuple(outer)], tuple(inner))[tuple(cut)]


def _compare_head(headers: dict[str, Header]) -> None:
    name = TOP_NAMES["embedding"][0]
    one, other = headers[name], headers[HEAD]
    differ = (one.shape, one.dtype) != (other.shape, other.dtype)
    with open_file(one.file) as first, open_file(other.file) as second:
        views = first.get_slice(name), second.get_slice(HEAD)
        for start in range(0, 0 if differ else one.shape[0], COMPARED_ROWS):
            end = min(start + COMPARED_ROWS, one.shape[0])
            a, b = (view[start:end] for view in views)
            differ = differ or a.tobytes() != b.tobytes()
    if differ:
        raise UserError(
            f"{other.file}: {HEAD} differs from {name}, though tie_word_embeddings in config.json"
            " makes them one; set it to false to keep both"
        )
