"""Data sets as rows: JSONL, JSON, CSV and Parquet, each row with the place it stands at."""

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jax_rl.errors import UserError

_LONGEST_FIELD = 2**31 - 1  # of CSV, in characters; the module's own limit is 131,072


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a data set."""

    values: Mapping[str, Any]
    """By column."""
    place: str
    """File and line, or file and row (1 is the first) where there are no lines."""


def read_rows(path: str, *, field: str) -> list[Row]:
    """The rows of a file, whose ending says what it is.

    Args:
      path: .jsonl (an object a line), .json (a list of objects, an object with one list, or what
        .jsonl has), .csv (the first line names the columns) or .parquet; relative to the working
        directory.
      field: the configuration field that names the file, for messages.

    Raises:
      UserError: no such file, another ending, no UTF-8 text, broken contents, a row that is not
        an object, or no rows at all; with file and line.
    """
    file = Path(path)
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise UserError(
            f"{field} = {path!r}: a file of rows ends in {', '.join(_READERS)}, not in"
            f" {file.suffix!r}"
        )
    if not file.is_file():
        found = "is a directory" if file.is_dir() else "does not exist"
        raise UserError(
            f"{field} = {path!r} {found}; it has to be a file, and a relative path starts at the"
            f" working directory, {Path.cwd()}"
        )
    try:
        rows = list(reader(file))
    except OSError as error:
        raise UserError(f"{field} = {path!r}: cannot be read: {error.strerror}") from error
    if not rows:
        raise UserError(f"{field} = {path!r} has no rows")
    return rows


def _read_jsonl(file: Path) -> Iterator[Row]:
    yield from _parse_lines(_read_text(file), file)


def _parse_lines(text: str, file: Path) -> Iterator[Row]:
    # Not splitlines, which also splits at characters that JSON has inside of strings.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place = f"{file}:{number}"
            yield _make_row(_parse_json(line, file, first_line=number), place)


def _read_json(file: Path) -> Iterator[Row]:
    text = _read_text(file)
    if _has_object_lines(text):
        yield from _parse_lines(text, file)
        return
    data = _parse_json(text, file, first_line=1)
    if isinstance(data, dict):
        lists = [key for key, value in data.items() if isinstance(value, list)]
        if len(lists) != 1:
            raise UserError(
                f"{file}: an object with {len(lists)} lists ({', '.join(lists) or 'none'}); a"
                " list of rows is right, or an object in which exactly one value is a list"
            )
        data = data[lists[0]]
    if not isinstance(data, list):
        raise UserError(f"{file}: {_describe(data)}, where a list of rows is right")
    for number, values in enumerate(data, start=1):
        place = f"{file}: row {number}"
        yield _make_row(values, place)


def _has_object_lines(text: str) -> bool:
    """Whether the first line is a whole object and more follows, as in a .jsonl file."""
    first, _, rest = text.lstrip().partition("\n")
    if not first.startswith("{") or not rest.strip():
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return True


def _read_csv(file: Path) -> Iterator[Row]:
    # The limit belongs to the whole process, so it is put back.
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield from _parse_csv(file, _read_text(file))
    finally:
        csv.field_size_limit(limit)


def _parse_csv(file: Path, text: str) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: list[str] | None = None
    line = 1
    while True:
        try:
            values = next(reader, None)
        except csv.Error as error:
            raise UserError(f"{file}:{line}: not valid CSV: {error}") from error
        if values is None:
            return
        place, line = f"{file}:{line}", reader.line_num + 1
        if not values:
            continue
        if columns is None:
            columns = values
            _check_columns(columns, place)
        elif len(values) != len(columns):
            raise UserError(
                f"{place}: {len(values)} values, where the first line names {len(columns)} columns"
                f" ({', '.join(columns)}); a value with a comma or a line break in it is quoted"
            )
        else:
            yield Row(dict(zip(columns, values, strict=True)), place)


def _read_parquet(file: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(
            f"{file}: Parquet files are read with pyarrow, which is not installed:"
            " pip install 'jax-rl[data]'"
        ) from error
    try:
        table = pyarrow.parquet.read_table(file)
    except pyarrow.ArrowException as error:
        raise UserError(f"{file}: not a valid Parquet file: {error}") from error
    _check_columns(table.column_names, str(file))
    for number, values in enumerate(table.to_pylist(), start=1):
        yield Row(values, f"{file}: row {number}")


_READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}


def _read_text(file: Path) -> str:
    data = file.read_bytes()
    try:
        return data.decode("utf-8").removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{file}:{line}: not UTF-8 text (byte {data[error.start]:#04x} at {error.start}); save"
            " the file as UTF-8"
        ) from error


def _parse_json(text: str, file: Path, *, first_line: int) -> Any:
    """The value of a JSON text that starts at this line of the file."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{file}:{first_line + error.lineno - 1}: not valid JSON: {error.msg} at character"
            f" {error.colno}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}:{first_line}: not valid JSON: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _make_row(values: Any, place: str) -> Row:
    if not isinstance(values, dict):
        raise UserError(f"{place}: {_describe(values)}, where a row is an object of its columns")
    return Row(values, place)


def _check_columns(columns: Sequence[str], place: str) -> None:
    for number, name in enumerate(columns, start=1):
        if not name.strip():
            raise UserError(f"{place}: column {number} has no name")
        if name in columns[: number - 1]:
            raise UserError(f"{place}: two columns are called {name!r}")


def _describe(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return kinds.get(type(value), "a number")
