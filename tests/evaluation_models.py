"""A tiny checkpoint directory with a tokenizer of bytes and a chat template."""

import json
from pathlib import Path
from typing import Any

import checkpoints
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from trainer_runs import Sevens

from jax_rl.rewards.base import Problem, Response

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
SPECIALS = ["<pad>", "<s>", "</s>"]
VOCAB = 264
"""Rows of the embedding: the tokenizer's 259, and some more so that every layout splits it."""


def prefer_high_letters(problem: Problem, response: Response) -> float:
    return sum(character > "O" for character in response.text) / 4


class HighLetters(Sevens):
    """Any response of bytes earns something, so that each group has a gradient."""

    name = "high_letters"
    reward = staticmethod(prefer_high_letters)


def write_model(directory: Path, *, template: str | None = TEMPLATE, family: str = "qwen3") -> Any:
    """Writes the checkpoint; one token per byte, id 2 ends a response. Returns the torch model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(checkpoints.SHAPE, "vocab_size", VOCAB)
        model = checkpoints.write_checkpoint(family, directory)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: number for number, token in enumerate([*SPECIALS, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings: dict[str, Any] = {"eos_token": "</s>", "pad_token": "<pad>"}
    if template is not None:
        settings["chat_template"] = template
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return model
