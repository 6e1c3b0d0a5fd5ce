"""Fields of the task's table that a task does not use are refused, not ignored."""

import dataclasses
from collections.abc import Collection

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError

_ALWAYS = ("name", "max_prompt_length", "max_response_length")


def refuse_unused(config: TaskConfig, used: Collection[str], *, why: str = "") -> None:
    """Refuses a field that was set though the task does not look at it.

    Args:
      config: the task's table.
      used: fields that the task looks at, besides the name and the two lengths.
      why: when the task does not use it, for the message: "with files", say.

    Raises:
      UserError: the first such field.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in _ALWAYS and field.name not in used and value != field.default:
            raise UserError(
                f"task.{field.name} = {value!r} is not used by task {config.name!r}"
                f"{f' {why}' if why else ''}; leave it out. Used:"
                f" {', '.join(f'task.{name}' for name in (*_ALWAYS, *used))}"
            )
