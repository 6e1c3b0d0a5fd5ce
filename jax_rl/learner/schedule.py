"""The learning rate: linear warm-up measured in samples, no decay, scaling with the minibatch.

Plain numbers on the host: the rate that is recorded is the rate that is handed to the update.
"""

import math
from collections.abc import Callable
from typing import Literal

from jax_rl.registry import resolve

RateRule = Literal["none", "sqrt", "linear"]

RATE_RULES: dict[str, Callable[[float], float]] = {
    "none": lambda ratio: 1.0,
    "sqrt": math.sqrt,
    "linear": lambda ratio: ratio,
}

GRADUAL_UPDATES = 5


def warmup_updates(warmup_samples: int, minibatch: int) -> int:
    """Updates of the warm-up in this run: warmup_samples / minibatch, rounded up, at least 1.

    1 means no warm-up: the first update has the peak rate already.

    Args:
      warmup_samples: length of the warm-up, in rollouts.
      minibatch: rollouts per update.
    """
    return max(1, -(-warmup_samples // minibatch))


def rate_at(update: int, *, peak: float, warmup: int) -> float:
    """Learning rate of an update: peak x min(1, (update + 1) / warmup).

    The first update has peak / warmup, which moves the weights; there is no decay.

    Args:
      update: optimizer updates made before this one, so the first is 0.
      peak: rate after the warm-up.
      warmup: updates of the warm-up, at least 1.
    """
    return peak * min(1.0, (update + 1) / warmup)


def scaled_rate(rate: float, *, rule: RateRule, minibatch: int, reference_minibatch: int) -> float:
    """Learning rate moved from the reference minibatch to this one.

    Args:
      rate: rate at the reference minibatch.
      rule: factor of `minibatch / reference_minibatch`: `none` 1, `sqrt` its root, `linear` itself.
      minibatch: rollouts per update of this run.
      reference_minibatch: rollouts per update that `rate` was chosen at.

    Raises:
      UserError: no such rule.

    Source: linear, arXiv:1706.02677; square root, arXiv:1404.5997.
    """
    factor: Callable[[float], float] = resolve(rule, RATE_RULES, "study.rate_rule")
    return rate * factor(minibatch / reference_minibatch)


def warmup_note(warmup: int) -> str | None:
    """A sentence that the run shows when its warm-up has fewer than 5 updates, else None.

    Args:
      warmup: updates of the warm-up, at least 1.
    """
    if warmup >= GRADUAL_UPDATES:
        return None
    if warmup == 1:
        return (
            "The warm-up is 1 update: the first update has the peak rate already;"
            " a larger optimizer.warmup_samples makes it gradual."
        )
    return (
        f"The warm-up is only {warmup} updates, fewer than {GRADUAL_UPDATES}: the rate jumps to"
        " its peak; a larger optimizer.warmup_samples makes it gradual."
    )
