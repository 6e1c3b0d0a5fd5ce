"""Chat templates: where a checkpoint keeps them, and how turns become the text of a prompt."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_rl.errors import UserError
from jax_rl.text.files import read_json, read_text


@dataclasses.dataclass(frozen=True)
class TemplateSource:
    """Text of a template, and the file that it stands in."""

    text: str
    place: str


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
    """The template of a checkpoint, and the one for prompts with tools where it has its own."""

    default: TemplateSource
    tool_use: TemplateSource | None = None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        enable_thinking: bool | None = None,
        special_tokens: Mapping[str, str] | None = None,
    ) -> str:
        """Text of a chat, equal to transformers' `apply_chat_template(tokenize=False)`.

        A template that writes today's date makes another text tomorrow.

        Args:
          messages: turns with `role` and `content`, and whatever else the template reads; a key
            whose value is None is left out.
          tools: JSON schemas of functions.
          add_generation_prompt: end with the opening of the model's turn.
          enable_thinking: what the template is told; None tells it nothing.
          special_tokens: `bos_token`, `eos_token` and so on, as the template names them.

        Raises:
          UserError: a message of bad form, or a template that cannot be parsed, raises, or
            leaves the bounds of `jax_rl.text.sandbox`.
        """
        from jax_rl.text.sandbox import render_template

        variables: dict[str, Any] = {
            **(special_tokens or {}),
            "messages": [_check_message(messages, i) for i in range(len(messages))],
            "tools": None if tools is None else _copy_plain(list(tools), "tools"),
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        if not messages:
            raise UserError("a chat of no messages cannot be a prompt; one user turn is enough")
        if enable_thinking is not None:
            variables["enable_thinking"] = enable_thinking
        use = self.tool_use if tools is not None and self.tool_use is not None else self.default
        return render_template(use.text, variables, place=use.place)


def load_template(directory: Path, *, override: Path | None = None) -> ChatTemplate | None:
    """The chat template of a checkpoint directory; None if it has none.

    The first of: `override`; chat_template.jinja (with additional_chat_templates/tool_use.jinja);
    chat_template.json; the key `chat_template` of tokenizer_config.json. The last two hold a
    text, or several with names, of which `default` and `tool_use` are known.

    Raises:
      UserError: a file that cannot be read, or named templates without a default.
    """
    if override is not None:
        return ChatTemplate(TemplateSource(read_text(override), str(override)))
    file = directory / "chat_template.jinja"
    if file.is_file():
        tool_file = directory / "additional_chat_templates" / "tool_use.jinja"
        return ChatTemplate(
            TemplateSource(read_text(file), str(file)),
            TemplateSource(read_text(tool_file), str(tool_file)) if tool_file.is_file() else None,
        )
    for name in ("chat_template.json", "tokenizer_config.json"):
        value = read_json(directory / name).get("chat_template")
        if value is not None:
            return _take_named(value, place=f"{directory / name}: chat_template")
    return None


def _take_named(value: Any, *, place: str) -> ChatTemplate:
    if isinstance(value, str):
        return ChatTemplate(TemplateSource(value, place))
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        value = {item.get("name"): item.get("template") for item in value}
    if not isinstance(value, dict) or not isinstance(value.get("default"), str):
        found = sorted(map(str, value)) if isinstance(value, dict) else type(value).__name__
        raise UserError(
            f"{place} must be a text, or texts with names, one of them 'default'; found {found}"
        )
    tool_use = value.get("tool_use")
    return ChatTemplate(
        TemplateSource(value["default"], place),
        TemplateSource(tool_use, f"{place} tool_use") if isinstance(tool_use, str) else None,
    )


def _check_message(messages: Sequence[Mapping[str, Any]], index: int) -> dict[str, Any]:
    message, where = messages[index], f"message {index} of a chat"
    if not isinstance(message, Mapping):
        raise UserError(f"{where} is {message!r}; a mapping with role and content is right")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise UserError(f"{where} has role {role!r}; a text such as 'user' is right: {message!r}")
    # A turn that only calls tools has no content.
    if not isinstance(content, str) and not (content is None and message.get("tool_calls")):
        raise UserError(f"{where} has content {content!r}; a text is right: {message!r}")
    return _copy_plain({k: v for k, v in message.items() if v is not None}, where)


def _copy_plain(value: Any, where: str) -> Any:
    """A copy that holds JSON's types alone: the methods of other objects are not sandboxed."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} must hold what JSON can hold: {error}") from error
