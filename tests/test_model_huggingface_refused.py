"""What config.json asks for and this code does not do is refused by name, with the file."""

import math
import re
from pathlib import Path

import pytest
from checkpoints import write_config

from jax_rl.config import ModelConfig
from jax_rl.errors import UserError
from jax_rl.model.huggingface.families import read_model_config

BASE = ModelConfig()
REQUIRED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)
LINEAR = {"rope_type": "linear", "factor": 2.0}
BAD = {
    "an unknown family": ("llama", {"model_type": "qwen2_5"}, "nearest: 'qwen2'.*known: llama"),
    "a mixture": ("qwen3", {"model_type": "qwen3_moe"}, "qwen3_moe.*not implemented"),
    "experts": ("qwen3", {"num_experts": 8}, "num_experts = 8.*experts"),
    "multimodal": ("gemma3", {"model_type": "gemma3", "vision_config": {}}, "gemma3.*multimodal"),
    "a classifier": (
        "llama",
        {"architectures": ["LlamaForSequenceClassification"]},
        "LlamaForSequenceClassification.*LlamaForCausalLM.*right",
    ),
    "quantized": ("llama", {"quantization_config": {"quant_method": "gptq"}}, "gptq.*quantized"),
    "biases of the feed-forward": ("llama", {"mlp_bias": True}, "mlp_bias = true"),
    "a bias on the output": ("llama", {"attention_bias": True}, "attention_bias = true.*output"),
    "the same in Qwen3": ("qwen3", {"attention_bias": True}, "attention_bias = true"),
    "the same in Gemma": ("gemma3", {"attention_bias": True}, "attention_bias = true"),
    "dropout": ("llama", {"attention_dropout": 0.1}, r"attention_dropout = 0\.1"),
    "part of a head": ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
    "part of a head, newer": (
        "llama",
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        r"rope_parameters\.partial_rotary_factor = 0.5",
    ),
    "an activation": ("llama", {"hidden_act": "gelu"}, 'hidden_act = "gelu".*known: silu'),
    "an activation of Gemma": ("gemma3", {"hidden_activation": "relu"}, "hidden_activation"),
    "both directions": ("gemma3", {"use_bidirectional_attention": True}, "bidirectional"),
    "caps in Gemma 3": ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50"),
    "dynamic rope": ("llama", {"rope_parameters": {**LINEAR, "rope_type": "dynamic"}}, "dynamic"),
    "long rope": ("llama", {"rope_scaling": {"type": "longrope"}}, "longrope.*known.*yarn"),
    "scaled local layers": (
        "gemma3",
        {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": LINEAR}},
        "sliding_attention.*local layers",
    ),
    "flat rope in Gemma 3": ("gemma3", {"rope_parameters": LINEAR}, "full_attention.*missing"),
    "rope by type elsewhere": (
        "qwen3",
        {"rope_parameters": {"full_attention": LINEAR}},
        "gemma3_text only",
    ),
    "two ropes": ("llama_linear", {"rope_scaling": LINEAR}, "rope_scaling.*keep one"),
    "two bases": ("llama", {"rope_theta": 5.0}, "rope_theta = 5.*10000; keep one"),
    "two local bases": ("gemma3", {"rope_local_base_freq": 7.0}, "freq = 7.*10000; keep one"),
    "two kinds": (
        "llama",
        {"rope_parameters": {"type": "yarn", "rope_type": "default"}},
        "rope_parameters.type",
    ),
    "no factor": ("llama", {"rope_parameters": {"rope_type": "linear"}}, "rope_parameters.factor"),
    "frequencies crossed": (
        "llama",
        {
            "rope_parameters": {
                **LINEAR,
                "rope_type": "llama3",
                "low_freq_factor": 4.0,
                "high_freq_factor": 4.0,
            }
        },
        "high_freq_factor = 4.0",
    ),
    "a wrong type": ("llama", {"hidden_size": "32"}, 'hidden_size = "32": a whole number'),
    "a number for a flag": ("llama", {"tie_word_embeddings": 1}, "tie_word_embeddings = 1: true"),
    "zero layers": ("llama", {"num_hidden_layers": 0}, "num_hidden_layers = 0.*at least 1"),
    "not finite": ("llama", {"rms_norm_eps": math.nan}, "rms_norm_eps = NaN"),
    "heads that do not divide": ("llama", {"num_key_value_heads": 3}, "3 must divide.*16"),
    "an odd head": ("llama", {"head_dim": 7}, "head_dim = 7: 7 must be even"),
    "width without head_dim": (
        "llama",
        {"head_dim": None, "hidden_size": 33},
        "multiple of the 16",
    ),
    "too few layer types": ("gemma3", {"layer_types": ["full_attention"]}, "4 names"),
    "another layer type": (
        "gemma3",
        {"layer_types": ["chunked_attention"] * 4},
        "'chunked_attention' is not implemented",
    ),
    "mixed layers in Mistral": (
        "mistral",
        {"layer_types": ["full_attention", "sliding_attention"]},
        "all layers of this family",
    ),
    "local layers without a window": ("gemma3", {"sliding_window": None}, "sliding_window = null"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_implemented_is_refused_by_name(case: str, tmp_path: Path) -> None:
    name, changes, message = BAD[case]
    write_config(tmp_path, name, **changes)
    with pytest.raises(UserError, match=message) as error:
        read_model_config(tmp_path, base=BASE)
    assert str(error.value).startswith(f"{tmp_path / 'config.json'}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["model_type", *REQUIRED])
def test_a_missing_key_is_named(key: str, tmp_path: Path) -> None:
    write_config(tmp_path, "llama", key)
    with pytest.raises(UserError, match=f"config.json: the key '{key}' is missing"):
        read_model_config(tmp_path, base=BASE)


def test_no_config_or_no_json(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(f"{tmp_path / 'config.json'}: not found")):
        read_model_config(tmp_path, base=BASE)
    for text, message in (("{", "not JSON"), ("[]", "found list")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UserError, match=message):
            read_model_config(tmp_path, base=BASE)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(UserError, match="not JSON"):
        read_model_config(tmp_path, base=BASE)
