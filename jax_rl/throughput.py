"""Throughput against batch, measured on devices or bounded by a plan: one file for both."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

from jax_rl.errors import UserError

_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class ThroughputPoint:
    """One batch in one layout."""

    layout: str
    batch: int  # rollouts per iteration
    # End to end: measured, or with every program at its roofline; 0 where it does not fit.
    rollouts_per_second: float
    seconds: dict[str, float]  # of one iteration, by phase of the critical path
    iterations: int  # measured; 0 in a plan
    mean_length: float  # response tokens; in a plan those that every decode loop runs to
    decode_steps: float  # per iteration, all waves together
    peak_memory_bytes: int | None  # per device; None if it was not measured
    fits: bool | None  # False: does not map or does not fit, and a note says why; None: not known
    notes: tuple[str, ...] = ()
    # Rollouts per second over each tenth of the replayed run's samples; empty without a replay.
    by_progress: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class ThroughputTable:
    """Points of one experiment on one kind of devices."""

    kind: Literal["measured", "predicted"]
    created: str  # ISO 8601, UTC
    config: dict[str, Any]  # the experiment, as config_to_dict gives it
    platform: str
    device_kind: str
    device_count: int
    process_count: int
    versions: dict[str, str]
    points: tuple[ThroughputPoint, ...]
    replayed: str = ""  # run whose response lengths were forced
    # Of that run's samples, the share at which it met its target; None: it did not.
    replayed_share: float | None = None
    notes: tuple[str, ...] = ()


def write_throughput(table: ThroughputTable, path: Path) -> None:
    """Writes a table as JSON; a kill never leaves half a file under the final name."""
    aside = path.with_name(f"{path.name}.tmp")
    text = json.dumps({"format": _FORMAT, **dataclasses.asdict(table)}, indent=1, allow_nan=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text + "\n", encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error


def read_throughput(path: Path) -> ThroughputTable:
    """The table in a file that `write_throughput` wrote.

    Raises:
      UserError: no such file, or not one of this version.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    if not isinstance(data, dict) or data.pop("format", None) != _FORMAT:
        raise UserError(
            f"{path}: not a throughput table of format {_FORMAT}, as bench and plan write"
        )
    try:
        points = tuple(
            ThroughputPoint(**{**point, **_take_tuples(point, "notes", "by_progress")})
            for point in data.pop("points")
        )
        return ThroughputTable(**{**data, **_take_tuples(data, "notes")}, points=points)
    except (TypeError, KeyError) as error:
        raise UserError(f"{path}: not a throughput table of this version: {error}") from error


def _take_tuples(data: Any, *names: str) -> dict[str, tuple[Any, ...]]:
    """JSON's lists as they were; a field that is not there keeps its default."""
    return {name: tuple(data[name]) for name in names if name in data}
