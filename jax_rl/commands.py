"""The commands of `jax-rl`: what each takes, and the one call from Python that it makes.

Nothing here imports JAX before the command line is known to be right.
"""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Protocol

from tyro.conf import Positional, Suppress, arg

from jax_rl.config import Config, ModelConfig, TaskConfig
from jax_rl.config_checks import validate
from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME


class Command(Protocol):
    """What each command line above is."""

    def run(self) -> None:
        """Makes the call from Python that the command stands for."""

    def explain_interrupt(self) -> str:
        """Says what an interrupt leaves behind and how to go on."""


@dataclasses.dataclass(frozen=True)
class Hosts:
    """The processes of one program; TPU pods, SLURM and Kubernetes are detected without flags."""

    coordinator: str = ""
    """HOST:PORT of process 0, where nothing is detected."""
    processes: int = 0
    """Processes in all."""
    process: int = -1
    """Number of this one, from 0 on."""

    def connect(self) -> None:
        """Joins the processes, before anything asks JAX for devices."""
        from jax_rl.hosts.connect import connect

        connect(coordinator=self.coordinator, processes=self.processes, process=self.process)


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
    hosts: Annotated[Hosts, arg(name="")] = Hosts()

    def run(self) -> None:
        from jax_rl.trainer.run import train

        config = _apply_layout(self.config, self.layout)
        validate(config)
        self.hosts.connect()
        train(config, _choose_directory(self.dir, self.source), resume=self.resume)

    def explain_interrupt(self) -> str:
        directory = _choose_directory(self.dir, self.source)
        return (
            f"what was recorded is in {directory}; --resume goes on from its newest checkpoint, if"
            " one was saved before (checkpoint.every_samples, checkpoint.every_minutes)"
        )


@dataclasses.dataclass(frozen=True)
class Study:
    """Measure time-to-target over batch sizes and seeds, and say which batch is fastest.

    The same as `jax_rl.run_study(config, directory)` and then `jax_rl.build_report(directory)`.
    A study that was stopped continues where it was; one that is finished only has its report
    rebuilt.
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
    hosts: Annotated[Hosts, arg(name="")] = Hosts()

    def run(self) -> None:
        from jax_rl.hosts.channel import open_channel
        from jax_rl.study.sweep import run_study

        config = _apply_layouts(_apply_layout(self.config, self.layout), self.layouts)
        validate(config, study=True)
        directory = _choose_directory(self.dir, self.source)
        self.hosts.connect()
        with open_channel() as channel:
            run_study(config, directory, channel=channel)
            if channel.index == 0:
                _show_report(directory)

    def explain_interrupt(self) -> str:
        directory = _choose_directory(self.dir, self.source)
        return f"what was recorded is in {directory}; the same command continues"


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
    hosts: Annotated[Hosts, arg(name="")] = Hosts()

    def run(self) -> None:
        from jax_rl.bench.request import check_seconds, list_requests, parse_batches

        batches = () if self.batches is None else parse_batches(self.batches)
        layouts = () if self.layouts is None else _split_names(self.layouts)
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
        return self.dir or Path("runs") / f"{Path(self.source).stem}_bench"

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
    """Compile the update of every batch, not of the smallest and the largest alone."""
    jobs: int | None = None
    """Programs compiled side by side; one per core if left out."""
    chips: Path | None = None
    """File with chips of your own, of the form of jax_rl/costs/chips.toml."""
    output: Path | None = None
    """Directory of plan.json; runs/NAME_plan of the configuration if left out."""

    def run(self) -> None:
        from jax_rl.bench.request import parse_batches
        from jax_rl.plan.run import run_plan
        from jax_rl.plan.table import print_plan

        plan = run_plan(
            self.config,
            self.target,
            layouts=() if self.layouts is None else _split_names(self.layouts),
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

    @property
    def _directory(self) -> Path:
        return self.output or Path("runs") / f"{Path(self.source).stem}_plan"

    def explain_interrupt(self) -> str:
        return "what was compiled before is in the cache; the same command goes on from there"


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

    The same as `jax_rl.build_report(directory)`.
    """

    directory: Annotated[Positional[Path], arg(metavar="DIR")]
    """Directory of a study."""

    def run(self) -> None:
        _show_report(self.directory)

    def explain_interrupt(self) -> str:
        return "the records are as they were; the same command starts again"


@dataclasses.dataclass(frozen=True)
class Sample:
    """Read what a policy says: `sample RUN`, or `sample --model DIR "prompt"` for a chat.

    RUN is the directory of a run (its newest checkpoint), or a configuration (where it starts).
    The same as `jax_rl.sample(source)`, and `jax_rl.chat(source, prompts)` where there is a
    prompt or a model. With --model and no prompt the chat goes on as long as you type.
    """

    source: Annotated[str, Suppress]
    """Directory of a run, or a configuration; the first word, read before the options."""
    config: Annotated[Config, arg(name="")]
    prompt: Annotated[Positional[tuple[str, ...]], arg(metavar="[PROMPT ...]")] = ()
    """Prompts of your own, one turn of a chat each."""
    model: Path | None = None
    """Directory of a model in Hugging Face's format, in the place of RUN."""
    prompts: int = 8
    """Prompts taken from the validation set, without a model or prompts of your own."""
    seed: int = 0
    """Seed of the sampling."""
    temperature: float | None = None
    """Divides the logits; 0 is greedy. The configuration's sampler.temperature if left out."""
    max_tokens: int = 512
    """Longest response in a chat."""

    def run(self) -> None:
        config, run = _choose_policy(self.source, self.config, self.model)
        if self.model is None and not self.prompt:
            from jax_rl.evaluation.sample import sample

            sample(
                config,
                run=run,
                prompts=self.prompts,
                seed=self.seed,
                temperature=self.temperature,
            )
            return
        from jax_rl.evaluation.chat import chat

        chat(
            config,
            self.prompt or _read_turns(),
            run=run,
            seed=self.seed,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
        )

    def explain_interrupt(self) -> str:
        return "nothing was written"


@dataclasses.dataclass(frozen=True)
class Eval:
    """Score a policy on held-out prompts: accuracy, pass@k and majority@k with intervals.

    `eval RUN` (its newest checkpoint), `eval CONFIG` (where it starts), or with --model DIR the
    name of a configuration first, or the task in options. Every value can be overridden. The same
    as `jax_rl.evaluate(source)`.
    """

    source: Annotated[str, Suppress]
    """Directory of a run, or a configuration; the first word, read before the options."""
    config: Annotated[Config, arg(name="")]
    model: Path | None = None
    """Directory of a model in Hugging Face's format, in the place of the configuration's."""
    prompts: int | None = None
    """Prompts in the set; the configuration's validation.prompts if left out, 0: all rows."""
    samples_per_prompt: int | None = None
    """Responses per prompt, k; the configuration's if left out."""
    temperature: float | None = None
    """Divides the logits; 0 is greedy. The configuration's if left out."""
    correct_from: float = 1.0
    """Reward from which a response counts as correct."""
    output: Path | None = None
    """File to write a JSON line per prompt to, with its responses and their rewards."""

    def run(self) -> None:
        config, run = _choose_policy(self.source, self.config, self.model)
        if not self.source and config.task == TaskConfig():
            raise UserError(
                "jax-rl eval: say what to evaluate on: the name or path of a configuration, or"
                " --task.name with its options"
            )
        from jax_rl.evaluation.evaluate import evaluate

        evaluate(
            config,
            run=run,
            prompts=self.prompts,
            samples_per_prompt=self.samples_per_prompt,
            temperature=self.temperature,
            correct_from=self.correct_from,
            output=self.output,
        )

    def explain_interrupt(self) -> str:
        return "nothing was written"


@dataclasses.dataclass(frozen=True)
class Export:
    """Write a run's newest checkpoint as a directory in Hugging Face's format.

    The same as `jax_rl.export(run, directory)`. For runs that started from such a directory.
    """

    run_directory: Annotated[Positional[Path], arg(metavar="RUN")]
    """Directory of a run."""
    directory: Annotated[Positional[Path], arg(metavar="DIR")]
    """Where to write to; must not hold anything yet."""
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Type of the weights in the files."""
    layout: str | None = None
    """How the weights lie on the devices that are here; the run's own if left out."""

    def run(self) -> None:
        from jax_rl.evaluation.export import export

        export(self.run_directory, self.directory, dtype=self.dtype, layout=self.layout)

    def explain_interrupt(self) -> str:
        return f"{self.directory} is only there once it is complete; the same command starts again"


COMMANDS: dict[
    str, type[Train | Study | Bench | Plan | Trace | Report | Sample | Eval | Export]
] = {
    "train": Train,
    "study": Study,
    "bench": Bench,
    "plan": Plan,
    "trace": Trace,
    "report": Report,
    "sample": Sample,
    "eval": Eval,
    "export": Export,
}


def _apply_layout(config: Config, layout: str | None) -> Config:
    if layout is None:
        return config
    return dataclasses.replace(config, run=dataclasses.replace(config.run, layout=layout))


def _apply_layouts(config: Config, layouts: str | None) -> Config:
    if layouts is None:
        return config
    study = dataclasses.replace(config.study, layouts=_split_names(layouts))
    return dataclasses.replace(config, study=study)


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _read_layers(text: str | None) -> tuple[int, ...]:
    words = [] if text is None else _split_names(text)
    if not all(word.isdecimal() for word in words):
        raise UserError(
            f"--layers_compiled {text} must be two numbers of layers with a comma between them,"
            " such as 2,4"
        )
    return tuple(int(word) for word in words)


def _choose_directory(directory: Path | None, source: str) -> Path:
    return Path("runs") / Path(source).stem if directory is None else directory


def leave_model_open(config: Config) -> Config:
    """The configuration of a policy whose model comes from a directory named on the line."""
    numerics = ModelConfig(compute_dtype=config.model.compute_dtype, remat=config.model.remat)
    start = dataclasses.replace(config.warm_start, updates=0)
    return dataclasses.replace(config, model=numerics, warm_start=start)


def _choose_policy(source: str, config: Config, model: Path | None) -> tuple[Config, Path | None]:
    """The configuration of a policy, and the run that has its weights, if one has."""
    if model is not None:
        shape = dataclasses.replace(config.model, checkpoint=str(model))
        return dataclasses.replace(config, model=shape), None
    return config, Path(source) if (Path(source) / FILE_NAME).is_file() else None


def _read_turns() -> Iterator[str]:
    """What the user types, line by line, until the end of input."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


def _show_report(directory: Path) -> None:
    from jax_rl.report.build import build_report
    from jax_rl.report.table import print_table
    from jax_rl.study.analyse import analyse

    page = build_report(directory)
    print_table(analyse(directory))
    print(f"report: {page}")
