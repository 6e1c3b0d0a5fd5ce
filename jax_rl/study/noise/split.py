"""How much of the gradient's noise lies between prompts and how much within them.

From two independent groups of each prompt at frozen weights, with g_pj the gradient of group j of
prompt p:

    within prompts    1/2 E |g_p1 - g_p2|^2            the same prompt, other responses
    signal |G|^2      E <m_p, m_q>, p and q different prompts, m_p = (g_p1 + g_p2) / 2
    between prompts   E <g_p1, g_p2> - |G|^2           what a prompt's own mean gradient adds

All three are unbiased; their errors are a jackknife over prompts. With one group per prompt, as in
training, the covariance of a group's gradient is the sum of the two parts. More groups of the same
prompts average the first part away, more prompts average both.
"""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jax_rl.errors import UserError
from jax_rl.study.noise.scale import Ratio, divide_means, jackknife_covariance, quantile

FILE_NAME = "probe.json"
"""Name of a probe's result in the directory of its run."""

FEWEST_PROMPTS = 8
"""Prompts of a probe, at least."""


@dataclasses.dataclass(frozen=True)
class PairProducts:
    """Inner products of the gradients of two groups per prompt."""

    first: NDArray[np.float64]  # [p] |g_p1|^2
    second: NDArray[np.float64]  # [p] |g_p2|^2
    between: NDArray[np.float64]  # [p] <g_p1, g_p2>
    first_mean: NDArray[np.float64]  # [p] <g_p1, mean over all groups>
    second_mean: NDArray[np.float64]  # [p] <g_p2, mean over all groups>
    mean: float  # |mean over all groups|^2


@dataclasses.dataclass(frozen=True)
class Estimated:
    """A number with its 95 % interval."""

    estimate: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class CovarianceSplit:
    """The two parts of the covariance of a group's gradient at frozen weights."""

    batch: int  # of the run
    seed: int
    samples: int  # of the run's checkpoint
    prompts: int
    group: int  # rollouts per group, K
    signal: Estimated  # |G|^2
    within: Estimated  # trace of the part within prompts
    between: Estimated  # trace of the part between prompts
    within_share: Ratio  # within / (within + between)
    rollouts: Ratio  # noise scale in rollouts, one group per prompt

    @property
    def identified(self) -> bool:
        """Whether the signal can be told from 0."""
        return self.rollouts.estimate is not None


def split_covariance(
    pairs: PairProducts, *, group: int, batch: int, seed: int, samples: int
) -> CovarianceSplit:
    """The parts of the covariance, with 95 % intervals over prompts.

    Args:
      pairs: of at least `FEWEST_PROMPTS` prompts.
      group: rollouts per group, K.
      batch: of the run, for the record, as are
      seed: of the run, and
      samples: that the run had generated.

    Raises:
      UserError: too few prompts.
    """
    count = len(pairs.first)
    check_prompts(count)
    parts = estimate_split(pairs)
    covariance = jackknife_covariance(_leave_out(pairs))
    freedom = count - 1

    def bracket(index: int) -> Estimated:
        half = quantile(freedom) * math.sqrt(covariance[index, index])
        return Estimated(
            float(parts[index]), float(parts[index] - half), float(parts[index] + half)
        )

    signal, within, between = range(3)
    # Rows give numerator and denominator of either ratio from the three parts.
    share = np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    scale = np.array([[0.0, group, group], [1.0, 0.0, 0.0]])
    return CovarianceSplit(
        batch=batch,
        seed=seed,
        samples=samples,
        prompts=count,
        group=group,
        signal=bracket(signal),
        within=bracket(within),
        between=bracket(between),
        within_share=divide_means(share @ parts, share @ covariance @ share.T, freedom),
        rollouts=divide_means(scale @ parts, scale @ covariance @ scale.T, freedom),
    )


def check_prompts(count: int) -> None:
    """Refuses a number of prompts that says nothing about how they differ.

    Raises:
      UserError: fewer than `FEWEST_PROMPTS`.
    """
    if count < FEWEST_PROMPTS:
        raise UserError(
            f"{count} prompts are too few for a probe: the errors are taken over prompts; at least"
            f" {FEWEST_PROMPTS} are needed, and hundreds tell more"
        )


def estimate_split(pairs: PairProducts) -> NDArray[np.float64]:
    """Signal, part within prompts and part between them; [3], unbiased."""
    count = len(pairs.first)
    norms = _mean_norms(pairs)
    signal = (count**2 * pairs.mean - norms.sum()) / (count * (count - 1))
    within = float(np.mean(_within(pairs)))
    return np.array([signal, within, float(np.mean(pairs.between)) - signal])


def _leave_out(pairs: PairProducts) -> NDArray[np.float64]:
    """The same three without each prompt in turn; [p, 3]."""
    count = len(pairs.first)
    norms = _mean_norms(pairs)
    # <m_p, sum over prompts of m_q>: the mean over all groups is that sum / prompts.
    with_all = count * (pairs.first_mean + pairs.second_mean) / 2
    squared = count**2 * pairs.mean - 2 * with_all + norms
    signal = (squared - (norms.sum() - norms)) / ((count - 1) * (count - 2))
    within, between = (
        (values.sum() - values) / (count - 1) for values in (_within(pairs), pairs.between)
    )
    return np.stack([signal, within, between - signal], axis=1)


def _mean_norms(pairs: PairProducts) -> NDArray[np.float64]:
    """|m_p|^2; [p]."""
    return (pairs.first + pairs.second + 2 * pairs.between) / 4


def _within(pairs: PairProducts) -> NDArray[np.float64]:
    """1/2 |g_p1 - g_p2|^2; [p]."""
    return (pairs.first + pairs.second - 2 * pairs.between) / 2


def write_split(split: CovarianceSplit, path: Path) -> None:
    """Writes a result as JSON.

    Raises:
      UserError: it cannot be written there.
    """
    try:
        path.write_text(json.dumps(dataclasses.asdict(split), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error


def read_split(path: Path) -> CovarianceSplit | None:
    """The result that a probe has written, or None where there is none.

    Raises:
      UserError: the file is none of a probe's.
    """
    if not path.is_file():
        return None
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        for name in ("signal", "within", "between"):
            fields[name] = Estimated(**fields[name])
        for name in ("within_share", "rollouts"):
            fields[name] = Ratio(**fields[name])
        return CovarianceSplit(**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not the result of a probe of this version: {error}") from None
