"""Devices of a target: those that are here, or descriptions of absent ones to compile for."""

import importlib.util
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh

from jax_rl.errors import UserError
from jax_rl.mesh.devices import list_slices, make_mesh
from jax_rl.mesh.layout import Layout
from jax_rl.plan.target import HERE, Target

_GPUS = Path(__file__).parent / "gpus.toml"
_MEGACORE = ("v4",)
"""Chips whose two cores JAX shows as one device only when asked to, as Cloud TPU does."""

_SHARED = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "threads_per_core_limit": 2048,
    "shared_memory_per_block": 49152,
    "block_dim_limit_x": 2147483647,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "thread_dim_limit_x": 1024,
    "thread_dim_limit_y": 1024,
    "thread_dim_limit_z": 64,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
}
"""Fields of XLA's target description that all GPUs of gpus.toml have in common."""


def make_environment(target: Target, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables of a process that compiles for the target, to be set before JAX is imported."""
    if target.platform == HERE:
        return dict(environment)
    kept = dict(environment)
    if target.platform == "tpu":
        # Libtpu ends the process at a flag that it does not know, as those of a CPU or GPU are;
        # its own are in LIBTPU_INIT_ARGS.
        kept.pop("XLA_FLAGS", None)
    return {
        **kept,
        "JAX_PLATFORMS": "cpu",
        # Libtpu would look for its own chips, ask a metadata server that is not there, and let
        # in one process at a time; any type of accelerator stops the questions.
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5p-8",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def check_extras(target: Target) -> None:
    """Refuses a target whose compiler is not installed.

    Raises:
      UserError: names what to install.
    """
    needed = {"tpu": ("libtpu",), "cuda": ("jax_cuda13_plugin", "jax_cuda12_plugin")}
    modules = needed.get(target.platform, ())
    if modules and not any(importlib.util.find_spec(name) for name in modules):
        raise UserError(
            f"target {target.name}: the compiler for {target.platform} is not installed here;"
            f" pip install 'jax-rl[aot-{target.platform}]'"
        )


def open_groups(target: Target) -> list[list[Any]]:
    """The devices by slice (TPU) or host (GPU).

    Raises:
      UserError: no such devices are known to the compiler.
    """
    if target.platform == HERE:
        return list_slices(jax.devices())
    devices = _open_tpu(target) if target.platform == "tpu" else _open_cuda(target)
    # A description of one slice numbers no slice, and one of several hosts of GPUs numbers them
    # all 0; the order is by group.
    size = len(devices) // target.groups
    return [devices[i : i + size] for i in range(0, len(devices), size)]


def lay_mesh(layout: Layout, groups: Sequence[Sequence[Any]]) -> Mesh:
    """The mesh of a layout over these groups of devices, as `make_mesh` lays one over real ones.

    Raises:
      UserError: the layout does not fit so many devices or groups.
    """
    devices = [device for group in groups for device in group]
    return make_mesh(layout, devices, slices=groups)


def count_groups(sizes: Mapping[str, int], groups: int) -> dict[str, int]:
    """Slices or hosts along each mesh axis that crosses several, which a slower network joins.

    Args:
      sizes: of the mesh axes, in the order of the mesh.
      groups: of equal size, one after the other along the flattened mesh.
    """
    count = math.prod(sizes.values())
    group = (np.arange(count) // (count // groups)).reshape(tuple(sizes.values()))
    counts: dict[str, int] = {}
    for axis, name in enumerate(sizes):
        along = np.moveaxis(group, axis, 0).reshape(sizes[name], -1)[:, 0]
        if (found := len(np.unique(along))) > 1:
            counts[name] = found
    return counts


def _open_tpu(target: Target) -> list[Any]:
    name = f"{target.chip}:{'x'.join(map(str, target.shape))}"
    options: dict[str, Any] = {"num_slices": target.groups} if target.groups > 1 else {}
    if target.chip in _MEGACORE:
        options["chip_config_name"] = "megacore"
    try:
        topology = topologies.get_topology_desc(platform="tpu", topology_name=name, **options)
    except (RuntimeError, ValueError, jax.errors.JaxRuntimeError) as error:
        raise UserError(
            f"target {target.name}: libtpu knows no such slice: {str(error).splitlines()[0]}"
        ) from None
    return list(topology.devices)


def _open_cuda(target: Target) -> list[Any]:
    text = describe_gpu(target)
    # Slices x hosts x devices, where a slice is an NVLink domain: here one host.
    shape = f"{target.groups}x1x{target.shape[0]}"
    topology = topologies.get_topology_desc(
        platform="cuda", topology_name="", topology=shape, target_config=text
    )
    return list(topology.devices)


def describe_gpu(target: Target) -> str:
    """XLA's description of a GPU, a text proto of stream_executor.GpuTargetConfigProto.

    Raises:
      UserError: this GPU is not described in gpus.toml.
    """
    gpus = tomllib.loads(_GPUS.read_text(encoding="utf-8"))
    if target.chip not in gpus:
        raise UserError(
            f"target {target.name}: {target.chip!r} cannot be compiled for without having one;"
            f" GPUs that can: {', '.join(gpus)}"
        )
    gpu = dict(gpus[target.chip])
    name, major = gpu.pop("name"), gpu.pop("compute_capability")
    # From Hopper on XLA's own kernels are compiled for the exact generation (sm_90a).
    extension = " feature_extension: ACCELERATED_FEATURES" if major >= 9 else ""
    fields = "\n".join(f"  {key}: {value}" for key, value in {**_SHARED, **gpu}.items())
    return (
        "gpu_device_info {\n"
        f"{fields}\n"
        f"  cuda_compute_capability {{ major: {major}{extension} }}\n"
        f'  name: "{name}"\n'
        "}\n"
        'platform_name: "CUDA"\n'
        "dnn_version_info { major: 9 minor: 10 }\n"
        "runtime_version { major: 13 }\n"
        f'device_description_str: "{name}"\n'
    )
