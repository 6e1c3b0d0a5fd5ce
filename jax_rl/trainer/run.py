"""One training run, from a configuration to its record."""

import contextlib
import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax

from jax_rl.config import Config
from jax_rl.config_checks import validate
from jax_rl.config_file import config_to_dict
from jax_rl.errors import DivergedError, UserError
from jax_rl.learner.schedule import warmup_note, warmup_updates
from jax_rl.learner.update import init_state
from jax_rl.records import (
    FILE_NAME,
    Checkpoint,
    Event,
    Iteration,
    RecordWriter,
    RunRecord,
    Validation,
    read_run,
)
from jax_rl.trainer.checkpoints import Checkpoints, HostState, has_checkpoint
from jax_rl.trainer.clock import PhaseClock
from jax_rl.trainer.describe import RateOrigin, describe_end, describe_outcome, describe_start
from jax_rl.trainer.host import count_compiles, keep_freed_memory
from jax_rl.trainer.loop import FailedRewardsError, Loop, Position, Schedule
from jax_rl.trainer.programs import Compiler, abstract_state, compile_programs
from jax_rl.trainer.progress import ProgressLine
from jax_rl.trainer.scoring import Scorer, open_scorer
from jax_rl.trainer.setup import RunSetup, prepare_run
from jax_rl.trainer.start import check_starting_weights, make_starting_weights
from jax_rl.trainer.steady import measure_steady

StopRule = Callable[[Sequence[Validation], float], str | None]
"""Validations so far and the target; a reason to end, or None to go on."""

_RESUMABLE = ("budget", "checkpoint", "study")
"""Tables of the configuration that a resumed run may change."""


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

    Returns:
      the run's record, read back.

    Raises:
      UserError: the configuration does not fit, the directory is taken, or training failed in
        a way that the message explains. What has been written stays.
    """
    directory = Path(directory)
    validate(config)
    setup = prepare_run(config)
    setup.training(config.run.seed)  # a task with nothing to train on is refused before any work
    if jax.default_backend() == "cpu":
        keep_freed_memory()
    earlier = _check_directory(directory, setup.config, resume=resume)
    if earlier is None or config.objective.kl_coefficient > 0:
        check_starting_weights(setup)
    writer = RecordWriter(directory)
    try:
        with jax.set_mesh(setup.mesh), open_scorer(setup) as scorer:
            run = _Run(setup, directory, writer, earlier, origin, progress, label, scorer)
            run.go(stop, steady_seconds)
    finally:
        writer.close()
    return read_run(directory)


def _check_directory(directory: Path, config: Config, *, resume: bool) -> RunRecord | None:
    """The record to go on from, or None for a new run."""
    record = directory / FILE_NAME
    # A run killed before its first event has left an empty file.
    present = record.exists() and record.stat().st_size > 0
    if not resume:
        if present:
            how = (
                "continue it with --resume, or choose another --dir"
                if has_checkpoint(directory)
                else "it has no checkpoint to go on from: delete it, or choose another --dir"
            )
            raise UserError(f"{directory} already holds a run; {how}")
        return None
    if not present:
        raise UserError(f"{directory}: there is no run to resume; leave --resume out to start one")
    earlier = read_run(directory)
    old, new = earlier.start.config, config_to_dict(config)
    for table in new:
        for field in new[table]:
            was = old.get(table, {}).get(field)
            if table not in _RESUMABLE and was != new[table][field]:
                raise UserError(
                    f"{directory}: {table}.{field} was {was!r} and is now {new[table][field]!r};"
                    f" a resumed run may only change {', '.join(_RESUMABLE)}"
                )
    return earlier


class _Run:
    """The parts of a run that live as long as it does."""

    def __init__(
        self,
        setup: RunSetup,
        directory: Path,
        writer: RecordWriter,
        earlier: RunRecord | None,
        origin: RateOrigin | None,
        progress: bool,
        label: str,
        scorer: Scorer,
    ):
        self.scorer = scorer
        self.setup, self.config = setup, setup.config
        self.writer = writer
        self.checkpoints = Checkpoints(directory, setup.config.checkpoint)
        self.line = ProgressLine(label, sample_budget=setup.config.budget.samples, enabled=progress)
        self.validations: list[Validation] = []
        self.failure: str | None = None
        self.compiler = Compiler(self.record)
        self._saved_at = 0
        self._saved_elapsed = 0.0
        self._compiles_of_saves = 0
        self._told_failure = False
        self._begin(earlier, origin)

    def record(self, event: Event | None) -> None:
        """Writes an event, shows it, and notices numbers that are not finite."""
        if event is None:
            return
        self.writer.write(event)
        if isinstance(event, Iteration):
            self.line.show_iteration(event)
            if event.failed_rewards:
                self._tell_failure(
                    f"iteration {event.iteration}: {event.failed_rewards} rewards failed and their"
                    " rollouts are masked"
                )
            # The norm of the update is the first to show that the weights are lost.
            numbers = (event.loss, event.grad_norm, event.update_norm)
            if self.failure is None and not all(map(math.isfinite, numbers)):
                self.failure = (
                    f"iteration {event.iteration}: loss {event.loss}, gradient norm"
                    f" {event.grad_norm}, update norm {event.update_norm};"
                    " a lower optimizer.learning_rate is the first thing to try"
                )
        elif isinstance(event, Validation):
            self.validations.append(event)
            self.line.show_validation(event)
            if event.failed_rewards:
                self._tell_failure(
                    f"validation at {event.samples} samples: {event.failed_rewards} rewards failed"
                    " and count as 0"
                )

    def _tell_failure(self, what: str) -> None:
        """Once a run; the record has the numbers of every time."""
        if not self._told_failure:
            self._told_failure = True
            self.line.announce(f"{what}; the first: {self.loop.first_failure}")

    def go(self, stop: StopRule, steady_seconds: float) -> None:
        """The loop from where the run stands to its end."""
        with (
            contextlib.closing(self.checkpoints),
            contextlib.closing(self.loop),
            count_compiles() as compiles,
        ):
            if self.loop.position.samples == 0:
                self._validate()
            while (reason := self._find_reason(stop)) is None:
                with self._keep_what_was_learnt():
                    self.record(self.loop.iterate())
                if self.loop.position.samples % self.config.validation.every_samples == 0:
                    self._validate()
                if self._checkpoint_due():
                    self._save()
            self.record(self.loop.drain())
            if self.failure is not None:
                reason = "not_finite"
            elif self.config.checkpoint.at_end:
                self._save()
            self.loop.clock.stop()
            inside = {"inside the loop": compiles() - self._compiles_of_saves}
            end = describe_end(self.loop, reason=reason, compiled=self.compiler.counts | inside)
            if steady_seconds > 0 and reason != "not_finite":
                self.writer.write(measure_steady(self.loop, steady_seconds))
        self.writer.write(end)
        self.line.finish(describe_outcome(end, self.validations))
        if self.failure is not None:
            raise DivergedError(f"training stopped: {self.failure}")

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
        """Warm start, compiled programs and state; the clock runs from after the warm start."""
        setup = self.setup
        warmup = warmup_updates(self.config.optimizer.warmup_samples, setup.plan.minibatch)
        host = None
        if earlier is not None:
            state, host = self.checkpoints.restore(abstract_state(setup))
            limit = host.position.samples
            self.validations = [v for v in earlier.validations if v.samples <= limit]
        note = warmup_note(warmup)
        notes = [*setup.notes, *([note] if note else [])]
        self.writer.write(
            describe_start(
                setup,
                warmup=warmup,
                notes=notes,
                origin=origin,
                resumed_at=host.position.samples if host else None,
            )
        )
        keeps_reference = self.config.objective.kl_coefficient > 0
        reference = None
        if host is None or keeps_reference:
            weights, report = make_starting_weights(setup)
            reference = jax.tree.map(lambda w: w.copy(), weights) if keeps_reference else None
            if host is None:
                self.writer.write(report)
                state = init_state(weights, self.config.optimizer, self.config.model)
        self.line.announce(setup.plan.describe())
        for note in notes:
            self.line.announce(note)
        importlib.import_module("grain")  # takes seconds, which no run's clock should be charged
        clock = PhaseClock(
            phases=host.phases if host else None, hidden=host.hidden if host else None
        )
        clock.enter("compile")
        programs = compile_programs(setup, self.compiler)
        self.loop = Loop(
            setup,
            programs,
            state=state,
            reference=reference,
            schedule=Schedule(self.config.optimizer.learning_rate, warmup),
            position=host.position if host else Position(),
            clock=clock,
            scorer=self.scorer,
        )
        clock.enter("other")
        self._saved_at, self._saved_elapsed = self.loop.position.samples, clock.elapsed

    def _validate(self) -> None:
        with self._keep_what_was_learnt():
            finished, validation = self.loop.validate()
        self.record(finished)
        self.record(validation)

    def _find_reason(self, stop: StopRule) -> str | None:
        """Why the run ends now, or None."""
        position, budget = self.loop.position, self.config.budget
        if self.failure is not None:
            return "not_finite"
        if (reason := stop(self.validations, budget.target)) is not None:
            return reason
        if position.samples >= budget.samples:
            return "sample_budget"
        if self.loop.clock.elapsed >= budget.seconds:
            return "time_budget"
        return None

    def _checkpoint_due(self) -> bool:
        every, minutes = self.config.checkpoint.every_samples, self.config.checkpoint.every_minutes
        samples = self.loop.position.samples - self._saved_at
        seconds = self.loop.clock.elapsed - self._saved_elapsed
        return (0 < every <= samples) or (0 < minutes * 60 <= seconds)

    def _save(self) -> None:
        loop, clock = self.loop, self.loop.clock
        self.record(loop.drain())
        if self.failure is not None or loop.position.samples == self.checkpoints.latest():
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
