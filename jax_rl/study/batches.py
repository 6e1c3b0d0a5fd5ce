"""What the seeds of a batch say together, and one batch against another.

A run that missed the target stays: its samples and seconds are lower bounds. A batch with such a
run has no point estimate; a ratio to it is one-sided, and one between two of them is none.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jax_rl.records import PHASES
from jax_rl.study.cells import divide
from jax_rl.study.intervals import (
    AdditiveFit,
    contrast,
    fit_additive,
    geometric_mean,
    make_interval,
)
from jax_rl.study.summary import BatchResult, Cell, Comparison, Interval

MEASURES = ("samples", "throughput", "training_time", "elapsed_time")
"""What batches are compared by; all to the crossing, or of the whole run if it is censored."""

FEWEST_UPDATES = 20
"""Fewer updates to target are too coarse to say how a batch learns."""


@dataclasses.dataclass(frozen=True)
class StudyFit:
    """The additive model of each measure, over the batches in which every run crossed."""

    cells: tuple[Cell, ...]  # finished runs
    fits: dict[str, AdditiveFit]  # by measure
    censored: dict[int, int]  # runs without a crossing, by batch

    @property
    def complete(self) -> tuple[int, ...]:
        """Batches in which every run reached the target, ascending."""
        return tuple(batch for batch, count in self.censored.items() if not count)

    @property
    def degrees_of_freedom(self) -> int:
        """Of the pooled residual variance."""
        return self.fits["samples"].degrees_of_freedom


def measure_cell(cell: Cell) -> dict[str, float]:
    """A run's measures: to its crossing, or of all of it, i.e. bounds, if it has none.

    Samples are rollouts, times are seconds, throughput is rollouts per training second.
    """
    reached = cell.crossing or cell
    return {
        "samples": float(reached.samples),
        "throughput": cell.rollouts_per_second,
        "training_time": reached.training_seconds,
        "elapsed_time": reached.elapsed_seconds,
    }


def fit_study(cells: Sequence[Cell]) -> StudyFit:
    """Fits every measure over the finished runs given."""
    batches = sorted({cell.batch for cell in cells})
    censored = {
        batch: sum(cell.batch == batch and cell.crossing is None for cell in cells)
        for batch in batches
    }
    return StudyFit(
        cells=tuple(cells),
        fits=_fit_measures([cell for cell in cells if not censored[cell.batch]]),
        censored=censored,
    )


def compare_batches(fit: StudyFit, batch: int, *, against: int) -> Comparison:
    """The ratios of one batch to another, each with its interval.

    Ratios of batches in which every run crossed come from the fit over all such batches. Where a
    run is censored, the two batches alone are compared, within the seeds that both have, so that
    no bound of a third batch enters. Either way samples / throughput = training time.
    """
    sides = bool(fit.censored[batch]), bool(fit.censored[against])
    bound = {(True, False): "at least", (False, True): "at most"}.get(sides, "")
    if any(sides):
        fits = _fit_measures([cell for cell in fit.cells if cell.batch in (batch, against)])
    else:
        fits = fit.fits
    intervals = {}
    for measure in MEASURES:
        difference = contrast(fits[measure], batch, against=against)
        one_sided = measure != "throughput"
        if difference is None or (one_sided and all(sides)):
            intervals[measure] = Interval(None, None, None)
            continue
        intervals[measure] = make_interval(
            *difference,
            residual_sd=fit.fits[measure].residual_sd,
            degrees_of_freedom=fit.degrees_of_freedom,
            bound=bound if one_sided else "",
        )
    return Comparison(batch=batch, against=against, **intervals)


def summarise_batch(
    fit: StudyFit, batch: int, *, reference: int, updates_per_iteration: int
) -> BatchResult:
    """Geometric means over the finished runs of a batch, and its comparisons.

    A batch is too coarse when its geometric mean of updates to target, those of the whole run
    where it is censored, is under 20.
    """
    cells = [cell for cell in fit.cells if cell.batch == batch]
    measured = [measure_cell(cell) for cell in cells]
    means = {name: geometric_mean([m[name] for m in measured]) for name in MEASURES}
    crossed = not fit.censored[batch]
    updates = geometric_mean(
        [
            c.crossing.updates if c.crossing else c.samples / batch * updates_per_iteration
            for c in cells
        ]
    )
    steady = [cell.steady_per_second for cell in cells if cell.steady_per_second is not None]
    smaller = [other for other in fit.censored if other < batch]
    return BatchResult(
        batch=batch,
        multiple=batch / reference,
        learning_rate=cells[0].learning_rate,
        seeds=sorted(cell.seed for cell in cells),
        censored=fit.censored[batch],
        samples_to_target=means["samples"] if crossed else None,
        samples_at_least=None if crossed else means["samples"],
        updates_to_target=updates if crossed else None,
        training_time=means["training_time"] if crossed else None,
        elapsed_time=means["elapsed_time"] if crossed else None,
        throughput=means["throughput"],
        tokens_per_second=geometric_mean([c.tokens_per_second for c in cells]),
        generate_per_second=geometric_mean([c.generate_per_second for c in cells]),
        learn_per_second=geometric_mean([c.learn_per_second for c in cells]),
        steady_per_second=geometric_mean(steady) if steady else None,
        mean_length=_mean([cell.mean_length for cell in cells]),
        p95_length=_mean([cell.p95_length for cell in cells]),
        phase_shares={
            phase: _mean([divide(c.phases[phase], c.elapsed_seconds) for c in cells])
            for phase in PHASES
        },
        against_reference=(
            compare_batches(fit, batch, against=reference)
            if batch != reference and reference in fit.censored
            else None
        ),
        against_smaller=compare_batches(fit, batch, against=max(smaller)) if smaller else None,
        too_coarse=updates < FEWEST_UPDATES,
        not_held=sum(cell.crossing is not None and not cell.crossing.held for cell in cells),
    )


def _fit_measures(cells: Sequence[Cell]) -> dict[str, AdditiveFit]:
    measured = [measure_cell(cell) for cell in cells]
    return {
        name: fit_additive(
            [cell.batch for cell in cells],
            [cell.seed for cell in cells],
            [math.log(m[name]) for m in measured],
        )
        for name in MEASURES
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan
