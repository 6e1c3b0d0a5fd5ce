"""The directory of a run: whether a new run may start there, or which one goes on."""

from pathlib import Path
from typing import Any

from jax_rl.config import Config
from jax_rl.config_compare import find_difference
from jax_rl.config_file import config_to_dict
from jax_rl.errors import UserError
from jax_rl.hosts.channel import Channel
from jax_rl.records import FILE_NAME, RunRecord, parse_run, read_run
from jax_rl.trainer.checkpoints import has_checkpoint

_RESUMABLE = (
    "budget",
    "checkpoint",
    "measure",
    "study",
    "run.layout",
    "run.devices",
    "model.padded_vocab",
)
"""Tables and fields of the configuration that a resumed run may change."""


def open_directory(
    directory: Path, config: Config, *, resume: bool, channel: Channel
) -> RunRecord | None:
    """The record to go on from, or None for a new run; process 0 looks for all.

    Raises:
      UserError: the directory is taken, there is nothing to resume, or the configuration differs.
    """
    text = None
    if channel.index == 0 and _is_there(directory, resume=resume):
        text = (directory / FILE_NAME).read_text(encoding="utf-8")
    text = channel.share(text)
    if text is None:
        return None
    earlier = parse_run(text, directory)
    _check_same(earlier.start.config, config_to_dict(config), directory)
    return earlier


def read_shared_run(directory: Path, channel: Channel) -> RunRecord:
    """The record of a run on every process; process 0 alone reads files."""
    if channel.count == 1:
        return read_run(directory)
    text = None
    if channel.index == 0:
        text = (directory / FILE_NAME).read_text(encoding="utf-8")
    return parse_run(channel.share(text), directory)


def _is_there(directory: Path, *, resume: bool) -> bool:
    """Whether there is a run to go on from, as is right when it is resumed and only then."""
    record = directory / FILE_NAME
    # A run killed before its first event has left an empty file.
    present = record.exists() and record.stat().st_size > 0
    if present and not resume:
        how = (
            "continue it with --resume, or choose another --dir"
            if has_checkpoint(directory)
            else "it has no checkpoint to go on from: delete it, or choose another --dir"
        )
        raise UserError(f"{directory} already holds a run; {how}")
    if resume and not present:
        raise UserError(f"{directory}: there is no run to resume; leave --resume out to start one")
    return present


def _check_same(old: dict[str, Any], new: dict[str, Any], directory: Path) -> None:
    other = find_difference(
        old,
        new,
        names=[table for table in new if table not in _RESUMABLE],
        free=_RESUMABLE,
    )
    if other is not None:
        raise UserError(
            f"{directory}: {other.field} was {other.first!r} and is now {other.second!r};"
            f" a resumed run may only change {', '.join(_RESUMABLE)}"
        )
