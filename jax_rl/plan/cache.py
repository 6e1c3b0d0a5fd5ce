"""Compiled programs and their costs, kept under the hash of all that they depend on.

The compiled text is kept besides the costs that were read off it, so that another version of their
reader reads it again and nothing is compiled anew.
"""

import gzip
import hashlib
import importlib.metadata
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax_rl.costs

_PACKAGES = (
    "jax",
    "jaxlib",
    "libtpu",
    "jax-cuda13-plugin",
    "jax-cuda13-pjrt",
    "jax-cuda12-plugin",
    "jax-cuda12-pjrt",
)


def cache_folder() -> Path:
    """JAX_RL_CACHE, or jax_rl in the user's cache folder, and plan/ in it."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("JAX_RL_CACHE") or Path(base) / "jax_rl") / "plan"


def list_versions() -> dict[str, str]:
    """Versions of the packages that decide what a compiled program looks like."""
    versions: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def hash_program(lowered: str, *, mesh: Sequence[Any], target: str) -> str:
    """Hash of a lowered program and of what compiles it.

    Args:
      lowered: its text.
      mesh: axes, sizes, and the devices' ids in the order of the mesh.
      target: the description of the hardware that the compiler is given.
    """
    definition = {
        "lowered": hashlib.sha256(lowered.encode()).hexdigest(),
        "mesh": list(mesh),
        "target": target,
        "versions": list_versions(),
        "flags": [os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")],
    }
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:32]


def read_costs(key: str, counted: int | None) -> dict[str, Any] | None:
    """Costs that this version of their reader read; None if it did not, or they are spoilt."""
    return _read_json(_costs_path(key, counted))


def write_costs(key: str, counted: int | None, costs: dict[str, Any]) -> None:
    """Keeps costs, if the folder can be written to."""
    _write(_costs_path(key, counted), json.dumps(costs).encode())


def read_program(key: str) -> dict[str, Any] | None:
    """What `write_program` kept; None if there is nothing, or if it is spoilt."""
    return _read_json(cache_folder() / f"{key}.json.gz")


def write_program(key: str, program: dict[str, Any]) -> None:
    """Keeps a compiled program, its text among its values, if the folder can be written to."""
    _write(cache_folder() / f"{key}.json.gz", gzip.compress(json.dumps(program).encode()))


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = path.read_bytes()
        data = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    except (OSError, EOFError, ValueError, zlib.error):
        return None
    return data if isinstance(data, dict) else None


def _write(path: Path, content: bytes) -> None:
    """A kill never leaves half a file under the final name."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(content)
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)


def _costs_path(key: str, counted: int | None) -> Path:
    digest = hashlib.sha256()
    for path in sorted(Path(next(iter(jax_rl.costs.__path__))).glob("*.py")):
        digest.update(path.read_bytes())
    loop = "" if counted is None else f"-{counted}"
    return cache_folder() / f"{key}-{digest.hexdigest()[:16]}{loop}.json"
