"""Runs on disk whose response lengths are known."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from study_records import STEP, write_run

from jax_rl.config import Config
from jax_rl.config_file import config_to_dict
from jax_rl.records import FILE_NAME, Iteration, RecordWriter, read_events
from jax_rl.trainer.lengths import count_lengths


def record(
    study: Path, config: Config, *, lengths: Sequence[int] = (3,), kept: bool = True
) -> Path:
    """A run of 6 iterations of 1,024 rollouts, all of one iteration as long.

    Args:
      lengths: of the first iterations; the last of them goes on.
      kept: whether the record has the lengths.
    """
    write_run(study, STEP, 0, samples=4 * STEP, rate=50.0, config=config_to_dict(config))
    run = study / "cells" / f"b{STEP:05d}_s0"
    events = list(read_events(run))
    (run / FILE_NAME).unlink()
    with contextlib.closing(RecordWriter(run)) as writer:
        for event in events:
            if isinstance(event, Iteration) and kept:
                length = [*lengths, *[lengths[-1]] * 6][event.iteration - 1]
                counts = count_lengths(np.full(STEP, length), config.task.max_response_length)
                event = dataclasses.replace(event, length_counts=counts)
            writer.write(event)
    return run
