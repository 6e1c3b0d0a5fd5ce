"""The first and the last event of a run's record."""

import dataclasses
import datetime
import os
from collections.abc import Sequence

import jax

from jax_rl.config_file import config_to_dict
from jax_rl.hosts.xla_flags import recorded_flags
from jax_rl.model.weights import count_parameters
from jax_rl.records import End, Start, Validation
from jax_rl.trainer.host import (
    describe_host,
    describe_revision,
    describe_versions,
    load_average,
    peak_memory_bytes,
)
from jax_rl.trainer.loop import Loop
from jax_rl.trainer.setup import RunSetup


@dataclasses.dataclass(frozen=True)
class RateOrigin:
    """How the run's learning rate came about, for the record."""

    rule: str  # none, sqrt, linear
    reference_batch: int


def describe_start(
    setup: RunSetup,
    *,
    warmup: int,
    notes: list[str],
    origin: RateOrigin | None,
    resumed_at: int | None,
) -> Start:
    """Everything that is needed to read the rest of the record.

    Args:
      setup: what is fixed.
      warmup: updates of the learning-rate warm-up.
      notes: what a reader must know.
      origin: how a study moved the rate; None: it is as configured.
      resumed_at: samples at the checkpoint that the run goes on from, or None.
    """
    config = setup.config
    device = setup.mesh.devices.flat[0]
    sizes = {"axis_sizes": dict(setup.mesh.shape)}
    return Start(
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        config=config_to_dict(config),
        layout=setup.layout.as_dict() | sizes,
        batch_plan=dataclasses.asdict(setup.plan),
        learning_rate=config.optimizer.learning_rate,
        rate_rule=origin.rule if origin else "none",
        reference_batch=origin.reference_batch if origin else config.batch.size,
        warmup_updates=warmup,
        parameters=count_parameters(config.model),
        platform=device.platform,
        device_kind=device.device_kind,
        device_count=setup.mesh.size,
        process_count=jax.process_count(),
        host=describe_host(),
        versions=describe_versions(),
        flags=recorded_flags(os.environ),
        git_revision=describe_revision(),
        resumed_at_samples=resumed_at,
        notes=notes,
    )


def describe_end(
    loop: Loop, *, reason: str, compiled: dict[str, int], since: str, peak_before: int
) -> End:
    """The totals of a run whose clock has stopped.

    Args:
      loop: at its end.
      reason: why it ended.
      compiled: how often each program was compiled.
      since: time of the run's first start.
    """
    clock, position = loop.clock, loop.position
    begun = datetime.datetime.fromisoformat(since)
    peak = peak_memory_bytes(loop.setup.mesh.local_devices[0])
    wall = (datetime.datetime.now(datetime.UTC) - begun).total_seconds()
    return End(
        reason=reason,
        samples=position.samples,
        learnt=position.learnt,
        iterations=position.iteration,
        updates=position.update,
        elapsed_seconds=clock.elapsed,
        training_seconds=clock.training,
        phases=clock.totals,
        hidden=clock.hidden,
        goodput=clock.training / max(wall, clock.elapsed),
        compiled=compiled,
        load_average=load_average(),
        # A high-water mark of the process: where an earlier run left it, this one had less.
        peak_memory_bytes=peak if peak > peak_before else 0,
    )


def describe_outcome(end: End, validations: Sequence[Validation]) -> str:
    """The last words of the progress line."""
    score = f"score {validations[-1].score:.3f}  " if validations else ""
    return (
        f"{score}{end.samples:,} samples in {end.training_seconds:.1f} s of training"
        f" ({end.elapsed_seconds:.1f} s elapsed)  ended: {end.reason}"
    )
