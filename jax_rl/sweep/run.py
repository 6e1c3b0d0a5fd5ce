"""Runs a study: settings x batches x seeds, one run at a time, in a random order.

A study directory holds `study.json` (the configuration and the order, fixed before the first
run), one run per cell under `cells/` and one per trial of a learning rate under `trials/`.
Started again, a study goes on where it was; several workers may share one.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

import jax

from jax_rl.config import Config
from jax_rl.config_checks import validate
from jax_rl.errors import DivergedError, UserError
from jax_rl.hosts.channel import Channel, open_channel
from jax_rl.study.cells import Planned
from jax_rl.study.rates.trials import Trial
from jax_rl.sweep.board import LOCKS, Board, Job, find_place
from jax_rl.sweep.directory import open_study
from jax_rl.sweep.locks import Locks
from jax_rl.sweep.part import Part
from jax_rl.sweep.plan import check_settings, find_setting, make_cell_config
from jax_rl.sweep.stop import describe_machine, find_limit, stop_after_tail, stop_without_chance
from jax_rl.trainer.describe import RateOrigin
from jax_rl.trainer.run import StopRule, train

WHOLE = Part()
"""All runs of a study."""


def run_study(
    config: Config,
    directory: str | Path,
    *,
    part: Part = WHOLE,
    steal: bool = False,
    progress: bool = True,
    channel: Channel | None = None,
) -> Path:
    """Makes every run that is not finished yet, and that no other worker is making.

    Args:
      config: the experiment; batch.size is the reference batch that the rate belongs to.
      directory: of the study; one that holds another study is refused.
      part: the runs to make here, where several workers share the study.
      steal: also make runs that another host has begun; only when it is known to be dead.
      progress: show lines on standard error.
      channel: between the processes of the program; left out, one is opened.

    Returns:
      the study's directory, ready for `jax_rl.report.build.build_report`.

    Raises:
      UserError: the configuration does not fit, the directory holds another study, or runs could
        not be made; all others are.
    """
    directory = Path(directory)
    validate(config, study=True)
    check_settings(config)
    with contextlib.nullcontext(channel) if channel else open_channel() as channel:
        order, board = [], None
        # What is on disk is looked at by process 0 alone.
        if channel.index == 0:
            order = open_study(config, directory)
            locks = Locks(directory / LOCKS, steal=steal)
            board = Board(config, directory, order, part=part, locks=locks)
        failed: list[str] = []
        while (job := _share_job(board.take() if board else None, channel)) is not None:
            try:
                _make_run(job, config, directory, order, progress=progress, channel=channel)
            except UserError as error:
                if channel.count > 1:
                    raise  # it may be of this process alone
                print(f"{job.label}  {error}", file=sys.stderr)
                failed.append(f"{job.run.name}: {error}")
            finally:
                if board is not None:
                    board.give_back(job)
        if board is not None:
            board.report()
    if failed:
        raise UserError(f"{len(failed)} of the runs could not be made: {'; '.join(failed)}")
    return directory


def _make_run(
    job: Job,
    config: Config,
    directory: Path,
    order: list[Planned],
    *,
    progress: bool,
    channel: Channel,
) -> None:
    """Trains one cell or trial from its start, or on from its checkpoint."""
    # Each run compiles what it needs, so that elapsed times do not depend on the order of runs.
    jax.clear_caches()
    trial = isinstance(job.run, Trial)
    setting = find_setting(config, job.run.setting)
    try:
        train(
            make_cell_config(config, job.run, multiple=job.multiple),
            find_place(directory, job.run),
            resume=job.todo == "resume",
            progress=progress,
            origin=RateOrigin(rule=setting.rule, reference_batch=config.batch.size),
            stop=stop_after_tail if trial else _choose_stop(job, config, directory, order, channel),
            steady_seconds=0.0 if trial else config.study.steady_seconds,
            label=job.label,
            channel=channel,
        )
    except DivergedError as error:
        # The record is complete; the run counts as censored.
        if channel.index == 0:
            print(f"{job.label}  {error}", file=sys.stderr)


def _choose_stop(
    job: Job, config: Config, directory: Path, order: list[Planned], channel: Channel
) -> StopRule:
    """The reference runs to its end: a bound on it would leave a bound on every ratio."""
    first = find_setting(config, "").name
    is_reference = job.run.setting in ("", first) and job.run.batch == config.batch.size
    if not config.study.early_stop or is_reference:
        return stop_after_tail
    limit = None
    if channel.index == 0:
        limit = find_limit(
            directory,
            [cell for cell in order if cell.setting == job.run.setting],
            machine=describe_machine(),
            factor=config.study.early_stop_factor,
        )
    limit = channel.share(limit)
    return stop_after_tail if limit is None else stop_without_chance(limit, channel=channel)


def _share_job(job: Job | None, channel: Channel) -> Job | None:
    """Process 0's job on every process."""
    values: list[Any] | None = None
    if job is not None:
        run = job.run
        tried = run.multiple if isinstance(run, Trial) else None
        values = [run.setting, run.batch, tried, run.seed, job.multiple, job.todo, job.label]
    values = channel.share(values)
    if values is None:
        return None
    setting, batch, tried, seed, multiple, todo, label = values
    run = Planned(setting, batch, seed) if tried is None else Trial(setting, batch, tried, seed)
    return Job(run, multiple, todo, label)
