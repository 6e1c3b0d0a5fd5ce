"""The samples of a study with the throughput of other hardware.

Samples to target belong to the batch and not to the machine, throughput to both. So a study that
was run on one machine and a table of throughput from another give the time to target there:

    time(B) = sum over progress of samples(B) / R(B, progress)

Progress is the share of the way to the target: responses change in length along it, and R with
them. A table from a plan holds upper bounds of R, so that its times are lower bounds, and bounds
cannot say which batch is the faster.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from jax_rl.config_compare import find_difference
from jax_rl.errors import UserError
from jax_rl.study.batches import StudyFit, compare_arms
from jax_rl.study.names import join_words
from jax_rl.study.summary import Arm, BatchResult, Interval, arm_of
from jax_rl.study.words import SAME_TIME, describe_ratio, format_factor
from jax_rl.throughput import ThroughputPoint, ThroughputTable

_SAME = (
    "model",
    "batch",
    "sampler",
    "task.name",
    "task.max_prompt_length",
    "task.max_response_length",
    "objective",
)
"""Tables and fields in which the study and the table agree, in the order of looking."""

_FREE = (
    "model.checkpoint",
    "model.padded_vocab",
    "model.remat",
    "batch.size",
    "batch.microbatch",
    "batch.wave",
)
"""Fields of them that may differ: paths, and how the work lies on the devices."""


@dataclasses.dataclass(frozen=True)
class TransferArm:
    """One batch of the study on the other hardware, by the training clock."""

    batch: int
    samples: float | None  # to target, in the study; None: a run is censored
    throughput: float  # rollouts per second over the way to the target; in a plan at most this
    time: float | None  # seconds; measured tables alone
    time_at_least: float | None  # seconds; from a plan, or with a censored run
    against_reference: Interval | None  # ratio of times; its interval is that of the samples
    own_throughput: float  # of the study's own hardware
    own_time: float | None


@dataclasses.dataclass(frozen=True)
class Transfer:
    """A setting's batches in one layout of a table of throughput."""

    source: str  # the table's file
    kind: str  # "measured" or "predicted"
    hardware: str
    layout: str
    setting: str  # of the study
    reference: int
    progress_share: float | None  # of the replayed run's samples, up to the target; None: R alone
    arms: list[TransferArm]
    missing: list[str]  # batches without a time, each with its reason
    fastest: int | None  # None from a plan
    undistinguished: list[int]
    sentences: list[str]
    notes: list[str]


def transfer_study(
    fit: StudyFit,
    results: Sequence[BatchResult],
    table: ThroughputTable,
    *,
    source: str,
    setting: str,
    reference: int,
    configs: Mapping[Arm, Mapping[str, Any]],
) -> list[Transfer]:
    """Combines a setting with every layout of a table.

    Args:
      source: the table's file, for messages.
      reference: the study's reference batch.
      configs: of the runs of each arm, as their records have them.

    Raises:
      UserError: the table is of another experiment, or has no batch of the study.
    """
    mine = [result for result in results if result.setting == setting]
    for result in mine:
        _check_same(configs[arm_of(result)], table, source=source)
    batches = {result.batch for result in mine}
    if not any(point.batch in batches for point in table.points):
        raise UserError(
            f"{source}: none of its batches ({_list(p.batch for p in table.points)}) is one of the"
            f" study's ({_list(batches)}); give --batches to bench or plan"
        )
    return [
        _transfer_layout(fit, mine, table, layout, source=source, reference=reference)
        for layout in dict.fromkeys(point.layout for point in table.points)
    ]


def find_throughput(point: ThroughputPoint, share: float | None) -> float:
    """Rollouts per second from the start to the target.

    Args:
      share: of the replayed run's samples at which it met its target; None: over all of it.
    """
    if not point.by_progress:
        return point.rollouts_per_second
    end, parts = share or 1.0, len(point.by_progress)
    # Seconds of one sample that is spread evenly over the way to the target.
    seconds = math.fsum(
        max(0.0, min(end, (part + 1) / parts) - part / parts) / end / rate
        for part, rate in enumerate(point.by_progress)
    )
    return 1 / seconds


def _check_same(config: Mapping[str, Any], table: ThroughputTable, *, source: str) -> None:
    found = find_difference(config, table.config, names=_SAME, free=_FREE)
    if found is not None:
        raise UserError(
            f"{source}: {found.field} was {found.first!r} in the study and is {found.second!r} in"
            " the table; a study's samples go with throughput of the same model, group, updates,"
            " lengths and objective"
        )


def _transfer_layout(
    fit: StudyFit,
    results: Sequence[BatchResult],
    table: ThroughputTable,
    layout: str,
    *,
    source: str,
    reference: int,
) -> Transfer:
    points = {point.batch: point for point in table.points if point.layout == layout}
    usable = [r for r in results if _find_obstacle(points.get(r.batch)) is None]
    rates = {arm_of(r): find_throughput(points[r.batch], table.replayed_share) for r in usable}
    measured = table.kind == "measured"
    base = Arm(results[0].setting, reference)
    arms = [_transfer_arm(fit, r, rates, base=base, measured=measured) for r in usable]
    fastest, near = _find_fastest(fit, rates, base) if measured else (None, [])
    return Transfer(
        source=source,
        kind=table.kind,
        hardware=_describe_hardware(table),
        layout=layout,
        setting=results[0].setting,
        reference=reference,
        progress_share=table.replayed_share,
        arms=arms,
        missing=[
            f"batch {result.batch}: {reason}"
            for result in results
            if (reason := _find_obstacle(points.get(result.batch))) is not None
        ],
        fastest=fastest.batch if fastest else None,
        undistinguished=[arm.batch for arm in near],
        sentences=(
            _describe_measured(fit, rates, fastest, near, base, table)
            if measured
            else _describe_predicted(arms, table)
        ),
        notes=list(_write_notes(table)),
    )


def _find_obstacle(point: ThroughputPoint | None) -> str | None:
    """Why a batch has no throughput there."""
    if point is None:
        return "not in the table"
    if not point.rollouts_per_second > 0:
        return f"no throughput in the table ({'; '.join(point.notes) or 'it does not fit'})"
    return None


def _transfer_arm(
    fit: StudyFit,
    result: BatchResult,
    rates: Mapping[Arm, float],
    *,
    base: Arm,
    measured: bool,
) -> TransferArm:
    arm = arm_of(result)
    rate = rates[arm]
    samples, bound = result.samples_to_target, result.samples_at_least
    exact = samples / rate if samples is not None else None
    least = bound / rate if bound is not None else exact
    return TransferArm(
        batch=result.batch,
        samples=samples,
        throughput=rate,
        time=exact if measured else None,
        time_at_least=least if exact is None or not measured else None,
        against_reference=_compare(fit, arm, base, rates) if measured else None,
        own_throughput=result.throughput,
        own_time=result.training_time,
    )


def _compare(fit: StudyFit, arm: Arm, against: Arm, rates: Mapping[Arm, float]) -> Interval | None:
    """The ratio of times: that of the study's samples over that of the table's throughput."""
    if arm == against or against not in rates:
        return None
    samples, factor = compare_arms(fit, arm, against=against).samples, rates[against] / rates[arm]
    estimate, low, high = (
        None if end is None else end * factor
        for end in (samples.estimate, samples.low, samples.high)
    )
    return Interval(estimate, low, high, samples.bound)


def _find_fastest(
    fit: StudyFit, rates: Mapping[Arm, float], base: Arm
) -> tuple[Arm | None, list[Arm]]:
    """The arm with the least time, and all whose interval to it includes 1.

    It is one of those that shared seeds connect with the reference, or of the largest such part.
    """
    complete = fit.connect(list(rates), reference=base)
    if not complete:
        return None, []
    effect = fit.fits["samples"].effect
    fastest = min(complete, key=lambda arm: effect(arm) - math.log(rates[arm]))
    near = []
    for arm in rates:
        ratio = _compare(fit, arm, fastest, rates)
        if ratio is None or ratio.low is None or ratio.low <= 1:
            near.append(arm)
    return fastest, near


def _describe_measured(
    fit: StudyFit,
    rates: Mapping[Arm, float],
    fastest: Arm | None,
    near: Sequence[Arm],
    base: Arm,
    table: ThroughputTable,
) -> list[str]:
    where = _describe_hardware(table)
    if fastest is None:
        return [f"No batch of the table reached the target in every run: no verdict on {where}."]
    sentences = [f"On {where}, batch {fastest.batch:,} would reach the target first."]
    ratio = _compare(fit, fastest, base, rates)
    if ratio is not None and ratio.estimate is not None:
        words, throughput = describe_ratio(ratio), format_factor(rates[fastest] / rates[base])
        joined = "as" if words == SAME_TIME else "than"
        sentences = [
            f"{sentences[0][:-1]}, {words} {joined} the reference ({base.batch:,}): throughput"
            f" ×{throughput} there."
        ]
    others = [arm.batch for arm in near if arm != fastest]
    if others:
        word = "Batch" if len(others) == 1 else "Batches"
        sentences.append(f"{word} {_list(others)} cannot be told from it by the samples' spread.")
    connected = fit.connect(list(rates), reference=fastest)
    if apart := [a.batch for a in rates if a in fit.complete and a not in connected]:
        sentences.append(f"No shared seed connects batch {_list(apart)} with it.")
    return [
        *sentences,
        "The intervals are those of the samples alone: the table's throughput is taken as exact,"
        " and the 95 % of each are not corrected for the number of batches.",
    ]


def _describe_predicted(arms: Sequence[TransferArm], table: ThroughputTable) -> list[str]:
    bounds = [(arm.batch, arm.time_at_least) for arm in arms if arm.time_at_least is not None]
    shown = join_words(f"{seconds:,.3g} s for batch {batch:,}" for batch, seconds in bounds)
    return [
        f"Predicted for {_describe_hardware(table)}, nothing measured there: training time to"
        f" target is at least {shown}."
        if bounds
        else "Predicted: no batch has a bound.",
        "These are bounds, each program at its roofline; they order no batches.",
    ]


def _describe_hardware(table: ThroughputTable) -> str:
    text = f"{table.device_count} x {table.device_kind} ({table.platform})"
    return text if table.process_count == 1 else f"{text}, {table.process_count} processes"


def _write_notes(table: ThroughputTable) -> list[str]:
    if table.kind == "predicted":
        return list(table.notes)
    if not table.replayed:
        return [
            "response lengths in the table are those of the policy that training starts from; where"
            " they change on the way to the target, bench --replay RUN measures what they cost"
        ]
    if table.replayed_share is None:
        return [f"{table.replayed} has not met its target: its rates are taken over all of it"]
    return [
        f"each batch is taken to have, on its way to the target, the lengths of {table.replayed}"
        f" on its own, the first {table.replayed_share:.0%} of its samples"
    ]


def _list(batches: Any) -> str:
    return join_words(f"{batch:,}" for batch in sorted(set(batches)))
