"""Runs the cells of a study: every batch with every seed, one at a time, in a random order.

A study directory holds `study.json` (the configuration and the order, fixed before the first
cell) and one run per cell under `cells/`. Started again, a study goes on where it was.
"""

import dataclasses
import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_rl.config import Config, resize_batch, study_batches
from jax_rl.config_checks import validate
from jax_rl.config_file import config_to_dict
from jax_rl.errors import DivergedError, UserError
from jax_rl.learner.schedule import scaled_rate
from jax_rl.records import FILE_NAME, End, Validation, read_events
from jax_rl.study.cells import name_cell
from jax_rl.study.crossing import check_start_score, should_stop
from jax_rl.trainer.checkpoints import has_checkpoint
from jax_rl.trainer.describe import RateOrigin
from jax_rl.trainer.run import train

STUDY_FILE = "study.json"


def run_study(config: Config, directory: str | Path, *, progress: bool = True) -> Path:
    """Runs every cell that is not finished yet.

    Args:
      config: the experiment; batch.size is the reference batch that the rate belongs to.
      directory: of the study; one that holds another study is refused.
      progress: show lines on standard error.

    Returns:
      the study's directory, ready for `jax_rl.report.build.build_report`.

    Raises:
      UserError: the configuration does not fit, or the directory holds another study.
    """
    directory = Path(directory)
    validate(config, study=True)
    order = _open_study(config, directory)
    for number, (batch, seed) in enumerate(order, 1):
        cell = directory / "cells" / name_cell(batch, seed)
        if _is_finished(cell):
            continue
        label = f"[{number}/{len(order)}] batch {batch} seed {seed}"
        _run_cell(make_cell_config(config, batch, seed), config, cell, label, progress)
    return directory


def make_cell_config(config: Config, batch: int, seed: int) -> Config:
    """The configuration of one cell: the batch, the rate moved with it, the seed."""
    sizes = config.batch
    rate = scaled_rate(
        config.optimizer.learning_rate,
        rule=config.study.rate_rule,
        minibatch=batch // sizes.updates,
        reference_minibatch=sizes.size // sizes.updates,
    )
    return dataclasses.replace(
        config,
        batch=resize_batch(sizes, batch),
        optimizer=dataclasses.replace(config.optimizer, learning_rate=rate),
        run=dataclasses.replace(config.run, seed=seed),
    )


def order_cells(config: Config) -> list[tuple[int, int]]:
    """(batch, seed) in the order of running: blocks of one seed, batches in random order in each.

    A drift of the machine then falls on all batches alike.
    """
    rng = np.random.default_rng(config.run.seed)
    batches = study_batches(config)
    seeds = range(config.run.seed, config.run.seed + config.study.seeds)
    return [(int(batch), seed) for seed in seeds for batch in rng.permutation(batches)]


def _open_study(config: Config, directory: Path) -> list[tuple[int, int]]:
    """Writes study.json, or checks that the one that is there is of the same experiment."""
    path = directory / STUDY_FILE
    described = config_to_dict(config)
    if path.exists():
        there = json.loads(path.read_text(encoding="utf-8"))
        if (difference := _find_difference(there["config"], described)) is not None:
            raise UserError(
                f"{directory} holds a study with another configuration: {difference}; choose"
                " another --dir"
            )
        return [(batch, seed) for batch, seed in there["order"]]
    # Written aside and moved: a kill never leaves half a file under the final name.
    aside = path.with_suffix(".tmp")
    if directory.exists() and any(file != aside for file in directory.iterdir()):
        raise UserError(f"{directory} is not empty and holds no study; choose another --dir")
    directory.mkdir(parents=True, exist_ok=True)
    order = order_cells(config)
    study = {
        "name": directory.resolve().name,
        "config": described,
        "order": order,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    aside.write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)
    return order


def _find_difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    for table, fields in new.items():
        for field, value in fields.items():
            was = old.get(table, {}).get(field)
            if was != value:
                return f"{table}.{field} was {was!r} and is now {value!r}"
    return None


def _is_finished(cell: Path) -> bool:
    if not (cell / FILE_NAME).exists():
        return False
    # Not `read_run`: a cell killed before its first event has an empty record.
    return any(isinstance(event, End) for event in read_events(cell))


def _run_cell(config: Config, study: Config, cell: Path, label: str, progress: bool) -> None:
    """Trains one cell; one that was killed goes on from its checkpoint, or anew without one."""
    resume = has_checkpoint(cell)
    if cell.exists() and not resume:
        _set_aside(cell)
    # Each cell compiles what it runs, so that elapsed times do not depend on the order of cells.
    jax.clear_caches()
    origin = RateOrigin(rule=study.study.rate_rule, reference_batch=study.batch.size)
    try:
        train(
            config,
            cell,
            resume=resume,
            progress=progress,
            origin=origin,
            stop=stop_after_tail,
            steady_seconds=study.study.steady_seconds,
            label=label,
        )
    except DivergedError as error:
        # The record is complete; the run counts as censored.
        print(f"{label}  {error}", file=sys.stderr)


def stop_after_tail(validations: Sequence[Validation], target: float) -> str | None:
    """Ends a cell once its crossing has been passed by the tail that the isotonic fit needs."""
    if len(validations) == 1:
        check_start_score(validations[0].score, target)
    samples = [validation.samples for validation in validations]
    scores = [validation.score for validation in validations]
    return "target" if should_stop(samples, scores, target) else None


def _set_aside(cell: Path) -> None:
    """Keeps what a killed cell has written, outside the cells that count."""
    aside = cell.parents[1] / "aborted"
    aside.mkdir(exist_ok=True)
    number = 1
    while (target := aside / f"{cell.name}_{number}").exists():
        number += 1
    cell.rename(target)
