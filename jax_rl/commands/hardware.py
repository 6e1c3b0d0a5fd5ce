"""Commands that ask how fast hardware is, and what fits it: here, or anywhere."""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from jax_rl.commands.base import DETECTED, Hosts, choose_directory, split_names
from jax_rl.config import Config
from jax_rl.errors import UserError


@dataclasses.dataclass(frozen=True)
class Bench:
    """Measure throughput against batch on the devices that are here, a minute per batch.

    The same as `jax_rl.run_bench(config, directory)`. Nothing is trained to a target; writes
    bench.json, and prints it as a table.
    """

    source: Annotated[Positional[str], arg(metavar="CONFIG")]
    """Path of a configuration file, or the name of one that comes with jax_rl."""
    config: Annotated[Config, arg(name="")]
    batches: str | None = None
    """Batch sizes with commas between them, as in 8,32,128; those of the study if left out."""
    layouts: str | None = None
    """Layouts with commas between them, each with every batch; run.layout if left out."""
    seconds: float = 60.0
    """Length of the measurement of each batch in each layout, at least; whole iterations."""
    replay: Path | None = None
    """Directory of a recorded run whose response lengths are forced, early and late alike."""
    dir: Path | None = None
    """Directory of bench.json; runs/NAME_bench of the configuration if left out."""
    hosts: Annotated[Hosts, arg(name="")] = DETECTED

    def run(self) -> None:
        from jax_rl.bench.request import check_seconds, list_requests, parse_batches

        batches = () if self.batches is None else parse_batches(self.batches)
        layouts = () if self.layouts is None else split_names(self.layouts)
        list_requests(self.config, batches, layouts)
        check_seconds(self.seconds)
        self.hosts.connect()
        from jax_rl.bench.measure import run_bench
        from jax_rl.bench.table import print_throughput
        from jax_rl.hosts.channel import open_channel

        with open_channel() as channel:
            table = run_bench(
                self.config,
                self._directory,
                batches=batches,
                layouts=layouts,
                seconds=self.seconds,
                replay=self.replay,
                channel=channel,
            )
            if channel.index == 0:
                print_throughput(table)
                print(f"written to {self._directory / 'bench.json'}")

    @property
    def _directory(self) -> Path:
        return choose_directory(self.dir, self.source, ending="_bench")

    def explain_interrupt(self) -> str:
        return f"what was measured before is in {self._directory}; the same command starts again"


@dataclasses.dataclass(frozen=True)
class Plan:
    """Say what an experiment needs of hardware that is not here, and how fast it could be.

    The same as `jax_rl.run_plan(config, target)`. Every program of the experiment is compiled for
    the target; nothing is run, and no weights, data or tokenizer are read. Writes plan.json and
    plan_details.json, and prints them as tables.
    """

    source: Annotated[Positional[str], arg(metavar="CONFIG")]
    """Path of a configuration file, or the name of one that comes with jax_rl."""
    config: Annotated[Config, arg(name="")]
    target: str = "here"
    """tpu:v5p:4x4x4, tpu:v5p:4x4x4*2 (two slices), cuda:h100:8, cuda:h200:8x4 (hosts), or here."""
    layouts: str | None = None
    """Layouts with commas between them, each with every batch; run.layout if left out."""
    batches: str | None = None
    """Batch sizes with commas between them, as in 128,256; batch.size if left out."""
    response_length: int | None = None
    """Tokens that a decode loop runs to on average; task.max_response_length if left out."""
    layers_compiled: str | None = None
    """Compile sampler and sync with two numbers of layers, as in 2,4, and draw a line: faster."""
    every_batch: bool = False
    """Compile the update of every batch, not of the largest alone."""
    jobs: int | None = None
    """Programs compiled side by side; one per core if left out."""
    chips: Path | None = None
    """File with numbers of your own for chips, of the form of jax_rl/costs/chips.toml."""
    output: Path | None = None
    """Directory of plan.json; runs/NAME_plan of the configuration if left out."""

    def run(self) -> None:
        from jax_rl.bench.request import parse_batches
        from jax_rl.plan.run import run_plan
        from jax_rl.plan.table import print_plan

        plan = run_plan(
            self.config,
            self.target,
            layouts=() if self.layouts is None else split_names(self.layouts),
            batches=() if self.batches is None else parse_batches(self.batches),
            response_length=self.response_length,
            layers_compiled=_read_layers(self.layers_compiled),
            every_batch=self.every_batch,
            jobs=self.jobs,
            chips=self.chips,
            output=self._directory,
        )
        print_plan(plan)
        print(f"written to {self._directory / 'plan.json'}")
        if plan.failures:
            raise UserError(
                f"{len(plan.failures)} program(s) could not be compiled; {plan.failures[0]}"
            )

    @property
    def _directory(self) -> Path:
        return choose_directory(self.output, self.source, ending="_plan")

    def explain_interrupt(self) -> str:
        return "what was compiled before is in the cache; the same command goes on from there"


def _read_layers(text: str | None) -> tuple[int, ...]:
    words = [] if text is None else split_names(text)
    if not all(word.isdecimal() for word in words):
        raise UserError(
            f"--layers_compiled {text} must be two numbers of layers with a comma between them,"
            " such as 2,4"
        )
    return tuple(int(word) for word in words)
