"""What the devices that are here can do, measured in a second: for a CPU, no document says it."""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jax_rl.costs.chips import Chip

_SIDES = (512, 1024, 2048, 4096, 8192)
"""Rows and columns of the matrices that are tried, 2 x side ** 3 FLOPs a product."""
_LONG = 0.02
"""Seconds that a product should take, for the time of starting it not to count."""
_BYTES = 32 * 2**20
"""Of each array that is copied on each device; far above what a cache holds."""
_REPEATS = 5


@dataclasses.dataclass(frozen=True)
class Peaks:
    """Rates of one device while all of them work."""

    flops: float  # FLOP/s of matrix products in the dtype that was asked for
    memory_bandwidth: float  # bytes/s, read and written
    link_bandwidth: float  # bytes/s that leave one device and enter it; 0 for a single one
    memory_bytes: int


def measure_peaks(devices: Sequence[jax.Device], dtype: str) -> Peaks:
    """Times a matrix product, a copy and a sum over devices, on all devices at once.

    The best of a few calls counts. Devices that share one machine, as those of a CPU do, share
    its rates; each is given its part of them.
    """
    mesh = Mesh(np.array(devices), ("x",), axis_types=(AxisType.Auto,))
    split = NamedSharding(mesh, PartitionSpec("x"))
    count = len(devices)

    def fill(shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return jax.jit(lambda: jnp.ones((count, *shape), dtype), out_shardings=split)()

    multiply = jax.jit(lambda a: jnp.einsum("xab,xbc->xac", a, a))
    for side in _SIDES:
        multiplied = _time(multiply, fill((side, side), dtype))
        if multiplied >= _LONG:
            break
    numbers = fill((_BYTES // 4,), jnp.float32)
    copied = _time(jax.jit(lambda a: a + 1.0), numbers)
    whole = NamedSharding(mesh, PartitionSpec())
    summed = _time(jax.jit(lambda a: a.sum(0), out_shardings=whole), numbers)
    sent = 2 * (count - 1) / count * _BYTES
    return Peaks(
        flops=2.0 * side**3 / multiplied,
        memory_bandwidth=2 * _BYTES / copied,
        link_bandwidth=sent / summed,
        memory_bytes=_count_memory(devices[0], count),
    )


def make_chip(kind: str, peaks: Peaks, dtype: str) -> Chip:
    """Measured rates in the place of published ones, for programs of this dtype."""
    # A single device exchanges nothing, so any rate above 0 will do.
    link = peaks.link_bandwidth or peaks.memory_bandwidth
    return Chip(
        name=kind,
        platform="cpu",
        device_kind=(kind,),
        flops={dtype: peaks.flops},
        memory_bytes=peaks.memory_bytes,
        memory_bandwidth=peaks.memory_bandwidth,
        link_bandwidth=link,
        network_bandwidth=link,
        devices_per_host=1,
        source="measured here by short matrix products, copies and sums",
    )


def _time(call: Callable[..., jax.Array], *args: jax.Array) -> float:
    """Seconds of the fastest of a few calls, after one that compiles."""
    jax.block_until_ready(call(*args))
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(call(*args))
        best = min(best, time.perf_counter() - start)
    return best


def _count_memory(device: jax.Device, devices: int) -> int:
    """Bytes that programs may use on one device; a CPU's devices share the machine's."""
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit is not None:
        return int(limit)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // devices
