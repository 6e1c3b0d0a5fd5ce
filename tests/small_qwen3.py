"""A tiny Qwen3 as people bring one: checkpoint, trained tokenizer, chat template and rows in files.

The questions ask for digits or for vowels, and the reward counts characters of the kind that was
asked for: a random policy meets some, and only one that reads its prompt gets beyond half.
"""

import json
import warnings
from pathlib import Path

import checkpoints

from jax_rl.config import Config
from jax_rl.config_file import config_to_dict

LETTERS = {"digits": "0123456789", "vowels": "aeiou"}
"""What a question may ask for -> the characters that count."""
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOKENS, ROWS, RESPONSE = 320, 48, 12
TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' and '</think>' in message.content %}
        {{- message.content.split('</think>')[-1].lstrip('\\n') }}
    {%- else %}
        {{- message.content }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""


def count_asked(prompt: str, response: str, answer: str) -> float:
    """Share of characters that the question asked for, in a response of some length."""
    if answer not in LETTERS.values():
        raise LookupError(f"nothing counts as {answer!r}")
    return sum(c in answer for c in response) / max(len(response), RESPONSE)


def make_rows(count: int = ROWS) -> list[dict[str, str]]:
    """Rows with the columns question and answer, all different."""
    kinds = list(LETTERS)
    return [
        {
            "question": f"Please write {kinds[i % 2]} only, try {i}.",
            "answer": LETTERS[kinds[i % 2]],
        }
        for i in range(count)
    ]


def write_rows(file: Path, rows: list[dict[str, str]] | None = None) -> Path:
    """Writes rows as JSONL, those of `make_rows` if left out."""
    lines = [json.dumps(row) for row in (make_rows() if rows is None else rows)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def write_model(directory: Path, *, seed: int = 0, vocab: int = TOKENS + 16) -> Path:
    """Writes a whole checkpoint directory of random weights; returns it.

    Args:
      directory: where it goes.
      seed: of the weights.
      vocab: rows of the embedding, more than the tokenizer has ids unless told otherwise.
    """
    model = checkpoints.random_model(
        checkpoints.transformers.Qwen3Config(
            **{
                **checkpoints.SHAPE,
                "vocab_size": vocab,
                "hidden_size": 64,
                "intermediate_size": 96,
                "head_dim": 16,
                "tie_word_embeddings": True,
                "bos_token_id": 0,
                "eos_token_id": 2,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
            }
        ),
        seed=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(directory)
    write_tokenizer(directory)
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    return directory


def write_tokenizer(directory: Path) -> None:
    """Trains byte-level BPE on the rows and writes it with what stands beside it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = [" ".join(row.values()) for row in make_rows()] + ["user", "assistant", "system"]
    backend.train_from_iterator(text, trainer)
    backend.save(str(directory / "tokenizer.json"))
    config = {
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": TEMPLATE,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def write_config(file: Path, *, model: Path, rows: Path, samples: int, **text: str) -> Path:
    """Writes the experiment as TOML: GRPO on the rows until so many samples.

    Args:
      file: where it goes.
      model: the checkpoint directory.
      rows: the JSONL file.
      samples: the budget.
      text: more lines, by table.
    """
    tables = {
        "task": (
            'name = "dataset"\nprompt_column = "question"\nmax_prompt_length = 48\n'
            f'max_response_length = {RESPONSE}\ntrain = "{rows}"'
        ),
        "reward": 'verifiers = ["small_qwen3:count_asked"]\nprocesses = 1',
        "model": f'checkpoint = "{model}"',
        "batch": "size = 64\ngroup = 8",
        "optimizer": "learning_rate = 1e-2\nwarmup_samples = 64",
        "validation": "prompts = 16\nevery_samples = 64",
        "budget": f"target = 1.0\nsamples = {samples}",
        "run": "devices = 1",
    }
    lines = [f"[{name}]\n{tables.get(name, '')}\n{text.get(name, '')}\n" for name in _TABLES]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


_TABLES = tuple(config_to_dict(Config()))
