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
from jax_rl.config_compare import find_difference
from jax_rl.config_file import config_to_dict
from jax_rl.errors import UserError
from jax_rl.hosts.channel import Channel
from jax_rl.records import FILE_NAME, Iteration, RunRecord
from jax_rl.study.cells import make_cell
from jax_rl.trainer.directory import read_shared_run
from jax_rl.trainer.lengths import find_length_bins
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

    lengths: np.ndarray  # [iterations, batch] int32, ascending in each iteration
    seed: int
    share: float | None = None  # of the run's samples, at which it met its target

    def part_of(self, iteration: int) -> int:
        """The tenth of the run that an iteration of the measurement takes (0 for the first)."""
        return iteration * _STRIDE % PARTS

    def find_progress(self, iteration: int) -> float:
        """The place in the run, in [0, 1), that an iteration of the measurement takes."""
        return (self.part_of(iteration) + (0.5 + iteration // PARTS * _GOLDEN) % 1.0) / PARTS

    def gather(self, progress: float, batch: int) -> np.ndarray:
        """The lengths [n] of as many of the run's iterations as fill the batch.

        Args:
          progress: share of the run's samples, the middle of the iterations taken.
          batch: rollouts that the lengths are for.
        """
        total, each = self.lengths.shape
        taken = min(-(-batch // each), total)
        first = min(max(round(progress * total - taken / 2), 0), total - taken)
        return self.lengths[first : first + taken].ravel()

    def draw(self, first_group: int, *, prompts: int, group: int) -> np.ndarray:
        """Lengths [prompts x group] int32 of the iteration that begins with `first_group`.

        They are dealt out and not drawn anew: a batch of the run's size has exactly the lengths
        that the run's had, the longest too, which a wave's decode loop waits for.

        Args:
          first_group: of the iteration; a multiple of `prompts`.
          prompts: of each iteration.
          group: rollouts per prompt.
        """
        batch = prompts * group
        found = self.gather(self.find_progress(first_group // prompts), batch)
        # Only a batch larger than the whole run takes a length more than once.
        repeated = np.tile(found, -(-batch // len(found)))
        return np.random.default_rng((self.seed, first_group)).permutation(repeated)[:batch]


def spread_counts(
    counts: np.ndarray, *, limit: int, truncated: int = 0, steps: int = 0, tokens: int = 0
) -> np.ndarray:
    """The lengths [n] int32, ascending, that a histogram stands for.

    Those of a bin are spread evenly over it; truncated responses have the length of the limit,
    the longest of all is as long as the decode loop, and all together have the tokens, as far as
    their bins allow it.

    Args:
      counts: [LENGTH_BINS] responses in each bin; n in all, not 0.
      limit: the longest length.
      truncated: responses that were cut at it.
      steps: of the decode loop, if one wave had them all; 0: not known.
      tokens: of all of them; 0: not known.
    """
    bins = find_length_bins(limit)
    places = np.repeat(np.arange(len(counts)), counts)  # of each response, ascending
    low = np.searchsorted(bins, places) + 1
    high = np.searchsorted(bins, places, side="right")
    if truncated:
        low[-truncated:] = high[-truncated:]
    if steps and bins[steps - 1] == places[-1]:
        high = np.minimum(high, steps)
        low[-1] = steps
    starts = np.searchsorted(places, places)
    inside = (np.arange(len(places)) - starts + 0.5) / counts[places]
    lengths = low + (inside * (high - low + 1)).astype(int)
    if tokens:
        _match_total(lengths, low, high, total=tokens)
    return np.sort(lengths).astype(np.int32)


def _match_total(lengths: np.ndarray, low: np.ndarray, high: np.ndarray, *, total: int) -> None:
    """Moves lengths one by one within their limits, in place, until they have this sum."""
    missing = total - int(lengths.sum())
    step = 1 if missing > 0 else -1
    while missing:
        room = np.flatnonzero((lengths + step >= low) & (lengths + step <= high))
        if not room.size:
            return
        chosen = room[:: max(1, len(room) // abs(missing))][: abs(missing)]
        lengths[chosen] += step
        missing -= step * len(chosen)


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
    one_wave = record.start.batch_plan.get("waves", 1) == 1
    return Replay(
        lengths=np.array(
            [
                _read_lengths(event, config.task.max_response_length, one_wave=one_wave)
                for event in record.iterations
            ]
        ),
        seed=config.run.seed,
        share=_find_share(record, run),
    )


def _read_lengths(event: Iteration, limit: int, *, one_wave: bool) -> np.ndarray:
    counts = np.asarray(event.length_counts)
    return spread_counts(
        counts,
        limit=limit,
        truncated=round(event.truncated * int(counts.sum())),
        steps=event.decode_steps if one_wave else 0,
        tokens=event.tokens,
    )


def _find_share(record: RunRecord, run: Path) -> float | None:
    """How much of its samples the run took to its target; None if it did not reach it."""
    try:
        crossing = make_cell(record, run.name, 1).crossing
    except UserError:  # a policy that starts above its target has no way to it
        return None
    return None if crossing is None else crossing.samples / record.iterations[-1].samples


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
    found = find_difference(record.start.config, mine, names=_SAME, free=_FREE)
    if found is not None:
        raise UserError(
            f"{run}: {found.field} was {found.first!r} there and is {found.second!r} here;"
            " lengths are only replayed where task, lengths, group, updates, model and"
            " objective are the run's"
        )
