"""The first thing in which two recorded configurations differ, among those that must agree."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jax_rl.config import Config
from jax_rl.config_file import config_to_dict


@dataclasses.dataclass(frozen=True)
class Difference:
    """A field with two values."""

    field: str  # such as batch.group
    first: Any
    second: Any


def find_difference(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    *,
    names: Sequence[str],
    free: Collection[str] = (),
) -> Difference | None:
    """Compares nested tables, as `config_to_dict` gives them; None if all that is asked agrees.

    A configuration from before a field existed had what is its default now.

    Args:
      names: tables and fields to compare, in the order in which differences are named.
      free: fields of those tables that may differ.
    """
    defaults = config_to_dict(Config())

    def read(config: Mapping[str, Any], table: str, key: str) -> Any:
        return config.get(table, {}).get(key, defaults[table].get(key))

    for name in names:
        table, _, field = name.partition(".")
        for key in [field] if field else defaults[table]:
            values = read(first, table, key), read(second, table, key)
            if values[0] != values[1] and f"{table}.{key}" not in free:
                return Difference(f"{table}.{key}", *values)
    return None
