"""Trials: runs that try multiples of the rule's rate, on seeds that no compared run uses."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jax_rl.records import FILE_NAME, End, RunRecord, read_events
from jax_rl.study.cells import DIVERGED, make_cell

FOLDER = "trials"
"""Where the runs of trials are, beside cells/."""

SEED_DISTANCE = 1000
"""Trials begin at this seed after run.seed, or after all seeds of the study where it has more."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run that tries a multiple of the rule's rate."""

    setting: str  # its name; empty where cells have none either
    batch: int
    multiple: float
    seed: int

    @property
    def name(self) -> str:
        """The directory of the trial under trials/."""
        name = f"b{self.batch:05d}_x{self.multiple:g}_s{self.seed}"
        return f"{self.setting}_{name}" if self.setting else name


@dataclasses.dataclass(frozen=True)
class TrialPlan:
    """The trials that every arm begins with."""

    multiples: tuple[float, ...]  # rising; empty for no trials
    seeds: tuple[int, ...]
    extensions: int


@dataclasses.dataclass(frozen=True)
class TrialResult:
    """What a finished trial says."""

    learning_rate: float
    crossing: float | None  # samples to target; None: not reached
    samples: int  # generated
    final_score: float | None  # of the isotonic fit; None for a run that diverged
    training_seconds: float
    elapsed_seconds: float


def plan_trials(config: Mapping[str, Any]) -> TrialPlan:
    """The trials of a configuration, as study.json holds it; one from before has none."""
    study = config.get("study", {})
    first = int(config.get("run", {}).get("seed", 0))
    first += max(SEED_DISTANCE, int(study.get("seeds", 0)))
    return TrialPlan(
        multiples=tuple(study.get("trials", ())),
        seeds=tuple(range(first, first + int(study.get("trial_seeds", 0)))),
        extensions=int(study.get("trial_extensions", 0)),
    )


def read_trial(run: RunRecord) -> TrialResult:
    """The result of a finished trial.

    Raises:
      UserError: the start score is at or above the target.
    """
    cell = make_cell(run, "", 0)
    diverged = cell.ended == DIVERGED
    return TrialResult(
        learning_rate=run.start.learning_rate,
        crossing=cell.crossing.samples if cell.crossing else None,
        samples=cell.samples,
        final_score=cell.curve_fit[-1] if cell.curve_fit and not diverged else None,
        training_seconds=cell.training_seconds,
        elapsed_seconds=cell.elapsed_seconds,
    )


def is_finished(place: Path) -> bool:
    """Whether the run recorded there has come to its end."""
    if not (place / FILE_NAME).exists():
        return False
    # Not `read_run`: a run killed before its first event has an empty record.
    return any(isinstance(event, End) for event in read_events(place))
