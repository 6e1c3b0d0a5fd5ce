"""One token per character, for the built-in tasks."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jax_rl.errors import UserError
from jax_rl.text.base import Message

ALPHABET = "0123456789+-*/=:!?.,<>()[]^% "
_SPECIALS = 3
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


@dataclasses.dataclass(frozen=True)
class CharTokenizer:
    """One id per character: pad 0, bos 1, end 2, then the 29 characters of `ALPHABET`."""

    size: int = _SPECIALS + len(ALPHABET)
    pad_id: int = 0
    bos_id: int = 1
    end_ids: tuple[int, ...] = (2,)
    chat: bool = False

    def encode(self, text: str) -> list[int]:
        """Ids of the text, no special token among them.

        Raises:
          UserError: a character is not in `ALPHABET`.
        """
        try:
            return [_IDS[character] for character in text]
        except KeyError as error:
            place = next(i for i, character in enumerate(text) if character not in _IDS)
            raise UserError(
                f"character {text[place]!r} at place {place} of {text!r} has no token;"
                f" the character tokenizer knows {ALPHABET!r}"
            ) from error

    def encode_prompt(self, prompt: str | Sequence[Message]) -> list[int]:
        """Ids of a prompt: bos, then the text.

        Raises:
          UserError: a character without a token, or a chat, which has no template here.
        """
        if not isinstance(prompt, str):
            raise UserError(
                f"the character tokenizer has no chat template for {list(prompt)!r}; a text is"
                " right, or a tokenizer with a template (text.tokenizer)"
            )
        return [self.bos_id, *self.encode(prompt)]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of all the ids: specials dropped, an id outside the tokenizer as U+FFFD."""
        return "".join(_CHARACTERS[i] if 0 <= i < self.size else _UNKNOWN for i in ids)

    def stream_text(self, ids: Sequence[int]) -> str:
        """Text of the ids so far; each is whole."""
        return self.decode(ids)

    def decode_rows(self, tokens: np.ndarray, lengths: np.ndarray) -> list[str]:
        """Text of the first lengths[i] ids of each row, as `decode` gives it.

        Args:
          tokens: [n, t] integers; what lies behind a row's length is never looked at.
          lengths: [n] integers, the end token included.
        """
        rows, width = tokens.shape
        known = (tokens >= 0) & (tokens < self.size)
        points = _CODE_POINTS[np.where(known, tokens, self.size)]
        points[np.arange(width)[None, :] >= np.asarray(lengths)[:, None]] = 0
        # One decode of the whole block, then slices: a join per row is ten times slower.
        whole = points.tobytes().decode("utf-32-le")
        return [whole[i * width : (i + 1) * width].replace("\0", "") for i in range(rows)]


_IDS = {character: i for i, character in enumerate(ALPHABET, start=_SPECIALS)}
_CHARACTERS = ("",) * _SPECIALS + tuple(ALPHABET)
# A special token is code point 0, which `decode_rows` removes; the last entry is for unknown ids.
_CODE_POINTS = np.array([ord(c) if c else 0 for c in (*_CHARACTERS, _UNKNOWN)], dtype="<u4")
