"""From the iterations that were measured to one point of the table."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

from jax_rl.bench.replay import PARTS, Replay
from jax_rl.bench.request import Request
from jax_rl.records import PHASES, Iteration, Steady
from jax_rl.throughput import ThroughputPoint


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Whole iterations under one clock."""

    steady: Steady
    iterations: tuple[Iteration, ...]  # those that the clock has measured
    peak_memory_bytes: int | None


def summarise(request: Request, measured: Measurement, replay: Replay | None) -> ThroughputPoint:
    """The point that a measurement gives.

    With a replay every tenth of the run counts alike, however often it was visited: an iteration
    of the table is the mean over the tenths, and the rate the harmonic mean of theirs.
    """
    parts = _cut_by_part(measured.iterations, replay)

    def average(read: Callable[[Iteration], float]) -> float:
        return statistics.fmean(statistics.fmean(map(read, part)) for part in parts)

    def average_phase(phase: str) -> float:
        return average(lambda event: event.phases.get(phase, 0.0))

    rates = tuple(
        request.batch / statistics.fmean(_sum_seconds(event) for event in part) for part in parts
    )
    steady = measured.steady
    seconds = {phase: average_phase(phase) for phase in PHASES}
    return ThroughputPoint(
        layout=request.layout,
        batch=request.batch,
        rollouts_per_second=(
            statistics.harmonic_mean(rates) if replay else steady.rollouts / steady.seconds
        ),
        seconds={phase: value for phase, value in seconds.items() if value > 0},
        iterations=steady.iterations,
        mean_length=average(lambda e: e.tokens / request.batch),
        decode_steps=average(lambda e: e.decode_steps),
        peak_memory_bytes=measured.peak_memory_bytes,
        fits=True,
        notes=_find_doubts(measured.iterations),
        by_progress=rates if replay else (),
    )


def describe_misfit(request: Request, reason: str) -> ThroughputPoint:
    """The point of a batch that the mesh cannot map or the memory cannot hold."""
    return ThroughputPoint(
        layout=request.layout,
        batch=request.batch,
        rollouts_per_second=0.0,
        seconds={},
        iterations=0,
        mean_length=0.0,
        decode_steps=0.0,
        peak_memory_bytes=None,
        fits=False,
        notes=(reason,),
    )


def _cut_by_part(
    iterations: Sequence[Iteration], replay: Replay | None
) -> tuple[tuple[Iteration, ...], ...]:
    """The iterations of each tenth of the replayed run, or all together."""
    if replay is None:
        return (tuple(iterations),)
    return tuple(
        tuple(e for e in iterations if replay.part_of(e.iteration - 1) == part)
        for part in range(PARTS)
    )


def _sum_seconds(event: Iteration) -> float:
    return math.fsum(event.phases.values())


def _find_doubts(iterations: Sequence[Iteration]) -> tuple[str, ...]:
    notes: list[str] = []
    if not all(math.isfinite(event.update_norm) for event in iterations):
        notes.append("the weights diverged at this rate; lengths after that mean nothing")
    failed = sum(event.failed_rewards for event in iterations)
    if failed:
        notes.append(f"{failed} rewards failed")
    return tuple(notes)
