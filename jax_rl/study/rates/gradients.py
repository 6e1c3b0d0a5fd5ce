"""Gradients by batch: how often they are clipped, and how far an update moves the weights."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from jax_rl.records import Iteration, RunRecord
from jax_rl.study.summary import Arm, Cell, arm_of


@dataclasses.dataclass(frozen=True)
class GradientResult:
    """Means over the updates up to the crossing, then over the runs of one arm.

    An update without finite gradients is left out; NaN where that leaves none.
    """

    setting: str
    batch: int
    runs: int
    max_grad_norm: float  # what gradients are clipped to
    clipped: float  # share of updates whose gradient was
    grad_norm: float  # before clipping
    update_norm: float  # of the change of the weights in one update
    update_per_sample: float  # the same over the rollouts of an update


def summarise_gradients(
    cells: Sequence[Cell], runs: Mapping[str, RunRecord]
) -> list[GradientResult]:
    """Clipping and update norms of each arm, in the order in which the arms first occur.

    Args:
      cells: of the study; a run without a crossing counts in full, one without an iteration not.
      runs: their records by name.
    """
    by_arm: dict[Arm, list[tuple[RunRecord, list[Iteration]]]] = {}
    for cell in cells:
        run = runs[cell.name]
        limit = cell.crossing.raw_samples if cell.crossing else cell.samples
        part = [e for e in run.iterations if e.samples <= limit]
        # Another trainer's log may not tell them.
        if part and "max_grad_norm" in run.start.config.get("optimizer", {}):
            by_arm.setdefault(arm_of(cell), []).append((run, part))
    return [_summarise_arm(arm, members) for arm, members in by_arm.items()]


def _summarise_arm(
    arm: Arm, members: Sequence[tuple[RunRecord, Sequence[Iteration]]]
) -> GradientResult:
    def mean(field: str) -> float:
        # Iterations of a run have equally many updates, so that means of means are means.
        means = [_mean([getattr(e, field) for e in part]) for _, part in members]
        return _mean(means)

    config = members[0][0].start.config
    updates = int(config["batch"]["updates"])
    return GradientResult(
        setting=arm.setting,
        batch=arm.batch,
        runs=len(members),
        max_grad_norm=float(config["optimizer"]["max_grad_norm"]),
        clipped=mean("clipped_gradient"),
        grad_norm=mean("grad_norm"),
        update_norm=mean("update_norm"),
        update_per_sample=mean("update_norm") * updates / arm.batch,
    )


def _mean(values: Sequence[float]) -> float:
    """Of the finite ones: the last update of a run that diverged has none."""
    known = [value for value in values if math.isfinite(value)]
    return float(np.mean(known)) if known else math.nan
