"""`jax-rl`: parses a command line and makes one documented call from Python.

Nothing here imports JAX before the command line is known to be right.
"""

import dataclasses
import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Protocol

import tyro
from tyro.conf import DisallowNone, Positional, arg

from jax_rl import resources
from jax_rl.config import Config
from jax_rl.config_file import load_config, validate
from jax_rl.errors import UserError


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

    def run(self) -> None:
        from jax_rl.trainer.run import train

        config = _apply_layout(self.config, self.layout)
        validate(config)
        train(config, _choose_directory(self.dir, self.source), resume=self.resume)

    def explain_interrupt(self) -> str:
        directory = _choose_directory(self.dir, self.source)
        return (
            f"what was recorded is in {directory}; --resume goes on from its newest checkpoint,"
            " which checkpoint.every_samples and checkpoint.every_minutes ask for"
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

    def run(self) -> None:
        from jax_rl.study.sweep import run_study

        config = _apply_layout(self.config, self.layout)
        validate(config, study=True)
        directory = _choose_directory(self.dir, self.source)
        run_study(config, directory)
        _show_report(directory)

    def explain_interrupt(self) -> str:
        directory = _choose_directory(self.dir, self.source)
        return f"what was recorded is in {directory}; the same command continues"


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
    """Read what a policy says, with the rewards. The same as `jax_rl.sample(source)`."""

    source: Annotated[Positional[str], arg(metavar="RUN_DIR_OR_CONFIG")]
    """Directory of a run (its newest checkpoint), or a configuration (its warm start)."""
    prompts: int = 8
    """Prompts taken from the validation set."""
    prompt: tuple[str, ...] = ()
    """Prompts of your own, instead."""
    seed: int = 0
    """Seed of the sampling."""
    temperature: float | None = None
    """Divides the logits; 0 is greedy. The configuration's sampler.temperature if left out."""

    def run(self) -> None:
        from jax_rl.trainer.evaluate import sample

        sample(
            _find_source(self.source),
            prompts=self.prompts,
            prompt_texts=self.prompt,
            seed=self.seed,
            temperature=self.temperature,
        )

    def explain_interrupt(self) -> str:
        return "nothing was written"


@dataclasses.dataclass(frozen=True)
class Eval:
    """Score a policy on the held-out set. The same as `jax_rl.evaluate(source)`."""

    source: Annotated[Positional[str], arg(metavar="RUN_DIR_OR_CONFIG")]
    """Directory of a run (its newest checkpoint), or a configuration (its warm start)."""
    prompts: int | None = None
    """Prompts in the set; the configuration's validation.prompts if left out."""
    samples_per_prompt: int | None = None
    """Responses per prompt; the configuration's if left out."""
    temperature: float | None = None
    """Divides the logits; 0 is greedy. The configuration's if left out."""

    def run(self) -> None:
        from jax_rl.trainer.evaluate import evaluate

        evaluate(
            _find_source(self.source),
            prompts=self.prompts,
            samples_per_prompt=self.samples_per_prompt,
            temperature=self.temperature,
        )

    def explain_interrupt(self) -> str:
        return "nothing was written"


class Command(Protocol):
    """What each command line above is."""

    def run(self) -> None:
        """Makes the call from Python that the command stands for."""

    def explain_interrupt(self) -> str:
        """Says what an interrupt leaves behind and how to go on."""


_COMMANDS: dict[str, type[Train | Study | Report | Sample | Eval]] = {
    "train": Train,
    "study": Study,
    "report": Report,
    "sample": Sample,
    "eval": Eval,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line.

    Returns:
      Exit code: 0, or 2 for what the user can put right, or 130 for an interrupt.
    """
    try:
        command = parse(sys.argv[1:] if arguments is None else arguments)
    except UserError as error:
        return _fail(error)
    except SystemExit as stop:  # tyro has printed help or its own message
        return int(stop.code or 0)
    if command is None:
        return 0
    try:
        command.run()
    except UserError as error:
        return _fail(error)
    except KeyboardInterrupt:
        print(f"\ninterrupted: {command.explain_interrupt()}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has left; Python must not complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def parse(arguments: Sequence[str]) -> Command | None:
    """The command that a command line asks for; None if it only asked for help or version.

    Raises:
      UserError: an unknown command, or a configuration that cannot be read.
      SystemExit: by tyro, after the help of a command (0) or a message about an option (2).
    """
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_describe_commands())
        return None
    name, rest = arguments[0], list(arguments[1:])
    if name == "--version":
        from jax_rl import __version__

        print(f"jax-rl {__version__}")
        return None
    if name not in _COMMANDS:
        near = difflib.get_close_matches(name, _COMMANDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(f"unknown command {name!r}{hint} (known: {', '.join(_COMMANDS)})")
    command = _COMMANDS[name]
    if issubclass(command, Train | Study):
        return _parse_with_config(command, name, rest)
    return tyro.cli(
        command, prog=f"jax-rl {name}", args=rest, use_underscores=True, config=(DisallowNone,)
    )


def _parse_with_config(command: type[Train | Study], name: str, rest: list[str]) -> Command:
    """The values of the file are the defaults of the options, so it is read before them."""
    wants_help = "-h" in rest or "--help" in rest
    source = rest[0] if rest and not rest[0].startswith("-") else ""
    if not source and not wants_help:
        raise UserError(
            f"jax-rl {name}: the configuration comes first: jax-rl {name} CONFIG [options], where"
            " CONFIG is the path of a file or one of"
            f" {', '.join(resources.list_known('configs'))}"
        )
    config = load_config(source) if source else Config()
    return tyro.cli(
        command,
        prog=f"jax-rl {name}",
        args=rest[1:] if source else rest,
        default=command(source=source, config=config),
        use_underscores=True,
        config=(DisallowNone,),
    )


def _describe_commands() -> str:
    lines = ["usage: jax-rl COMMAND ...", ""]
    for name, command in _COMMANDS.items():
        summary = (command.__doc__ or "").strip().splitlines()[0]
        lines.append(f"  {name:8}{summary}")
    return "\n".join([*lines, "", "jax-rl COMMAND --help explains every option, with its unit."])


def _apply_layout(config: Config, layout: str | None) -> Config:
    if layout is None:
        return config
    return dataclasses.replace(config, run=dataclasses.replace(config.run, layout=layout))


def _choose_directory(directory: Path | None, source: str) -> Path:
    return Path("runs") / Path(source).stem if directory is None else directory


def _find_source(source: str) -> Path:
    directory = Path(source)
    return directory if directory.is_dir() else resources.find_config(source)


def _show_report(directory: Path) -> None:
    from jax_rl.report.build import build_report
    from jax_rl.report.table import print_table
    from jax_rl.study.analyse import analyse

    page = build_report(directory)
    print_table(analyse(directory))
    print(f"report: {page}")


def _fail(error: UserError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
