"""config.json -> ModelConfig, against transformers' own configuration classes."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from checkpoints import FAMILIES, edit_config, read_json, transformers, write_config

from jax_rl.config import ModelConfig, RopeConfig
from jax_rl.model.huggingface.families import list_unused_keys, read_model_config
from jax_rl.model.huggingface.names import list_tensors
from jax_rl.model.weights import count_parameters

BASE = ModelConfig(compute_dtype="bfloat16", remat="dots", layers=77, norm_offset=True)
WINDOWED = ("mistral", "qwen2", "qwen3", "gemma2", "gemma3_text")
MINIMAL = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 7,
    "num_attention_heads": 32,
}


def write_json(directory: Path, **data: Any) -> Path:
    (directory / "config.json").write_text(json.dumps(data), encoding="utf-8")
    return directory


def write_older(directory: Path) -> None:
    """Rewrites config.json with the keys of transformers before version 5."""
    data = read_json(directory)
    data["torch_dtype"] = data.pop("dtype", "float32")
    rope = data.pop("rope_parameters")
    if "full_attention" in rope:
        data["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    data["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    third = data["model_type"] == "gemma3_text"
    named = {"rope_type" if third else "type": kind}  # its class does not know "type"
    data["rope_scaling"] = None if kind == "default" else {**named, **rope}
    if third:
        data["sliding_window_pattern"] = 2
    data.pop("layer_types", None)
    (directory / "config.json").write_text(json.dumps(data), encoding="utf-8")


def check_against_transformers(model: ModelConfig, directory: Path) -> None:
    """Every field that a transformers configuration has too."""
    theirs = transformers.AutoConfig.from_pretrained(directory)
    gemma = theirs.model_type.startswith("gemma")
    kinds = getattr(theirs, "layer_types", None)
    if theirs.model_type == "mistral":
        kinds = ["sliding_attention" if theirs.sliding_window else ""] * theirs.num_hidden_layers
    local = tuple(i for i, kind in enumerate(kinds or []) if kind == "sliding_attention")
    rope = theirs.rope_parameters
    if theirs.model_type == "gemma3_text":
        assert model.rope.local_theta == rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    else:
        assert model.rope.local_theta == 0
    head_dim = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    scale = theirs.query_pre_attn_scalar**-0.5 if gemma else 0.0
    activation = theirs.hidden_activation if gemma else theirs.hidden_act
    assert model == ModelConfig(
        checkpoint=str(directory),
        layers=theirs.num_hidden_layers,
        embed=theirs.hidden_size,
        heads=theirs.num_attention_heads,
        kv_heads=theirs.num_key_value_heads,
        head_dim=head_dim,
        mlp=theirs.intermediate_size,
        activation={"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}[activation],
        vocab=theirs.vocab_size,
        qk_norm=theirs.model_type in ("qwen3", "gemma3_text"),
        attention_bias=theirs.model_type == "qwen2",
        tied_head=theirs.tie_word_embeddings,
        rope=model.rope,
        max_length=theirs.max_position_embeddings,
        norm_epsilon=theirs.rms_norm_eps,
        norm_offset=gemma,
        post_norms=gemma,
        embedding_scale=gemma,
        attention_scale=scale,
        attention_softcap=getattr(theirs, "attn_logit_softcapping", None) or 0.0,
        final_softcap=getattr(theirs, "final_logit_softcapping", None) or 0.0,
        sliding_window=theirs.sliding_window if local else 0,
        local_layers=local,
        compute_dtype="bfloat16",
        remat="dots",
    )
    assert model.rope.theta == rope["rope_theta"]
    assert model.rope.scaling == rope["rope_type"].replace("default", "none")
    assert model.rope.factor == rope.get("factor", 1.0)
    assert model.rope.original_length == rope.get("original_max_position_embeddings", 0)


PUBLISHED = {
    "SmolLM2-135M": (
        134_515_008,
        """{"architectures": ["LlamaForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0,
        "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576,
        "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
        "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
        "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.42.3",
        "transformers.js_config": {"kv_cache_dtype": {}}, "use_cache": true,
        "vocab_size": 49152}""",
    ),
    "Llama-3.2-1B": (
        1_235_814_400,
        """{"architectures": ["LlamaForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu",
        "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
        "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
        "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0,
        "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256}""",
    ),
    "Qwen2.5-0.5B": (
        494_032_768,
        """{"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896,
        "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768,
        "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
        "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "use_cache": true, "use_mrope": false,
        "use_sliding_window": false, "vocab_size": 151936}""",
    ),
    "Qwen3-0.6B": (
        596_049_920,
        """{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
        "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
        "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
        "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "use_cache": true, "use_sliding_window": false, "vocab_size": 151936}""",
    ),
    "Gemma 3 1B": (
        999_885_952,
        """{"architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0,
        "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
        "eos_token_id": [1, 106], "final_logit_softcapping": null, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
        "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
        "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
        "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
        "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000,
        "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
        "use_cache": true, "vocab_size": 262144}""",
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_give_models_of_the_published_size(name: str, tmp_path: Path) -> None:
    size, text = PUBLISHED[name]
    (tmp_path / "config.json").write_text(text)
    model = read_model_config(tmp_path, base=BASE)
    assert count_parameters(model) == size
    assert sum(math.prod(tensor.shape) for tensor in list_tensors(model)) == size
    assert list_unused_keys(tmp_path) == ()
    check_against_transformers(model, tmp_path)


@pytest.mark.parametrize("name", FAMILIES)
def test_both_key_styles_give_what_transformers_reads(name: str, tmp_path: Path) -> None:
    newer = read_model_config(write_config(tmp_path, name), base=BASE)
    check_against_transformers(newer, tmp_path)
    assert list_unused_keys(tmp_path) == ()
    write_older(tmp_path)
    assert read_model_config(tmp_path, base=BASE) == newer
    check_against_transformers(newer, tmp_path)
    assert list_unused_keys(tmp_path) == ()


@pytest.mark.parametrize("model_type", ["llama", *WINDOWED])
def test_absent_keys_take_the_defaults_of_the_family(model_type: str, tmp_path: Path) -> None:
    write_json(tmp_path, model_type=model_type, **MINIMAL)
    check_against_transformers(read_model_config(tmp_path, base=BASE), tmp_path)


def test_null_differs_from_absent_where_it_does_in_transformers(tmp_path: Path) -> None:
    write_json(tmp_path, model_type="mistral", sliding_window=None, head_dim=None, **MINIMAL)
    model = read_model_config(tmp_path, base=BASE)
    assert (model.sliding_window, model.local_layers, model.kv_heads) == (0, (), 8)
    check_against_transformers(model, tmp_path)
    sixteen = {**MINIMAL, "num_attention_heads": 16}  # qwen2 has 32 if the key is absent
    write_json(tmp_path, model_type="qwen2", num_key_value_heads=None, **sixteen)
    model = read_model_config(tmp_path, base=BASE)
    assert model.kv_heads == 16
    check_against_transformers(model, tmp_path)
    caps = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    write_json(tmp_path, model_type="gemma2", **MINIMAL, **caps)
    model = read_model_config(tmp_path, base=BASE)
    assert (model.attention_softcap, model.final_softcap) == (0, 0)


def test_layer_types_go_before_the_pattern_and_the_window_is_kept_only_if_used(
    tmp_path: Path,
) -> None:
    kinds = ["full_attention"] * 6 + ["sliding_attention"]
    write_json(
        tmp_path,
        model_type="gemma3_text",
        layer_types=kinds,
        sliding_window_pattern=2,
        sliding_window=9,
        **MINIMAL,
    )
    model = read_model_config(tmp_path, base=BASE)
    assert (model.sliding_window, model.local_layers) == (9, (6,))
    edit_config(tmp_path, layer_types=["full_attention"] * 7)
    model = read_model_config(tmp_path, base=BASE)
    assert (model.sliding_window, model.local_layers) == (0, ())
    write_json(
        tmp_path,
        model_type="qwen3",
        use_sliding_window=True,
        sliding_window=5,
        max_window_layers=4,
        **MINIMAL,
    )
    model = read_model_config(tmp_path, base=BASE)
    assert (model.sliding_window, model.local_layers) == (5, (4, 5, 6))
    edit_config(tmp_path, use_sliding_window=False)
    assert read_model_config(tmp_path, base=BASE).local_layers == ()


@pytest.mark.parametrize(
    ("changes", "factor"),
    [
        ({}, 0.1 * math.log(4) + 1),
        ({"attention_factor": 1.5}, 1.5),
        ({"mscale": 2.0}, 0.1 * math.log(4) + 1),
        (
            {"mscale": 2.0, "mscale_all_dim": 0.5},
            (0.2 * math.log(4) + 1) / (0.05 * math.log(4) + 1),
        ),
        ({"mscale": 2.0, "mscale_all_dim": 0}, 0.1 * math.log(4) + 1),
        ({"factor": 1.0}, 1.0),
        ({"factor": None}, 0.1 * math.log(4) + 1),  # length / original length, 128 / 32
    ],
)
def test_yarn_takes_the_attention_factor_of_transformers(
    changes: dict[str, Any], factor: float, tmp_path: Path
) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    write_config(tmp_path, "llama_yarn")
    rope = read_json(tmp_path)["rope_parameters"] | changes
    edit_config(tmp_path, rope_parameters=rope)
    found = read_model_config(tmp_path, base=BASE).rope
    assert found.attention_factor == pytest.approx(factor, rel=1e-12)
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    assert ROPE_INIT_FUNCTIONS["yarn"](theirs, "cpu")[1] == pytest.approx(factor, rel=1e-12)
    assert (found.beta_fast, found.beta_slow, found.truncate) == (32, 1, True)


def test_yarn_and_llama3_tables_are_read_whole(tmp_path: Path) -> None:
    write_config(tmp_path, "qwen3_yarn")
    rope = read_model_config(tmp_path, base=BASE).rope
    assert (rope.beta_fast, rope.beta_slow, rope.truncate) == (4, 0.5, False)
    write_config(tmp_path, "llama_llama3")
    table = read_json(tmp_path)["rope_parameters"] | {"low_freq_factor": 2, "high_freq_factor": 6}
    edit_config(tmp_path, rope_parameters=table)
    assert read_model_config(tmp_path, base=BASE).rope == RopeConfig(
        theta=10_000.0,
        scaling="llama3",
        factor=4.0,
        original_length=32,
        low_frequency_factor=2.0,
        high_frequency_factor=6.0,
    )


def test_longest_length_of_each_scaling(tmp_path: Path) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    for scaling, stated, right in (
        (yarn, 32768, 131_072),  # Qwen2.5's model card: add the table, leave the rest
        (yarn, 131_072, 131_072),
        ({"type": "yarn", "factor": 4.0}, 100, 400),
        ({"type": "linear", "factor": 8.0}, 16384, 16384),
        (None, 4096, 4096),
    ):
        write_json(
            tmp_path,
            model_type="qwen2",
            max_position_embeddings=stated,
            rope_scaling=scaling,
            **MINIMAL,
        )
        assert read_model_config(tmp_path, base=BASE).max_length == right
    write_config(tmp_path, "llama_llama3")
    assert read_model_config(tmp_path, base=BASE).max_length == 128


def test_unknown_keys_are_listed_and_harmless_ones_are_not(tmp_path: Path) -> None:
    write_config(
        tmp_path,
        "llama_yarn",
        attention_multiplier=3.0,
        sliding_window=7,
        _name_or_path="x",
        use_cache=False,
        eos_token_id=[1, 2],
    )
    edit_config(
        tmp_path, rope_parameters=read_json(tmp_path)["rope_parameters"] | {"attn_factor": 2.0}
    )
    assert list_unused_keys(tmp_path) == (
        "attention_multiplier",
        "rope_parameters.attn_factor",
        "sliding_window",
    )


def test_the_same_rope_twice_is_accepted(tmp_path: Path) -> None:
    write_config(tmp_path, "llama_linear")
    once = read_model_config(tmp_path, base=BASE)
    table = read_json(tmp_path)["rope_parameters"]
    edit_config(tmp_path, rope_scaling=table, rope_theta=10_000)
    assert read_model_config(tmp_path, base=BASE) == once


def test_only_compute_dtype_and_remat_come_from_the_base(tmp_path: Path) -> None:
    write_config(tmp_path, "llama")
    model = read_model_config(tmp_path, base=BASE)
    neutral = read_model_config(tmp_path, base=ModelConfig())
    assert model == dataclasses.replace(neutral, compute_dtype="bfloat16", remat="dots")
