"""Whether the seconds of a study's runs may be compared, or its samples alone.

A sample is a sample on any machine; a second is not. Throughput and times are compared between
runs on one kind of device, with the same versions of the compiler and the same flags, that had
the machine to themselves.
"""

import datetime
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jax_rl.records import RunRecord, Start

BUSY_SHARE = 0.5
"""Load by others, as a share of the cores, from which on a machine was not the run's own."""

COMPILERS = ("jax", "jaxlib", "libtpu")
"""Packages whose version changes what programs do."""

_MOST_SCORERS = 8  # processes that score rewards, if the configuration gives no number
_DRIVERS = 2  # threads of the trainer's own process that feed an accelerator
_SLACK = 2.0  # seconds by which the times of two records may be off


def check_comparable(runs: Mapping[str, RunRecord]) -> list[str]:
    """Reasons why the seconds of these runs must not be compared; empty if they may be.

    Numbers of devices may differ, because a study may grow them with the batch. What a record
    does not tell, such as the device of an imported log, is no reason.

    Args:
      runs: by name.
    """
    return [*check_kinds(runs), *check_conditions(runs)]


def check_kinds(runs: Mapping[str, RunRecord]) -> list[str]:
    """The reason that lies in what these runs were on; empty if it is one kind."""
    return _tell_apart("on different kinds of device", runs, describe_kind)


def check_conditions(runs: Mapping[str, RunRecord]) -> list[str]:
    """The reasons that lie in how these runs were made: versions, flags, other work."""
    return [
        *_tell_apart("run with different versions", runs, _describe_versions),
        *_tell_apart("run with different flags", runs, _describe_flags),
        *_check_load(runs),
    ]


def _tell_apart(
    what: str, runs: Mapping[str, RunRecord], describe: Callable[[Start], str]
) -> list[str]:
    groups: dict[str, list[str]] = {}
    for name, run in runs.items():
        for start in run.starts:
            groups.setdefault(describe(start), []).append(name)
    groups.pop("", None)
    if len(groups) < 2:
        return []
    each = "; ".join(f"{key} in {_shorten(names)}" for key, names in groups.items())
    return [f"{what}: {each}"]


def _check_load(runs: Mapping[str, RunRecord]) -> list[str]:
    busy = {name: load for name, run in runs.items() if (load := find_foreign_load(run))}
    if not busy:
        return []
    worst = max(busy, key=lambda name: busy[name])
    return [
        f"not alone on the machine: the load average of {_shorten(list(busy))} was more than"
        f" {BUSY_SHARE:.0%} of the cores above what a run causes itself"
        f" ({busy[worst]:.1f} in {worst})"
    ]


def find_foreign_load(run: RunRecord) -> float:
    """Load average above what the run and the one before it can cause; 0 while that is small.

    A load average counts the run's own threads too, and at its start those of the run before, so
    that only what exceeds them is surely by others: the processes that score, and on a CPU all
    cores, else the threads that feed the accelerator.
    """
    most = 0.0
    for start in run.starts:
        cores = float(start.host.get("cores") or 0)
        ending = run.end.load_average if run.end else 0.0
        load = max(float(start.host.get("load_average") or 0.0), ending)
        above = load - count_own_load(start)
        if cores and above > BUSY_SHARE * cores:
            most = max(most, above)
    return most


def count_own_load(start: Start) -> float:
    """The largest load average that a run causes itself."""
    cores = float(start.host.get("cores") or 0)
    scorers = int(start.config.get("reward", {}).get("processes", 0)) or min(cores, _MOST_SCORERS)
    if start.platform == "cpu":
        return cores + scorers
    return min(cores, scorers + _DRIVERS)


def went_in_turn(runs: Iterable[RunRecord]) -> bool:
    """Whether the records show that no run began before another had ended.

    A resumed run ended later than its clock tells, so that not all that overlapped is seen.
    """
    spans = []
    for run in runs:
        try:
            begin = datetime.datetime.fromisoformat(run.starts[0].time).timestamp()
        except ValueError:
            return False
        last = run.end or (run.iterations[-1] if run.iterations else None)
        spans.append((begin, begin + (last.elapsed_seconds if last else 0.0)))
    spans.sort()
    latest = -math.inf
    for begin, end in spans:
        if begin < latest - _SLACK:
            return False
        latest = max(latest, end)
    return True


def describe_kind(start: Start) -> str:
    """The kind of a run's devices; empty where its record does not tell."""
    return name_machine(start.device_kind, start.platform, start.host)


def name_machine(device_kind: str, platform: str, host: Mapping[str, Any]) -> str:
    """Every CPU calls itself `cpu`, so that the host's processor has to tell them apart."""
    if platform == "cpu" and host.get("cpu"):
        return f"{host['cpu']}, {host.get('cores', '?')} cores"
    return f"{device_kind} ({platform})" if device_kind else ""


def _describe_versions(start: Start) -> str:
    return " ".join(
        f"{name} {start.versions[name]}" for name in COMPILERS if name in start.versions
    )


def _describe_flags(start: Start) -> str:
    flags = {name: value for name, value in start.flags.items() if value}
    return " ".join(f"{name}={value}" for name, value in sorted(flags.items())) or "none"


def _shorten(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
