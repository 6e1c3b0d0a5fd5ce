"""Runs the cells of a study: layouts x batches x seeds, one at a time, in a random order.

A study directory holds `study.json` (the configuration and the order, fixed before the first
cell) and one run per cell under `cells/`. Started again, a study goes on where it was.
"""

import contextlib
import dataclasses
import datetime
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from jax_rl.config import Config, resize_batch, study_batches
from jax_rl.config_checks import validate
from jax_rl.config_file import config_to_dict
from jax_rl.errors import DivergedError, UserError
from jax_rl.hosts.channel import Channel, open_channel
from jax_rl.learner.schedule import scaled_rate
from jax_rl.mesh.batch_plan import plan_batch
from jax_rl.records import FILE_NAME, End, Validation, read_events
from jax_rl.resources import find_layout
from jax_rl.study.cells import Planned
from jax_rl.study.crossing import check_start_score, should_stop
from jax_rl.trainer.checkpoints import has_checkpoint
from jax_rl.trainer.describe import RateOrigin
from jax_rl.trainer.policy import resolve_model
from jax_rl.trainer.run import train
from jax_rl.trainer.setup import prepare_policy

STUDY_FILE = "study.json"


def run_study(
    config: Config,
    directory: str | Path,
    *,
    progress: bool = True,
    channel: Channel | None = None,
) -> Path:
    """Runs every cell that is not finished yet.

    Args:
      config: the experiment; batch.size is the reference batch that the rate belongs to.
      directory: of the study; one that holds another study is refused.
      progress: show lines on standard error.
      channel: between the processes of the program; left out, one is opened.

    Returns:
      the study's directory, ready for `jax_rl.report.build.build_report`.

    Raises:
      UserError: the configuration does not fit, or the directory holds another study.
    """
    directory = Path(directory)
    validate(config, study=True)
    check_layouts(config)
    with contextlib.nullcontext(channel) if channel else open_channel() as channel:
        entries = None
        if channel.index == 0:
            entries = [cell.entry for cell in _open_study(config, directory)]
        order = [Planned.from_entry(entry) for entry in channel.share(entries)]
        for number, planned in enumerate(order, 1):
            cell = directory / "cells" / planned.name
            # What is on disk is looked at by process 0 alone.
            todo = channel.share(_prepare_cell(cell) if channel.index == 0 else None)
            if todo == "finished":
                continue
            layout = f"{planned.setting} " if planned.setting else ""
            label = f"[{number}/{len(order)}] {layout}batch {planned.batch} seed {planned.seed}"
            own = make_cell_config(config, planned)
            _run_cell(own, config, cell, label, progress, resume=todo == "resume", channel=channel)
    return directory


def check_layouts(config: Config) -> None:
    """Refuses a layout that does not fit the model, the devices or a batch, before any run.

    Raises:
      UserError: naming the layout and, where it matters, the batch.
    """
    for layout in config.study.layouts or (config.run.layout,):
        lying = dataclasses.replace(config, run=dataclasses.replace(config.run, layout=layout))
        policy = prepare_policy(lying)
        for batch in study_batches(config):
            try:
                plan_batch(resize_batch(config.batch, batch), policy.layout, policy.mesh.shape)
            except UserError as error:
                raise UserError(f"layout {policy.layout.name}, batch {batch}: {error}") from None


def make_cell_config(config: Config, cell: Planned) -> Config:
    """The configuration of one cell: the layout, the batch, the rate moved with it, the seed."""
    layouts = name_layouts(config)
    sizes, batch = config.batch, cell.batch
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
        run=dataclasses.replace(
            config.run, seed=cell.seed, layout=layouts.get(cell.setting, config.run.layout)
        ),
    )


def name_layouts(config: Config) -> dict[str, str]:
    """The layouts to compare by name, as the configuration gives them; none for run.layout."""
    return {find_layout(layout).stem: layout for layout in config.study.layouts}


def order_cells(config: Config) -> list[Planned]:
    """The order of running: blocks of one seed, layouts x batches in random order in each.

    A drift of the machine then falls on all layouts and batches alike.
    """
    rng = np.random.default_rng(config.run.seed)
    arms = list(itertools.product(name_layouts(config) or ("",), study_batches(config)))
    seeds = range(config.run.seed, config.run.seed + config.study.seeds)
    shuffled = [(seed, arms[i]) for seed in seeds for i in rng.permutation(len(arms))]
    return [Planned(layout, batch, seed) for seed, (layout, batch) in shuffled]


def _open_study(config: Config, directory: Path) -> list[Planned]:
    """Writes study.json, or checks that the one that is there is of the same experiment."""
    path = directory / STUDY_FILE
    # As the runs record it: the model's shape as its checkpoint gives it.
    described = config_to_dict(resolve_model(config)[0])
    if path.exists():
        there = json.loads(path.read_text(encoding="utf-8"))
        if (difference := _find_difference(there["config"], described)) is not None:
            raise UserError(
                f"{directory} holds a study with another configuration: {difference}; choose"
                " another --dir"
            )
        return [Planned.from_entry(entry) for entry in there["order"]]
    # Written aside and moved: a kill never leaves half a file under the final name.
    aside = path.with_suffix(".tmp")
    if directory.exists() and any(file != aside for file in directory.iterdir()):
        raise UserError(f"{directory} is not empty and holds no study; choose another --dir")
    directory.mkdir(parents=True, exist_ok=True)
    order = order_cells(config)
    study = {
        "name": directory.resolve().name,
        "config": described,
        "order": [cell.entry for cell in order],
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    if config.study.layouts:
        study["layouts"] = list(name_layouts(config))
    aside.write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)
    return order


def _find_difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    # A study from before a setting existed had what is its default now.
    defaults = config_to_dict(Config())
    for table, fields in new.items():
        for field, value in fields.items():
            was = old.get(table, {}).get(field, defaults[table][field])
            if was != value:
                return f"{table}.{field} was {was!r} and is now {value!r}"
    return None


def _is_finished(cell: Path) -> bool:
    if not (cell / FILE_NAME).exists():
        return False
    # Not `read_run`: a cell killed before its first event has an empty record.
    return any(isinstance(event, End) for event in read_events(cell))


def _prepare_cell(cell: Path) -> Literal["finished", "resume", "start"]:
    """What is to be done; a cell that was killed before a checkpoint is set aside."""
    if _is_finished(cell):
        return "finished"
    if has_checkpoint(cell):
        return "resume"
    if cell.exists():
        _set_aside(cell)
    return "start"


def _run_cell(
    config: Config,
    study: Config,
    cell: Path,
    label: str,
    progress: bool,
    *,
    resume: bool,
    channel: Channel,
) -> None:
    """Trains one cell from its start, or on from its checkpoint."""
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
            channel=channel,
        )
    except DivergedError as error:
        # The record is complete; the run counts as censored.
        if channel.index == 0:
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
