"""What the trainer needs from a tokenizer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # each process that scores imports this file, and has no other use for NumPy
    import numpy as np

Message = dict[str, str]
"""One turn of a chat: role and content."""


class Tokenizer(Protocol):
    """What the trainer needs from a tokenizer; ids at or above `size` never come out of it."""

    @property
    def size(self) -> int:
        """Number of ids."""

    @property
    def pad_id(self) -> int:
        """Fills rows up; masks come from lengths, so its value is never looked at."""

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Each of these ends a response."""

    @property
    def chat(self) -> bool:
        """Whether a text prompt becomes a user turn."""

    def encode(self, text: str) -> list[int]:
        """Ids of the text, no special token among them."""

    def encode_prompt(self, prompt: str | Sequence[Message]) -> list[int]:
        """Ids of a prompt, a text or the turns of a chat, as the policy expects them.

        Opens with exactly one beginning-of-sequence token where the tokenizer has one.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, special tokens dropped."""

    def stream_text(self, ids: Sequence[int]) -> str:
        """Text of a response that is still being sampled, without what more ids may change."""

    def decode_rows(self, tokens: "np.ndarray", lengths: "np.ndarray") -> list[str]:
        """Text of the first lengths[i] ids of each row."""
