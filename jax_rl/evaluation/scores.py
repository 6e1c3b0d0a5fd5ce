"""What k responses to each of n prompts say of a policy: pure NumPy, with intervals.

Prompts are the independent units: responses to one prompt share its difficulty, so every interval
is of a mean over prompts.
"""

import dataclasses
import math
from collections.abc import Hashable, Sequence

import numpy as np
from scipy import stats

_LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over prompts, with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} ({self.low:.4f} to {self.high:.4f})"


def estimate_mean(values: np.ndarray) -> Estimate:
    """Mean of a value per prompt, with a t interval.

    A single prompt gives no bounds; equal values give an interval without a width, which says
    that nothing was seen to vary.

    Args:
      values: [n], any range.
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return Estimate(mean, -math.inf, math.inf)
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = float(stats.t.ppf((1 + _LEVEL) / 2, len(values) - 1)) * error
    return Estimate(mean, mean - reach, mean + reach)


def estimate_share(values: np.ndarray) -> Estimate:
    """Mean of a share per prompt, with Wilson's interval; it never leaves 0 to 1.

    Shares other than 0 and 1 have less variance than a yes or no: the interval is then that of
    the effective number of prompts (Korn and Graubard 1998), the number of independent yes-or-no
    ones with the variance that was measured, less what t takes for measuring it.

    Args:
      values: [n], each from 0 to 1.
    """
    mean, count = float(np.mean(values)), float(len(values))
    z = float(stats.norm.ppf((1 + _LEVEL) / 2))
    variance = float(np.var(values))
    if variance > 0 and np.any((values > 0) & (values < 1)):
        t = float(stats.t.ppf((1 + _LEVEL) / 2, len(values) - 1))
        count *= mean * (1 - mean) / variance * (z / t) ** 2
    middle = (mean + z * z / (2 * count)) / (1 + z * z / count)
    spread = math.sqrt(mean * (1 - mean) / count + z * z / (4 * count * count))
    reach = z * spread / (1 + z * z / count)
    return Estimate(mean, max(0.0, middle - reach), min(1.0, middle + reach))


def pass_at(correct: np.ndarray, k: int) -> np.ndarray:
    """Chance per prompt, [n], that one of k responses is correct, without bias.

    1 - C(m - c, k) / C(m, k) for c correct ones of m responses (arXiv:2107.03374).

    Args:
      correct: [n, m] bool.
      k: 1 to m.
    """
    responses = correct.shape[1]
    if not 1 <= k <= responses:
        raise ValueError(f"k = {k} is not in 1 .. {responses}")
    wrong = responses - correct.sum(axis=1)
    total = math.comb(responses, k)
    return np.array([1.0 - math.comb(int(count), k) / total for count in wrong])


def majority(correct: np.ndarray, votes: Sequence[Sequence[Hashable | None]]) -> np.ndarray:
    """Whether the most frequent answer to each prompt is correct, [n], averaged over a tie.

    A response without an answer (None) has no vote; a prompt without any vote is wrong. Where
    responses with the same answer were judged differently, their share counts.

    Args:
      correct: [n, m] bool.
      votes: the answer that each response gives, n lists of m.
    """
    shares = np.zeros(len(correct))
    for row, own in enumerate(votes):
        judged: dict[Hashable, list[bool]] = {}
        for vote, is_correct in zip(own, correct[row].tolist(), strict=True):
            if vote is not None:
                judged.setdefault(vote, []).append(is_correct)
        most = max(map(len, judged.values()), default=0)
        winners = [np.mean(verdicts) for verdicts in judged.values() if len(verdicts) == most]
        shares[row] = np.mean(winners) if winners else 0.0
    return shares
