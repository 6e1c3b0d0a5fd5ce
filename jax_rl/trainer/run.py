"""One training run, from a configuration to its record."""

import contextlib
import dataclasses
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import jax

from jax_rl.config import Config
from jax_rl.config_checks import validate
from jax_rl.costs.program import ProgramCosts
from jax_rl.errors import DivergedError
from jax_rl.hosts.channel import Channel, open_channel
from jax_rl.learner.schedule import warmup_note, warmup_updates
from jax_rl.records import (
    Checkpoint,
    Compile,
    Event,
    NullWriter,
    RecordWriter,
    RunRecord,
    Trace,
    Validation,
)
from jax_rl.trainer.agreement import check_agreement
from jax_rl.trainer.checkpoints import Checkpoints, HostState
from jax_rl.trainer.clock import PhaseClock
from jax_rl.trainer.describe import RateOrigin, describe_end, describe_outcome, describe_start
from jax_rl.trainer.directory import open_directory, read_shared_run
from jax_rl.trainer.fit import (
    check_fits,
    count_bytes,
    explain_out_of_memory,
    find_capacity,
    is_out_of_memory,
    list_needs,
)
from jax_rl.trainer.host import count_compiles, keep_freed_memory, peak_memory_bytes
from jax_rl.trainer.journal import Journal
from jax_rl.trainer.loop import FailedRewardsError, Loop
from jax_rl.trainer.position import Position, Schedule
from jax_rl.trainer.programs import Compiler, abstract_state, compile_programs
from jax_rl.trainer.progress import ProgressLine
from jax_rl.trainer.scoring import Scorer, open_scorer
from jax_rl.trainer.setup import RunSetup, prepare_run
from jax_rl.trainer.start import check_starting_weights, make_beginning
from jax_rl.trainer.steady import measure_steady
from jax_rl.trainer.tracing import Tracer, take_request
from jax_rl.units import check_units

StopRule = Callable[[Sequence[Validation], float], str | None]
"""Validations so far and the target; a reason to end, or None to go on."""


def stop_at_target(validations: Sequence[Validation], target: float) -> str | None:
    """Ends a run as soon as a validation reaches the target."""
    return "target" if validations and validations[-1].score >= target else None


def train(
    config: Config,
    directory: str | Path,
    *,
    resume: bool = False,
    progress: bool = True,
    origin: RateOrigin | None = None,
    stop: StopRule = stop_at_target,
    steady_seconds: float = 0.0,
    label: str = "train",
    channel: Channel | None = None,
) -> RunRecord:
    """Trains until the target, the sample budget or the time budget is reached.

    Args:
      config: the experiment.
      directory: where record and checkpoints go; must not hold another run.
      resume: go on from the newest checkpoint there.
      progress: show a line on standard error.
      origin: how a study moved the rate; left out, the rate is as configured.
      stop: when to end before the budgets.
      steady_seconds: length of a separate throughput measurement afterwards; 0: none.
      label: first word of the progress line.
      channel: between the processes of the program; left out, one is opened.

    Returns:
      the run's record, read back.

    Raises:
      UserError: the configuration does not fit, the directory is taken, or training failed in
        a way that the message explains. What has been written stays.
    """
    validate(config)
    if config.measure.noise_scale and origin is None:
        # In a study a batch that is too small for it is trained all the same.
        check_units(config.batch)
    with contextlib.nullcontext(channel) if channel else open_channel() as channel:
        return _train(
            config,
            Path(directory),
            channel,
            resume=resume,
            progress=progress,
            origin=origin,
            stop=stop,
            steady_seconds=steady_seconds,
            label=label,
        )


def _train(
    config: Config,
    directory: Path,
    channel: Channel,
    *,
    resume: bool,
    progress: bool,
    origin: RateOrigin | None,
    stop: StopRule,
    steady_seconds: float,
    label: str,
) -> RunRecord:
    setup = prepare_run(config)
    check_agreement(setup, channel)
    setup.training(config.run.seed)  # a task with nothing to train on is refused before any work
    if jax.default_backend() == "cpu":
        keep_freed_memory()
    earlier = open_directory(directory, setup.config, resume=resume, channel=channel)
    if earlier is None or config.objective.kl_coefficient > 0:
        check_starting_weights(setup)
    writes = channel.index == 0
    writer = RecordWriter(directory) if writes else NullWriter()
    line = ProgressLine(label, sample_budget=config.budget.samples, enabled=progress and writes)
    with (
        contextlib.closing(writer),
        jax.set_mesh(setup.mesh),
        open_scorer(setup) as scorer,
        contextlib.ExitStack() as stack,
    ):
        tracer = Tracer(directory)
        stack.callback(tracer.end)
        parts = _Parts(setup, directory, Journal(writer, line), scorer, tracer, channel)
        run = _Run(parts, earlier, origin)
        run.go(stop, steady_seconds)
    return read_shared_run(directory, channel)


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What a run works with."""

    setup: RunSetup
    directory: Path
    journal: Journal
    scorer: Scorer
    tracer: Tracer
    channel: Channel


class _Run:
    """The parts of a run that live as long as it does."""

    def __init__(self, parts: _Parts, earlier: RunRecord | None, origin: RateOrigin | None):
        self.parts, self.setup, self.config = parts, parts.setup, parts.setup.config
        self.journal, self.line, self.channel = parts.journal, parts.journal.line, parts.channel
        self.checkpoints = Checkpoints(parts.directory, parts.setup.config.checkpoint)
        self._peak_before = peak_memory_bytes(parts.setup.mesh.local_devices[0])
        self._saved_at = 0
        self._saved_elapsed = 0.0
        self._compiles_of_saves = 0
        self._begin(earlier, origin)

    def record(self, event: Event | None) -> None:
        """Takes an event of the loop."""
        self.journal.record(event, first_failure=self.loop.first_failure)

    def go(self, stop: StopRule, steady_seconds: float) -> None:
        """The loop from where the run stands to its end."""
        with (
            contextlib.closing(self.checkpoints),
            contextlib.closing(self.loop),
            count_compiles() as compiles,
        ):
            with self._explain_out_of_memory():
                reason = self._iterate(stop)
            self.loop.clock.stop()
            self.parts.tracer.end()  # the measurement that follows is not to be traced
            inside = {"inside the loop": compiles() - self._compiles_of_saves}
            end = describe_end(
                self.loop,
                reason=reason,
                compiled=self._compiled | inside,
                since=self._first_start,
                peak_before=self._peak_before,
            )
            if steady_seconds > 0 and reason != "not_finite":
                self.journal.record(measure_steady(self.loop, steady_seconds))
        self.journal.record(end)
        self.line.finish(describe_outcome(end, self.journal.validations))
        if self.journal.failure is not None:
            raise DivergedError(f"training stopped: {self.journal.failure}")

    def _iterate(self, stop: StopRule) -> str:
        """Iterations, validations, checkpoints and traces, until there is a reason to end."""
        loop = self.loop
        if loop.position.samples == 0:
            self._validate()
        while True:
            # What depends on a clock or a file is decided by process 0, so that all do the same.
            elapsed, traced = self.channel.share(
                [loop.clock.elapsed, take_request(self.parts.directory)]
                if self.channel.index == 0
                else None
            )
            if self._checkpoint_due(elapsed):
                self._save()
            if (reason := self._find_reason(stop, elapsed)) is not None:
                break
            self._begin_trace(traced)
            with self._keep_what_was_learnt():
                self.record(loop.iterate())
            if self.parts.tracer.advance():
                self._end_trace()
            if loop.position.samples % self.config.validation.every_samples == 0:
                self._validate()
        self.record(loop.drain())
        if self.journal.failure is not None:
            return "not_finite"
        if self.config.checkpoint.at_end:
            self._save()
        return reason

    def _begin_trace(self, iterations: int) -> None:
        if not iterations:
            return
        samples = self.loop.position.samples
        self.record(self.loop.drain())
        self.loop.clock.enter("checkpoint")  # starting a profiler is no training
        path = self.parts.tracer.begin(iterations, samples=samples)
        self.loop.clock.enter("other")
        if path is None:
            self.line.announce("a trace is running already; another one was not begun")
            return
        self.journal.record(Trace(samples=samples, iterations=iterations, path=path))

    def _end_trace(self) -> None:
        """The last traced iteration's update belongs to the trace; writing is no training."""
        self.record(self.loop.drain())
        self.loop.clock.enter("checkpoint")
        self.parts.tracer.end()
        self.loop.clock.enter("other")

    @contextlib.contextmanager
    def _explain_out_of_memory(self) -> Iterator[None]:
        """What the devices lacked, in the words of the configuration."""
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise explain_out_of_memory(
                error, program=self.loop.program, doing="running"
            ) from error

    @contextlib.contextmanager
    def _keep_what_was_learnt(self) -> Iterator[None]:
        """Where all rewards fail in here, what came before is recorded and saved."""
        try:
            yield
        except FailedRewardsError as error:
            self.record(error.finished)
            if self.config.checkpoint.at_end and self.loop.position.samples > 0:
                self._save()
            raise

    def _begin(self, earlier: RunRecord | None, origin: RateOrigin | None) -> None:
        """Programs, then weights; nothing is allocated or written before all is known to fit."""
        setup = self.setup
        warmup = warmup_updates(self.config.optimizer.warmup_samples, setup.plan.minibatch)
        note = warmup_note(warmup)
        notes = [*setup.notes, *([note] if note else [])]
        for text in (setup.plan.describe(), *notes):
            self.line.announce(text)
        importlib.import_module("grain")  # takes seconds, which no run's clock should be charged
        compiles: list[Compile] = []
        begun = time.perf_counter()
        compiler = Compiler(compiles.append)
        programs = compile_programs(setup, compiler)
        self._check_fits(compiler.costs)
        compiled_in = time.perf_counter() - begun
        self._compiled = compiler.counts
        beginning = make_beginning(
            setup, self.checkpoints, resumes=earlier is not None, channel=self.channel
        )
        host = beginning.host
        if earlier is not None and host is not None:
            limit = host.position.samples
            self.journal.validations = [v for v in earlier.validations if v.samples <= limit]
        start = describe_start(
            setup,
            warmup=warmup,
            notes=notes,
            origin=origin,
            resumed_at=host.position.samples if host else None,
        )
        self._first_start = earlier.start.time if earlier is not None else start.time
        for event in (start, *compiles, beginning.event):
            if event is not None:
                self.journal.record(event)
        moved = sum(part.bytes for part in compiler.costs["sync"].collectives)
        if moved:
            self.line.announce(
                f"weights to the sampler: {moved / 2**20:,.1f} MiB cross each device's links in an"
                " iteration"
            )
        clock = PhaseClock(
            phases=host.phases if host else None, hidden=host.hidden if host else None
        )
        clock.charge("compile", compiled_in)
        clock.enter("compile")  # keys and constants, whose small programs are compiled on the way
        self.loop = Loop(
            setup,
            programs,
            state=beginning.state,
            reference=beginning.reference,
            schedule=Schedule(self.config.optimizer.learning_rate, warmup),
            position=host.position if host else Position(),
            clock=clock,
            scorer=self.parts.scorer,
            channel=self.channel,
        )
        clock.enter("other")
        self._saved_at, self._saved_elapsed = self.loop.position.samples, clock.elapsed

    def _check_fits(self, costs: Mapping[str, ProgramCosts]) -> None:
        """Refuses what cannot work before anything is allocated."""
        state = abstract_state(self.setup)
        keeps_reference = self.config.objective.kl_coefficient > 0
        needs = list_needs(
            costs,
            state=count_bytes(state),
            reference=count_bytes(state.weights) if keeps_reference else 0,
        )
        check_fits(needs, find_capacity(self.setup.mesh.local_devices[0]))

    def _validate(self) -> None:
        with self._keep_what_was_learnt():
            finished, validation = self.loop.validate()
        self.record(finished)
        self.record(validation)

    def _find_reason(self, stop: StopRule, elapsed: float) -> str | None:
        """Why the run ends now, or None."""
        position, budget = self.loop.position, self.config.budget
        if self.journal.failure is not None:
            return "not_finite"
        if (reason := stop(self.journal.validations, budget.target)) is not None:
            return reason
        if position.samples >= budget.samples:
            return "sample_budget"
        if elapsed >= budget.seconds:
            return "time_budget"
        return None

    def _checkpoint_due(self, elapsed: float) -> bool:
        every, minutes = self.config.checkpoint.every_samples, self.config.checkpoint.every_minutes
        samples = self.loop.position.samples - self._saved_at
        seconds = elapsed - self._saved_elapsed
        return samples > 0 and ((0 < every <= samples) or (0 < minutes * 60 <= seconds))

    def _save(self) -> None:
        loop, clock = self.loop, self.loop.clock
        self.record(loop.drain())
        if self.journal.failure is not None or loop.position.samples == self.checkpoints.latest():
            return
        clock.enter("checkpoint")
        before = clock.totals["checkpoint"]
        host = HostState(loop.position, clock.totals, clock.hidden)
        # Gathering the parts of a state makes Orbax compile; that is time of the checkpoint.
        with count_compiles() as compiles:
            path = self.checkpoints.save(loop.state, host)
        self._compiles_of_saves += compiles()
        seconds = clock.totals["checkpoint"] - before
        clock.enter("other")
        self._saved_at, self._saved_elapsed = loop.position.samples, clock.elapsed
        self.record(Checkpoint(loop.position.samples, loop.position.iteration, path, seconds))
