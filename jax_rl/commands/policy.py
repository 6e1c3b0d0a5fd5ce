"""Commands that take a policy: read what it says, score it, write it out."""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, Suppress, arg

from jax_rl.config import Config, ModelConfig, TaskConfig
from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME


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


@dataclasses.dataclass(frozen=True)
class Probe:
    """Split the noise of a run's gradient: between prompts, and within them.

    The same as `jax_rl.probe(run)`. Takes the gradients of two independent groups for each of the
    next prompts at the newest checkpoint, whose weights stay as they are; writes probe.json.
    """

    run_directory: Annotated[Positional[Path], arg(metavar="RUN")]
    """Directory of a run."""
    prompts: int = 128
    """Prompts, each with two groups of batch.group rollouts; the errors are taken over them."""
    seed: int | None = None
    """Seed of prompts and sampling; the run's own if left out."""
    layout: str | None = None
    """How the weights lie on the devices that are here; the run's own if left out."""
    devices: int | None = None
    """Devices used, 0 for all; as in the run if left out."""
    output: Path | None = None
    """File of the result; probe.json in the run's directory if left out."""

    def run(self) -> None:
        from jax_rl.evaluation.probe import probe

        probe(
            self.run_directory,
            prompts=self.prompts,
            seed=self.seed,
            layout=self.layout,
            devices=self.devices,
            output=self.output,
        )

    def explain_interrupt(self) -> str:
        return "nothing was written"


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
