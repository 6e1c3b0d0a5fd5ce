"""Throughput against batch on the devices that are here, measured without training to a target."""

import contextlib
import datetime
import gc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import jax

from jax_rl.bench.replay import PARTS, Replay, read_replay
from jax_rl.bench.request import Request, check_seconds, list_requests
from jax_rl.bench.summary import Measurement, describe_misfit, summarise
from jax_rl.config import Config
from jax_rl.config_file import config_to_dict
from jax_rl.errors import UserError
from jax_rl.hosts.channel import Channel, open_channel
from jax_rl.learner.schedule import warmup_updates
from jax_rl.learner.update import init_state
from jax_rl.records import Iteration
from jax_rl.throughput import ThroughputPoint, ThroughputTable, write_throughput
from jax_rl.trainer.agreement import check_agreement
from jax_rl.trainer.clock import PhaseClock
from jax_rl.trainer.fit import (
    check_fits,
    count_bytes,
    explain_out_of_memory,
    find_capacity,
    is_out_of_memory,
    list_needs,
)
from jax_rl.trainer.host import describe_versions, keep_freed_memory, peak_memory_bytes
from jax_rl.trainer.loop import Loop
from jax_rl.trainer.policy import resolve_model
from jax_rl.trainer.position import Position, Schedule
from jax_rl.trainer.programs import Compiler, Programs, abstract_state, compile_programs
from jax_rl.trainer.progress import ProgressLine
from jax_rl.trainer.scoring import Scorer, open_scorer
from jax_rl.trainer.setup import RunSetup, prepare_run, take_devices
from jax_rl.trainer.start import make_starting_weights
from jax_rl.trainer.steady import measure_steady

BENCH_FILE = "bench.json"

_FEWEST_ITERATIONS = 3


class _MisfitError(UserError):
    """The mesh cannot map a batch, or the memory cannot hold it: a result."""


def run_bench(
    config: Config,
    directory: str | Path,
    *,
    batches: Sequence[int] = (),
    layouts: Sequence[str] = (),
    seconds: float = 60.0,
    replay: str | Path | None = None,
    progress: bool = True,
    channel: Channel | None = None,
) -> ThroughputTable:
    """Measures whole iterations of every layout and batch, and writes bench.json.

    Learning goes on at the configured rate whatever the batch: the work is the same, what is
    learnt is of no use. A batch that does not map or does not fit is a point that says so.

    Args:
      config: the experiment.
      directory: where bench.json goes, after every point; an older one there is replaced.
      batches: rollouts per iteration; those of the study if left out.
      layouts: names or paths; run.layout if left out.
      seconds: of each point, at least, and at least three iterations; with a replay at least ten,
        one for each tenth of the run.
      replay: directory of a run whose response lengths are forced.
      progress: show lines on standard error.
      channel: between the processes of the program; left out, one is opened.

    Returns:
      the table, the same as in the file.

    Raises:
      UserError: the configuration, the batches, the layouts or the replayed run cannot be used,
        or no batch maps onto the mesh.
    """
    check_seconds(seconds)
    requests = list_requests(config, batches, layouts)
    with contextlib.nullcontext(channel) if channel else open_channel() as channel:
        recorded = read_replay(Path(replay), config, channel=channel) if replay else None
        if jax.default_backend() == "cpu":
            keep_freed_memory()
        bench = _Bench(seconds, recorded, channel, progress and channel.index == 0)
        points: list[ThroughputPoint] = []
        for number, request in enumerate(requests, 1):
            points.append(bench.measure(request, f"[{number}/{len(requests)}] {request.label}"))
            table = _make_table(config, points, recorded, path=str(replay or ""))
            if channel.index == 0 and bench.mapped:
                write_throughput(table, Path(directory) / BENCH_FILE)
    if not bench.mapped:
        raise UserError(points[0].notes[0])
    return table


_T = TypeVar("_T")


class _Bench:
    """How every point is measured."""

    def __init__(self, seconds: float, replay: Replay | None, channel: Channel, shows: bool):
        self.mapped = False  # whether any point got as far as being compiled
        self._seconds, self._replay, self._channel = seconds, replay, channel
        self._shows = shows

    def measure(self, request: Request, label: str) -> ThroughputPoint:
        """One point; nothing of it stays on the devices."""
        line = ProgressLine(label, sample_budget=0, enabled=self._shows)
        # What an earlier point has compiled or left behind must not count for this one.
        jax.clear_caches()
        gc.collect()
        try:
            point = summarise(request, self._run(request, line), self._replay)
        except _MisfitError as error:
            line.finish(f"does not fit: {error}")
            return describe_misfit(request, str(error))
        line.finish(f"{point.rollouts_per_second:,.1f} rollouts/s in {point.iterations} iterations")
        return point

    def _run(self, request: Request, line: ProgressLine) -> Measurement:
        setup = self._agree(lambda: prepare_run(request.config))
        check_agreement(setup, self._channel)
        self.mapped = True
        line.announce(setup.plan.describe())
        device = setup.mesh.local_devices[0]
        before = peak_memory_bytes(device)
        iterations: list[Iteration] = []
        with jax.set_mesh(setup.mesh), open_scorer(setup) as scorer:
            programs = self._compile(setup)
            with self._survive(lambda: "state"):
                loop = self._make_loop(setup, programs, scorer)
            with contextlib.closing(loop), self._survive(lambda: loop.program):
                # The first also does what only happens once; measure_steady leaves out one more.
                loop.iterate()
                steady = measure_steady(
                    loop,
                    self._seconds,
                    iterations=PARTS if self._replay else _FEWEST_ITERATIONS,
                    watch=iterations.append,
                )
        peak = peak_memory_bytes(device)
        # A mark that an earlier point has set is not this one's.
        return Measurement(steady, tuple(iterations), peak if peak > before else None)

    def _compile(self, setup: RunSetup) -> Programs:
        compiler = Compiler(lambda event: None)
        keeps_reference = setup.config.objective.kl_coefficient > 0

        def compile_all() -> Programs:
            programs = compile_programs(
                setup, compiler, forced_lengths=self._replay is not None, validates=False
            )
            state = abstract_state(setup)
            needs = list_needs(
                compiler.costs,
                state=count_bytes(state),
                reference=count_bytes(state.weights) if keeps_reference else 0,
            )
            check_fits(needs, find_capacity(setup.mesh.local_devices[0]))
            return programs

        return self._agree(compile_all)

    def _agree(self, work: Callable[[], _T]) -> _T:
        """What the mesh or the memory refuses is a result, of all processes if of one."""
        reason = None
        done: list[_T] = []
        try:
            done.append(work())
        except UserError as error:
            reason = str(error)
        for refused in self._channel.gather(reason):
            if refused is not None:
                raise _MisfitError(refused)
        return done[0]

    def _make_loop(self, setup: RunSetup, programs: Programs, scorer: Scorer) -> Loop:
        config, plan = setup.config, setup.plan
        weights, _ = make_starting_weights(setup, self._channel)
        keeps_reference = config.objective.kl_coefficient > 0
        return Loop(
            setup,
            programs,
            state=init_state(weights, config.optimizer, config.model),
            reference=jax.tree.map(lambda w: w.copy(), weights) if keeps_reference else None,
            schedule=Schedule(
                config.optimizer.learning_rate,
                warmup_updates(config.optimizer.warmup_samples, plan.minibatch),
            ),
            position=Position(),
            clock=PhaseClock(),
            scorer=scorer,
            channel=self._channel,
            forced_lengths=None
            if self._replay is None
            else partial(self._replay.draw, prompts=plan.prompts, group=plan.group),
        )

    @contextlib.contextmanager
    def _survive(self, find_program: Callable[[], str]) -> Iterator[None]:
        """Makes a result of memory that does not suffice, where this process is alone."""
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            told = explain_out_of_memory(error, program=find_program(), doing="running")
            # Others may be waiting for this process inside a program: all end with its message.
            raise _MisfitError(str(told)) if self._channel.count == 1 else told from None


def _make_table(
    config: Config, points: Sequence[ThroughputPoint], replay: Replay | None, *, path: str
) -> ThroughputTable:
    """The table so far; its configuration has the shape of the checkpoint, as a run's has."""
    devices = take_devices(config.run.devices)
    return ThroughputTable(
        kind="measured",
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        config=config_to_dict(resolve_model(config)[0]),
        platform=devices[0].platform,
        device_kind=devices[0].device_kind,
        device_count=len(devices),
        process_count=jax.process_count(),
        versions=describe_versions(),
        points=tuple(points),
        replayed=path,
        replayed_share=replay.share if replay else None,
        notes=tuple(_write_notes(config, devices[0].platform, path)),
    )


def _write_notes(config: Config, platform: str, replay: str) -> Iterator[str]:
    rate = config.optimizer.learning_rate
    yield (
        f"learning goes on at the configured rate {rate:g} whatever the batch: times are measured,"
        " what is learnt is of no use"
    )
    if replay:
        yield (
            f"response lengths are those of {replay}, dealt out anew; the ten tenths of its"
            " samples count alike, and a rate is rollouts over the time that all of them take."
            " Lengths are known by bins of a 32nd of the limit, and those of a group, which are"
            " alike in a run, are not kept together: with several waves the longest of each may"
            " differ"
        )
    else:
        yield "response lengths are those of the policy that training starts from, as it learns"
    what = "of the whole process, JAX and its compiler included" if platform == "cpu" else ""
    yield (
        f"peak memory is a high-water mark{' ' + what if what else ''}; none is given for a point"
        " that stays below an earlier one"
    )
