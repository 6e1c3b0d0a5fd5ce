"""What k responses to each of n prompts say of a policy: pure NumPy, with intervals.

Prompts are the independent units: responses to one prompt share its difficulty, so every interval
is of a mean over prompts.
"""

import collections
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
    """Mean of a value per prompt, with a t interval; without bounds for a single prompt.

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
    """Mean of a share per prompt, with a Wilson interval of the effective number of prompts.

    The effective number is that of independent yes-or-no prompts with the standard error
    measured (Korn and Graubard 1998, with Wilson's interval); it stays inside 0 to 1 and has a
    width when all prompts agree.

    Args:
      values: [n], each from 0 to 1.
    """
    mean, count = float(np.mean(values)), float(len(values))
    if len(values) > 1 and 0.0 < mean < 1.0:
        variance = float(np.var(values, ddof=1)) / count
        if variance > 0:
            count = mean * (1 - mean) / variance
    z = float(stats.norm.ppf((1 + _LEVEL) / 2))
    middle = (mean + z * z / (2 * count)) / (1 + z * z / count)
    spread = math.sqrt(mean * (1 - mean) / count + z * z / (4 * count * count))
    reach = z * spread / (1 + z * z / count)
    return Estimate(mean, max(0.0, middle - reach), min(1.0, middle + reach))


def pass_at(correct: np.ndarray, k: int) -> np.ndarray:
    """Chance per prompt that one of k responses is right, without bias.

    1 - C(m - c, k) / C(m, k) for c right ones of m responses (arXiv:2107.03374).

    Args:
      correct: [n, m] bool.
      k: 1 to m.
    """
    rows, responses = correct.shape
    if not 1 <= k <= responses:
        raise ValueError(f"k = {k} is not in 1 .. {responses}")
    wrong = responses - correct.sum(axis=1)
    total = math.comb(responses, k)
    return np.array([1.0 - math.comb(int(w), k) / total for w in wrong]).reshape(rows)


def majority(correct: np.ndarray, answers: Sequence[Sequence[Hashable | None]]) -> np.ndarray:
    """Whether the most frequent answer of a prompt is right, as a share where several tie.

    A response without an answer (None) has no vote; a prompt without any vote is wrong.

    Args:
      correct: [n, m] bool.
      answers: what each response says, n lists of m.
    """
    found = np.zeros(len(correct))
    for row, said in enumerate(answers):
        votes = collections.Counter(answer for answer in said if answer is not None)
        if not votes:
            continue
        most = max(votes.values())
        winners = [answer for answer, count in votes.items() if count == most]
        right = [
            np.mean([bool(c) for c, a in zip(correct[row], said, strict=True) if a == winner])
            for winner in winners
        ]
        found[row] = float(np.mean(right))
    return found
