"""Where a run stands, and the learning rates from there on."""

import dataclasses

from jax_rl.learner.schedule import rate_at


@dataclasses.dataclass(frozen=True)
class Position:
    """How far a run has come; saved with every checkpoint."""

    iteration: int = 0
    samples: int = 0  # rollouts generated
    learnt: int = 0  # of them, with a part in a gradient
    update: int = 0  # optimizer updates


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The learning rate of this run."""

    peak: float
    warmup: int  # updates

    def rates(self, update: int, count: int) -> list[float]:
        """Rates of `count` updates from `update` (0 for the first) on."""
        return [rate_at(update + i, peak=self.peak, warmup=self.warmup) for i in range(count)]
