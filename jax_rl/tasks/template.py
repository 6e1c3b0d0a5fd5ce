"""Prompts with {column} where a row's value goes."""

import dataclasses
import string
from collections.abc import Mapping
from typing import Any

from jax_rl.errors import UserError
from jax_rl.tasks.columns import check_unicode, find_value, is_blank


@dataclasses.dataclass(frozen=True)
class Template:
    """Literal text and names of columns, in turn; made by `parse_template`."""

    parts: tuple[tuple[str, str | None], ...]

    def render(self, values: Mapping[str, Any], *, place: str) -> str:
        """The text with the values of a row in it.

        Args:
          values: by column; texts, numbers, or lists of them.
          place: file and line of the row, for messages.

        Raises:
          UserError: a column is missing or of another kind, or all of them are blank.
        """
        written = {
            name: _write(find_value(values, name, field="task.template", place=place), name, place)
            for _, name in self.parts
            if name is not None
        }
        if all(is_blank(text) for text in written.values()):
            raise UserError(
                f"{place}: the prompt is empty: no text in {', '.join(map(repr, written))}"
            )
        return "".join(text + ("" if name is None else written[name]) for text, name in self.parts)


def parse_template(text: str, *, field: str = "task.template") -> Template:
    """A template from its text; {{ and }} are braces.

    Only plain names are taken: what `str.format` does with attributes, indices and formats is
    refused.

    Raises:
      UserError: a brace that is not closed, a field that is no plain name, or no field at all.
    """
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise UserError(f"{field} = {text!r}: {error}; {{{{ and }}}} stand for braces") from error
    for _, name, spec, conversion in parsed:
        if name is not None and (not name.isidentifier() or spec or conversion):
            written = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            raise UserError(
                f"{field} = {text!r}: {{{written}}} is not the plain name of a column, such as"
                " {question}; {{ and }} stand for braces"
            )
    if all(name is None for _, name, _, _ in parsed):
        raise UserError(
            f"{field} = {text!r} has no {{column}} in it, so all prompts would be the same"
        )
    return Template(tuple((literal, name) for literal, name, _, _ in parsed))


def _write(value: Any, name: str, place: str) -> str:
    if isinstance(value, str):
        return check_unicode(value, f"{place}: column {name!r} of task.template")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list) and all(type(item) in (int, float, str) for item in value):
        return str(value)
    raise UserError(
        f"{place}: column {name!r} of task.template has {value!r}; a text, a number or a list of"
        " them is right"
    )
