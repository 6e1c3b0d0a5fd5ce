"""Which policy is meant: of a run, a configuration, or a checkpoint directory; without weights."""

import dataclasses
from pathlib import Path

from jax_rl.config import Config
from jax_rl.config_file import config_from_dict, load_config
from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME, read_run


@dataclasses.dataclass(frozen=True)
class Source:
    """What is known of a policy before its weights are loaded."""

    config: Config
    run: Path | None
    """Directory of a run, whose newest checkpoint has the weights; None: those it starts from."""


def find_policy(source: str | Path | Config, *, run: Path | None = None) -> Source:
    """The policy at `source`.

    Args:
      source: directory of a run, a configuration file or the name of a packaged one, or a
        configuration; model.checkpoint in it is a policy in Hugging Face's format.
      run: directory of the run that has the weights, where `source` is a configuration.

    Raises:
      UserError: none of these is there.
    """
    if isinstance(source, Config):
        return Source(source, run)
    directory = Path(source)
    if not directory.is_dir():
        return Source(load_config(source), run)
    if (directory / FILE_NAME).exists():
        recorded = read_run(directory).start.config
        config = config_from_dict(recorded, where=f"{directory / FILE_NAME}")
        # As many rows of padding as the devices need that are here.
        model = dataclasses.replace(config.model, padded_vocab=0)
        return Source(dataclasses.replace(config, model=model), directory)
    raise UserError(_describe_directory(directory))


def _describe_directory(directory: Path) -> str:
    """Why a directory is not that of a run, and what was perhaps meant."""
    if (directory / "config.json").is_file():
        return (
            f"{directory} is a model in Hugging Face's format: name it with --model, from Python"
            " as model.checkpoint of a configuration"
        )
    cells = directory / "cells"
    inside = sorted(path.name for path in cells.iterdir()) if cells.is_dir() else []
    hint = f"; a study holds its runs under cells/: {', '.join(inside)}" if inside else ""
    return f"{directory} is not the directory of a run: {FILE_NAME} is missing{hint}"
