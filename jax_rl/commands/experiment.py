"""Commands that train, and what is made of their records."""

import dataclasses
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from jax_rl.commands.base import DETECTED, Hosts, choose_directory, split_names
from jax_rl.config import Config
from jax_rl.config_checks import validate

if TYPE_CHECKING:
    from jax_rl.study.answers import Wishes


@dataclasses.dataclass(frozen=True)
class Train:
    """Train one policy to its target: sample, reward, learn, validate, record.

    The same as `jax_rl.train(config, directory)`. Every value of the configuration file can be
    overridden: `jax-rl train arithmetic --batch.size 64 --run.layout fsdp`.
    """

    source: Annotated[Positional[str], arg(metavar="CONFIG")]
    """Path of a configuration file, or the name of one that comes with jax_rl."""
    config: Annotated[Config, arg(name="")]
    dir: Path | None = None
    """Directory of the run; runs/NAME of the configuration if left out."""
    resume: bool = False
    """Continue the run that is in the directory from its newest checkpoint."""
    layout: str | None = None
    """Short for --run.layout."""
    hosts: Annotated[Hosts, arg(name="")] = DETECTED

    def run(self) -> None:
        from jax_rl.trainer.run import train

        config = _apply_layout(self.config, self.layout)
        validate(config)
        self.hosts.connect()
        train(config, choose_directory(self.dir, self.source), resume=self.resume)

    def explain_interrupt(self) -> str:
        directory = choose_directory(self.dir, self.source)
        return (
            f"what was recorded is in {directory}; --resume goes on from its newest checkpoint, if"
            " one was saved before (checkpoint.every_samples, checkpoint.every_minutes)"
        )


@dataclasses.dataclass(frozen=True)
class Study:
    """Measure time-to-target over batch sizes and seeds, and say which batch is fastest.

    The same as `jax_rl.run_study(config, directory)` and then `jax_rl.build_report(directory)`.
    A study that was stopped continues where it was; one that is finished only has its report
    rebuilt. Several workers may share one: each run has a lock, so that it is made once.
    """

    source: Annotated[Positional[str], arg(metavar="CONFIG")]
    """Path of a configuration file, or the name of one that comes with jax_rl."""
    config: Annotated[Config, arg(name="")]
    dir: Path | None = None
    """Directory of the study; runs/NAME of the configuration if left out."""
    layout: str | None = None
    """Short for --run.layout."""
    layouts: str | None = None
    """Short for --study.layouts, with commas between them: fsdp,tensor."""
    cell: str = ""
    """i/n, for a job of an array: make the runs i, i + n, i + 2n, ... alone, and no report."""
    steal: bool = False
    """Also make runs that another host has begun; only when it is known to be dead."""
    hosts: Annotated[Hosts, arg(name="")] = DETECTED

    def run(self) -> None:
        from jax_rl.hosts.channel import open_channel
        from jax_rl.sweep.directory import has_records
        from jax_rl.sweep.part import Part
        from jax_rl.sweep.run import run_study

        # A job that is taken off its machine gives back what it has begun.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        config = _apply_layouts(_apply_layout(self.config, self.layout), self.layouts)
        validate(config, study=True)
        part = Part.parse(self.cell) if self.cell else Part()
        directory = choose_directory(self.dir, self.source)
        self.hosts.connect()
        with open_channel() as channel:
            run_study(config, directory, part=part, steal=self.steal, channel=channel)
            if channel.index != 0:
                return
            if self.cell or not has_records(directory):
                print(f"the report, when all runs are there: jax-rl report {directory}")
            else:
                _show_report(directory)

    def explain_interrupt(self) -> str:
        directory = choose_directory(self.dir, self.source)
        return f"what was recorded is in {directory}; the same command continues"


@dataclasses.dataclass(frozen=True)
class Trace:
    """Ask a running job for a profiler trace of its next iterations.

    The same as `jax_rl.request_trace(run)`. The job writes it under traces/ in its directory, for
    TensorBoard's profile plugin or xprof.
    """

    run_directory: Annotated[Positional[Path], arg(metavar="RUN")]
    """Directory of the run."""
    iterations: int = 2
    """Iterations in the trace."""

    def run(self) -> None:
        from jax_rl.trainer.tracing import request_trace

        folder = request_trace(self.run_directory, iterations=self.iterations)
        print(f"asked for; the trace will be in {folder} after {self.iterations} iterations")

    def explain_interrupt(self) -> str:
        return "the job goes on; its trace may have been asked for"


@dataclasses.dataclass(frozen=True)
class Report:
    """Rebuild the tables, the figures and the page of a study from its records alone.

    The same as `jax_rl.build_report(directory, wishes)`. With tables of throughput, as bench and
    plan write them, the samples to target of the study are combined with other hardware.
    """

    directory: Annotated[Positional[Path], arg(metavar="DIR")]
    """Directory of a study."""
    throughput: tuple[Path, ...] = ()
    """Files of bench (bench.json) or plan (plan.json): its batches on that hardware."""
    price: float | None = None
    """Price of one device for one hour; left out, costs are device-hours alone."""
    currency: str = "USD"
    """Of the price."""

    def run(self) -> None:
        from jax_rl.study.answers import Wishes
        from jax_rl.study.decisions.cost import make_price

        price = None if self.price is None else make_price(self.price, self.currency)
        _show_report(self.directory, Wishes(price=price, throughput=self.throughput))

    def explain_interrupt(self) -> str:
        return "the records are as they were; the same command starts again"


def _apply_layout(config: Config, layout: str | None) -> Config:
    if layout is None:
        return config
    return dataclasses.replace(config, run=dataclasses.replace(config.run, layout=layout))


def _apply_layouts(config: Config, layouts: str | None) -> Config:
    if layouts is None:
        return config
    study = dataclasses.replace(config.study, layouts=split_names(layouts))
    return dataclasses.replace(config, study=study)


def _show_report(directory: Path, wishes: "Wishes | None" = None) -> None:
    from jax_rl.report.build import report_study
    from jax_rl.report.table import print_table
    from jax_rl.study.answers import NO_WISHES

    summary, page = report_study(directory, wishes or NO_WISHES)
    print_table(summary)
    print(f"report: {page}")
