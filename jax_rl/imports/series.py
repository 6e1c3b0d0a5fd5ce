"""Rows of a log to the course of a run: samples, both clocks, phases and scores."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from jax_rl.errors import UserError
from jax_rl.imports.columns import CLOCKS
from jax_rl.imports.runs import LoggedRun
from jax_rl.imports.tables import Row

PHASES = {"generate": "generate", "reward_seconds": "reward", "learn": "learn", "sync": "sync"}
"""Roles of phases of the training clock, and the phase of a record that each is."""

AFTERWARDS = ("validate", "checkpoint")
"""Roles, and phases, of what happens after an iteration, outside the training clock."""


@dataclasses.dataclass(frozen=True)
class Point:
    """The state of a run when a row was logged; NaN for what was not."""

    step: float
    samples: int
    elapsed: float  # seconds, when the policy was ready, i.e. before validating
    training: float  # seconds
    phases: Mapping[str, float]  # seconds since the point before, of every phase that is known
    after: Mapping[str, float]  # seconds of validation and checkpoint after this point
    values: Mapping[str, float]  # by role


@dataclasses.dataclass(frozen=True)
class Series:
    """A run as its log tells it."""

    points: list[Point]
    clock: str  # which role the seconds come from
    phases_known: bool
    notes: list[str]


def read_series(
    rows: Sequence[Row], columns: Mapping[str, Sequence[str]], run: LoggedRun
) -> Series:
    """Puts the rows of a log in order and gives each its samples and seconds.

    Args:
      rows: as logged, several of one step or not.
      columns: by role; their numbers are added up.
      run: what the log is of.

    Raises:
      UserError: samples or seconds that go backwards, a step below 0, or no row with a step.
    """
    merged = _merge(rows, columns, run)
    steps = np.array([row["step"] for row in merged])
    clock = next(role for role in CLOCKS if any(role in row for row in merged))
    ends = _read_clock(merged, steps, clock, where=str(run.file))
    spent = np.cumsum([_sum(row, AFTERWARDS) for row in merged])
    points: list[Point] = []
    before, left = 0.0, 0.0  # the end of the point before, and of its training clock
    for row, end, away in zip(merged, ends, spent, strict=True):
        after = {phase: row[phase] for phase in AFTERWARDS if phase in row}
        ready = max(before, float(end) - sum(after.values()))
        training = float(end) - float(away)
        many = max(0.0, row["step"] - (points[-1].step if points else 0.0))
        known = {phase: many * row[role] for role, phase in PHASES.items() if role in row}
        rest = max(0.0, ready - before - sum(known.values()))
        points.append(
            Point(
                step=row["step"],
                samples=round(row["samples"]),
                elapsed=ready,
                training=max(left, training),
                phases=known | {"other": rest},
                after=after,
                values=row,
            )
        )
        before, left = max(before, float(end)), points[-1].training
    phases_known = any(role in row for row in merged for role in PHASES)
    return Series(points, clock, phases_known, _describe_clock(clock, phases_known, merged, run))


def _merge(
    rows: Sequence[Row], columns: Mapping[str, Sequence[str]], run: LoggedRun
) -> list[dict[str, float]]:
    """One row for each step, by role, with its step and samples."""
    by_step: dict[float, dict[str, float]] = {}
    for row in rows:
        values = {
            role: sum(row[name] for name in names if name in row)
            for role, names in columns.items()
            if any(name in row for name in names)
        }
        if "samples" in values:
            values.setdefault("step", values["samples"] / run.batch)
        elif "step" in values:
            values["samples"] = values["step"] * run.batch
        elif "total_seconds" in values and by_step:
            values["step"] = max(by_step)
        else:
            continue
        by_step.setdefault(values["step"], {}).update(values)
    if not by_step:
        raise UserError(f"{run.file}: no row has a step or samples")
    merged = [by_step[step] for step in sorted(by_step)]
    for row in merged:
        row.setdefault("samples", row["step"] * run.batch)
    if merged[0]["step"] < 0:
        raise UserError(f"{run.file}: step {merged[0]['step']:g} is below 0")
    for before, after in itertools.pairwise(merged):
        if after["samples"] < before["samples"]:
            raise UserError(
                f"{run.file}: samples go backwards from {before['samples']:g} to"
                f" {after['samples']:g} at step {after['step']:g}; they must be those since the"
                " start of the run (--map samples=COLUMN names another column, samples=- none)"
            )
    return merged


def _read_clock(
    rows: Sequence[Mapping[str, float]], steps: np.ndarray, clock: str, *, where: str
) -> np.ndarray:
    """Seconds since the start at the end of each row, validation and checkpoint included."""
    if clock in ("seconds", "timestamp"):
        known = [(row["step"], row[clock]) for row in rows if clock in row]
        at, seconds = (np.array(side) for side in zip(*known, strict=True))
        if np.any(np.diff(seconds) < 0):
            step = at[1:][np.diff(seconds) < 0][0]
            raise UserError(
                f"{where}: {clock} goes backwards at step {step:g}; a log of a run that was"
                " continued needs one clock for all its parts"
            )
        if clock == "timestamp":
            seconds = seconds - seconds[0]
        elif at[0] > 0:  # the clock began at 0
            at, seconds = np.append(0.0, at), np.append(0.0, seconds)
        return np.asarray(np.interp(steps, at, seconds))
    spent = np.array([_sum(row, AFTERWARDS) for row in rows])
    if clock == "step_seconds":
        many = np.diff(np.append(0.0, steps))
        each = _fill(np.array([row.get(clock, math.nan) for row in rows]))
        return np.asarray(np.cumsum(many * each + (0.0 if holds_validation(rows) else spent)))
    total = max(row.get(clock, 0.0) for row in rows)
    return np.asarray(total * steps / steps[-1]) if steps[-1] > 0 else np.zeros(len(rows))


def holds_validation(rows: Sequence[Mapping[str, float]]) -> bool:
    """Whether the seconds of an iteration hold those of the validation and checkpoint in it.

    Trainers differ in it. They do where the phases of the iteration and what came after it fit
    into its seconds together; without phases nothing tells, and they are taken not to.
    """
    known = [
        row
        for row in rows
        if "step_seconds" in row and _sum(row, AFTERWARDS) and _sum(row, tuple(PHASES))
    ]
    inside = [_sum(row, (*PHASES, *AFTERWARDS)) <= row["step_seconds"] for row in known]
    return bool(inside) and 2 * sum(inside) > len(inside)


def _fill(each: np.ndarray) -> np.ndarray:
    """A step whose seconds were not logged takes as long as the next that was, else the last."""
    known = np.flatnonzero(np.isfinite(each))
    place = np.searchsorted(known, np.arange(len(each)))
    return np.asarray(each[known[np.minimum(place, len(known) - 1)]])


def _describe_clock(
    clock: str, phases_known: bool, rows: Sequence[Mapping[str, float]], run: LoggedRun
) -> list[str]:
    notes = []
    if not phases_known:
        notes.append("imported: phases unknown, all training seconds are in `other`")
    if not any("validate" in row for row in rows):
        notes.append(
            "imported: seconds of validation unknown, so they are in the training clock, and both"
            " clocks are nearly one"
        )
    if clock == "step_seconds" and holds_validation(rows):
        notes.append("imported: seconds of an iteration hold those of its validation")
    if clock == "timestamp":
        notes.append("imported: the clock begins with the first row logged, not with the run")
    if clock == "total_seconds":
        notes.append("imported: only the seconds of the whole run are known, spread evenly")
    if not any("mean_length" in row for row in rows):
        notes.append("imported: lengths of responses unknown")
    if run.devices < 1:
        notes.append("imported: number of devices unknown, taken as 1")
    return notes


def _sum(row: Mapping[str, float], roles: Sequence[str]) -> float:
    return sum(row.get(role, 0.0) for role in roles)
