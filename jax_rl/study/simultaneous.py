"""Critical values that hold for several comparisons at once.

The comparisons are contrasts of arm effects with one pooled residual variance, so their t
statistics are jointly multivariate t. Dunnett (1955, A multiple comparison procedure for
comparing several treatments with a control) compares all arms with one; Hsu (1984, Constrained
simultaneous confidence intervals for multiple comparisons with the best) finds the arms that may
be the best, by comparing each in turn with all others, one-sided.
"""

import functools
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import fdtr, ndtri, stdtrit
from scipy.stats import qmc

from jax_rl.study.intervals import LEVEL, AdditiveFit, find_direction

_LOG2_DIRECTIONS = 14
_NEIGHBOURS = 16  # directions of nearly equal reach that are taken together
_SMALLEST_EIGENVALUE = 1e-9  # of a correlation matrix: smaller ones are rounding


def correlate_contrasts(
    fit: AdditiveFit, arms: Sequence[Hashable], *, against: Hashable
) -> NDArray[np.float64]:
    """Correlation of the effects of `arms`, each minus that of `against`; [arms, arms].

    It follows from the design alone: 1/2 between any two in a full block design. Arms that the
    design does not connect with `against` are left out.
    """
    found = [find_direction(fit, arm, against=against) for arm in arms if arm != against]
    directions = np.array([direction for direction in found if direction is not None])
    if not len(directions):
        return np.zeros((0, 0))
    covariance = directions @ fit.inverse @ directions.T
    scale = np.sqrt(np.diag(covariance))
    correlation: NDArray[np.float64] = covariance / np.outer(scale, scale)
    return correlation


def find_critical_value(
    correlation: NDArray[np.float64],
    degrees_of_freedom: int,
    *,
    level: float = LEVEL,
    one_sided: bool = False,
) -> float:
    """The c with P(every |t_i| <= c) = level, or P(every t_i <= c) if one-sided.

    t is multivariate t with this correlation (positive semidefinite, ones on the diagonal). The
    same arguments always give the same number, to about three digits. NaN without a comparison or
    without degrees of freedom.
    """
    if not len(correlation) or degrees_of_freedom < 1:
        return float("nan")
    # Equal designs differ by rounding; they share one entry of the cache.
    rounded = np.round(np.asarray(correlation, dtype=np.float64), 9) + 0.0
    return _solve(rounded.tobytes(), len(rounded), degrees_of_freedom, level, one_sided)


@functools.lru_cache(maxsize=256)
def _solve(
    correlation: bytes, count: int, degrees_of_freedom: int, level: float, one_sided: bool
) -> float:
    rank, reach = _measure_reach(correlation, count, one_sided)

    def miss(critical: float) -> float:
        # z = r u with a direction u: each t stays below c as long as r / s <= c / reach(u), and
        # r^2 / (rank s^2) has an F distribution. Only the directions are left to average over.
        inside = fdtr(rank, degrees_of_freedom, (critical / reach) ** 2 / rank)
        return float(np.mean(inside)) - level

    # A single comparison needs less, and one Bonferroni level each is always enough.
    tail = (1 - level) / (1 if one_sided else 2)
    low = float(stdtrit(degrees_of_freedom, 1 - tail))
    high = float(stdtrit(degrees_of_freedom, 1 - tail / count))
    return float(brentq(miss, 0.98 * low, 1.02 * high, xtol=1e-6))


@functools.lru_cache(maxsize=64)
def _measure_reach(
    correlation: bytes, count: int, one_sided: bool
) -> tuple[int, NDArray[np.float64]]:
    """Rank of the correlation, and how far directions reach; [directions / _NEIGHBOURS].

    z = factor @ (r u) with quasi-random unit vectors u; the reach is the largest entry of
    factor @ u. Where no entry is positive a one-sided comparison is met at any length: the
    smallest numbers stand for that.
    """
    values, vectors = np.linalg.eigh(np.frombuffer(correlation).reshape(count, count))
    kept = values > _SMALLEST_EIGENVALUE
    # The largest part comes first: the first quasi-random coordinates are the most even.
    factor = (vectors[:, kept] * np.sqrt(values[kept]))[:, ::-1]
    rank = int(kept.sum())
    points = qmc.Sobol(rank, scramble=False).random_base2(_LOG2_DIRECTIONS)
    # A shift keeps the points even and takes them off 0, where a normal quantile is infinite.
    normal = ndtri((points + np.random.default_rng(0).uniform(size=rank)) % 1.0)
    projected = normal @ factor.T / np.linalg.norm(normal, axis=1, keepdims=True)
    reach = np.abs(projected).max(axis=1)
    if one_sided:
        both = np.concatenate([projected.max(axis=1), -projected.min(axis=1)])
        reach = np.maximum(both, np.finfo(np.float64).tiny ** 0.25)
    # Neighbours in rank are nearly equal: their means serve as well at a fraction of the time.
    return rank, np.sort(reach).reshape(-1, _NEIGHBOURS).mean(axis=1)
