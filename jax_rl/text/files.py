"""Reads the small files beside a tokenizer."""

import json
from pathlib import Path
from typing import Any

from jax_rl.errors import UserError


def read_text(file: Path) -> str:
    """Content of a UTF-8 file.

    Raises:
      UserError: it cannot be read, or is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 text at byte {error.start}") from error
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no such file.

    Raises:
      UserError: it cannot be read, is not JSON, or holds something else than an object.
    """
    if not file.exists():
        return {}
    text = read_text(file)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{file}:{error.lineno}: not valid JSON: {error.msg}") from error
    if not isinstance(value, dict):
        raise UserError(f"{file}: must hold a JSON object, found a {type(value).__name__}")
    return value
