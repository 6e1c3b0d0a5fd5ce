"""What is scored, and what scores it."""

import dataclasses
from collections.abc import Callable
from typing import Any

from jax_rl.text.base import Message


@dataclasses.dataclass(frozen=True)
class Problem:
    """A prompt, and what its responses are judged by; can be pickled."""

    prompt: str | tuple[Message, ...]
    """Text, or the turns of a chat."""
    content: str
    """Canonical form: problems that ask for the same have the same content."""
    answer: Any = None
    """What a verifier compares a response with."""
    place: str = ""
    """File and line that it was read from; empty for a drawn one."""


@dataclasses.dataclass(frozen=True)
class Response:
    """A sampled response as a reward sees it."""

    text: str
    """Decoded tokens, special ones dropped."""
    tokens: int
    """Length, the end token included."""
    ended: bool
    """False: cut at the length limit."""
    limit: int
    """The length limit, in tokens."""


Reward = Callable[[Problem, Response], float]
"""Scores a response; may raise, which masks the rollout. Importable by name in another process."""
