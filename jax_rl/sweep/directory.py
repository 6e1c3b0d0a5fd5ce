"""The directory of a study: study.json, fixed before the first run, and what runs have left."""

import datetime
import json
import os
import tempfile
from pathlib import Path
from typing import Literal

import jax

from jax_rl.config import Config
from jax_rl.config_compare import find_difference
from jax_rl.config_file import config_to_dict
from jax_rl.costs.chips import find_by_kind, load_chips
from jax_rl.errors import UserError
from jax_rl.plan.peaks import measure_peaks
from jax_rl.records import FILE_NAME
from jax_rl.study.cells import Planned
from jax_rl.study.material import STUDY_FILE, read_study
from jax_rl.study.rates.trials import is_finished
from jax_rl.study.settings import describe_settings, make_settings
from jax_rl.sweep.plan import order_cells
from jax_rl.trainer.checkpoints import has_checkpoint
from jax_rl.trainer.policy import resolve_model


def open_study(config: Config, directory: Path) -> list[Planned]:
    """Writes study.json, or checks that the one that is there is of the same experiment.

    Returns:
      the cells in the order of running.

    Raises:
      UserError: the directory holds another study, or something else.
    """
    path = directory / STUDY_FILE
    # As the runs record it: the model's shape as its checkpoint gives it.
    described = config_to_dict(resolve_model(config)[0])
    # Looked for once more, since another worker may have just begun the same study.
    if path.exists() or (_is_taken(directory) and path.exists()):
        there = read_study(directory)
        other = find_difference(there["config"], described, names=list(described))
        if other is not None:
            raise UserError(
                f"{directory} holds a study with another configuration: {other.field} was"
                f" {other.first!r} and is now {other.second!r}; choose another --dir"
            )
        return [Planned.from_entry(entry) for entry in there["order"]]
    if _is_taken(directory):
        raise UserError(f"{directory} is not empty and holds no study; choose another --dir")
    directory.mkdir(parents=True, exist_ok=True)
    order = order_cells(config)
    study = {
        "name": directory.resolve().name,
        "config": described,
        "settings": describe_settings(make_settings(config)),
        "order": [cell.entry for cell in order],
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "peaks": _measure_peaks(config.model.compute_dtype),
    }
    # Written aside and linked: a kill never leaves half a file under the final name, and of two
    # workers that begin at once the second compares itself with the first.
    descriptor, aside = tempfile.mkstemp(prefix="study.", suffix=".tmp", dir=directory)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(study, indent=1) + "\n")
    try:
        os.link(aside, path)
    except FileExistsError:
        return open_study(config, directory)
    finally:
        os.unlink(aside)
    return order


def has_records(directory: Path) -> bool:
    """Whether a run that is compared has begun; before that there is no report."""
    return any((directory / "cells").glob(f"*/{FILE_NAME}"))


def prepare_run(place: Path) -> Literal["finished", "resume", "start"]:
    """What is to be done; a run that was killed before a checkpoint is set aside."""
    if is_finished(place):
        return "finished"
    if has_checkpoint(place):
        return "resume"
    if place.exists():
        _set_aside(place)
    return "start"


def _measure_peaks(dtype: str) -> dict[str, float] | None:
    """What this process's devices can do, where no document says it; each one's share."""
    devices = jax.local_devices()
    if find_by_kind(devices[0].device_kind, load_chips()) is not None:
        return None
    peaks = measure_peaks(devices, dtype)
    return {"flops": peaks.flops, "memory_bandwidth": peaks.memory_bandwidth}


def _is_taken(directory: Path) -> bool:
    return directory.exists() and any(
        not (file.name.startswith("study.") and file.suffix == ".tmp")
        for file in directory.iterdir()
    )


def _set_aside(place: Path) -> None:
    """Keeps what a killed run has written, outside the runs that count."""
    aside = place.parents[1] / "aborted"
    aside.mkdir(exist_ok=True)
    number = 1
    while (target := aside / f"{place.name}_{number}").exists():
        number += 1
    place.rename(target)
