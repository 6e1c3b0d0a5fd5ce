"""The tokenizer of a checkpoint directory in Hugging Face's format."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jax_rl.config import TextConfig
from jax_rl.errors import UserError
from jax_rl.text.base import Message
from jax_rl.text.chat import ChatTemplate, load_template
from jax_rl.text.special_tokens import add_special_tokens, find_end_ids, read_special_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")  # one byte of a character without a token of its own


@dataclasses.dataclass(frozen=True)
class PretrainedTokenizer:
    """tokenizer.json with what the files beside it say; made by `load_tokenizer`.

    Can be pickled. `decode_rows` runs in the threads of the tokenizers package.
    """

    backend: "Backend" = dataclasses.field(repr=False, compare=False)
    """Of the tokenizers package; truncation and padding off."""
    size: int
    """Largest id + 1, added tokens included."""
    pad_id: int
    """The padding token, or an end token where there is none."""
    end_ids: tuple[int, ...]
    """The tokenizer's own end token, then those of the checkpoint's configuration."""
    bos_id: int | None
    """Beginning of sequence, where there is one."""
    opening: tuple[int, ...]
    """What stands before a plain text; with BOS in it or empty, for language models."""
    template: ChatTemplate | None
    special_tokens: dict[str, str] = dataclasses.field(hash=False)
    """By name, for the template."""
    chat: bool
    """A text prompt becomes a user turn."""
    system: str
    """System message that opens every chat; empty: none."""
    enable_thinking: bool | None
    """What the template is told; None: nothing."""

    def encode(self, text: str) -> list[int]:
        """Ids of the text, nothing put before or behind it.

        The strings of special tokens in the text become special tokens, as in transformers: text
        that is not trusted can close its turn of a chat and open another.

        Raises:
          UserError: the text holds half of a surrogate pair, which is no character.
        """
        try:
            return list(self.backend.encode(text, add_special_tokens=False).ids)
        except TypeError as error:
            raise UserError(f"{text!r} holds half of a surrogate pair: not UTF-8") from error

    def encode_prompt(self, prompt: str | Sequence[Message]) -> list[int]:
        """Ids of a prompt as the policy expects them, special tokens as in `encode`.

        A chat is what the template makes of it, ids equal to transformers' `apply_chat_template`:
        the template writes BOS if it wants one. A plain text opens with BOS if the tokenizer adds
        it, and never ends in an end token. Either opens with one BOS at most, though the text
        brings its own.

        Raises:
          UserError: messages without a template or of bad form; two system messages at the start.
        """
        if isinstance(prompt, str) and not self.chat:
            ids = self.encode(prompt)
            while self.bos_id in self.opening and ids[:1] == [self.bos_id]:
                del ids[0]
            return [*self.opening, *ids]
        ids = self.encode(self._render(prompt))
        while self.bos_id is not None and ids[:2] == [self.bos_id, self.bos_id]:
            del ids[0]
        return ids

    def _render(self, prompt: str | Sequence[Message]) -> str:
        if self.template is None:
            raise UserError(
                "a prompt of messages needs a chat template, and the tokenizer has none; name a"
                " file in text.chat_template, or make the prompt a text"
            )
        turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        if self.system:
            if turns and turns[0].get("role") == "system":
                raise UserError(
                    f"text.system is set, and the messages open with a system message of their own"
                    f" ({turns[0].get('content')!r}); leave one of them out"
                )
            turns = [{"role": "system", "content": self.system}, *turns]
        return self.template.render(
            turns, enable_thinking=self.enable_thinking, special_tokens=self.special_tokens
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; special ones, and ids outside the tokenizer, are dropped.

        An embedding may have more rows than the tokenizer has ids, so such ids can be sampled.
        """
        return self.backend.decode(self._drop_unknown(ids), skip_special_tokens=True)

    def decode_rows(self, tokens: np.ndarray, lengths: np.ndarray) -> list[str]:
        """Text of the first lengths[i] ids of each row, as `decode` gives it.

        Args:
          tokens: [n, t] integers; what lies behind a row's length is never looked at.
          lengths: [n] integers, the end token included.
        """
        tokens = np.asarray(tokens)
        known = (tokens >= 0) & (tokens < self.size)
        known &= np.arange(tokens.shape[1])[None, :] < np.asarray(lengths)[:, None]
        rows = [row[keep].tolist() for row, keep in zip(tokens, known, strict=True)]
        return self.backend.decode_batch(rows, skip_special_tokens=True)

    def stream_text(self, ids: Sequence[int]) -> str:
        """Text of a response that still grows: the part that further ids cannot change.

        A character whose bytes are not all there is held back, so each text begins with the one
        of fewer ids, and `decode` of the whole with all of them. Print what is new.
        """
        kept = self._drop_unknown(ids)
        # With a byte fallback one wrong byte spoils its neighbours: the run ends before it shows.
        while kept and self._may_join(kept[-1]):
            del kept[-1]
        text = self.backend.decode(kept, skip_special_tokens=True)
        return text[:-1] if text.endswith("\N{REPLACEMENT CHARACTER}") else text

    def _may_join(self, token_id: int) -> bool:
        """Whether the token is one byte, or nothing, which does not part the bytes around it."""
        token = self.backend.id_to_token(token_id) or ""
        return bool(_BYTE_TOKEN.fullmatch(token)) or not self.decode([token_id])

    def _drop_unknown(self, ids: Sequence[int]) -> list[int]:
        return [int(i) for i in ids if 0 <= i < self.size]


def load_tokenizer(directory: Path, config: TextConfig) -> PretrainedTokenizer:
    """The tokenizer of a checkpoint directory.

    Reads tokenizer.json, and what there is of tokenizer_config.json, special_tokens_map.json,
    generation_config.json, config.json and the chat template's files.

    Args:
      directory: holds tokenizer.json.
      config: how prompts become tokens; `tokenizer` was resolved into `directory`.

    Raises:
      UserError: a file that is missing or broken; no end token; settings that need a chat
        template where none is used.
    """
    backend = _load_backend(directory)
    special = read_special_tokens(directory)
    add_special_tokens(backend, special, directory=directory)
    named = {
        name: _find_id(backend, special.named.get(name), name, directory)
        for name in ("bos_token", "eos_token")
    }
    end_ids = find_end_ids(directory, named["eos_token"])
    pad_id = backend.token_to_id(special.named.get("pad_token", ""))
    opening = _find_opening(backend)
    bos_id = named["bos_token"]
    if bos_id is None and len(opening) == 1:
        bos_id = opening[0]  # a tokenizer.json alone names no token
    if special.adds_bos and bos_id is not None and bos_id not in opening:
        opening = (bos_id, *opening)
    override = Path(config.chat_template) if config.chat_template else None
    template = load_template(directory, override=override)
    return PretrainedTokenizer(
        backend=backend,
        size=max(backend.get_vocab(with_added_tokens=True).values()) + 1,
        pad_id=end_ids[0] if pad_id is None else pad_id,
        end_ids=end_ids,
        bos_id=bos_id,
        opening=opening,
        template=template,
        special_tokens=special.named,
        chat=_decide_chat(config, template, directory),
        system=config.system,
        enable_thinking={"default": None, "on": True, "off": False}[config.thinking],
    )


def _load_backend(directory: Path) -> "Backend":
    from tokenizers import Tokenizer as Backend

    file = directory / "tokenizer.json"
    if not file.is_file():
        names = ("tokenizer.model", "vocab.json", "merges.txt", "tekken.json", "vocab.txt")
        found = [name for name in names if (directory / name).is_file()]
        if not found:
            raise UserError(f"{file}: no such file; a tokenizer is a directory that holds it")
        raise UserError(
            f"{file}: no such file, only {', '.join(found)}; convert once, with transformers:"
            f" AutoTokenizer.from_pretrained({str(directory)!r})"
            f".save_pretrained({str(directory)!r})"
        )
    try:
        backend = Backend.from_file(str(file))
    # The package raises plain Exception, whatever is wrong with the file.
    except Exception as error:
        raise UserError(f"{file}: not a tokenizer that can be read: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    return backend


def _find_id(backend: "Backend", token: str | None, name: str, directory: Path) -> int | None:
    if token is None:
        return None
    if (found := backend.token_to_id(token)) is None:
        raise UserError(
            f"{directory / 'tokenizer_config.json'}: {name} is {token!r}, which"
            f" {directory / 'tokenizer.json'} has no id for; name one of its tokens, or add it to"
            " added_tokens_decoder with its id"
        )
    return found


def _find_opening(backend: "Backend") -> tuple[int, ...]:
    """What the post-processor puts before a text; what it puts behind, no prompt may end in."""
    encoding = backend.encode("a", add_special_tokens=True)
    opening: list[int] = []
    for token_id, sequence in zip(encoding.ids, encoding.sequence_ids, strict=True):
        if sequence is not None:
            break
        opening.append(token_id)
    return tuple(opening)


def _decide_chat(config: TextConfig, template: ChatTemplate | None, directory: Path) -> bool:
    if config.chat == "always" and template is None:
        raise UserError(
            f"text.chat = 'always', but {directory} has no chat template: no chat_template.jinja,"
            " no chat_template.json, no chat_template in tokenizer_config.json; name a file in"
            " text.chat_template, or set text.chat to 'auto' or 'never'"
        )
    chat = config.chat != "never" and template is not None
    for key, is_set in (
        ("system", bool(config.system)),
        ("thinking", config.thinking != "default"),
    ):
        if is_set and not chat:
            why = "text.chat = 'never'" if config.chat == "never" else "there is no chat template"
            raise UserError(
                f"text.{key} = {getattr(config, key)!r} has no effect, for {why}; leave it out, or"
                " use a chat (text.chat, text.chat_template)"
            )
    return chat
