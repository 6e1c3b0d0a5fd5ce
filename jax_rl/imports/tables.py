"""Files of other trainers as rows of numbers, one row for each time that something was logged."""

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from jax_rl.errors import UserError, suggest
from jax_rl.imports.tensorboard import is_event_file, read_scalars

Row = dict[str, float]
"""Numbers by column; what was not logged, or is no number, is not there."""

FORMATS = ("auto", "csv", "jsonl", "tensorboard", "wandb", "verl", "trl", "tunix")

_CONSOLE = re.compile(r"(?:^|\s)step:\s*(\d+)(?= - )")
_NUMPY = re.compile(r"^np\.\w+\((.*)\)$")
_ENDS = ("__MIN", "__MAX")  # of the columns that a chart export has besides the mean


def read_rows(path: Path, *, format: str = "auto", run: str = "") -> tuple[list[Row], str]:
    """The rows of a log.

    Args:
      path: a file, or a directory with TensorBoard event files.
      format: one of FORMATS; auto looks at the content.
      run: whose columns to take, where one file has several runs (`RUN - METRIC`).

    Returns:
      rows in the file's order, and the format whose column names are to be expected.

    Raises:
      UserError: the file cannot be read, is not of the format, or holds several runs.
    """
    if format not in FORMATS:
        raise UserError(
            f"format {format!r} is not known{suggest(format, FORMATS)} (known:"
            f" {', '.join(FORMATS)})"
        )
    if not path.exists():
        raise UserError(f"{path}: no such log")
    if path.is_dir() or is_event_file(path):
        rows, found = read_scalars(path), "tensorboard"
    else:
        rows, found = _read_text(path)
    rows = _pick_run(rows, run, path)
    if not any(rows):
        raise UserError(f"{path}: no numbers are in it (read as {found})")
    names = {name for row in rows for name in row}
    return rows, _recognise(names, found) if format == "auto" else format


def _read_text(path: Path) -> tuple[list[Row], str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text: {error}") from None
    start = text.lstrip()[:1]
    readers: list[tuple[bool, str, Callable[[str], Iterable[Row]]]] = [
        (start == "{", "jsonl", _read_json),
        (_CONSOLE.search(text) is not None, "verl", _read_console),
        (True, "csv", _read_csv),
    ]
    name, read = next((name, read) for fits, name, read in readers if fits)
    try:
        return list(read(text)), name
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path}: not a log that can be read ({name}): {error}") from None


def _read_csv(text: str) -> Iterable[Row]:
    for row in csv.DictReader(text.splitlines()):
        yield _keep_numbers((str(name), value) for name, value in row.items())


def _read_json(text: str) -> Iterable[Row]:
    """One object a line, or one object with the list `log_history` (transformers' Trainer)."""
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    if isinstance(whole, dict) and isinstance(whole.get("log_history"), list):
        objects = whole["log_history"]
    else:
        lines = [line for line in text.split("\n") if line.strip()]
        objects = [_parse_line(line, last=line is lines[-1]) for line in lines]
    for one in objects:
        if isinstance(one, Mapping):
            yield _keep_numbers(_flatten(one))


def _parse_line(line: str, *, last: bool) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        if last:  # cut short by a kill
            return None
        raise


def _flatten(one: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Nested objects by names with slashes; those under `data` keep their own."""
    for name, value in one.items():
        if isinstance(value, Mapping):
            for inner, number in _flatten(value):
                yield inner if name == "data" else f"{name}/{inner}", number
        else:
            yield str(name), value


def _read_console(text: str) -> Iterable[Row]:
    """Lines `step:5 - actor/loss:0.1 - ...`, whatever stands before and between them."""
    for line in text.splitlines():
        match = _CONSOLE.search(line)
        if match is None:
            continue
        pairs = [part.rsplit(":", 1) for part in line[match.start() :].strip().split(" - ")]
        yield _keep_numbers((pair[0].strip(), pair[1]) for pair in pairs if len(pair) == 2)


def _keep_numbers(pairs: Iterable[tuple[str, Any]]) -> Row:
    row: Row = {}
    for name, value in pairs:
        if isinstance(value, str):
            value = _NUMPY.sub(r"\1", value.strip())
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(number):
            row[name] = number
    return row


def _pick_run(rows: list[Row], run: str, path: Path) -> list[Row]:
    """Of the columns `RUN - METRIC` those of one run, by their metric; the others as they are."""
    names = {name for row in rows for name in row}
    runs = sorted({name.split(" - ", 1)[0] for name in names if " - " in name})
    if not runs:
        if run:
            raise UserError(f"{path}: no columns are named {run!r} - METRIC, so leave run= out")
        return rows
    if not run and len(runs) > 1:
        raise UserError(f"{path}: holds several runs; say which by run=: {', '.join(runs)}")
    if run and run not in runs:
        raise UserError(
            f"{path}: no run {run!r}{suggest(run, runs)} (there are: {', '.join(runs)})"
        )
    prefix = f"{run or runs[0]} - "
    picked = []
    for row in rows:
        mine = {n.removeprefix(prefix): v for n, v in row.items() if n.startswith(prefix)}
        own = {n: v for n, v in mine.items() if not n.endswith(_ENDS)}
        if own:
            picked.append({n: v for n, v in row.items() if " - " not in n} | own)
    return picked


def _recognise(names: set[str], found: str) -> str:
    """Whose column names these are."""
    if any(name.startswith(("val-core/", "timing_s/")) for name in names):
        return "verl"
    if any(name.startswith(("rewards/eval/", "rewards/train/")) for name in names):
        return "tunix"
    if {"num_tokens", "num_input_tokens_seen", "completions/mean_length"} & names:
        return "trl"
    if any(name.startswith("eval_") for name in names) and "step" in names:
        return "trl"
    if names & {"_step", "_runtime", "_timestamp"}:
        return "wandb"
    return found
