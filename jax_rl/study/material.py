"""What every question about a study is asked of: its plan, its runs, and their fit.

A study's directory holds `study.json`, written before the first run (name, configuration,
settings, running order, time of creation), one record per compared run, such as
`cells/b00064_s0/records.jsonl` or `cells/fsdp_b00064_s0/records.jsonl`, and one per trial of a
learning rate under `trials/`. Nothing else is read.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME, RunRecord, read_run
from jax_rl.study.batches import StudyFit, fit_study, name_kind, summarise_arm
from jax_rl.study.cells import Planned, changed_hardware, make_cell
from jax_rl.study.comparable import check_comparable, check_conditions, check_kinds
from jax_rl.study.names import Names
from jax_rl.study.notes import check_same_experiment
from jax_rl.study.rates.tuning import Tuning, read_tuning
from jax_rl.study.settings import Setting, read_settings
from jax_rl.study.summary import Arm, BatchResult, Cell, arm_of

STUDY_FILE = "study.json"


@dataclasses.dataclass(frozen=True)
class Material:
    """A study as it was planned, and what its runs have recorded so far."""

    study: Mapping[str, Any]  # the content of study.json
    planned: list[Planned]
    runs: Mapping[str, RunRecord]  # by the name of the cell; those that have begun
    cells: list[Cell]  # of them, in the order of running
    usable: list[Cell]  # finished, with seconds that can be compared
    settings: Mapping[str, Setting]  # by name; the first is the reference
    fit: StudyFit  # of the usable cells
    results: list[BatchResult]  # by setting, then by batch
    tuning: Tuning
    directory: Path

    @property
    def config(self) -> Mapping[str, Any]:
        """The experiment, as `config_to_dict` gives it."""
        found: Mapping[str, Any] = self.study["config"]
        return found

    @property
    def names(self) -> Names:
        """How its arms are called."""
        return Names(tuple(self.settings))

    @property
    def reference(self) -> Arm:
        """The reference batch in the first setting."""
        return Arm(self.names.settings[0], int(self.config["batch"]["size"]))

    @property
    def untuned(self) -> set[Arm]:
        """Arms whose trials do not tell their best rate: it is at the edge, or none crossed."""
        return {
            arm_of(one)
            for one in self.tuning.arms
            if one.multiple is None or one.on_edge or one.by_score
        }

    @property
    def tuned(self) -> bool:
        """Whether every batch has its own best of the rates tried for it."""
        return bool(self.tuning.arms) and not self.untuned


def gather(directory: Path) -> Material:
    """Reads a study.

    Raises:
      UserError: no study there, no run recorded yet, runs of different experiments, or a start
        score above the target.
    """
    study = read_study(directory)
    planned = [Planned.from_entry(entry) for entry in study["order"]]
    runs = _read_runs(directory, planned)
    if not runs:
        raise UserError(
            f"{directory}: none of the {len(planned)} planned runs has a record yet; start or"
            " continue the study there first"
        )
    settings = read_settings(study)
    check_same_experiment(study["config"], settings, planned, runs)
    only = next(iter(settings))
    cells = [
        make_cell(runs[p.name], p.name, order, setting=p.setting or only)
        for order, p in enumerate(planned, 1)
        if p.name in runs
    ]
    usable = [cell for cell in cells if _is_usable(cell, runs[cell.name])]
    fit = fit_study(
        usable,
        settings=tuple(settings),
        devices_grow=any(one.devices == "batch" for one in settings.values()),
        incomparable=_list_obstacles(usable, runs),
    )
    reference = Arm(only, int(study["config"]["batch"]["size"]))
    return Material(
        study=study,
        planned=planned,
        runs=runs,
        cells=cells,
        usable=usable,
        settings=settings,
        fit=fit,
        results=[
            summarise_arm(
                fit,
                arm,
                reference=reference,
                updates_per_iteration=settings[arm.setting].updates,
            )
            for arm in fit.censored
        ],
        tuning=read_tuning(directory, study, cells),
        directory=Path(directory),
    )


def read_study(directory: Path) -> dict[str, Any]:
    """The content of study.json.

    Raises:
      UserError: there is none, or it is not the description of a study.
    """
    path = Path(directory) / STUDY_FILE
    if not path.is_file():
        raise UserError(f"{directory}: no study is there ({STUDY_FILE} is missing)")
    try:
        study = json.loads(path.read_text(encoding="utf-8"))
        missing = {"name", "config", "order"} - study.keys()
    except (ValueError, AttributeError) as error:
        raise UserError(f"{path}: not the description of a study: {error}") from None
    if missing:
        raise UserError(f"{path}: lacks {', '.join(sorted(missing))}")
    return dict(study)


def _read_runs(directory: Path, planned: list[Planned]) -> dict[str, RunRecord]:
    runs = {}
    for plan in planned:
        place = Path(directory) / "cells" / plan.name
        # A run killed before its first event was complete has a file without a line.
        if (place / FILE_NAME).is_file() and "\n" in (place / FILE_NAME).read_text("utf-8"):
            runs[plan.name] = read_run(place)
    return runs


def _list_obstacles(usable: list[Cell], runs: Mapping[str, RunRecord]) -> list[str]:
    """Why no seconds are compared; what the names of the devices tell is told arm by arm.

    The name of a CPU tells nothing of its kind: different ones stop the whole study.
    """
    compared = {cell.name: runs[cell.name] for cell in usable}
    if len({name_kind(cell.device) for cell in usable}) == 1:
        return check_comparable(compared)
    on_cpus = {name: run for name, run in compared.items() if run.start.platform == "cpu"}
    return [*check_kinds(on_cpus), *check_conditions(compared)]


def _is_usable(cell: Cell, run: RunRecord) -> bool:
    timed = cell.samples > 0 and cell.rollouts_per_second > 0
    return cell.finished and timed and not changed_hardware(run)
