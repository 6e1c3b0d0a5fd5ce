"""A JSON object of a checkpoint, read key by key: typed values, and what nobody asked for."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jax_rl.errors import UserError


class Keys:
    """Typed access to a JSON object that remembers which of its keys were read.

    A `default` of None makes a key required; null is a value of its own, which only the
    `optional_` readers take.
    """

    def __init__(self, data: Mapping[str, Any], where: str, *, prefix: str = "") -> None:
        """Wraps `data`, which came from the file `where` and lies under `prefix` in it."""
        self._data = data
        self._prefix = prefix
        self._read: set[str] = set()
        self._tables: list[Keys] = []
        self.where = where

    def __contains__(self, name: str) -> bool:
        """Whether the key is there, null or not."""
        return name in self._data

    def value(self, name: str, default: Any = None) -> Any:
        """The value as JSON has it."""
        self._read.add(name)
        return self._data.get(name, default)

    def integer(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number that is at least `least`."""
        value = self._require(name, default)
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or value < least:
            raise self.refuse(name, f"a whole number of at least {least} is right")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self._require(name, default)
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            raise self.refuse(name, "a number above 0 is right")
        return float(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._require(name, default)
        if type(value) is not bool:
            raise self.refuse(name, "true or false is right")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        value = self._require(name, default)
        if type(value) is not str:
            raise self.refuse(name, "a string is right")
        return value

    def optional_integer(self, name: str, default: int | None) -> int | None:
        """A whole number above 0, or None where it is null."""
        return None if self.value(name, default) is None else self.integer(name, default)

    def optional_number(self, name: str, default: float | None) -> float | None:
        """A number above 0, or None where it is null."""
        return None if self.value(name, default) is None else self.number(name, default)

    def allow(self, name: str, value: Any) -> None:
        """Counts a key as read where it only repeats `value`."""
        if self._data.get(name, value) == value:
            self._read.add(name)

    def table(self, name: str) -> "Keys | None":
        """A nested object, or None where it is absent, null or empty."""
        value = self.value(name)
        if not value:
            return None
        if not isinstance(value, Mapping):
            raise self.refuse(name, "an object is right")
        keys = Keys(value, self.where, prefix=f"{self._prefix}{name}.")
        self._tables.append(keys)
        return keys

    def unread(self) -> tuple[str, ...]:
        """Keys that nothing asked for, with their path, sorted."""
        own = [self._prefix + name for name in self._data if name not in self._read]
        return tuple(sorted(own + [name for table in self._tables for name in table.unread()]))

    def refuse(self, name: str, why: str) -> UserError:
        """The error for a key whose value cannot be used."""
        found = json.dumps(self._data.get(name))
        shown = found if len(found) <= 80 else f"{found[:77]}..."
        return UserError(f"{self.where}: {self._prefix}{name} = {shown}: {why}")

    def _require(self, name: str, default: Any) -> Any:
        if name not in self._data and default is None:
            raise UserError(f"{self.where}: the key {self._prefix + name!r} is missing")
        return self.value(name, default)


def read_object(file: Path, *, why: str) -> dict[str, Any]:
    """The JSON object in a file.

    Args:
      file: where it lies.
      why: what it is needed for, for the message where it is absent.

    Raises:
      UserError: no such file, not JSON, or not an object.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{file}: not found; {why}") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # of JSON, and of UTF-8
        raise UserError(f"{file}: not JSON: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{file}: a JSON object was expected, found {type(data).__name__}")
    return data
