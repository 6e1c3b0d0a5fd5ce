"""What the policy is: its shape and its tokenizer, from a checkpoint directory or from the config.

A directory in Hugging Face's format brings both with it; without one the shape is the
configuration's own and text is read character by character.
"""

import dataclasses
from pathlib import Path

from jax_rl.config import Config, ModelConfig, TextConfig
from jax_rl.config_file import list_values
from jax_rl.errors import UserError
from jax_rl.model.huggingface.families import list_unused_keys, read_model_config
from jax_rl.text.base import Tokenizer
from jax_rl.text.characters import CharTokenizer
from jax_rl.text.pretrained import load_tokenizer

_NOT_SHAPE = ("checkpoint", "compute_dtype", "padded_vocab", "remat")
"""Fields of the model that no checkpoint gives."""


def resolve_model(config: Config) -> tuple[Config, tuple[str, ...]]:
    """The configuration with the shape that its checkpoint gives, and notes for the record.

    Raises:
      UserError: no usable checkpoint is there, or the configuration says another shape.
    """
    if not config.model.checkpoint:
        return config, ()
    directory = Path(config.model.checkpoint).expanduser().resolve()
    if directory.is_file():
        raise UserError(
            f"model.checkpoint = {config.model.checkpoint!r} is a file; its directory is right,"
            f" {directory.parent}"
        )
    model = read_model_config(directory, base=config.model)
    defaults, found = dict(list_values(ModelConfig())), dict(list_values(model))
    for name, value in list_values(config.model):
        if name not in _NOT_SHAPE and value not in (defaults[name], found[name]):
            raise UserError(
                f"model.{name} = {value!r}, but {directory / 'config.json'} gives {found[name]!r};"
                " leave it out, or leave model.checkpoint out for random weights"
            )
    if config.warm_start.updates:
        raise UserError(
            f"warm_start.updates = {config.warm_start.updates} with model.checkpoint ="
            f" {config.model.checkpoint!r}: a policy starts from the one or from the other;"
            " set warm_start.updates = 0"
        )
    unused = ", ".join(list_unused_keys(directory))
    notes = (f"keys of {directory / 'config.json'} that are not used: {unused}",) if unused else ()
    return dataclasses.replace(config, model=model), notes


def choose_tokenizer(config: Config) -> Tokenizer:
    """The tokenizer of text.tokenizer, else of the checkpoint, else single characters.

    Raises:
      UserError: no usable tokenizer is there, or the model has no row for what ends a response.
    """
    directory = config.text.tokenizer or config.model.checkpoint
    if not directory:
        for name, value in list_values(config.text):
            if value != getattr(TextConfig(), name):
                raise UserError(
                    f"text.{name} = {value!r} belongs to a tokenizer.json, and there is none:"
                    " set text.tokenizer or model.checkpoint to a directory with one"
                )
        return _check_size(CharTokenizer(), config)
    tokenizer = load_tokenizer(Path(directory).expanduser(), config.text)
    return tokenizer if config.model.checkpoint else _check_size(tokenizer, config)


def _check_size(tokenizer: Tokenizer, config: Config) -> Tokenizer:
    """A model made for a tokenizer has a row for each of its ids."""
    if config.model.vocab < tokenizer.size:
        raise UserError(
            f"model.vocab = {config.model.vocab} is smaller than the tokenizer, which has"
            f" {tokenizer.size} tokens; at least that many are needed"
        )
    return tokenizer


def choose_end_ids(tokenizer: Tokenizer, vocab: int) -> tuple[int, ...]:
    """The ids that end a response, those left out that the embedding has no row for.

    Raises:
      UserError: none is left.
    """
    ends = tuple(i for i in tokenizer.end_ids if i < vocab)
    if not ends:
        raise UserError(
            f"the tokenizer's end ids {tokenizer.end_ids} are all outside of the embedding, which"
            f" has {vocab} rows; tokenizer and model.checkpoint must belong together"
        )
    return ends
