"""What chips can do, as their makers say: a data file, and one of the user's beside it."""

import dataclasses
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jax_rl.errors import UserError, suggest

PACKAGED = Path(__file__).parent / "chips.toml"
PLATFORMS = ("tpu", "cuda", "cpu")
DTYPES = ("bfloat16", "float32")


@dataclasses.dataclass(frozen=True)
class Chip:
    """Peak numbers of one JAX device, which may be a part of a chip."""

    name: str
    platform: str  # tpu, cuda or cpu
    device_kind: tuple[str, ...]  # as `device.device_kind` says it
    flops: Mapping[str, float]  # FLOP/s of dense matrix products by dtype of the operands
    memory_bytes: int
    memory_bandwidth: float  # bytes/s
    link_bandwidth: float  # bytes/s inside a slice or NVLink domain, one direction, all links
    network_bandwidth: float  # bytes/s between slices or hosts, one direction
    devices_per_host: int
    source: str  # which document says what


def load_chips(extra: Path | None = None) -> dict[str, Chip]:
    """The packaged chips by name, with those of another file added or put in their place.

    Args:
      extra: a file of the form of `chips.toml`.

    Raises:
      UserError: the file cannot be read, or a table has an unknown, missing or impossible value.
    """
    chips = _read_file(PACKAGED)
    return chips if extra is None else chips | _read_file(Path(extra))


def find_chip(name: str, chips: Mapping[str, Chip]) -> Chip:
    """The chip of a name.

    Raises:
      UserError: there is none; the message names the nearest.
    """
    if name not in chips:
        raise UserError(
            f"unknown chip {name!r}{suggest(name, chips)} (known: {', '.join(chips)}; a file of"
            " chips can add one)"
        )
    return chips[name]


def find_by_kind(device_kind: str, chips: Mapping[str, Chip]) -> Chip | None:
    """The chip that a running device says it is, if it is known."""
    return next((chip for chip in chips.values() if device_kind in chip.device_kind), None)


def _read_file(path: Path) -> dict[str, Chip]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: the file of chips cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not TOML: {error}") from None
    return {name: _read_chip(name, table, where=f"{path} [{name}]") for name, table in data.items()}


def _read_chip(name: str, table: Any, *, where: str) -> Chip:
    fields = {field.name for field in dataclasses.fields(Chip)} - {"name"}
    if not isinstance(table, dict):
        raise UserError(
            f"{where}: a table with the numbers of a chip was expected, found {table!r}"
        )
    for key in table:
        if key not in fields:
            raise UserError(f"{where}: unknown key {key!r}{suggest(key, fields)}")
    missing = [
        field.name for field in dataclasses.fields(Chip) if field.name in fields - set(table)
    ]
    if missing:
        raise UserError(f"{where}: {', '.join(missing)} must be given too")
    if table["platform"] not in PLATFORMS:
        raise UserError(
            f"{where}: platform = {table['platform']!r} must be one of {', '.join(PLATFORMS)}"
        )
    kinds, source = table["device_kind"], table["source"]
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise UserError(f"{where}: device_kind = {kinds!r} must be a list of strings")
    if not isinstance(source, str) or not source.strip():
        raise UserError(f"{where}: source = {source!r} must say where the numbers come from")
    numbers = ("memory_bandwidth", "link_bandwidth", "network_bandwidth")
    return Chip(
        name=name,
        platform=table["platform"],
        device_kind=tuple(kinds),
        flops=_read_flops(table["flops"], where),
        source=source,
        memory_bytes=_read_count(table, "memory_bytes", where),
        devices_per_host=_read_count(table, "devices_per_host", where),
        **{key: _read_number(table[key], key, where) for key in numbers},
    )


def _read_flops(table: Any, where: str) -> Mapping[str, float]:
    if not isinstance(table, dict) or set(table) != set(DTYPES):
        raise UserError(f"{where}: flops = {table!r} must give {' and '.join(DTYPES)}, no others")
    rates = {dtype: _read_number(table[dtype], f"flops.{dtype}", where) for dtype in DTYPES}
    return types.MappingProxyType(rates)


def _read_number(value: Any, key: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
        raise UserError(f"{where}: {key} = {value!r} must be a number above 0")
    return float(value)


def _read_count(table: Mapping[str, Any], key: str, where: str) -> int:
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{where}: {key} = {value!r} must be a whole number above 0")
    return value
