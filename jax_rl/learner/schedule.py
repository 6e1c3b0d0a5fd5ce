"""The learning rate: linear warm-up measured in samples, no decay, scaling with the minibatch.

Plain numbers on the host: the rate that is recorded is the rate that is handed to the update.
"""

import dataclasses
import math
from collections.abc import Callable

from jax_rl.config import OptimizerConfig, RateRule
from jax_rl.registry import resolve

RATE_RULES: dict[str, Callable[[float, float], float]] = {
    "none": lambda ratio, power: 1.0,
    "sqrt": lambda ratio, power: math.sqrt(ratio),
    "linear": lambda ratio, power: ratio,
    "power": lambda ratio, power: ratio**power,
    "adam": lambda ratio, power: math.sqrt(ratio),
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


def scaled_rate(
    rate: float, *, rule: RateRule, minibatch: int, reference_minibatch: int, power: float = 0.5
) -> float:
    """Learning rate moved from the reference minibatch to this one.

    Args:
      rate: rate at the reference minibatch.
      rule: factor of `minibatch / reference_minibatch`: `none` 1, `sqrt` and `adam` its root,
        `linear` itself, `power` itself to the power `power`.
      minibatch: rollouts per update of this run.
      reference_minibatch: rollouts per update that `rate` was chosen at.
      power: exponent of the rule `power`; the others do not look at it.

    Raises:
      UserError: no such rule.

    Source: linear, arXiv:1706.02677; square root, arXiv:1404.5997.
    """
    factor: Callable[[float, float], float] = resolve(rule, RATE_RULES, "study.rate_rule")
    return rate * factor(minibatch / reference_minibatch, power)


def scale_optimizer(
    optimizer: OptimizerConfig,
    *,
    rule: RateRule,
    minibatch: int,
    reference_minibatch: int,
    power: float = 0.5,
) -> OptimizerConfig:
    """The optimizer moved from the reference minibatch to this one.

    All rules move the rate. `adam` also moves both decays, b -> b ** ratio, so that the moments'
    half-lives stay the same in samples, and epsilon -> epsilon / sqrt(ratio), as the root of the
    second moment shrinks where noise rules it.

    Args:
      optimizer: as chosen at the reference minibatch.
      rule, minibatch, reference_minibatch, power: as in `scaled_rate`.

    Raises:
      UserError: no such rule.

    Source: rate, epsilon and, to first order in 1 - b, the decays: Malladi et al. 2022, On the
    SDEs and Scaling Rules for Adaptive Gradient Algorithms, arXiv:2205.10287; half-lives fixed
    in samples: Marek et al. 2025, arXiv:2507.07101.
    """
    rate = scaled_rate(
        optimizer.learning_rate,
        rule=rule,
        minibatch=minibatch,
        reference_minibatch=reference_minibatch,
        power=power,
    )
    moved = dataclasses.replace(optimizer, learning_rate=rate)
    if rule != "adam":
        return moved
    ratio = minibatch / reference_minibatch
    return dataclasses.replace(
        moved,
        b1=optimizer.b1**ratio,
        b2=optimizer.b2**ratio,
        epsilon=optimizer.epsilon / math.sqrt(ratio),
    )


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
