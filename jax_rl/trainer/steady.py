"""Throughput measured apart from a run: whole iterations under one clock, nothing else."""

import time
from collections.abc import Callable

from jax_rl.records import Iteration, Steady
from jax_rl.trainer.clock import PhaseClock
from jax_rl.trainer.loop import Loop

_MIN_ITERATIONS = 3


def measure_steady(
    loop: Loop,
    seconds: float,
    *,
    iterations: int = _MIN_ITERATIONS,
    watch: Callable[[Iteration], None] | None = None,
) -> Steady:
    """Goes on training, uncounted, for so many seconds, and counts rollouts.

    One clock is read before the first and after the last iteration; no phase of the run's own
    accounting enters. The loop's state is of no use afterwards.

    Args:
      loop: at the end of its run.
      seconds: at least that long.
      iterations: at least so many.
      watch: is told of each iteration that counts.
    """
    loop.clock = PhaseClock()
    tokens: list[int] = []

    def count(finished: Iteration | None) -> None:
        if finished is not None:
            tokens.append(finished.tokens)
            if watch is not None:
                watch(finished)

    loop.iterate()
    loop.drain()
    start = time.perf_counter()
    done = 0
    while done < iterations or loop.channel.share(_since(start)) < seconds:
        count(loop.iterate())
        done += 1
    count(loop.drain())
    return Steady(
        iterations=done,
        rollouts=done * loop.setup.plan.size,
        tokens=sum(tokens),
        seconds=time.perf_counter() - start,
    )


def _since(start: float) -> float:
    return time.perf_counter() - start
