"""Which tokens of a checkpoint are special: begin, end, padding and the template's own."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_rl.errors import UserError
from jax_rl.text.files import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")
_LISTS = ("additional_special_tokens", "extra_special_tokens")


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """What tokenizer_config.json and special_tokens_map.json say."""

    named: dict[str, str]
    """`bos_token`, `eos_token` and so on, as chat templates read them."""
    unnamed: tuple[str, ...]
    """Special tokens without such a name."""
    added: dict[int, dict[str, Any]]
    """Id -> text and flags of tokens beside the vocabulary."""
    adds_bos: bool
    """add_bos_token: the tokenizer opens plain text with its BOS."""


def read_special_tokens(directory: Path) -> SpecialTokens:
    """Special tokens of a checkpoint directory; files that are not there say nothing.

    Where the two files differ tokenizer_config.json holds, if it lists its added tokens (as
    all do that were written since 2023), else special_tokens_map.json.

    Raises:
      UserError: broken JSON, a token in an unknown form, or a setting that is not implemented.
    """
    place = directory / "tokenizer_config.json"
    config, tokens = read_json(place), read_json(directory / "special_tokens_map.json")
    if config.get("split_special_tokens"):
        raise UserError(
            f"{place}: split_special_tokens = true is not implemented: chat templates need special"
            " tokens to be read as such; set it to false"
        )
    both = {**tokens, **config} if "added_tokens_decoder" in config else {**config, **tokens}
    unnamed = [item for key in _LISTS for item in _list_tokens(both.get(key))]
    try:
        added = {int(key): dict(v) for key, v in (config.get("added_tokens_decoder") or {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{place}: added_tokens_decoder must map ids to tokens: {error}") from error
    return SpecialTokens(
        named={
            name: _read_token(both[name], f"{place}: {name}")
            for name in (*_NAMES, "mask_token")
            if both.get(name) is not None
        },
        unnamed=tuple(_read_token(item, f"{place}: special token") for item in unnamed),
        added={i: {**v, "content": _read_token(v, f"{place}: {i}")} for i, v in added.items()},
        adds_bos=config.get("add_bos_token") is True,
    )


def add_special_tokens(backend: "Backend", special: SpecialTokens, *, directory: Path) -> None:
    """Makes the backend read and drop the special tokens as such; changes it in place.

    A token that no file gives an id gets none: no embedding was trained for it.

    Raises:
      UserError: an added token cannot have the id that it was trained with.
    """
    from tokenizers import AddedToken

    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    for token_id, entry in sorted(special.added.items()):
        content = entry["content"]
        if backend.token_to_id(content) is None:
            chosen = {flag: entry[flag] for flag in flags if flag in entry}
            backend.add_tokens([AddedToken(content, **chosen)])
            if (found := backend.token_to_id(content)) != token_id:
                raise UserError(
                    f"{directory / 'tokenizer_config.json'}: added_tokens_decoder gives {content!r}"
                    f" the id {token_id}, but {directory / 'tokenizer.json'} has no token for every"
                    f" id below it ({found} is the next); save the tokenizer again so that they"
                    " agree"
                )
    known = {
        token.content for token in backend.get_added_tokens_decoder().values() if token.special
    }
    for content in (*special.named.values(), *special.unnamed):
        if content not in known and backend.token_to_id(content) is not None:
            backend.add_special_tokens([AddedToken(content, special=True, normalized=False)])


def find_end_ids(directory: Path, own: int | None) -> tuple[int, ...]:
    """Ids that end a response: the tokenizer's own end token, then the others, ascending.

    The union of `own` and eos_token_id in generation_config.json and config.json; the token that
    ends a turn of a chat is in the former where it is another than the tokenizer's.

    Args:
      directory: a checkpoint.
      own: id of the tokenizer's eos_token, if it has one.

    Raises:
      UserError: there is none, or one that is no id.
    """
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        value = read_json(directory / name).get("eos_token_id")
        for item in value if isinstance(value, list) else [] if value is None else [value]:
            if type(item) is not int or item < 0:
                raise UserError(f"{directory / name}: eos_token_id = {value!r} must hold ids")
            found.add(item)
    if own is None and not found:
        raise UserError(
            f"{directory}: nothing says which token ends a response; looked for eos_token_id in"
            " generation_config.json and config.json, and for eos_token in tokenizer_config.json"
            " and special_tokens_map.json"
        )
    return (() if own is None else (own,)) + tuple(sorted(found - {own}))


def _read_token(value: Any, where: str) -> str:
    content = value.get("content") if isinstance(value, Mapping) else value
    if not isinstance(content, str) or not content:
        raise UserError(f"{where} is {value!r}; a text, or an object with content, is right")
    return content


def _list_tokens(value: Any) -> list[Any]:
    if isinstance(value, Mapping):  # name of a model-specific token -> token
        return list(value.values())
    return list(value) if isinstance(value, list) else []
