"""Strict TOML: a file to a `Config`, or one message that says what would be right."""

import dataclasses
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from jax_rl import resources
from jax_rl.config import Config
from jax_rl.errors import UserError, suggest

_T = TypeVar("_T")
_TOML_NAMES: Mapping[type, str] = types.MappingProxyType(
    {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
)


def load_config(path: str | Path) -> Config:
    """Reads a configuration file, given by path or by the name of a packaged one.

    Keys that are left out take the defaults of `jax_rl.config`. Types are checked here, values
    by `validate`.

    Raises:
      UserError: missing file, broken TOML, an unknown table or key, or a value of a wrong type.
    """
    file = resources.find_config(str(path))
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file}: not valid TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 text at byte {error.start}") from error
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    return config_from_dict(data, where=str(file))


def config_from_dict(data: Mapping[str, Any], *, where: str) -> Config:
    """A `Config` from nested tables, as TOML or a record gives them.

    Args:
      data: table -> key -> value; whatever is left out takes its default.
      where: the file or record that `data` came from, for messages.

    Raises:
      UserError: an unknown table or key, or a value of a wrong type.
    """
    return _build(Config, data, key="", where=where)


def config_to_dict(config: Config) -> dict[str, Any]:
    """Nested tables of plain values; `config_from_dict` gives an equal `Config` back."""
    plain: dict[str, Any] = _list_tuples(dataclasses.asdict(config))
    return plain


def _list_tuples(value: Any) -> Any:
    """A tuple comes back from a record as a list, so it is one from the start."""
    if isinstance(value, Mapping):
        return {name: _list_tuples(one) for name, one in value.items()}
    return [_list_tuples(one) for one in value] if isinstance(value, tuple) else value


def list_values(config: Any, *, table: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a configuration or of one of its tables, with its dotted name."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        key = f"{table}.{field.name}" if table else field.name
        if dataclasses.is_dataclass(value):
            yield from list_values(value, table=key)
        else:
            yield key, value


def _build(cls: type[_T], data: Mapping[str, Any], *, key: str, where: str) -> _T:
    hints = typing.get_type_hints(cls)
    for name in data:
        if name not in hints:
            raise UserError(_describe_unknown(name, hints, table=key, where=where))
    values = {
        name: _convert(value, hints[name], key=f"{key}.{name}" if key else name, where=where)
        for name, value in data.items()
    }
    return cls(**values)


def _convert(value: Any, hint: Any, *, key: str, where: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise UserError(f"{where}: {key} = {value!r} must be a table: write [{key}] above it")
        return _build(hint, value, key=key, where=where)
    if typing.get_origin(hint) is typing.Literal:
        return _choose(value, typing.get_args(hint), key=key, where=where)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where}: {key} must be a list, found {_describe_value(value)}")
        item = typing.get_args(hint)[0]
        return tuple(_convert(one, item, key=key, where=where) for one in value)
    # bool is an int in Python, and a TOML integer is a fine float; nothing else is converted.
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise UserError(
            f"{where}: {key} must be {_TOML_NAMES[hint]}, found {_describe_value(value)}"
        )
    return value


def _choose(value: Any, choices: tuple[Any, ...], *, key: str, where: str) -> Any:
    if type(value) is str and value in choices:
        return value
    raise UserError(
        f"{where}: {key} must be one of {', '.join(map(repr, choices))}, found"
        f" {_describe_value(value)}{suggest(str(value), choices)}"
    )


def _describe_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a table"
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"{shown}, which is {_TOML_NAMES.get(type(value), f'a {type(value).__name__}')}"


def _describe_unknown(name: str, known: Iterable[str], *, table: str, where: str) -> str:
    what = f"key {name!r} in [{table}]" if table else f"table {name!r}"
    hint = suggest(name, known)
    if not hint:
        homes = [
            f"[{home}]"
            for home, hint_type in typing.get_type_hints(Config).items()
            if name in typing.get_type_hints(hint_type)
        ]
        hint = f"; it belongs in {' or '.join(homes)}" if homes else ""
    return f"{where}: unknown {what}{hint} (known: {', '.join(known)})"
