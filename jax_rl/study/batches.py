"""What the seeds of an arm (a batch in a setting) say together, and one arm against another.

A run that missed the target stays: its samples and seconds are lower bounds. An arm with such a
run has no point estimate; a ratio to it is one-sided, and one between two of them is none.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Sequence

import numpy as np

from jax_rl.records import PHASES
from jax_rl.study.cells import divide
from jax_rl.study.intervals import (
    AdditiveFit,
    contrast,
    find_direction,
    fit_additive,
    geometric_mean,
    make_interval,
)
from jax_rl.study.summary import Arm, BatchResult, Cell, Comparison, Interval, arm_of

MEASURES = ("samples", "throughput", "training_time", "elapsed_time")
"""What arms are compared by; all to the crossing, or to the last score of a censored run."""

FEWEST_UPDATES = 20
"""Fewer updates to target are too coarse to say how a batch learns."""


@dataclasses.dataclass(frozen=True)
class StudyFit:
    """The additive model of each measure, over the arms in which every run crossed."""

    cells: tuple[Cell, ...]  # finished runs
    fits: dict[str, AdditiveFit]  # by measure
    design: AdditiveFit  # of all arms, the censored ones too; its effects mean nothing
    censored: dict[Arm, int]  # runs without a crossing, by arm: by setting, then by batch
    devices_grow: bool = False  # by design, so that only their kind has to be the same
    incomparable: tuple[str, ...] = ()  # reasons why no seconds are compared

    @property
    def complete(self) -> tuple[Arm, ...]:
        """Arms in which every run reached the target, by setting, then by batch."""
        return tuple(arm for arm, count in self.censored.items() if not count)

    def cells_of(self, *arms: Arm) -> list[Cell]:
        """The runs of these arms."""
        return [cell for arm in arms for cell in self._by_arm.get(arm, [])]

    @functools.cached_property
    def _by_arm(self) -> dict[Arm, list[Cell]]:
        found: dict[Arm, list[Cell]] = {}
        for cell in self.cells:
            found.setdefault(arm_of(cell), []).append(cell)
        return found

    def devices_of(self, *arms: Arm) -> list[str]:
        """The devices that these arms ran on; seconds on different ones are not compared."""
        devices = {cell.device for cell in self.cells_of(*arms)}
        return sorted({name_kind(device) for device in devices} if self.devices_grow else devices)

    def list_obstacles(self, *arms: Arm) -> list[str]:
        """Why the seconds of these arms are not compared; nothing if they are."""
        devices = self.devices_of(*arms)
        if len(devices) > 1:
            return [f"on different devices ({'; '.join(devices)})"]
        return list(self.incomparable)

    @property
    def by_kind(self) -> "StudyFit":
        """The same for device-hours, which compare between numbers of devices of one kind."""
        return dataclasses.replace(self, devices_grow=True)

    def connect(self, arms: Sequence[Arm], *, reference: Arm) -> list[Arm]:
        """The complete ones of `arms` that shared seeds connect with the reference, through others.

        Without it among them, the largest part that is connected. Between parts there is no
        estimate: effects there differ by those of the seeds, which nothing tells apart.
        """
        known = [arm for arm in self.complete if arm in arms]
        fit = self.fits["samples"]

        def join(start: Arm) -> list[Arm]:
            return [a for a in known if find_direction(fit, a, against=start) is not None]

        if reference in known:
            return join(reference)
        return max((join(arm) for arm in known), key=len, default=[])

    @property
    def degrees_of_freedom(self) -> int:
        """Of the pooled residual variance."""
        return self.fits["samples"].degrees_of_freedom


def measure_cell(cell: Cell) -> dict[str, float]:
    """A run's measures: to its crossing, or to its last grid point, i.e. bounds, if it has none.

    What a run did after its last score may have met the target unseen, so that it is no bound.
    Samples are rollouts, times are seconds, throughput is rollouts per training second.
    """
    if cell.crossing is None and (bound := _bound_cell(cell)):
        return bound
    reached = cell.crossing or cell
    return {
        "samples": float(reached.samples),
        "throughput": cell.rollouts_per_second,
        "training_time": reached.training_seconds,
        "elapsed_time": reached.elapsed_seconds,
    }


def _bound_cell(cell: Cell) -> dict[str, float]:
    """Measures up to the last grid point; empty where none lies behind the start."""
    if not (cell.curve_samples and cell.curve_training_seconds and cell.curve_elapsed_seconds):
        return {}
    samples = float(cell.curve_samples[-1])
    training, elapsed = cell.curve_training_seconds[-1], cell.curve_elapsed_seconds[-1]
    if not (samples > 0 and training > 0 and elapsed > 0):
        return {}
    return {
        "samples": samples,
        "throughput": samples / training,
        "training_time": training,
        "elapsed_time": elapsed,
    }


def name_kind(device: str) -> str:
    """The kind and platform in the description of a run's devices, without count and processes."""
    return re.sub(r"^(\d+ x|unknown number of) |, \d+ processes$", "", device)


def count_devices(cells: Sequence[Cell]) -> float:
    """Devices of a run of these, in the geometric mean; 0 where that of one is not known."""
    counts = {cell.device_count for cell in cells}
    if len(counts) == 1 or min(counts, default=0) < 1:
        return min(counts, default=0)
    return geometric_mean([cell.device_count for cell in cells])


def fit_study(
    cells: Sequence[Cell],
    *,
    settings: Sequence[str],
    devices_grow: bool = False,
    incomparable: Sequence[str] = (),
) -> StudyFit:
    """Fits every measure over the finished runs given, whose settings are among `settings`.

    Args:
      cells: finished runs.
      settings: their names, in order.
      devices_grow: the study lets devices grow with the batch: times on more of one kind are then
        what it compares.
      incomparable: reasons why seconds of any of them are not compared.
    """
    censored = {
        arm: sum(arm_of(cell) == arm and cell.crossing is None for cell in cells)
        for arm in sorted(
            {arm_of(cell) for cell in cells},
            key=lambda arm: (settings.index(arm.setting), arm.batch),
        )
    }
    complete = [cell for cell in cells if not censored[arm_of(cell)]]
    return StudyFit(
        cells=tuple(cells),
        fits=_fit_settings(complete),
        design=fit_additive(
            [arm_of(cell) for cell in cells], [cell.seed for cell in cells], [0.0] * len(cells)
        ),
        censored=censored,
        devices_grow=devices_grow,
        incomparable=tuple(incomparable),
    )


def _fit_settings(cells: Sequence[Cell]) -> dict[str, AdditiveFit]:
    """One fit over all arms, with a residual variance as if there were one setting.

    The runs of a batch and seed in several settings may be nearly the same run: taken for
    independent ones, they would make the intervals between batches too narrow. The variance is the
    mean of the settings' own, by their degrees of freedom d. Where those estimates move together
    their standard errors, as the root of 2 / d each, add up, and the mean has as many degrees of
    freedom as (sum of d)^2 / (sum of the roots of d)^2: d where all are equal.
    """
    fits = _fit_measures(cells)
    names = sorted({cell.setting for cell in cells})
    alone = [_fit_measures([c for c in cells if c.setting == name]) for name in names]
    pooled: dict[str, AdditiveFit] = {}
    for measure, fit in fits.items():
        known = [one[measure] for one in alone if one[measure].degrees_of_freedom]
        if not known:
            pooled[measure] = dataclasses.replace(fit, residual_sd=math.nan, degrees_of_freedom=0)
            continue
        own = np.array([one.degrees_of_freedom for one in known], np.float64)
        variance = np.average([one.residual_sd**2 for one in known], weights=own)
        together = np.sum(own) ** 2 / np.sum(np.sqrt(own)) ** 2
        pooled[measure] = dataclasses.replace(
            fit,
            residual_sd=float(np.sqrt(variance)),
            degrees_of_freedom=math.floor(together + 1e-9),
        )
    return pooled


def compare_arms(fit: StudyFit, arm: Arm, *, against: Arm) -> Comparison:
    """The ratios of one arm to another, each with its interval.

    Ratios of arms in which every run crossed come from the fit over all such arms. Where a run
    is censored, the two arms alone are compared, within the seeds that both have, so that no
    bound of a third arm enters. Either way samples / throughput = training time. Arms whose
    seconds are not comparable have no ratio but that of samples.
    """
    return Comparison(
        arm.setting,
        arm.batch,
        against.setting,
        against.batch,
        **{name: compare_measure(fit, name, arm, against=against) for name in MEASURES},
    )


def compare_measure(
    fit: StudyFit, measure: str, arm: Arm, *, against: Arm, critical: float | None = None
) -> Interval:
    """One ratio of `compare_arms`.

    Args:
      critical: half width of the interval in standard errors, if it is not that of one ratio.
    """
    sides = bool(fit.censored[arm]), bool(fit.censored[against])
    one_sided = measure != "throughput" and any(sides)
    unknown = one_sided and all(sides)
    if unknown or (measure != "samples" and fit.list_obstacles(arm, against)):
        return Interval(None, None, None)
    alone = any(sides)
    known = _fit_measure(fit.cells_of(arm, against), measure) if alone else fit.fits[measure]
    difference = contrast(known, arm, against=against)
    if difference is None:
        return Interval(None, None, None)
    return make_interval(
        *difference,
        residual_sd=fit.fits[measure].residual_sd,
        degrees_of_freedom=fit.degrees_of_freedom,
        bound=("at least" if sides[0] else "at most") if one_sided else "",
        critical=critical,
    )


def summarise_arm(
    fit: StudyFit, arm: Arm, *, reference: Arm, updates_per_iteration: int
) -> BatchResult:
    """Geometric means over the finished runs of an arm, and its comparisons.

    An arm is too coarse when its geometric mean of updates to target, those of the whole run
    where it is censored, is under 20.

    Args:
      reference: the reference batch in the study's first setting.
    """
    cells, batch = fit.cells_of(arm), arm.batch
    measured = [measure_cell(cell) for cell in cells]
    means = {name: geometric_mean([m[name] for m in measured]) for name in MEASURES}
    crossed = not fit.censored[arm]
    updates = geometric_mean(
        [
            c.crossing.updates if c.crossing else c.samples / batch * updates_per_iteration
            for c in cells
        ]
    )
    steady = [cell.steady_per_second for cell in cells if cell.steady_per_second is not None]
    smaller = [a for a in fit.censored if a.setting == arm.setting and a.batch < batch]

    def compare(against: Arm) -> Comparison | None:
        there = against != arm and against in fit.censored
        return compare_arms(fit, arm, against=against) if there else None

    return BatchResult(
        setting=arm.setting,
        batch=batch,
        multiple=batch / reference.batch,
        learning_rate=cells[0].learning_rate,
        seeds=sorted(cell.seed for cell in cells),
        censored=fit.censored[arm],
        samples_to_target=means["samples"] if crossed else None,
        samples_at_least=None if crossed else means["samples"],
        updates_to_target=updates if crossed else None,
        training_time=means["training_time"] if crossed else None,
        elapsed_time=means["elapsed_time"] if crossed else None,
        training_time_at_least=None if crossed else means["training_time"],
        elapsed_time_at_least=None if crossed else means["elapsed_time"],
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
        against_reference=compare(Arm(arm.setting, reference.batch)),
        against_smaller=compare(smaller[-1]) if smaller else None,
        against_setting=compare(Arm(reference.setting, batch)),
        too_coarse=updates < FEWEST_UPDATES,
        not_held=sum(cell.crossing is not None and not cell.crossing.held for cell in cells),
    )


def _fit_measures(cells: Sequence[Cell]) -> dict[str, AdditiveFit]:
    return {name: _fit_measure(cells, name) for name in MEASURES}


def _fit_measure(cells: Sequence[Cell], measure: str) -> AdditiveFit:
    return fit_additive(
        [arm_of(cell) for cell in cells],
        [cell.seed for cell in cells],
        [math.log(measure_cell(cell)[measure]) for cell in cells],
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan
