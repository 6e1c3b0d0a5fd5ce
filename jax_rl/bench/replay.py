"""Response lengths of a recorded run, for a measurement of throughput.

A policy's responses change in length while it learns, and the time of an iteration with them. A
replay forces the lengths that a recorded run had, so that throughput can be measured over the
whole of that run in a minute, with any batch and without its weights.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_rl.config import Config
from jax_rl.config_file import config_to_dict
from jax_rl.errors import UserError
from jax_rl.hosts.channel import Channel
from jax_rl.records import FILE_NAME, Iteration, RunRecord
from jax_rl.trainer.directory import read_shared_run
from jax_rl.trainer.lengths import LENGTH_BINS, find_length_bins
from jax_rl.trainer.policy import resolve_model

PARTS = 10
"""Equal parts of a run's samples; each is visited once in so many iterations."""

_STRIDE = 3  # coprime to PARTS: neighbouring iterations lie far apart in the run
_GOLDEN = (5**0.5 - 1) / 2  # multiples of it, modulo 1, fill the interval evenly at any count

_SAME = (
    "task.name",
    "task.max_prompt_length",
    "task.max_response_length",
    "batch.group",
    "batch.updates",
    "model",
    "objective",
)
"""Tables and fields of the configuration in which the run and the measurement agree."""

_FREE = ("model.checkpoint", "model.padded_vocab", "model.remat")
"""Fields of those tables that may differ: a path, and how the model lies in memory."""


@dataclasses.dataclass(frozen=True)
class Replay:
    """The lengths of a run, iteration by iteration."""

    batch: int  # rollouts of each of the run's iterations
    counts: np.ndarray  # [iterations, LENGTH_BINS] responses in each bin of lengths
    limit: int  # task.max_response_length
    seed: int

    def part_of(self, iteration: int) -> int:
        """The tenth of the run that an iteration of the measurement takes (0 for the first)."""
        return iteration * _STRIDE % PARTS

    def find_progress(self, iteration: int) -> float:
        """The place in the run, in [0, 1), that an iteration of the measurement takes."""
        return (self.part_of(iteration) + (0.5 + iteration // PARTS * _GOLDEN) % 1.0) / PARTS

    def count_at(self, progress: float, batch: int) -> np.ndarray:
        """Responses in each bin [LENGTH_BINS], of as many iterations as fill the batch.

        Args:
          progress: share of the run's samples, the middle of the iterations taken.
          batch: rollouts that the lengths are for.
        """
        total = len(self.counts)
        taken = min(-(-batch // self.batch), total)
        first = min(max(round(progress * total - taken / 2), 0), total - taken)
        summed: np.ndarray = self.counts[first : first + taken].sum(axis=0)
        return summed

    def draw(self, first_group: int, *, prompts: int, group: int) -> np.ndarray:
        """Lengths [prompts x group] int32 of the iteration that begins with `first_group`.

        The number behind a rollout's length depends on the seed and its sample id alone.

        Args:
          first_group: of the iteration; a multiple of `prompts`.
          prompts: of each iteration.
          group: rollouts per prompt.
        """
        numbers = np.concatenate(
            [
                np.random.default_rng((self.seed, first_group + row)).random(group)
                for row in range(prompts)
            ]
        )
        progress = self.find_progress(first_group // prompts)
        return invert_counts(self.count_at(progress, prompts * group), numbers, self.limit)


def invert_counts(counts: np.ndarray, numbers: np.ndarray, limit: int) -> np.ndarray:
    """Lengths [n] int32 by the inverse of the cumulative distribution, level inside each bin.

    Args:
      counts: [LENGTH_BINS] responses in each bin; not all 0.
      numbers: [n] in [0, 1).
      limit: the longest length.
    """
    bins = find_length_bins(limit)
    sizes = np.bincount(bins, minlength=LENGTH_BINS)
    masses = counts[bins] / sizes[bins]  # [limit]
    ends = np.cumsum(masses)
    places = np.searchsorted(ends, numbers * ends[-1], side="right")
    # Rounding may leave a number at the last end, where the last length with a mass is right.
    return (np.minimum(places, np.flatnonzero(masses)[-1]) + 1).astype(np.int32)


def read_replay(run: Path, config: Config, *, channel: Channel) -> Replay:
    """The lengths that a run has recorded; process 0 reads them for all.

    Args:
      run: directory of the run.
      config: what is measured; batch.size, layout and devices may be others than the run's.
      channel: between the processes of the program.

    Raises:
      UserError: no run is there, it differs from the configuration, or it has kept no lengths.
    """
    _check_is_run(run, channel)
    record = read_shared_run(run, channel)
    resolved, _ = resolve_model(config)
    _check_same(record, config_to_dict(resolved), run)
    _check_kept(record.iterations, run)
    return Replay(
        batch=int(record.start.config["batch"]["size"]),
        counts=np.array([event.length_counts for event in record.iterations]),
        limit=config.task.max_response_length,
        seed=config.run.seed,
    )


def _check_is_run(run: Path, channel: Channel) -> None:
    """Before the record is read: process 0 alone may see the directory."""
    if not channel.share((run / FILE_NAME).is_file()):
        raise UserError(
            f"{run}: no record of a run is there; --replay takes the directory of a run, as"
            " jax-rl train writes it, or of a cell of a study (STUDY/cells/CELL)"
        )


def _check_kept(iterations: Sequence[Iteration], run: Path) -> None:
    if not iterations:
        raise UserError(f"{run}: the run has recorded no iteration, so there are no lengths")
    if not all(event.length_counts for event in iterations):
        raise UserError(
            f"{run}: its iterations have no length_counts, which records of earlier versions lack;"
            " a run that is recorded anew has them"
        )


def _check_same(record: RunRecord, mine: dict[str, Any], run: Path) -> None:
    """Refuses a run of another experiment, naming the first thing that differs."""
    defaults = config_to_dict(Config())
    for name in _SAME:
        table, _, field = name.partition(".")
        for key in [field] if field else mine[table]:
            # A run from before a setting existed had what is its default now.
            was = record.start.config.get(table, {}).get(key, defaults[table][key])
            if was != mine[table][key] and f"{table}.{key}" not in _FREE:
                raise UserError(
                    f"{run}: {table}.{key} was {was!r} there and is {mine[table][key]!r} here;"
                    " lengths are only replayed where task, lengths, group, updates, model and"
                    " objective are the run's"
                )
