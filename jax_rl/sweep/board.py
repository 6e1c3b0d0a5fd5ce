"""What is to be run next in a study: trials first, then the cells whose rates they chose."""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from jax_rl.config import Config
from jax_rl.config_file import config_to_dict
from jax_rl.study.cells import Planned
from jax_rl.study.rates.trials import FOLDER, Trial, TrialResult, plan_trials
from jax_rl.study.rates.tuning import list_trials, read_results, tune_arm
from jax_rl.sweep.directory import prepare_run
from jax_rl.sweep.locks import Locks
from jax_rl.sweep.part import Part
from jax_rl.sweep.plan import list_arms, order_trials

LOCKS = "locks"
"""Folder of the locks in a study's directory."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One run that is to be made now."""

    run: Planned | Trial
    multiple: float  # of the rule's rate
    todo: Literal["resume", "start"]
    label: str


class Board:
    """Looks through the directory of a study for the next run; of process 0 alone."""

    def __init__(
        self, config: Config, directory: Path, order: Sequence[Planned], *, part: Part, locks: Locks
    ):
        """Takes nothing yet.

        Args:
          config: the experiment.
          directory: of the study.
          order: its cells, in the order of running.
          part: the runs to make here.
          locks: of runs.
        """
        self._config, self._directory, self._order = config, directory, order
        self._part, self._locks = part, locks
        self._plan = plan_trials(config_to_dict(config))
        self._results: dict[Trial, TrialResult] = {}
        self._seen: set[str] = set()  # runs that were made here, or found finished
        self._busy: dict[str, str] = {}  # runs that others make, and who
        self._waiting: list[str] = []  # cells without a rate yet

    def take(self) -> Job | None:
        """The next run, with its lock; None when there is nothing that can be run here now."""
        self._busy.clear()
        for place, job in self._list_jobs():
            name = job.run.name
            if not self._part.has(place) or name in self._seen:
                continue
            if (holder := self._locks.take(name)) is not None:
                self._busy[name] = holder.describe()
                continue
            self._seen.add(name)
            todo = prepare_run(find_place(self._directory, job.run))
            if todo != "finished":
                return dataclasses.replace(job, todo=todo)
            self._locks.release(name)
        return None

    def give_back(self, job: Job) -> None:
        """Gives the lock of a run back."""
        self._locks.release(job.run.name)

    def report(self) -> None:
        """Says on standard error what is left to others, and what is waited for."""
        for name, holder in self._busy.items():
            print(
                f"{name} is being run by {holder}; if that host is dead, --steal takes it over",
                file=sys.stderr,
            )
        if self._waiting:
            print(
                f"{len(self._waiting)} cells wait for trials of their learning rate that are not"
                f" finished, {self._waiting[0]} the first; when the trials are, start the command"
                " again",
                file=sys.stderr,
            )

    def _list_jobs(self) -> Iterator[tuple[int, Job]]:
        """Place and run, in the order of running, of all that is known to be needed."""
        yield from self._list_trials()
        chosen: dict[tuple[str, int], float | None] = {}
        for setting, batch in list_arms(self._config) if self._plan.multiples else ():
            chosen[setting, batch] = tune_arm(setting, batch, self._plan, self._results).multiple
        self._waiting = []
        for place, cell in enumerate(self._order):
            multiple = chosen.get((cell.setting, cell.batch)) if self._plan.multiples else 1.0
            if multiple is None:
                if self._part.has(place):
                    self._waiting.append(cell.name)
                continue
            label = f"[{place + 1}/{len(self._order)}] {_describe(cell)}"
            yield place, Job(cell, multiple, "start", label)

    def _list_trials(self) -> Iterator[tuple[int, Job]]:
        """Those of the plan in their order, then those that extensions brought, arm by arm."""
        planned = order_trials(self._config)
        more: list[tuple[int, Trial]] = []
        for place, (setting, batch) in enumerate(list_arms(self._config) if planned else ()):
            self._results = read_results(self._directory, setting, batch, self._plan, self._results)
            known = list_trials(setting, batch, self._plan, self._results)
            more += [(place, trial) for trial in known if trial not in planned]
        total = len(planned) + len(more)
        for number, (place, trial) in enumerate([*enumerate(planned), *more], 1):
            label = f"[trial {number}/{total}] {_describe(trial)}"
            yield place, Job(trial, trial.multiple, "start", label)


def find_place(directory: Path, run: Planned | Trial) -> Path:
    """The directory of a cell or of a trial."""
    return directory / (FOLDER if isinstance(run, Trial) else "cells") / run.name


def _describe(run: Planned | Trial) -> str:
    rate = f" rate x{run.multiple:g}" if isinstance(run, Trial) else ""
    setting = f"{run.setting} " if run.setting else ""
    return f"{setting}batch {run.batch}{rate} seed {run.seed}"
