"""What is known of the machine and the software that a run has used."""

import contextlib
import ctypes
import importlib.metadata
import os
import platform
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

_COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"
_MALLOC_OPTIONS = {
    -4: 0,  # M_MMAP_MAX: no block is mapped on its own
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: what is free at the end of the heap stays
    -2: 2**26,  # M_TOP_PAD: the heap grows by this much at a time
}
_PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "chex",
    "grain",
    "numpy",
    "tokenizers",
    "safetensors",
    "jinja2",
)


def describe_host() -> dict[str, Any]:
    """Processor, cores, memory in bytes, and the load average when asked."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": load_average(),
    }


def keep_freed_memory() -> bool:
    """Lets the C library keep what is freed instead of handing large blocks back to the system.

    XLA's programs for CPUs allocate their temporaries anew at every call; handed back in between,
    every page of them faults again. It holds for the whole process; other systems than glibc's
    are left as they are.

    Returns:
      whether the C library took it.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return all(mallopt(option, value) == 1 for option, value in _MALLOC_OPTIONS.items())


def load_average() -> float:
    """Runnable processes of the whole machine over the last minute."""
    return os.getloadavg()[0]


def peak_memory_bytes(device: jax.Device) -> int:
    """Peak of the device's memory where it tells, else of this process."""
    stats = device.memory_stats() or {}
    peak = stats.get("peak_bytes_in_use")
    if peak is not None:
        return int(peak)
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextlib.contextmanager
def count_compiles() -> Iterator[Callable[[], int]]:
    """Counts what JAX compiles from here on; the function that it gives tells the number."""
    seen: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == _COMPILE_EVENT:
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield lambda: len(seen)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def describe_versions() -> dict[str, str]:
    """Versions of Python and of the packages that numbers depend on."""
    versions = {"python": platform.python_version(), "jax_rl": _version("jax-rl")}
    return versions | {name: _version(name) for name in _PACKAGES}


def describe_revision() -> str:
    """Git revision of the code, `-dirty` with uncommitted changes; empty outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
