"""When a run of a study ends before its budgets: past its crossing, or without a chance to win."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import jax

from jax_rl.hosts.channel import Channel
from jax_rl.records import Validation, read_run
from jax_rl.study.cells import Planned, make_cell
from jax_rl.study.comparable import describe_kind, name_machine
from jax_rl.study.crossing import check_start_score, fit_isotonic, should_stop
from jax_rl.study.intervals import geometric_mean
from jax_rl.study.rates.trials import is_finished
from jax_rl.trainer.host import describe_host
from jax_rl.trainer.run import StopRule


def stop_after_tail(validations: Sequence[Validation], target: float) -> str | None:
    """Ends a run once its crossing has been passed by the tail that the isotonic fit needs."""
    if len(validations) == 1:
        check_start_score(validations[0].score, target)
    samples = [validation.samples for validation in validations]
    scores = [validation.score for validation in validations]
    return "target" if should_stop(samples, scores, target) else None


def stop_without_chance(limit: float, *, channel: Channel) -> StopRule:
    """Also ends a run with "early_stop" that passes `limit` training seconds short of the target.

    Its fit has then not met the target, so that the run counts as censored at what it generated.
    Looked at on the validation grid; process 0's clock decides for all.
    """

    def stop(validations: Sequence[Validation], target: float) -> str | None:
        reason = stop_after_tail(validations, target)
        if reason is not None or not validations or validations[-1].samples == 0:
            return reason
        below = fit_isotonic([validation.score for validation in validations])[-1] < target
        late = below and validations[-1].training_seconds > limit
        return "early_stop" if channel.share(bool(late)) else None

    return stop


def limit_seconds(
    times: Mapping[tuple[str, int], Sequence[float | None]], *, runs: int, factor: float
) -> float | None:
    """Training seconds after which a run cannot win any more; None if nothing can be said yet.

    An arm is complete when all its runs have crossed. A run that takes more than `factor` times
    the slowest run of the complete arm with the smallest geometric mean would have to be outweighed
    by the other seeds of its arm; the factor says how much of that is thought possible.

    Args:
      times: training seconds to target of the finished runs of each arm; None for a censored one.
      runs: of an arm that is complete.
      factor: at least 1.
    """
    complete = [
        [time for time in arm if time is not None]
        for arm in times.values()
        if len(arm) == runs and None not in arm
    ]
    if not complete:
        return None
    means = [geometric_mean(arm) for arm in complete]
    return factor * max(complete[means.index(min(means))])


def find_limit(
    directory: Path, order: Sequence[Planned], *, machine: str, factor: float
) -> float | None:
    """The same from the finished cells of a setting that ran on such a machine."""
    times: dict[tuple[str, int], list[float | None]] = {}
    for planned in order:
        place = directory / "cells" / planned.name
        if not is_finished(place):
            continue
        run = read_run(place)
        if describe_kind(run.start) == machine:
            crossing = make_cell(run, planned.name, 0).crossing
            arm = times.setdefault((planned.setting, planned.batch), [])
            arm.append(crossing.training_seconds if crossing else None)
    seeds = len({planned.seed for planned in order})
    return limit_seconds(times, runs=seeds, factor=factor)


def describe_machine() -> str:
    """The kind of this process's devices, as `describe_kind` tells it of a record's."""
    device = jax.devices()[0]
    return name_machine(device.device_kind, device.platform, describe_host())
