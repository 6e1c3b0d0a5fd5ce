"""Looks a named part up: one of ours, or `module:attribute` of a fork's own file."""

import importlib
from collections.abc import Mapping
from typing import Any

from jax_rl.errors import UserError, suggest


def resolve(name: str, table: Mapping[str, Any], what: str) -> Any:
    """The entry of `table` called `name`, or the attribute that `module:attribute` names.

    Args:
      name: a key of the table, or `module:attribute` importable from here.
      table: the built-in parts.
      what: the configuration field, for the message.

    Raises:
      UserError: no such part.
    """
    if name in table:
        return table[name]
    if ":" in name:
        module_name, _, attribute = name.partition(":")
        try:
            return getattr(importlib.import_module(module_name), attribute)
        except Exception as error:  # a fork's own code runs here and may raise anything
            raise UserError(
                f"{what} = {name!r}: {type(error).__name__}: {error}; `module:attribute` must be"
                " importable from the working directory or an installed package"
            ) from error
    hint = suggest(name, table) or "."
    raise UserError(
        f"{what} = {name!r} is unknown{hint} Known: {', '.join(sorted(table))},"
        " or `module:attribute` of your own"
    )
