"""Values of a row by column: prompts as text or as the turns of a chat."""

from collections.abc import Iterable, Mapping
from typing import Any

from jax_rl.errors import UserError, suggest
from jax_rl.text.base import Message

_SHOWN = 80  # characters of a value in a message


def find_value(values: Mapping[str, Any], column: str, *, field: str, place: str) -> Any:
    """The value of a column.

    Args:
      values: a row, by column.
      column: name of the column.
      field: the configuration field that names it, for messages.
      place: file and line of the row, for messages.

    Raises:
      UserError: the row has no such column.
    """
    if column in values:
        return values[column]
    hint = suggest(column, values) or "."
    there = ", ".join(values) or "none"
    raise UserError(f"{place}: no column {column!r} ({field}){hint} Columns there: {there}")


def choose_column(values: Mapping[str, Any], columns: Iterable[str]) -> str:
    """The first of the columns that a row has, or else the first of all."""
    names = list(columns)
    return next((name for name in names if name in values), names[0])


def read_text(values: Mapping[str, Any], column: str, *, field: str, place: str) -> str:
    """The text of a column, which is not blank.

    Raises:
      UserError: no such column, another kind of value, no text, or text that is no Unicode.
    """
    value = find_value(values, column, field=field, place=place)
    if not isinstance(value, str):
        raise UserError(
            f"{place}: column {column!r} ({field}) has {show(value)}, where a text is right"
        )
    return _check_text(value, f"{place}: column {column!r} ({field})")


def read_prompt(
    values: Mapping[str, Any], column: str, *, field: str, place: str
) -> str | tuple[Message, ...]:
    """The prompt of a column: text, or messages, which are a list of {role, content}.

    Raises:
      UserError: no such column, neither of the two, an empty prompt, or messages that end with
        the assistant's, so that the prompt would hold its own response.
    """
    value = find_value(values, column, field=field, place=place)
    what = f"{place}: column {column!r} ({field})"
    if isinstance(value, str):
        return _check_text(value, what)
    if not isinstance(value, list):
        raise UserError(
            f"{what} has {show(value)}, where a text or a list of messages, each with role and"
            " content, is right"
        )
    if not value:
        raise UserError(f"{what} has an empty prompt: a list without messages")
    messages = tuple(_check_message(item, f"{what}, message {i}") for i, item in enumerate(value))
    if messages[-1]["role"] == "assistant":
        raise UserError(
            f"{what} ends with a message of the assistant, so that the prompt would hold its own"
            " response; the last message has to be the user's"
        )
    return messages


def find_content(prompt: str | tuple[Message, ...]) -> str:
    """Canonical form of a prompt: runs of white space are one space, none at the ends."""
    if isinstance(prompt, str):
        return " ".join(prompt.split())
    return "\n".join(f"{turn['role']}: {' '.join(turn['content'].split())}" for turn in prompt)


def is_blank(value: Any) -> bool:
    """Whether a value is null, or a text of white space alone."""
    return value is None or (isinstance(value, str) and not value.strip())


def show(value: Any) -> str:
    """The value for a message, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _check_text(text: str, what: str) -> str:
    if not text.strip():
        raise UserError(f"{what} is empty: {text!r}")
    return check_unicode(text, what)


def check_unicode(text: str, what: str) -> str:
    """The text, if it can be written as UTF-8.

    Raises:
      UserError: it has half a surrogate pair, as escapes in JSON can.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"{what} has half a surrogate pair, {text[error.start]!r} at character"
            f" {error.start}, which is no text"
        ) from error
    return text


def _check_message(value: Any, what: str) -> Message:
    if not isinstance(value, dict):
        raise UserError(f"{what} is {show(value)}, where an object of role and content is right")
    # Parquet fills the keys that a message does not have with null.
    given = {key: part for key, part in value.items() if part is not None}
    if set(given) != {"role", "content"} or not all(isinstance(v, str) for v in given.values()):
        raise UserError(
            f"{what} is {show(value)}; a message has a role and a content, both of them text, and"
            " nothing else"
        )
    if not given["role"].strip():
        raise UserError(f"{what} has an empty role")
    # An earlier turn of the assistant may be empty; what it is asked may not.
    check = check_unicode if given["role"] == "assistant" else _check_text
    check(given["content"], f"{what}: its content")
    return given
