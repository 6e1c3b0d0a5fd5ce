"""How far a run is, from the lines of its record, read as they are added."""

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jax_rl.errors import UserError

KEPT_ITERATIONS = 20
"""The rate of a run is that of its last iterations."""


@dataclasses.dataclass(frozen=True)
class Scored:
    """One validation."""

    samples: int
    score: float


@dataclasses.dataclass(frozen=True)
class Moment:
    """Where the clocks stood after an iteration."""

    samples: int
    training_seconds: float
    elapsed_seconds: float


@dataclasses.dataclass(frozen=True)
class Progress:
    """What a record says so far."""

    target: float
    budget_samples: int
    budget_seconds: float  # elapsed
    updates: int = 0
    reward: float = math.nan  # of the last iteration
    validations: tuple[Scored, ...] = ()
    moments: tuple[Moment, ...] = ()  # of the last iterations
    reason: str = ""  # why the run ended; empty while it goes on

    @property
    def samples(self) -> int:
        """Rollouts generated so far."""
        return self.moments[-1].samples if self.moments else 0

    @property
    def elapsed_seconds(self) -> float:
        """Since the start of the run, up to its last iteration."""
        return self.moments[-1].elapsed_seconds if self.moments else 0.0

    @property
    def rollouts_per_second(self) -> float | None:
        """Over the last iterations, by the training clock; None before there are two."""
        return _divide(
            self.samples - self.moments[0].samples if self.moments else 0,
            self.moments[-1].training_seconds - self.moments[0].training_seconds
            if self.moments
            else 0.0,
        )

    @property
    def seconds_left(self) -> float | None:
        """Until a budget ends the run, if its target does not before; None if not known yet."""
        if self.reason:
            return 0.0
        if len(self.moments) < 2:
            return None
        first, last = self.moments[0], self.moments[-1]
        rate = _divide(last.samples - first.samples, last.elapsed_seconds - first.elapsed_seconds)
        by_time = self.budget_seconds - last.elapsed_seconds
        by_samples = math.inf if rate is None else (self.budget_samples - self.samples) / rate
        return max(0.0, min(by_time, by_samples))


def advance(progress: Progress | None, events: Iterable[Mapping[str, Any]]) -> Progress | None:
    """Takes further events of a record; None as long as there was no start event."""
    for event in events:
        kind = event.get("event")
        if kind == "start":
            progress = _begin(progress, event)
        elif progress is None:
            continue
        elif kind == "iteration":
            moment = Moment(event["samples"], event["training_seconds"], event["elapsed_seconds"])
            progress = dataclasses.replace(
                progress,
                updates=event["update"],
                reward=_read_number(event["reward"]),
                moments=(*progress.moments, moment)[-KEPT_ITERATIONS:],
            )
        elif kind == "validation":
            scored = Scored(event["samples"], _read_number(event["score"]))
            progress = dataclasses.replace(progress, validations=(*progress.validations, scored))
        elif kind == "end":
            progress = dataclasses.replace(progress, reason=event["reason"])
    return progress


def _begin(progress: Progress | None, event: Mapping[str, Any]) -> Progress:
    """A run that starts, or one that goes on and has lost what came after its checkpoint."""
    resumed = event.get("resumed_at_samples")
    if progress is not None and resumed is not None:
        return dataclasses.replace(
            progress,
            validations=tuple(v for v in progress.validations if v.samples <= resumed),
            moments=(),  # the clocks of two processes give no rate
            reason="",
        )
    budget = event["config"]["budget"]
    return Progress(float(budget["target"]), int(budget["samples"]), float(budget["seconds"]))


class Tail:
    """Reads the lines that were added to a record since the last time.

    The one thing here with a state of its own: where in the file it is.
    """

    def __init__(self, path: Path):
        self.path = path
        self._file = -1  # its inode
        self._place = 0

    def read(self) -> list[dict[str, Any]]:
        """The new complete lines as events; none where there is no file.

        Raises:
          UserError: a line that is not an event.
        """
        if not self.path.is_file():
            return []
        with self.path.open("rb") as file:
            found = os.stat(file.fileno())
            if found.st_ino != self._file or found.st_size < self._place:
                self._file, self._place = found.st_ino, 0  # another run began in its place
            file.seek(self._place)
            content = file.read()
        complete = content.rfind(b"\n") + 1  # the rest of a line may follow
        self._place += complete
        return [self._parse(line) for line in content[:complete].splitlines()]

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            event = json.loads(line)
        except ValueError as error:
            raise UserError(f"{self.path}: a line is not an event: {error}") from None
        if not isinstance(event, dict):
            raise UserError(f"{self.path}: a line is not an event but {line[:60]!r}")
        return event


def _divide(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if numerator > 0 and denominator > 0 else None


def _read_number(value: float | None) -> float:
    return math.nan if value is None else float(value)
