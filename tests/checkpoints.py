"""Tiny random checkpoints of every family, written by the Hugging Face implementation itself.

The numbers are chosen so that every feature shows in the logits: windows shorter than a prompt,
caps that bind, scales that differ from the default, rope scaling with a threshold at 32.
"""

import copy
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="checkpoints are built with torch")
    transformers = pytest.importorskip(
        "transformers", reason="checkpoints are built with transformers"
    )

SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ORIGINAL_LENGTH = 32
"""Positions before the rope scaling of the families that have one."""


def _llama(**changes: Any) -> Any:
    return transformers.LlamaConfig(**{**SHAPE, "head_dim": 16, **changes})


def _scaled(rope_type: str, **keys: Any) -> dict[str, Any]:
    return {"rope_type": rope_type, "rope_theta": 10_000.0, "factor": 4.0, **keys}


def _gemma3(**changes: Any) -> Any:
    values = {
        **SHAPE,
        "num_hidden_layers": 4,
        "head_dim": 16,
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 24,
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    }
    return transformers.Gemma3TextConfig(**{**values, **changes})


FAMILIES: dict[str, Callable[[], Any]] = {
    # Heads, feed-forward and vocabulary divide 8, so that every layout takes it.
    "llama": lambda: _llama(num_attention_heads=16, num_key_value_heads=8, head_dim=8),
    "llama_llama3": lambda: _llama(
        tie_word_embeddings=True,
        rope_parameters=_scaled(
            "llama3",
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=ORIGINAL_LENGTH,
        ),
    ),
    "llama_linear": lambda: _llama(rope_parameters=_scaled("linear")),
    "llama_yarn": lambda: _llama(
        rope_parameters=_scaled("yarn", original_max_position_embeddings=ORIGINAL_LENGTH)
    ),
    "smollm2": lambda: _llama(
        vocab_size=96,
        hidden_size=72,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=8,
        tie_word_embeddings=True,
        pad_token_id=2,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
    ),
    "mistral": lambda: transformers.MistralConfig(
        **{**SHAPE, "vocab_size": 90, "head_dim": 8, "sliding_window": 6, "rms_norm_eps": 1e-5}
    ),
    "qwen2": lambda: transformers.Qwen2Config(
        **{**SHAPE, "tie_word_embeddings": True},
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
    ),
    "qwen2_window": lambda: transformers.Qwen2Config(
        **{**SHAPE, "num_hidden_layers": 3},
        use_sliding_window=True,
        sliding_window=6,
        max_window_layers=1,
    ),
    "qwen3": lambda: transformers.Qwen3Config(
        **{**SHAPE, "head_dim": 16, "tie_word_embeddings": True},
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
    ),
    "qwen3_yarn": lambda: transformers.Qwen3Config(
        **{**SHAPE, "head_dim": 16},
        rope_parameters=_scaled(
            "yarn",
            original_max_position_embeddings=ORIGINAL_LENGTH,
            beta_fast=4.0,
            beta_slow=0.5,
            truncate=False,
            mscale=2.0,
            mscale_all_dim=1.0,
        ),
    ),
    "gemma2": lambda: transformers.Gemma2Config(
        **{**SHAPE, "head_dim": 16, "tie_word_embeddings": True},
        query_pre_attn_scalar=24,
        sliding_window=6,
        attn_logit_softcapping=1.5,
        final_logit_softcapping=2.0,
    ),
    "gemma3": _gemma3,
    "gemma3_linear": lambda: _gemma3(
        rope_parameters={
            "full_attention": {
                "rope_type": "linear",
                "rope_theta": 1_000_000.0,
                "factor": 4.0,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        }
    ),
}
"""Name -> Hugging Face configuration, made anew by each call."""


def write_checkpoint(
    name: str,
    directory: Path,
    *,
    seed: int = 0,
    dtype: str = "float32",
    max_shard_size: int | str = "5GB",
) -> Any:
    """Writes the checkpoint of `FAMILIES[name]`; the model, eager and in float32.

    Args:
      name: key of `FAMILIES`.
      directory: where it goes.
      seed: of all weights, norms and biases.
      dtype: type on disk; the returned model holds the same values in float32.
      max_shard_size: as `save_pretrained` takes it.
    """
    model = random_model(FAMILIES[name](), seed=seed)
    # A cast of the model itself would round its rotary frequencies too.
    stored = copy.deepcopy(model).to(getattr(torch, dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stored.save_pretrained(directory, max_shard_size=max_shard_size)
    model.load_state_dict(stored.state_dict())
    return model


def random_model(config: Any, *, seed: int = 0) -> Any:
    """A model with random weights, none of them at its neutral value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", dtype=torch.float32
        )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim == 2:
                weight.copy_(noise / math.sqrt(weight.shape[1]))
            else:  # norms and biases: around their neutral value, far enough to show
                weight.add_(0.3 * noise)
    model.tie_weights()
    return model.eval()


def write_config(directory: Path, name: str, *remove: str, **changes: Any) -> Path:
    """Writes the config.json of a family alone, edited as `edit_config` does it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = FAMILIES[name]()
        config.architectures = [
            transformers.AutoModelForCausalLM._model_mapping[type(config)].__name__
        ]
        config.save_pretrained(directory)
    edit_config(directory, *remove, **changes)
    return directory


def read_json(directory: Path, name: str = "config.json") -> dict[str, Any]:
    """A JSON file of a checkpoint."""
    data: dict[str, Any] = json.loads((directory / name).read_text(encoding="utf-8"))
    return data


def edit_config(directory: Path, *remove: str, **changes: Any) -> None:
    """Removes keys from config.json, then sets others."""
    data = {k: v for k, v in read_json(directory).items() if k not in remove} | changes
    (directory / "config.json").write_text(json.dumps(data), encoding="utf-8")


def edit_tensors(directory: Path, change: Any) -> None:
    """Applies `change` to the dict of tensors of a single file."""
    from safetensors.numpy import load_file, save_file

    state = load_file(directory / "model.safetensors")
    change(state)
    save_file(state, directory / "model.safetensors", metadata={"format": "pt"})
