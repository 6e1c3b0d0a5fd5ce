"""Where the time of each arm goes: phases, hidden work, idle rows, padding, rates, memory.

Everything is taken up to the raw crossing, or over the whole of a run without one, so that arms
are compared over the part of training that counts for them.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jax_rl.costs.chips import find_by_kind, load_chips
from jax_rl.records import UNCOUNTED_PHASES, Iteration, RunRecord, Start
from jax_rl.study.cells import sum_phases
from jax_rl.study.intervals import geometric_mean
from jax_rl.study.summary import Arm, Cell, arm_of
from jax_rl.study.use.memory import MemoryUse, read_memory


@dataclasses.dataclass(frozen=True)
class DevicePeaks:
    """Rates that one device can reach."""

    flops: float  # FLOP/s of matrix products in the compute dtype
    memory_bandwidth: float  # bytes/s
    source: str  # measured, or which document says so


@dataclasses.dataclass(frozen=True)
class Rates:
    """What one device achieved in a phase, all the phase's seconds counted."""

    flops: float  # FLOP/s of matrix products
    bytes: float | None  # bytes/s of device memory; None where the compiled text was not readable
    flops_share: float | None  # of the peak
    bytes_share: float | None


@dataclasses.dataclass(frozen=True)
class RunTimeUse:
    """One run, up to its raw crossing."""

    seconds: dict[str, float]  # by phase, all phases
    shares: dict[str, float]  # of the training seconds, by phase of the training clock
    hidden: dict[str, float]  # seconds of host work behind the devices' work, by kind
    wasted_decoding: float | None  # share of decoded rows x steps that had ended already
    response_padding: float | None  # share of the learner's response positions without a token
    padding_low: float | None  # of all its positions, were every prompt as long as allowed
    padding_high: float | None  # ... and were every prompt empty
    generate: Rates | None
    learn: Rates | None


@dataclasses.dataclass(frozen=True)
class ThroughputSplit:
    """Throughput ratio = tokens per second ratio / length ratio; exactly, but for rounding."""

    against_setting: str
    against: int
    seeds: int  # that both arms have; the ratios are geometric means over them
    throughput: float
    tokens_per_second: float
    length: float


@dataclasses.dataclass(frozen=True)
class ArmTimeUse:
    """Means over the runs of an arm."""

    setting: str
    batch: int
    runs: int
    use: RunTimeUse
    seconds_per_thousand: dict[str, float]  # seconds of each phase per 1,000 rollouts
    training_per_thousand: float | None  # of the phases of the training clock together
    split: ThroughputSplit | None  # against the reference; None for the reference itself
    memory: MemoryUse


@dataclasses.dataclass(frozen=True)
class TimeUse:
    """Where the time goes, by arm, and whether seconds may be compared at all."""

    arms: list[ArmTimeUse]
    peaks: DevicePeaks | None
    incomparable: list[str]  # reasons; with any, samples alone are compared


def study_time_use(
    cells: Sequence[Cell],
    runs: Mapping[str, RunRecord],
    *,
    reference: Arm,
    measured: Mapping[str, float] | None = None,
    list_obstacles: Callable[..., Sequence[str]] = lambda *arms: (),
) -> TimeUse:
    """Where the time of every arm goes.

    Args:
      cells: finished runs, in the order in which arms are to be shown.
      runs: records by the name of the cell.
      reference: arm that throughput is split against.
      measured: peaks of one device, "flops" and "memory_bandwidth"; left out, published ones.
      list_obstacles: gives the reasons why the seconds of some arms are not compared; throughput
        is then not split either.
    """
    peaks = find_peaks(runs[cells[0].name].start, measured) if cells else None
    by_arm: dict[Arm, list[Cell]] = {}
    for cell in cells:
        by_arm.setdefault(arm_of(cell), []).append(cell)
    others = {
        arm: [] if list_obstacles(arm, reference) else by_arm.get(reference, []) for arm in by_arm
    }
    arms = [
        _describe_arm(arm, mine, runs, others[arm], reference, peaks)
        for arm, mine in by_arm.items()
    ]
    return TimeUse(arms, peaks, list(list_obstacles(*by_arm)))


def find_peaks(start: Start, measured: Mapping[str, float] | None = None) -> DevicePeaks | None:
    """The peaks that a study has measured, else the published ones of a run's device, if any."""
    if measured:
        return DevicePeaks(
            flops=float(measured["flops"]),
            memory_bandwidth=float(measured["memory_bandwidth"]),
            source="measured on the devices of the study",
        )
    chip = find_by_kind(start.device_kind, load_chips())
    dtype = start.config.get("model", {}).get("compute_dtype", "")
    if chip is None or dtype not in chip.flops:
        return None
    return DevicePeaks(chip.flops[dtype], chip.memory_bandwidth, f"published for {chip.name}")


def read_time_use(run: RunRecord, cell: Cell, *, peaks: DevicePeaks | None) -> RunTimeUse:
    """Where one run's time went, up to its raw crossing or to its end."""
    part = iterations_to_crossing(run, cell)
    seconds = sum_phases([e.phases for e in part])
    kinds = sorted({name for e in part for name in e.hidden})
    config = run.start.config
    task = config.get("task", {})
    prompt, response = (int(task.get(f"max_{k}_length", 0)) for k in ("prompt", "response"))
    samples = part[-1].samples if part else 0
    length = _share(sum(e.tokens for e in part), samples)
    known = length is not None and bool(run.start.batch_plan) and response > 0
    mean, columns = length or 0.0, prompt + response
    return RunTimeUse(
        seconds=seconds,
        shares=_share_phases(seconds),
        hidden={name: float(sum(e.hidden.get(name, 0.0) for e in part)) for name in kinds},
        wasted_decoding=measure_wasted_decoding(part, run.start.batch_plan),
        response_padding=1 - mean / response if known else None,
        padding_low=(response - mean) / columns if known else None,
        padding_high=1 - mean / columns if known else None,
        generate=_measure_rates(run, _count_generate_calls(run, part), seconds["generate"], peaks),
        learn=_measure_rates(
            run, dict.fromkeys(("score", "update"), float(len(part))), seconds["learn"], peaks
        ),
    )


def iterations_to_crossing(run: RunRecord, cell: Cell) -> list[Iteration]:
    """The iterations that count: those up to the raw crossing, all of a run without one."""
    limit = cell.crossing.raw_samples if cell.crossing else math.inf
    return [e for e in run.iterations if e.samples <= limit]


def measure_wasted_decoding(part: Sequence[Iteration], plan: Mapping[str, Any]) -> float | None:
    """Share of rows x steps of the decode loops in which the row had already ended.

    A wave of `wave` rows runs as many steps as its longest response has tokens; a row has work in
    as many as its own. None where the plan or the steps are not recorded.
    """
    wave = int(plan.get("wave", 0))
    steps = sum(e.decode_steps for e in part)
    busy = _share(sum(e.tokens for e in part), wave * steps)
    return None if busy is None else 1 - busy


def split_throughput(cells: Sequence[Cell], others: Sequence[Cell]) -> ThroughputSplit | None:
    """The ratio of two arms' throughput in its two factors, over the seeds that both have.

    Rollouts per second = tokens per second / mean length, for each run, so that geometric means
    keep it.
    """
    mine, theirs = ({cell.seed: cell for cell in side} for side in (cells, others))
    seeds = [
        seed
        for seed in sorted(mine.keys() & theirs.keys())
        if all(_has_rates(side[seed]) for side in (mine, theirs))
    ]
    if not seeds:
        return None

    def ratio(name: str) -> float:
        return geometric_mean([getattr(mine[s], name) / getattr(theirs[s], name) for s in seeds])

    return ThroughputSplit(
        against_setting=others[0].setting,
        against=others[0].batch,
        seeds=len(seeds),
        throughput=ratio("rollouts_per_second"),
        tokens_per_second=ratio("tokens_per_second"),
        length=ratio("mean_length"),
    )


def _describe_arm(
    arm: Arm,
    cells: Sequence[Cell],
    runs: Mapping[str, RunRecord],
    others: Sequence[Cell],
    reference: Arm,
    peaks: DevicePeaks | None,
) -> ArmTimeUse:
    uses = [read_time_use(runs[cell.name], cell, peaks=peaks) for cell in cells]
    parts = [iterations_to_crossing(runs[cell.name], cell) for cell in cells]
    samples = sum(part[-1].samples for part in parts if part)
    use = _average(uses)
    thousand = samples / 1000 / len(cells)
    memories = [read_memory(runs[cell.name]) for cell in cells]
    peak = max((m.measured for m in memories if m.measured is not None), default=None)
    per_thousand = {k: s / thousand for k, s in use.seconds.items()} if thousand else {}
    training = [s for phase, s in per_thousand.items() if phase not in UNCOUNTED_PHASES]
    return ArmTimeUse(
        setting=arm.setting,
        batch=arm.batch,
        runs=len(cells),
        use=use,
        seconds_per_thousand=per_thousand,
        training_per_thousand=sum(training) if training else None,
        split=None if arm == reference else split_throughput(cells, others),
        memory=dataclasses.replace(memories[0], measured=peak),
    )


def _average(uses: Sequence[RunTimeUse]) -> RunTimeUse:
    kinds = sorted({name for use in uses for name in use.hidden})

    def mean(name: str) -> float | None:
        known = [value for use in uses if (value := getattr(use, name)) is not None]
        return float(np.mean(known)) if known else None

    seconds = {k: float(np.mean([u.seconds[k] for u in uses])) for k in uses[0].seconds}
    return RunTimeUse(
        seconds=seconds,
        shares=_share_phases(seconds),
        hidden={k: float(np.mean([u.hidden.get(k, 0.0) for u in uses])) for k in kinds},
        wasted_decoding=mean("wasted_decoding"),
        response_padding=mean("response_padding"),
        padding_low=mean("padding_low"),
        padding_high=mean("padding_high"),
        generate=_average_rates([use.generate for use in uses]),
        learn=_average_rates([use.learn for use in uses]),
    )


def _average_rates(rates: Sequence[Rates | None]) -> Rates | None:
    known = [one for one in rates if one is not None]
    if not known:
        return None

    def mean(name: str) -> float | None:
        values = [getattr(one, name) for one in known]
        return None if None in values else float(np.mean(values))

    return Rates(mean("flops") or 0.0, mean("bytes"), mean("flops_share"), mean("bytes_share"))


def _count_generate_calls(run: RunRecord, part: Sequence[Iteration]) -> dict[str, float]:
    """Calls of prefill and of decode; the latter in whole loops.

    The recorded costs of decode are those of the longest loop, of one forward pass less than a
    response may have tokens, because the first token comes out of the prefill.
    """
    waves = int(run.start.batch_plan.get("waves", 0)) * len(part)
    limit = int(run.start.config.get("task", {}).get("max_response_length", 0)) - 1
    passes = sum(e.decode_steps for e in part) - waves
    return {"prefill": float(waves), "decode": passes / limit if limit > 0 else 0.0}


def _measure_rates(
    run: RunRecord, calls: Mapping[str, float], seconds: float, peaks: DevicePeaks | None
) -> Rates | None:
    """Work of these calls over the seconds of their phase; None where a program has no costs."""
    costs = {one.program: one.costs for one in run.compiles if one.program in calls and one.costs}
    if not costs or seconds <= 0 or not any(calls.values()):
        return None
    flops = sum(calls[name] * float(one["matmul_flops"]) for name, one in costs.items()) / seconds
    readable = not any(one.get("unread") for one in costs.values())
    moved = sum(calls[name] * float(one["bytes"]) for name, one in costs.items()) / seconds
    traffic = moved if readable else None
    return Rates(
        flops=flops,
        bytes=traffic,
        flops_share=flops / peaks.flops if peaks else None,
        bytes_share=traffic / peaks.memory_bandwidth if peaks and traffic is not None else None,
    )


def _has_rates(cell: Cell) -> bool:
    return cell.rollouts_per_second > 0 and cell.mean_length > 0


def _share_phases(seconds: Mapping[str, float]) -> dict[str, float]:
    counted = {phase: s for phase, s in seconds.items() if phase not in UNCOUNTED_PHASES}
    total = sum(counted.values())
    return {phase: s / total for phase, s in counted.items()} if total else {}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
