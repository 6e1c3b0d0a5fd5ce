"""`jax-rl`: parses a command line and makes one documented call from Python.

Nothing here imports JAX before the command line is known to be right.
"""

import os
import sys
from collections.abc import Sequence
from typing import TypeVar

import tyro
from tyro.conf import DisallowNone

from jax_rl import resources
from jax_rl.commands.base import Command
from jax_rl.commands.experiment import Study, Train
from jax_rl.commands.hardware import Bench, Plan
from jax_rl.commands.known import COMMANDS
from jax_rl.commands.policy import Eval, Sample, leave_model_open
from jax_rl.config import Config
from jax_rl.config_file import load_config
from jax_rl.errors import UserError, suggest
from jax_rl.evaluation.source import find_policy

_C = TypeVar("_C", bound=Command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line.

    Returns:
      Exit code: 0, or 2 for what the user can put right, or 130 for an interrupt.
    """
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has left; Python must not complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    return code


def _run(arguments: Sequence[str]) -> int:
    if "" not in sys.path and os.getcwd() not in sys.path:
        # `module:attribute` of the user's own; last, so that no file here hides a package.
        sys.path.append(os.getcwd())
    try:
        command = parse(arguments)
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
    if name not in COMMANDS:
        hint = suggest(name, COMMANDS)
        raise UserError(f"unknown command {name!r}{hint} (known: {', '.join(COMMANDS)})")
    command = COMMANDS[name]
    if issubclass(command, Train | Study | Bench | Plan):
        return _parse_experiment(command, name, rest)
    if issubclass(command, Sample | Eval):
        return _parse_policy(command, name, rest)
    return _parse(command, name, rest)


def _parse_experiment(
    command: type[Train | Study | Bench | Plan], name: str, rest: list[str]
) -> Command:
    """The values of the file are the defaults of the options, so it is read before them."""
    source = rest[0] if rest and not rest[0].startswith("-") else ""
    if not source and not _wants_help(rest):
        raise UserError(
            f"jax-rl {name}: the configuration comes first: jax-rl {name} CONFIG [options], where"
            " CONFIG is the path of a file or one of"
            f" {', '.join(resources.list_known('configs'))}"
        )
    config = load_config(source) if source else Config()
    return _parse(command, name, rest, command(source=source, config=config))


def _parse_policy(command: type[Sample | Eval], name: str, rest: list[str]) -> Command:
    """A run or a configuration comes first, or none with --model; prompts come after it."""
    has_model = any(word == "--model" or word.startswith("--model=") for word in rest)
    comes_first = bool(rest) and not rest[0].startswith("-")
    # What stands beside a model that is sampled from is a prompt.
    source = rest[0] if comes_first and not (has_model and command is Sample) else ""
    if not source and not has_model and not _wants_help(rest):
        _parse(command, name, rest, command(source="", config=Config()))  # an unknown option first
        raise UserError(
            f"jax-rl {name}: the policy comes first: jax-rl {name} RUN [options], where RUN is the"
            " directory of a run or a configuration, such as one of"
            f" {', '.join(resources.list_known('configs'))}; or --model DIR"
        )
    config = find_policy(source).config if source else Config()
    default = command(source=source, config=leave_model_open(config) if has_model else config)
    return _parse(command, name, rest[1:] if source else rest, default)


def _parse(command: type[_C], name: str, rest: list[str], default: _C | None = None) -> _C:
    return tyro.cli(
        command,
        prog=f"jax-rl {name}",
        args=rest,
        default=tyro.MISSING_NONPROP if default is None else default,
        use_underscores=True,
        config=(DisallowNone,),
    )


def _wants_help(words: list[str]) -> bool:
    return "-h" in words or "--help" in words


def _describe_commands() -> str:
    lines = ["usage: jax-rl COMMAND ...", ""]
    for name, command in COMMANDS.items():
        summary = (command.__doc__ or "").strip().splitlines()[0]
        lines.append(f"  {name:12}{summary}")
    return "\n".join([*lines, "", "jax-rl COMMAND --help explains every option, with its unit."])


def _fail(error: UserError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
