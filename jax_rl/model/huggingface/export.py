"""Sharded arrays -> a Hugging Face checkpoint directory that other programs load."""

import dataclasses
import json
import math
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from jax_rl.config import ModelConfig
from jax_rl.errors import UserError
from jax_rl.mesh.devices import put
from jax_rl.model.huggingface.families import read_model_config
from jax_rl.model.huggingface.files import INDEX, SINGLE
from jax_rl.model.huggingface.keys import read_object
from jax_rl.model.huggingface.names import Tensor, list_tensors
from jax_rl.model.weights import Weights

CARRIED = (
    "tokenizer*",
    "special_tokens_map*.json",
    "added_tokens.json",
    "vocab*",
    "merges*.txt",
    "*.model",
    "chat_template*",
    "additional_chat_templates/*",
    "generation_config.json",
    "LICENSE*",
    "NOTICE*",
    "USE_POLICY*",
)
"""Files that go along as they are; never weights."""


def export_checkpoint(
    weights: Weights,
    directory: Path,
    *,
    config: ModelConfig,
    source: Path,
    dtype: Literal["float32", "bfloat16", "float16"],
    shard_bytes: int = 5_000_000_000,
) -> list[Path]:
    """Writes weights, config.json, and the source's tokenizer and generation files.

    All processes call this and process 0 writes. A shard at most is in host memory. Everything
    is written aside and moved at the end, so that `directory` is complete or not there.

    Args:
      weights: stored weights, on any layout.
      directory: where the checkpoint goes; absent or empty.
      config: the model of `weights`.
      source: the checkpoint directory that the model came from.
      dtype: type of the tensors on disk.
      shard_bytes: size above which the tensors are split over several files.

    Returns:
      The files, sorted.

    Raises:
      UserError: a directory that is the source, holds files or cannot be written; a source with
        another model; a value that the type cannot hold.
    """
    directory, source = Path(directory).absolute(), Path(source)
    _check_target(directory, source)
    _check_source(source, config)
    partial_directory = directory.with_name(f".{directory.name}.partial")
    writes = jax.process_index() == 0
    try:
        if writes:
            shutil.rmtree(partial_directory, ignore_errors=True)  # of an export that was killed
            partial_directory.mkdir(parents=True)
            _write_config(source, partial_directory, dtype)
            _carry_files(source, partial_directory)
        with jax.set_mesh(weights["embedding"].sharding.mesh):
            _write_shards(weights, partial_directory, config, dtype, shard_bytes, writes)
        if writes:
            partial_directory.replace(directory)
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("exported")
    except OSError as error:
        raise UserError(f"{directory}: the export cannot be written: {error}") from error
    finally:
        if writes:
            shutil.rmtree(partial_directory, ignore_errors=True)
    return sorted(file for file in directory.rglob("*") if file.is_file())


def plan_shards(tensors: list[Tensor], *, itemsize: int, shard_bytes: int) -> list[list[Tensor]]:
    """Tensors cut in order into shards of at most so many bytes, or of one tensor."""
    shards: list[list[Tensor]] = [[]]
    size = 0
    for tensor in tensors:
        bytes_ = math.prod(tensor.shape) * itemsize
        if shards[-1] and size + bytes_ > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += bytes_
    return shards


def _check_target(directory: Path, source: Path) -> None:
    if directory.resolve() == source.resolve():
        raise UserError(f"{directory}: an export never overwrites its source; name another one")
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory}: is a file; an absent or empty directory is right")
    if directory.is_dir() and any(directory.iterdir()):
        raise UserError(f"{directory}: is not empty; an absent or empty directory is right")


def _check_source(source: Path, config: ModelConfig) -> None:
    described = read_model_config(source, base=config)
    differing = [
        f"{field.name} = {getattr(config, field.name)!r}, not {getattr(described, field.name)!r}"
        for field in dataclasses.fields(ModelConfig)
        if field.name not in ("checkpoint", "padded_vocab")
        and getattr(config, field.name) != getattr(described, field.name)
    ]
    if differing:
        raise UserError(
            f"{source}: its config.json describes another model than the one to export, which has"
            f" {'; '.join(differing)}"
        )


def _write_config(source: Path, directory: Path, dtype: str) -> None:
    data = read_object(source / "config.json", why="the export carries it along")
    keys = [key for key in ("torch_dtype", "dtype") if key in data]
    if not keys:
        keys = ["dtype" if "rope_parameters" in data else "torch_dtype"]
    data.update(dict.fromkeys(keys, dtype))
    _write_json(directory / "config.json", data)


def _write_json(file: Path, data: dict[str, Any]) -> None:
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    file.write_text(text, encoding="utf-8")


def _carry_files(source: Path, directory: Path) -> None:
    for pattern in CARRIED:
        for file in source.glob(pattern):
            target = directory / file.relative_to(source)
            if file.is_file() and file.suffix != ".safetensors" and not target.exists():
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, target)


def _write_shards(
    weights: Weights,
    directory: Path,
    config: ModelConfig,
    dtype: str,
    shard_bytes: int,
    writes: bool,
) -> None:
    itemsize = jnp.dtype(dtype).itemsize
    shards = plan_shards(list_tensors(config), itemsize=itemsize, shard_bytes=shard_bytes)
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        many = len(shards) > 1
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors" if many else SINGLE
        values = dict(_fetch_tensors(weights, shard, dtype, writes))
        if writes:
            _write_shard(values, directory / name)
        weight_map.update({tensor.name: name for tensor in shard})
    if writes and len(shards) > 1:
        total = sum(math.prod(t.shape) for shard in shards for t in shard) * itemsize
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        _write_json(directory / INDEX, index)


def _write_shard(values: dict[str, np.ndarray], file: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(values, file, metadata={"format": "pt"})  # transformers asks for the format
    except SafetensorError as error:
        raise UserError(f"{file}: cannot be written: {error}") from None
    # The library leaves files that only their owner can read.
    shutil.copymode(file.with_name("config.json"), file)


def _fetch_tensors(
    weights: Weights, tensors: list[Tensor], dtype: str, writes: bool
) -> Iterator[tuple[str, np.ndarray]]:
    """Name and host values of each tensor; all processes take part, only one gets values."""
    for tensor in tensors:
        layer, tree = None, weights
        if tensor.layer is not None:
            everywhere = NamedSharding(weights["embedding"].sharding.mesh, PartitionSpec())
            layer, tree = put(np.int32(tensor.layer), everywhere), weights["layers"]
        whole = _gather(tree[tensor.weight], layer, dtype=dtype)
        if not writes:
            continue
        values = jax.device_get(whole.addressable_data(0))
        values = values[tuple(slice(size) for size in tensor.inner)]
        if not np.isfinite(values).all():
            raise UserError(
                f"tensor {tensor.name} has values that are not finite in {dtype}; if they are"
                " finite as trained, float32 or bfloat16 holds them"
            )
        yield tensor.name, tensor.from_weight(values)


@partial(jax.jit, static_argnames="dtype")
def _gather(array: jax.Array, layer: jax.Array | None, *, dtype: str) -> jax.Array:
    """A weight, or one layer of it, cast and whole on every device."""
    if layer is not None:
        array = jax.lax.dynamic_index_in_dim(array, layer, 0, keepdims=False)
    return jax.sharding.reshard(array.astype(dtype), PartitionSpec())
