"""What the directory of a study or a run holds, looked at again and again."""

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Literal

from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME
from jax_rl.study.cells import Planned
from jax_rl.study.rates.trials import FOLDER
from jax_rl.watch.progress import Progress, Tail, advance

STUDY_FILE = "study.json"


@dataclasses.dataclass(frozen=True)
class Run:
    """A run at one moment."""

    name: str
    planned: Planned | None  # None: a run that belongs to no study
    progress: Progress | None  # None: it has not started
    silent_seconds: float  # since its record last grew; NaN without a record

    @property
    def state(self) -> Literal["waiting", "started", "finished"]:
        """Whether a started run still goes on is not in a record; `silent_seconds` hints at it."""
        if self.progress is None:
            return "waiting"
        return "finished" if self.progress.reason else "started"


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A study at one moment, or a single run as a study of one."""

    name: str
    runs: tuple[Run, ...]  # in the order of running
    trials: tuple[Run, ...] = ()  # short runs that look for a rate

    def count(self, state: str) -> int:
        """Runs in a state."""
        return sum(run.state == state for run in self.runs)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to wait for."""
        return self.count("finished") == len(self.runs)

    def estimate_seconds_left(self) -> float | None:
        """The rest of a study by the mean length of its finished runs; None if none is finished.

        Each run that is left counts with the mean of the finished runs of its setting and batch,
        or with that of all; several that have started are taken to go on side by side.
        """
        done = [run for run in self.runs if run.state == "finished"]
        if not done:
            return None
        left = 0.0
        for run in self.runs:
            if run.state == "finished":
                continue
            expected = _mean_length([other for other in done if _is_same_arm(other, run)] or done)
            past = run.progress.elapsed_seconds if run.progress else 0.0
            left += max(0.0, expected - past)
        return left / max(1, self.count("started"))


class Watcher:
    """Follows the records of a study, or of one run; reads what is new and nothing else."""

    def __init__(self, directory: Path):
        """Finds the runs.

        Raises:
          UserError: neither a study nor a run is there.
        """
        self._directory = Path(directory)
        self._seen: dict[Path, tuple[Tail, Progress | None]] = {}
        if (self._directory / STUDY_FILE).is_file():
            self._name, self._planned = _read_plan(self._directory / STUDY_FILE)
        elif (self._directory / FILE_NAME).is_file():
            self._name, self._planned = self._directory.resolve().name, []
        else:
            raise UserError(
                f"{directory}: neither a study ({STUDY_FILE}) nor a run ({FILE_NAME}) is there yet;"
                " give the --dir of the command that runs it"
            )

    def look(self) -> Snapshot:
        """The runs as they are now."""
        if not self._planned:
            return Snapshot(self._name, (self._look_at(self._directory, None),))
        cells = self._directory / "cells"
        trials = sorted(path.parent for path in self._directory.glob(f"{FOLDER}/*/{FILE_NAME}"))
        return Snapshot(
            self._name,
            tuple(self._look_at(cells / planned.name, planned) for planned in self._planned),
            tuple(self._look_at(trial, None) for trial in trials),
        )

    def _look_at(self, place: Path, planned: Planned | None) -> Run:
        path = place / FILE_NAME
        tail, progress = self._seen.get(path, (Tail(path), None))
        if progress is None or not progress.reason:
            progress = advance(progress, tail.read())
            self._seen[path] = tail, progress
        silent = math.nan
        if progress is not None:
            try:
                silent = max(0.0, time.time() - path.stat().st_mtime)
            except FileNotFoundError:  # set aside, and begun anew
                self._seen.pop(path, None)
                progress = None
        return Run(place.name, planned, progress, silent)


def _read_plan(path: Path) -> tuple[str, list[Planned]]:
    try:
        study = json.loads(path.read_text(encoding="utf-8"))
        return str(study["name"]), [Planned.from_entry(entry) for entry in study["order"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not the description of a study: {error!r}") from None


def _is_same_arm(run: Run, other: Run) -> bool:
    if run.planned is None or other.planned is None:
        return False
    mine, theirs = run.planned, other.planned
    return (mine.setting, mine.batch) == (theirs.setting, theirs.batch)


def _mean_length(runs: list[Run]) -> float:
    lengths = [run.progress.elapsed_seconds for run in runs if run.progress is not None]
    return math.fsum(lengths) / len(lengths)
