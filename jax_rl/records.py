"""The record of a run: append-only JSONL of typed events, and how it is read back.

Everything that is shown of a run (tables, figures, the page) is made from this file alone.
One line is one event: `{"event": NAME, ...fields of the dataclass below...}`. Times are
seconds; `elapsed_seconds` counts from the start of the run, `training_seconds` leaves out
compile, validate and checkpoint (DESIGN law 6).
"""

import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from jax_rl.errors import UserError

FILE_NAME = "records.jsonl"

PHASES = (
    "generate",
    "reward",
    "learn",
    "sync",
    "validate",
    "checkpoint",
    "compile",
    "other",
)
"""Phases of the critical path; each second of a run belongs to exactly one."""

UNCOUNTED_PHASES = ("validate", "checkpoint", "compile")
"""Phases that the training clock leaves out."""


@dataclasses.dataclass(frozen=True)
class Start:
    """First event: everything needed to read the rest."""

    event: ClassVar[str] = "start"
    time: str  # ISO 8601, UTC
    config: dict[str, Any]
    layout: dict[str, Any]  # the layout file's content and the mesh's axis sizes
    batch_plan: dict[str, Any]  # fields of mesh.batch_plan.BatchPlan
    learning_rate: float  # after warm-up, as used by this run
    rate_rule: str  # how it was moved: none, sqrt, linear, power, adam
    reference_batch: int  # the batch that the configured rate belongs to
    warmup_updates: int
    parameters: int
    platform: str
    device_kind: str
    device_count: int
    process_count: int
    host: dict[str, Any]  # cpu model, cores, memory bytes, load average at start
    versions: dict[str, str]
    flags: dict[str, str]  # variables that change what programs do: XLA_FLAGS, LIBTPU_INIT_ARGS ...
    git_revision: str
    resumed_at_samples: int | None
    notes: list[str]  # what a reader must know, e.g. a warm-up of fewer than 5 updates


@dataclasses.dataclass(frozen=True)
class WarmStart:
    """The supervised warm-up that the policy starts from; never counted."""

    event: ClassVar[str] = "warm_start"
    key: str  # hash of what it depends on
    seconds: float  # time it took when it was made
    cached: bool
    loss: float | None  # mean cross-entropy of the last updates, nats per token


@dataclasses.dataclass(frozen=True)
class Import:
    """The checkpoint directory that the policy starts from; never counted."""

    event: ClassVar[str] = "import"
    path: str
    parameters: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Compile:
    """One compiled program."""

    event: ClassVar[str] = "compile"
    program: str
    shapes: dict[str, list[int]]
    seconds: float
    # Of one call on one device: fields of costs.program.ProgramCosts.
    costs: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Iteration:
    """sample -> reward -> learn, once."""

    event: ClassVar[str] = "iteration"
    iteration: int  # 1 for the first
    samples: int  # rollouts generated so far, this iteration included
    learnt: int  # rollouts so far that had a part in a gradient (valid, counted)
    update: int  # optimizer updates so far
    learning_rate: float  # of this iteration's last update
    elapsed_seconds: float
    training_seconds: float
    phases: dict[str, float]  # seconds of this iteration on the critical path
    hidden: dict[str, float]  # seconds of host work done while the device was busy
    tokens: int  # response tokens generated in this iteration
    decode_steps: int  # steps of the decode loop, all waves together
    mean_length: float
    p95_length: float
    truncated: float  # share of responses without an end token
    reward: float  # mean over valid rollouts
    tied_groups: float  # share of groups whose rewards are all equal
    failed_rewards: int
    reward_timeouts: int  # of them, killed at reward.seconds
    loss: float
    grad_norm: float  # before clipping
    clipped_gradient: float  # share of updates whose gradient was clipped to max_grad_norm
    update_norm: float
    entropy: float  # nats per response token under the sampled distribution
    ratio_clipped: float  # share of tokens at the clip of the objective
    kl: float | None
    mismatch_mean: float  # |learner - sampler| log-probability before the first update, nats
    mismatch_max: float
    # Responses in each of 32 equal bins of 1 to max_response_length tokens: length n is in bin
    # (n - 1) * 32 // max_response_length. Empty in a record from before this was kept.
    length_counts: list[int] = dataclasses.field(default_factory=list)
    # For the gradient noise scale, with measure.noise_scale; means over the iteration's updates.
    noise_units: int = 0  # independent gradients per update; 0: not asked for, 1: too few
    noise_unit_groups: int = 0  # whole groups in each
    unit_norm_squared: float | None = None  # of one, scaled to estimate the whole gradient
    minibatch_norm_squared: float | None = None  # of their mean, the update's gradient


@dataclasses.dataclass(frozen=True)
class Validation:
    """The held-out set scored at one point of the grid."""

    event: ClassVar[str] = "validation"
    samples: int
    iteration: int
    update: int
    score: float  # mean reward
    rollouts: int  # responses scored; not samples
    failed_rewards: int  # of them; each counts as 0 in the score
    mean_length: float
    elapsed_seconds: float  # when the policy scored here was ready, i.e. before validating
    training_seconds: float
    seconds: float  # cost of this validation


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A complete state on disk."""

    event: ClassVar[str] = "checkpoint"
    samples: int
    iteration: int
    path: str  # relative to the run's directory
    seconds: float


@dataclasses.dataclass(frozen=True)
class Trace:
    """A profiler trace of the next iterations has begun."""

    event: ClassVar[str] = "trace"
    samples: int  # before the first of them
    iterations: int
    path: str  # relative to the run's directory


@dataclasses.dataclass(frozen=True)
class Steady:
    """Throughput measured apart from the run: whole iterations under one clock."""

    event: ClassVar[str] = "steady"
    iterations: int
    rollouts: int
    tokens: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class End:
    """Last event of a run that was not killed."""

    event: ClassVar[str] = "end"
    reason: str  # target, sample_budget, time_budget, not_finite, or a stop rule's own
    samples: int
    learnt: int
    iterations: int
    updates: int
    elapsed_seconds: float
    training_seconds: float
    phases: dict[str, float]  # totals; they add up to elapsed_seconds
    hidden: dict[str, float]
    compiled: dict[str, int]  # how often each program was traced; 1 each
    load_average: float  # other and own work on the host at the end
    peak_memory_bytes: int  # 0: not known, as an earlier run of the process had more
    goodput: float = math.nan  # training seconds / all seconds since the first start


Event = (
    Start
    | WarmStart
    | Import
    | Compile
    | Iteration
    | Validation
    | Checkpoint
    | Trace
    | Steady
    | End
)

_TYPES: Mapping[str, type[Any]] = {
    kind.event: kind
    for kind in (
        Start,
        WarmStart,
        Import,
        Compile,
        Iteration,
        Validation,
        Checkpoint,
        Trace,
        Steady,
        End,
    )
}


class Writer(Protocol):
    """Takes the events of a run."""

    def write(self, event: Event) -> None:
        """Takes one event."""

    def close(self) -> None:
        """Takes no more."""


class NullWriter:
    """Of a process that writes nothing: the record is process 0's."""

    def write(self, event: Event) -> None:
        """Lets the event go."""

    def close(self) -> None:
        """Does nothing."""


class RecordWriter:
    """Appends events to a run's record; each line is flushed as it is written."""

    def __init__(self, directory: Path):
        """Makes the directory and opens the record; UserError if that cannot be done."""
        path = directory / FILE_NAME
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _cut_partial_line(path)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"{directory}: the run's record cannot be written there: {error.strerror}; choose"
                " another --dir"
            ) from error

    def write(self, event: Event) -> None:
        """Appends one event; a number that is not finite becomes null."""
        fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in fields.items()
        }
        self._file.write(json.dumps({"event": event.event, **finite}, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _cut_partial_line(path: Path) -> None:
    """Removes what a kill has left of a last line: what is appended begins a line of its own."""
    if not path.is_file():
        return
    content = path.read_bytes()
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        os.truncate(path, complete)


def read_events(directory: Path) -> Iterator[Event]:
    """The events of a run, in order.

    A last line cut short by a kill is left out; a number that was not finite is NaN.

    Raises:
      UserError: no record there, or a line that is not an event.
    """
    path = Path(directory) / FILE_NAME
    if not path.is_file():
        raise UserError(f"{path}: no record of a run is there")
    yield from _parse_events(path.read_text(encoding="utf-8"), path)


def _parse_events(text: str, path: Path) -> Iterator[Event]:
    lines = text.split("\n")
    complete, tail = lines[:-1], lines[-1]
    for number, line in enumerate(complete, 1):
        try:
            fields = json.loads(line)
            if "xla_flags" in fields:  # its name before other variables were kept beside it
                fields["flags"] = {"XLA_FLAGS": fields.pop("xla_flags")}
            kind = _TYPES[fields.pop("event")]
            yield kind(**_restore_numbers(kind, fields))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(complete) and not tail:
                continue
            raise UserError(
                f"{path}, line {number}: not an event of this version: {error}"
            ) from None


def _restore_numbers(kind: type[Any], fields: dict[str, Any]) -> dict[str, Any]:
    lost = {f.name: math.nan for f in dataclasses.fields(kind) if f.type is float}
    return {name: lost.get(name) if value is None else value for name, value in fields.items()}


def read_run(directory: Path) -> "RunRecord":
    """The record of a run, the parts that a resume took back left out."""
    return _gather_events(read_events(directory), directory)


def parse_run(text: str, directory: Path) -> "RunRecord":
    """The same from the text of a record that was read elsewhere."""
    return _gather_events(_parse_events(text, Path(directory) / FILE_NAME), directory)


def _gather_events(events: Iterator[Event], directory: Path) -> "RunRecord":
    start: list[Start] = []
    by_kind: dict[str, list[Any]] = {name: [] for name in _TYPES}
    for event in events:
        if isinstance(event, Start):
            start.append(event)
            if event.resumed_at_samples is not None:
                limit = event.resumed_at_samples
                for name in ("iteration", "validation", "checkpoint"):
                    by_kind[name] = [e for e in by_kind[name] if e.samples <= limit]
                by_kind["end"].clear()
            continue
        by_kind[event.event].append(event)
    if not start:
        raise UserError(f"{directory}: the record has no start event")
    return RunRecord(
        start=start[0],
        starts=tuple(start),
        warm_start=by_kind["warm_start"][0] if by_kind["warm_start"] else None,
        imported=by_kind["import"][0] if by_kind["import"] else None,
        compiles=tuple(by_kind["compile"]),
        iterations=tuple(by_kind["iteration"]),
        validations=tuple(by_kind["validation"]),
        checkpoints=tuple(by_kind["checkpoint"]),
        steady=by_kind["steady"][-1] if by_kind["steady"] else None,
        end=by_kind["end"][-1] if by_kind["end"] else None,
    )


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A run as its record tells it; `end` is None when it was killed."""

    start: Start
    starts: tuple[Start, ...]
    warm_start: WarmStart | None
    imported: Import | None
    compiles: tuple[Compile, ...]
    iterations: tuple[Iteration, ...]
    validations: tuple[Validation, ...]
    checkpoints: tuple[Checkpoint, ...]
    steady: Steady | None
    end: End | None
