"""Throughput measured apart from a run: whole iterations under one clock, nothing else."""

import time

from jax_rl.records import Iteration, Steady
from jax_rl.trainer.clock import PhaseClock
from jax_rl.trainer.loop import Loop

_MIN_ITERATIONS = 3


def measure_steady(loop: Loop, seconds: float) -> Steady:
    """Goes on training, uncounted, for so many seconds, and counts rollouts.

    One clock is read before the first and after the last iteration; no phase of the run's own
    accounting enters. The loop's state is of no use afterwards.

    Args:
      loop: at the end of its run.
      seconds: at least that long, and at least three iterations.
    """
    loop.clock = PhaseClock()
    tokens: list[int] = []

    def count(finished: Iteration | None) -> None:
        if finished is not None:
            tokens.append(finished.tokens)

    loop.iterate()
    loop.drain()
    start = time.perf_counter()
    iterations = 0
    while iterations < _MIN_ITERATIONS or time.perf_counter() - start < seconds:
        count(loop.iterate())
        iterations += 1
    count(loop.drain())
    return Steady(
        iterations=iterations,
        rollouts=iterations * loop.setup.plan.size,
        tokens=sum(tokens),
        seconds=time.perf_counter() - start,
    )
