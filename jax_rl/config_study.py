"""Values of a study's configuration that do not fit each other."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from jax_rl.config import BatchConfig, Config, StudyConfig
from jax_rl.errors import UserError
from jax_rl.growth import count_devices, grow_batch
from jax_rl.resources import find_layout, list_known


def check_study(config: Config, batches: Sequence[int]) -> None:
    """Refuses axes and trials that compare nothing, name a value twice, or do not fit a batch.

    Args:
      config: an experiment.
      batches: the study's batch sizes.

    Raises:
      UserError: the first thing that is wrong.
    """
    study = config.study
    axes = (study.layouts, study.rules, study.growth, study.updates, study.devices)
    if len(batches) < 2 and max(map(len, axes)) < 2:
        raise UserError("study.smaller and study.larger are both 0: one batch compares nothing")
    _check_layouts(study.layouts)
    for name in ("rules", "growth", "updates", "devices"):
        _check_axis(name, getattr(study, name))
    _check_trials(study)
    if study.early_stop_factor < 1:
        raise UserError(
            f"study.early_stop_factor = {study.early_stop_factor} must be at least 1: a run that"
            " is not slower than the best batch's can still win"
        )
    for growth, size in itertools.product(study.devices, batches):
        count_devices(config.run.devices, size=size, reference=config.batch.size, growth=growth)


def cut_batches(config: Config, batches: Sequence[int]) -> Iterator[BatchConfig]:
    """Every way in which a study cuts its batches.

    Raises:
      UserError: prompts or group would not be whole.
    """
    study = config.study
    for growth, updates, size in itertools.product(
        study.growth or ("prompts",), study.updates or (config.batch.updates,), batches
    ):
        yield grow_batch(config.batch, size, growth=growth, updates=updates)


def _check_layouts(layouts: tuple[str, ...]) -> None:
    """Refuses layouts that are not there, or that would share the directories of their runs."""
    by_name: dict[str, str] = {}
    for layout in layouts:
        if not layout.strip():
            raise UserError(
                f"study.layouts = {list(layouts)} has an empty name; right: names of layouts with"
                f" commas between them, of {', '.join(list_known('sharding'))}, or paths"
            )
        name = find_layout(layout).stem
        if name in by_name:
            raise UserError(
                f"study.layouts names {name!r} twice, as {by_name[name]!r} and as {layout!r}; the"
                " runs of a layout are told apart by the name of its file, so each needs its own"
            )
        by_name[name] = layout


def _check_axis(name: str, values: tuple[Any, ...]) -> None:
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise UserError(f"study.{name} = {list(values)} has {twice[0]!r} twice; name each once")
    if name == "updates" and any(value < 1 for value in values):
        raise UserError(f"study.updates = {list(values)} must be numbers of at least 1")


def _check_trials(study: StudyConfig) -> None:
    trials = study.trials
    if not trials:
        return
    # Their directories are named after six digits of them.
    names = [float(f"{multiple:g}") for multiple in trials]
    rising = all(low < high for low, high in itertools.pairwise(names))
    if len(trials) < 3 or not rising or not all(0 < t < math.inf for t in trials):
        raise UserError(
            f"study.trials = {list(trials)} must be at least three rising multiples above 0, so"
            " that the best one can lie between two others: such as [0.5, 1.0, 2.0]; or empty for"
            " no trials"
        )
