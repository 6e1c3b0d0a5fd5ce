"""Which logs make up a study: their batch, seed and rate, from the command line or a file."""

import dataclasses
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_rl.errors import UserError, suggest


@dataclasses.dataclass(frozen=True)
class LoggedRun:
    """One log and what it is of."""

    file: Path
    batch: int
    """Rollouts per iteration: prompts x rollouts per prompt."""
    seed: int = 0
    """Tells runs of one batch apart."""
    rate: float = 0.0
    """Learning rate after the warm-up; 0: the largest that the log has."""
    setting: str = ""
    """What else the run differs in, where a study compares several."""
    group: int = 1
    """Rollouts per prompt."""
    updates: int = 1
    """Optimizer updates per iteration."""
    devices: int = 0
    """Devices used; 0: not known."""
    device: str = ""
    """Kind of the devices."""
    run: str = ""
    """Name in an export of several runs."""
    format: str = ""
    """As for the study, if left out."""
    map: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Columns by role, besides those of the study."""


_SETTING = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
"""What a setting may be called: it is part of the names of directories."""

_FIELDS = {field.name: field for field in dataclasses.fields(LoggedRun)}


def parse_run(words: Sequence[str]) -> LoggedRun:
    """A run as the command line gives it: FILE batch=64 seed=0 ...

    Raises:
      UserError: a word that is no KEY=VALUE, an unknown key, or a value of a wrong type.
    """
    if not words or "=" in words[0]:
        raise UserError(
            f"run {' '.join(words)!r}: the file comes first: FILE batch=64 seed=0 rate=1e-6"
        )
    where = f"run {words[0]}"
    return _build(dict(_split(word, where) for word in words[1:]), Path(words[0]), where)


def parse_map(words: Sequence[str]) -> dict[str, str]:
    """Columns by role, from ROLE=COLUMN each.

    Raises:
      UserError: a word without `=`.
    """
    return dict(_split(word, "map") for word in words)


def load_runs(path: Path) -> list[LoggedRun]:
    """The runs in a TOML file of tables [[run]]; files are relative to it.

    Raises:
      UserError: the file cannot be read, or a table has an unknown, missing or wrong value.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not TOML: {error}") from None
    tables = data.get("run")
    if not isinstance(tables, list) or set(data) != {"run"}:
        raise UserError(f"{path}: tables [[run]] were expected, found {', '.join(data) or 'none'}")
    runs = []
    for number, table in enumerate(tables, 1):
        where = f"{path}, run {number}"
        if not isinstance(table, dict):
            raise UserError(f"{where}: a table was expected, found {table!r}")
        if "file" not in table:
            raise UserError(f"{where}: lacks file")
        fields = {name: value for name, value in table.items() if name != "file"}
        runs.append(_build(fields, path.parent / str(table["file"]), where))
    return runs


def check_runs(runs: Sequence[LoggedRun]) -> None:
    """Refuses what makes no study.

    Raises:
      UserError: no run, two of one setting, batch and seed, settings named for some only, a
        setting's name that names no directory, runs of different groups, or runs of one setting
        with different updates.
    """
    if not runs:
        raise UserError("no run is given: --run FILE batch=64 seed=0, once for each log")
    seen: dict[tuple[str, int, int], LoggedRun] = {}
    for one in runs:
        key = (one.setting, one.batch, one.seed)
        if key in seen:
            raise UserError(
                f"{one.file} and {seen[key].file} are both batch {one.batch}, seed {one.seed};"
                " give each run of a batch its own seed"
            )
        seen[key] = one
    unnamed = [one for one in runs if not one.setting]
    if unnamed and len(unnamed) < len(runs):
        raise UserError(f"{unnamed[0].file}: other runs name a setting, so it needs one too")
    first: dict[str, LoggedRun] = {}
    for one in runs:
        if one.setting and not _SETTING.fullmatch(one.setting):
            raise UserError(
                f"{one.file}: setting = {one.setting!r} must be letters, digits, _, -, + and . that"
                " begin with a letter or digit: it names directories"
            )
        if one.group != runs[0].group:
            raise UserError(
                f"{one.file}: group = {one.group}, and {runs[0].group} in {runs[0].file}; runs of"
                " different groups are no study of the batch alone: import each group by itself"
            )
        other = first.setdefault(one.setting, one)
        if one.updates != other.updates:
            raise UserError(
                f"{one.file}: updates = {one.updates}, and {other.updates} in {other.file}; only"
                " the batch differs within a setting: give runs that differ in more their own"
                " setting=NAME"
            )


def _build(values: Mapping[str, Any], file: Path, where: str) -> LoggedRun:
    for name in values:
        if name not in _FIELDS or name == "file":
            known = [key for key in _FIELDS if key != "file"]
            raise UserError(
                f"{where}: unknown key {name!r}{suggest(name, known)} (known: {', '.join(known)})"
            )
    if "batch" not in values:
        raise UserError(f"{where}: lacks batch=, the rollouts per iteration")
    fields = {name: _convert(name, value, where) for name, value in values.items()}
    run = LoggedRun(file=file, **fields)
    for name in ("batch", "group", "updates"):
        if getattr(run, name) < 1:
            raise UserError(f"{where}: {name} = {getattr(run, name)} must be at least 1")
    for name in ("seed", "devices"):
        if getattr(run, name) < 0:
            raise UserError(f"{where}: {name} = {getattr(run, name)} must be at least 0")
    if not (math.isfinite(run.rate) and run.rate >= 0):
        raise UserError(f"{where}: rate = {run.rate:g} must be a number above 0, or left out")
    if run.batch % run.group:
        raise UserError(
            f"{where}: batch {run.batch} is not a whole number of groups of {run.group}"
        )
    return run


def _convert(name: str, value: Any, where: str) -> Any:
    kind = _FIELDS[name].type
    if name == "map":
        if not isinstance(value, Mapping):
            raise UserError(f"{where}: map must be a table of ROLE = COLUMN, found {value!r}")
        return {str(role): str(column) for role, column in value.items()}
    try:
        if kind is int and isinstance(value, float):
            raise ValueError
        return kind(value) if kind in (int, float) else str(value)
    except (TypeError, ValueError):
        right = "a whole number" if kind is int else "a number"
        raise UserError(f"{where}: {name} = {value!r} must be {right}") from None


def _split(word: str, where: str) -> tuple[str, str]:
    name, sign, value = word.partition("=")
    if not sign or not name:
        raise UserError(f"{where}: {word!r} must be KEY=VALUE")
    return name, value
