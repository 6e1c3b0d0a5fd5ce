"""One run of a study, read from its record: clocks, counts, throughput, and what to doubt."""

import bisect
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_rl.records import (
    PHASES,
    UNCOUNTED_PHASES,
    RunRecord,
    Start,
    read_run,
)
from jax_rl.study.crossing import find_crossing, fit_isotonic
from jax_rl.study.summary import Cell, Crossing

ACCOUNTING_TOLERANCE = 1e-3
"""Largest gap between the sum of the phases and the clock, as a share of the clock."""

OTHER_LIMIT = 0.02
"""Largest share of elapsed seconds that may belong to no named phase."""

STEADY_LIMIT = 0.05
"""Largest gap between the steady and the run's throughput that needs no explanation."""

FEWEST_WARMUP_UPDATES = 5
"""A shorter warm-up is said."""

DIVERGED = "not_finite"
"""Why a run ended that had a loss or weights that are no numbers."""

# Why a run ended before its budget of samples; censored for that reason.
_ENDINGS = {
    DIVERGED: "it diverged",
    "early_stop": "stopped early, as it could not win any more",
    "time_budget": "at its time budget",
}


@dataclasses.dataclass(frozen=True)
class Planned:
    """A run that a study has planned."""

    setting: str  # its name; empty in a study of one
    batch: int
    seed: int

    @property
    def name(self) -> str:
        """The directory of the cell under cells/."""
        name = f"b{self.batch:05d}_s{self.seed}"
        return f"{self.setting}_{name}" if self.setting else name

    @property
    def entry(self) -> list[str | int]:
        """The cell in the running order of study.json."""
        return [*([self.setting] if self.setting else []), self.batch, self.seed]

    @classmethod
    def from_entry(cls, entry: Sequence[Any]) -> "Planned":
        """The other way round: [batch, seed], or [setting, batch, seed]."""
        *setting, batch, seed = entry
        return cls(str(setting[0]) if setting else "", int(batch), int(seed))


def read_cell(directory: Path, name: str, order: int) -> Cell:
    """The run recorded in `directory`, as the cell `name` at a place in the running order.

    Raises:
      UserError: no record, an unreadable one, or a start score above the target.
    """
    return make_cell(read_run(directory), name, order)


def make_cell(run: RunRecord, name: str, order: int, *, setting: str = "") -> Cell:
    """Reads one run as a cell of a study.

    Throughput is the crossing's samples over its training seconds, so that per run
    log T = log S - log R to rounding; a run without a crossing has the throughput of all of it.
    Lengths and the rates of generate and learn belong to the iterations up to the raw crossing.
    `p95_length` is the mean over iterations of each iteration's 95th percentile.

    Args:
      run: its record.
      name: of its directory.
      order: its place in the running order.
      setting: that it belongs to; the layout's name in a study of one setting.

    Raises:
      UserError: the start score is at or above the target.
    """
    config = run.start.config
    crossing = _read_crossing(run, float(config["budget"]["target"]))
    totals = _read_totals(run)
    part = [e for e in run.iterations if crossing is None or e.samples <= crossing.raw_samples]
    part_phases = {
        phase: seconds
        for phase, seconds in sum_phases([e.phases for e in part]).items()
        if phase not in UNCOUNTED_PHASES
    }
    part_samples = part[-1].samples if part else 0
    # No response is empty: without tokens, as in another trainer's log, lengths are not known.
    mean_length = divide(sum(e.tokens for e in part), part_samples) or math.nan
    throughput = (
        divide(crossing.samples, crossing.training_seconds)
        if crossing
        else divide(totals.samples, totals.training_seconds)
    )
    steady = divide(run.steady.rollouts, run.steady.seconds) if run.steady else None
    scores = [e.score for e in run.validations]
    cell = Cell(
        name=name,
        setting=setting or name_layout(run.start),
        layout=name_layout(run.start),
        batch=int(config["batch"]["size"]),
        seed=int(config["run"]["seed"]),
        order=order,
        device=describe_device(run.start),
        device_count=run.start.device_count,
        finished=run.end is not None,
        learning_rate=run.start.learning_rate,
        warmup_updates=run.start.warmup_updates,
        crossing=crossing,
        samples=totals.samples,
        training_seconds=totals.training_seconds,
        elapsed_seconds=totals.elapsed_seconds,
        phases=totals.phases,
        phases_to_crossing=part_phases,
        rollouts_per_second=throughput,
        tokens_per_second=throughput * mean_length,
        generate_per_second=divide(part_samples, part_phases["generate"]),
        learn_per_second=divide(part_samples, part_phases["learn"]),
        steady_per_second=steady,
        steady_gap=None if steady is None else divide(steady, throughput) - 1,
        accounting_gap=abs(divide(sum(totals.phases.values()), totals.elapsed_seconds) - 1),
        other_share=divide(totals.phases["other"], totals.elapsed_seconds),
        mean_length=mean_length,
        p95_length=float(np.mean([e.p95_length for e in part])) if part else math.nan,
        start_score=scores[0] if scores else math.nan,
        best_score=max(scores, default=math.nan),
        mismatch_max=max((e.mismatch_max for e in run.iterations), default=math.nan),
        load_average=run.end.load_average if run.end else math.nan,
        curve_samples=[e.samples for e in run.validations],
        curve_scores=scores,
        curve_fit=[float(value) for value in fit_isotonic(scores)],
        curve_training_seconds=[e.training_seconds for e in run.validations],
        curve_elapsed_seconds=[e.elapsed_seconds for e in run.validations],
        curve_updates=[e.update for e in run.validations],
        curve_tokens=_count_tokens(run),
        notes=[],
        ended=run.end.reason if run.end else "",
    )
    cell.notes.extend(_write_notes(run, cell))
    return cell


def name_layout(start: Start) -> str:
    """The name of the layout that a run lay in."""
    return str(start.layout.get("name", start.config["run"]["layout"]))


def changed_hardware(run: RunRecord) -> bool:
    """Whether a resume moved the run to other devices, or laid it out anew: no seconds then."""
    return len({(describe_device(s), json.dumps(s.layout, sort_keys=True)) for s in run.starts}) > 1


def describe_device(start: Start) -> str:
    """Count, kind and platform of a run's devices, and its processes when there are several."""
    count = f"{start.device_count} x" if start.device_count else "unknown number of"
    text = f"{count} {start.device_kind} ({start.platform})"
    return text if start.process_count == 1 else f"{text}, {start.process_count} processes"


def sum_phases(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Seconds per phase over several events; every phase has a value."""
    return {phase: float(sum(part.get(phase, 0.0) for part in parts)) for phase in PHASES}


def divide(numerator: float, denominator: float) -> float:
    """The quotient; NaN where the denominator is zero, i.e. nothing was measured."""
    return numerator / denominator if denominator else math.nan


def _count_tokens(run: RunRecord) -> list[int]:
    """Response tokens generated up to each grid point."""
    samples = [e.samples for e in run.iterations]
    tokens = np.concatenate([[0], np.cumsum([e.tokens for e in run.iterations], dtype=np.int64)])
    return [int(tokens[np.searchsorted(samples, e.samples, side="right")]) for e in run.validations]


def _read_crossing(run: RunRecord, target: float) -> Crossing | None:
    grid = run.validations
    numbers = [e.iteration for e in run.iterations]
    # The last iteration that the policy scored at each grid point had learnt from.
    done = [bisect.bisect_right(numbers, e.iteration) for e in grid]
    trained = [run.iterations[count - 1] if count else None for count in done]
    return find_crossing(
        [e.samples for e in grid],
        [e.score for e in grid],
        training_seconds=[e.training_seconds for e in grid],
        elapsed_seconds=[e.elapsed_seconds for e in grid],
        updates=[e.update for e in grid],
        learnt=[last.learnt if last else 0 for last in trained],
        in_flight=[
            e.samples - (last.samples if last else 0) for e, last in zip(grid, trained, strict=True)
        ],
        target=target,
    )


@dataclasses.dataclass(frozen=True)
class _Totals:
    """Counts and clocks of a whole run."""

    samples: int
    training_seconds: float
    elapsed_seconds: float
    phases: dict[str, float]


def _read_totals(run: RunRecord) -> _Totals:
    """The run's end; for a killed run what its iterations tell, which is less than all."""
    if run.end is not None:
        end = run.end
        phases = sum_phases([end.phases])
        return _Totals(end.samples, end.training_seconds, end.elapsed_seconds, phases)
    phases = sum_phases([e.phases for e in run.iterations])
    if not run.iterations:
        return _Totals(0, 0.0, 0.0, phases)
    last = run.iterations[-1]
    return _Totals(last.samples, last.training_seconds, last.elapsed_seconds, phases)


def _write_notes(run: RunRecord, cell: Cell) -> list[str]:
    notes = list(run.start.notes)
    if run.end is None:
        notes.append("unfinished: the record has no end event")
    else:
        notes += _check_accounting(run, cell)
    warmup = int(run.start.config["optimizer"]["warmup_samples"])
    short = warmup > 0 and cell.warmup_updates < FEWEST_WARMUP_UPDATES
    if short and not any("warm-up" in note for note in notes):
        notes.append(f"warm-up of {cell.warmup_updates} updates: fewer than 5")
    first = cell.curve_samples[0] if cell.curve_samples else 0
    if cell.crossing and 0 < first == cell.crossing.samples:
        notes.append(f"crossed at most there: its first score, at {first:,}, is at the target")
    if cell.crossing and not cell.crossing.held:
        notes.append("not held: a score after the crossing is below the target")
    if cell.finished and cell.crossing is None:
        notes.append(_describe_censoring(cell, float(run.start.config["budget"]["target"])))
    elif cell.ended == DIVERGED:
        notes.append("it diverged after the crossing")
    if changed_hardware(run):
        notes.append("resumed on other hardware: gives samples and no seconds")
    return notes


def _describe_censoring(cell: Cell, target: float) -> str:
    samples, seconds = cell.samples, cell.training_seconds
    if cell.curve_samples and cell.curve_samples[-1] > 0:
        # Between its last score and its end a run may have crossed.
        samples, seconds = cell.curve_samples[-1], cell.curve_training_seconds[-1]
    text = f"censored: > {samples:,} samples, > {seconds:.1f} training seconds"
    if cell.best_score >= target:
        text += f"; single scores reached {cell.best_score:.3f}, the isotonic fit did not"
    return f"{text}; {_ENDINGS[cell.ended]}" if cell.ended in _ENDINGS else text


def _check_accounting(run: RunRecord, cell: Cell) -> list[str]:
    notes = []
    if not cell.accounting_gap <= ACCOUNTING_TOLERANCE:
        notes.append(f"phases add up to elapsed only within {cell.accounting_gap:.1%}")
    counted = sum(s for phase, s in cell.phases.items() if phase not in UNCOUNTED_PHASES)
    gap = abs(divide(counted, cell.training_seconds) - 1)
    if not gap <= ACCOUNTING_TOLERANCE:
        notes.append(f"training phases add up to the training clock only within {gap:.1%}")
    if not cell.other_share < OTHER_LIMIT:
        notes.append(f"{cell.other_share:.1%} of elapsed belongs to no named phase")
    if run.steady is None or cell.steady_gap is None:
        notes.append("no separate measurement of throughput")
    elif not abs(cell.steady_gap) <= STEADY_LIMIT:
        length = divide(run.steady.tokens, run.steady.rollouts)
        notes.append(
            f"steady throughput is {cell.steady_gap:+.1%} against the run's; responses had"
            f" {length:.2f} tokens on average there and {cell.mean_length:.2f} in the run"
        )
    repeated = [f"{name} {count} times" for name, count in _compiled(run) if count > 1]
    if repeated:
        notes.append(f"compiled more than once: {', '.join(repeated)}")
    return notes


def _compiled(run: RunRecord) -> list[tuple[str, int]]:
    return sorted(run.end.compiled.items()) if run.end else []
