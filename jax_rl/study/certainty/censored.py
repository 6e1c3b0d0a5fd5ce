"""A log-normal fit that uses runs which missed the target, as what they are: lower bounds.

The model is that of `jax_rl.study.intervals`, log y = arm effect + seed effect + residual, fitted
by maximum likelihood with right-censored values (Tobin 1958, Estimation of relationships for
limited dependent variables), in the parameters (effects / sigma, 1 / sigma), in which the
likelihood is concave (Olsen 1978, Note on the uniqueness of the maximum likelihood estimator for
the Tobit model). It needs runs of an arm that crossed; an arm without any has a bound alone.
"""

import dataclasses
import math
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import log_ndtr

from jax_rl.study.batches import measure_cell
from jax_rl.study.cells import DIVERGED
from jax_rl.study.intervals import Key, make_interval
from jax_rl.study.summary import Arm, Cell, Interval, arm_of

_TOLERANCE = 1e-9  # of the gradient, with the values scaled to a residual sd near 1

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class CensoredFit:
    """Maximum likelihood estimates of arm and seed effects from partly censored values."""

    arms: tuple[Hashable, ...]
    effects: Floats  # [arms], at the first seed
    residual_sd: float  # with degrees of freedom instead of the count in the denominator
    degrees_of_freedom: int  # uncensored values minus effects
    covariance: Floats  # of the effects, from the observed information, scaled alike; [arms, arms]


@dataclasses.dataclass(frozen=True)
class CensoredRatio:
    """An arm against the reference where one of them has some censored runs.

    The verdict takes the one-sided bound; these estimates lean on the log-normal model for what
    was not seen, and stand beside it.
    """

    setting: str
    batch: int
    runs: int  # of the arm
    censored: int  # of them
    samples: Interval
    training_time: Interval
    elapsed_time: Interval
    reason: str  # why there is no estimate; empty where there is one


@dataclasses.dataclass(frozen=True)
class _Problem:
    """Standardised residuals are terms @ (effects / sigma, 1 / sigma)."""

    terms: Floats  # minus the design of the effects, and the values; [runs, effects + 1]
    censored: NDArray[np.bool_]  # [runs]


def fit_censored(
    arms: Sequence[Key], seeds: Sequence[int], values: Sequence[float], censored: Sequence[bool]
) -> CensoredFit | None:
    """Fits value = arm effect + seed effect + residual; a censored value is a lower bound.

    Effects that only censored values would tell are left out with their runs, since the
    likelihood has no maximum in them. Standard errors are scaled by sqrt(uncensored / degrees of
    freedom), so that without censoring the fit is least squares with its own t intervals.

    Returns:
      None when fewer than one degree of freedom is left, or when the values fit exactly.
    """
    kept = _find_identified(arms, seeds, censored)
    levels = sorted({arms[i] for i in kept})
    blocks = sorted({seeds[i] for i in kept})
    design = np.zeros((len(kept), len(levels) + len(blocks)))
    for row, i in enumerate(kept):
        design[row, levels.index(arms[i])] = 1.0
        design[row, len(levels) + blocks.index(seeds[i])] = 1.0
    # The first seed's effect is that of the arms.
    design = np.delete(design, len(levels), axis=1) if len(kept) else design
    y = np.array([values[i] for i in kept], dtype=np.float64)
    cut = np.array([censored[i] for i in kept], dtype=np.bool_)
    freedom = int((~cut).sum()) - design.shape[1]
    if freedom < 1:
        return None
    start, *_ = np.linalg.lstsq(design[~cut], y[~cut], rcond=None)
    scale = math.sqrt(float(np.mean((y - design @ start)[~cut] ** 2)))
    if scale < 1e-12:
        return None
    center = float(y.mean())
    problem = _Problem(np.column_stack([-design, (y - center) / scale]), cut)
    # A constant shift of the values is a shift of every arm's effect.
    shift = np.array([center] * len(levels) + [0.0] * (len(blocks) - 1))
    parameters = _maximise(problem, np.append((start - shift) / scale, 1.0))
    ratio = int((~cut).sum()) / freedom
    count, precision = len(levels), float(parameters[-1])
    return CensoredFit(
        arms=tuple(levels),
        effects=(parameters[:-1] / precision * scale + shift)[:count],
        residual_sd=scale / precision * math.sqrt(ratio),
        degrees_of_freedom=freedom,
        covariance=_covary(problem, parameters)[:count, :count] * scale**2 * ratio,
    )


def contrast_censored(
    fit: CensoredFit, arm: Hashable, *, against: Hashable
) -> tuple[float, float] | None:
    """Effect of an arm minus that of another, and its standard error; None if one is left out."""
    if arm not in fit.arms or against not in fit.arms:
        return None
    direction = np.zeros(len(fit.arms))
    direction[fit.arms.index(arm)] += 1.0
    direction[fit.arms.index(against)] -= 1.0
    variance = float(direction @ fit.covariance @ direction)
    return float(direction @ fit.effects), math.sqrt(max(0.0, variance))


def estimate_censored(
    cells: Sequence[Cell], *, reference: Arm, most_freedom: int = 0
) -> list[CensoredRatio]:
    """Ratios to the reference by the censored fit, for arms that have or meet censored runs.

    A run that diverged is no run that would have crossed later, so that its arm is left out.
    An arm is fitted with the runs of its setting and of the reference's alone: those of one batch
    and seed in several settings may be nearly the same run.

    Args:
      cells: finished runs with comparable seconds, all on one kind of device.
      most_freedom: degrees of freedom of the study's own fit, which intervals between two
        settings have at most, as if there were one; 0: no limit.
    """
    runs: dict[Arm, list[Cell]] = {}
    for cell in cells:
        runs.setdefault(arm_of(cell), []).append(cell)
    missed = {arm: sum(cell.crossing is None for cell in own) for arm, own in runs.items()}
    needed = [a for a in runs if a != reference and (missed[a] or missed.get(reference))]
    if not needed or reference not in runs:
        return []
    lost = {arm for arm, own in runs.items() if any(_diverged(cell) for cell in own)}
    kept = [cell for cell in cells if arm_of(cell) not in lost]
    fits = {
        name: _fit_measures(
            [c for c in kept if c.setting in (name, reference.setting)],
            most_freedom if name != reference.setting else 0,
        )
        for name in {arm.setting for arm in needed}
    }
    return [
        CensoredRatio(
            setting=arm.setting,
            batch=arm.batch,
            runs=len(runs[arm]),
            censored=missed[arm],
            **{name: _compare(fit, arm, reference) for name, fit in fits[arm.setting].items()},
            reason=(
                "a run diverged"
                if {arm, reference} & lost
                else _explain(fits[arm.setting]["samples"], arm, reference)
            ),
        )
        for arm in needed
    ]


def _diverged(cell: Cell) -> bool:
    return cell.crossing is None and cell.ended == DIVERGED


def _fit_measures(cells: Sequence[Cell], most_freedom: int) -> dict[str, CensoredFit | None]:
    found = {
        measure: fit_censored(
            [arm_of(cell) for cell in cells],
            [cell.seed for cell in cells],
            [math.log(measure_cell(cell)[measure]) for cell in cells],
            [cell.crossing is None for cell in cells],
        )
        for measure in ("samples", "training_time", "elapsed_time")
    }
    return {
        measure: fit
        and dataclasses.replace(
            fit,
            degrees_of_freedom=min(fit.degrees_of_freedom, most_freedom or fit.degrees_of_freedom),
        )
        for measure, fit in found.items()
    }


def _compare(fit: CensoredFit | None, arm: Arm, reference: Arm) -> Interval:
    found = contrast_censored(fit, arm, against=reference) if fit else None
    if fit is None or found is None:
        return Interval(None, None, None)
    difference, error = found
    return make_interval(
        difference, error, residual_sd=1.0, degrees_of_freedom=fit.degrees_of_freedom
    )


def _explain(fit: CensoredFit | None, arm: Arm, reference: Arm) -> str:
    if fit is None:
        return "the runs that reached the target leave no degrees of freedom"
    if contrast_censored(fit, arm, against=reference) is None:
        return "no runs that reached the target connect it with the reference"
    return ""


def _find_identified(
    arms: Sequence[Key], seeds: Sequence[int], censored: Sequence[bool]
) -> list[int]:
    """Runs whose arm and seed are tied together by runs that crossed, the largest such part."""
    names: list[Hashable] = [("arm", a) for a in sorted(set(arms))]
    names += [("seed", s) for s in sorted(set(seeds))]
    place = {name: i for i, name in enumerate(names)}
    ends = [(place["arm", a], place["seed", s]) for a, s in zip(arms, seeds, strict=True)]
    known = [end for end, cut in zip(ends, censored, strict=True) if not cut]
    if not known:
        return []
    rows, columns = np.array(known).T
    graph = coo_array((np.ones(len(known)), (rows, columns)), shape=(len(names),) * 2)
    _, part = connected_components(graph, directed=False)
    largest = np.bincount(part[rows]).argmax()
    return [i for i, (a, s) in enumerate(ends) if part[a] == part[s] == largest]


def _maximise(problem: _Problem, start: Floats) -> Floats:
    """The maximum of the likelihood over (effects / sigma, 1 / sigma), by Newton's method."""

    def lose(parameters: Floats) -> float:
        if parameters[-1] <= 0:
            return math.inf
        z, cut = _standardise(problem, parameters), problem.censored
        loss = 0.5 * np.sum(z[~cut] ** 2) - np.sum(log_ndtr(-z[cut]))
        return float(loss - np.sum(~cut) * math.log(parameters[-1]))

    def slope(parameters: Floats) -> Floats:
        z = _standardise(problem, parameters)
        gradient: Floats = problem.terms.T @ np.where(problem.censored, _hazard(z), z)
        gradient[-1] -= np.sum(~problem.censored) / parameters[-1]
        return gradient

    found = minimize(
        lose,
        start,
        jac=slope,
        hess=lambda parameters: _inform(problem, parameters),
        method="trust-exact",
        options={"gtol": _TOLERANCE, "maxiter": 1000},
    )
    best: Floats = found.x
    return best


def _inform(problem: _Problem, parameters: Floats) -> Floats:
    """The observed information, i.e. the second derivatives of minus the log likelihood."""
    z = _standardise(problem, parameters)
    hazard = _hazard(z)
    weight = np.where(problem.censored, hazard * (hazard - z), 1.0)
    information: Floats = problem.terms.T @ (problem.terms * weight[:, None])
    information[-1, -1] += np.sum(~problem.censored) / parameters[-1] ** 2
    return information


def _covary(problem: _Problem, parameters: Floats) -> Floats:
    """Covariance of the effects from the observed information, by the delta method."""
    precision = parameters[-1]
    jacobian = np.column_stack(
        [np.eye(len(parameters) - 1) / precision, -parameters[:-1] / precision**2]
    )
    covariance: Floats = jacobian @ np.linalg.solve(_inform(problem, parameters), jacobian.T)
    return covariance


def _standardise(problem: _Problem, parameters: Floats) -> Floats:
    z: Floats = problem.terms @ parameters
    return z


def _hazard(z: Floats) -> Floats:
    """phi(z) / Phi(-z), the derivative of -log Phi(-z); stable for large z."""
    rate: Floats = np.exp(-0.5 * z**2 - 0.5 * math.log(2 * math.pi) - log_ndtr(-z))
    return rate
