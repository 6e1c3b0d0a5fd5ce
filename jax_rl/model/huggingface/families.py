"""config.json of a Hugging Face checkpoint -> `ModelConfig`, one row per family.

Whatever a file asks for and this code does not do is refused by name; keys that nothing here
knows are listed by `list_unused_keys`.
"""

import dataclasses
import difflib
from pathlib import Path
from typing import Any, Literal

from jax_rl.config import ModelConfig
from jax_rl.model.huggingface.keys import Keys, read_object
from jax_rl.model.huggingface.known_keys import HARMLESS, NEUTRAL
from jax_rl.model.huggingface.rope import LAYER_TYPES, read_local_rope, read_rope


@dataclasses.dataclass(frozen=True)
class Family:
    """What distinguishes a family, and what transformers takes where a key is absent."""

    architecture: str
    length: int  # max_position_embeddings
    kv_heads: int = 0  # 0: as many as heads
    head_dim: int = 0  # 0: hidden_size / num_attention_heads
    qk_norm: bool = False
    qkv_bias: bool = False
    gemma: Literal[0, 2, 3] = 0  # generation whose norms, scales and tied head it has
    windows: Literal["none", "all", "upper", "pattern"] = "none"
    pattern: int = 0  # every such layer is global


FAMILIES: dict[str, Family] = {
    "llama": Family("LlamaForCausalLM", 2048),
    "mistral": Family("MistralForCausalLM", 131_072, kv_heads=8, windows="all"),
    "qwen2": Family("Qwen2ForCausalLM", 32_768, kv_heads=32, qkv_bias=True, windows="upper"),
    "qwen3": Family(
        "Qwen3ForCausalLM", 32_768, kv_heads=32, head_dim=128, qk_norm=True, windows="upper"
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        8192,
        kv_heads=4,
        head_dim=256,
        gemma=2,
        windows="pattern",
        pattern=2,
    ),
    "gemma3_text": Family(
        "Gemma3ForCausalLM",
        131_072,
        kv_heads=4,
        head_dim=256,
        qk_norm=True,
        gemma=3,
        windows="pattern",
        pattern=6,
    ),
}
"""model_type -> family."""

ACTIVATIONS: dict[str, Literal["silu", "gelu_tanh"]] = {
    "silu": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def read_model_config(directory: Path, *, base: ModelConfig) -> ModelConfig:
    """The model that a checkpoint directory describes.

    `max_length` is `max_position_embeddings`, which for the scaled models of Llama 3 and Gemma 3
    is the stretched length already. YaRN is often switched on by adding its table alone, so there
    it is original length x factor where that is larger. For linear scaling the file's own value
    stays, a bound that is safe under either reading.

    Args:
      directory: with config.json, in the older or the newer key style.
      base: gives compute_dtype and remat, and nothing else.

    Raises:
      UserError: no usable config.json, or a model that is not implemented, by name.
    """
    return _read(Path(directory), base)[0]


def list_unused_keys(directory: Path) -> tuple[str, ...]:
    """Keys of config.json that say something this code does not know; the model ignores them.

    Raises:
      UserError: as `read_model_config`.
    """
    _, keys = _read(Path(directory), ModelConfig())
    return tuple(name for name in keys.unread() if name not in HARMLESS)


def _read(directory: Path, base: ModelConfig) -> tuple[ModelConfig, Keys]:
    file = directory / "config.json"
    why = "a Hugging Face checkpoint directory has one beside its safetensors files"
    keys = Keys(read_object(file, why=why), str(file))
    family = _find_family(keys)
    for name, (neutral, reason) in NEUTRAL.items():
        if name == "attention_bias" and family.qkv_bias:
            continue  # not read: the family has its q, k and v biases in any case
        if keys.value(name, neutral) not in (None, neutral):
            raise keys.refuse(name, reason)

    shape = _read_shape(keys, family)
    length = keys.integer("max_position_embeddings", family.length)
    rope = (read_local_rope if family.gemma == 3 else read_rope)(keys, length=length)
    if rope.scaling == "yarn":
        length = max(length, round(rope.original_length * rope.factor))
    window, local_layers = _read_windows(keys, family, shape["layers"])
    model = ModelConfig(
        checkpoint=str(directory),
        **shape,
        **_read_gemma(keys, family),
        activation=_read_activation(keys, family),
        qk_norm=family.qk_norm,
        attention_bias=family.qkv_bias,
        tied_head=keys.flag("tie_word_embeddings", family.gemma > 0),
        rope=rope,
        max_length=length,
        norm_epsilon=keys.number("rms_norm_eps", 1e-6),
        sliding_window=window,
        local_layers=local_layers,
        compute_dtype=base.compute_dtype,
        remat=base.remat,
    )
    return model, keys


def _find_family(keys: Keys) -> Family:
    known = f"known: {', '.join(FAMILIES)}"
    if "text_config" in keys or "vision_config" in keys:
        raise keys.refuse(
            "model_type",
            "a multimodal model; only language models on their own are implemented, such as"
            f" gemma3_text ({known})",
        )
    model_type = keys.text("model_type")
    if model_type not in FAMILIES:
        near = difflib.get_close_matches(model_type, FAMILIES, n=1)
        hint = f"; nearest: {near[0]!r}" if near else ""
        raise keys.refuse("model_type", f"this family is not implemented{hint} ({known})")
    family = FAMILIES[model_type]
    names = keys.value("architectures")
    if names and names != [family.architecture]:
        raise keys.refuse(
            "architectures", f"not implemented; {[family.architecture]} is right for {model_type}"
        )
    return family


def _read_shape(keys: Keys, family: Family) -> dict[str, Any]:
    heads, embed = keys.integer("num_attention_heads"), keys.integer("hidden_size")
    kv_heads = keys.optional_integer("num_key_value_heads", family.kv_heads or heads) or heads
    head_dim = keys.optional_integer("head_dim", family.head_dim or None)
    if head_dim is None:
        if embed % heads:
            raise keys.refuse(
                "hidden_size", f"without head_dim it must be a multiple of the {heads} heads"
            )
        head_dim = embed // heads
    if heads % kv_heads:
        raise keys.refuse(
            "num_key_value_heads", f"{kv_heads} must divide num_attention_heads, {heads}"
        )
    if head_dim % 2:
        raise keys.refuse("head_dim", f"{head_dim} must be even: rotary positions turn pairs")
    return {
        "layers": keys.integer("num_hidden_layers"),
        "embed": embed,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "mlp": keys.integer("intermediate_size"),
        "vocab": keys.integer("vocab_size"),
    }


def _read_activation(keys: Keys, family: Family) -> Literal["silu", "gelu_tanh"]:
    name = "hidden_activation" if family.gemma else "hidden_act"
    activation = keys.text(name, "gelu_pytorch_tanh" if family.gemma else "silu")
    keys.allow("hidden_act", activation)  # Gemma files often have both
    if activation not in ACTIVATIONS:
        raise keys.refuse(name, f"not implemented (known: {', '.join(ACTIVATIONS)})")
    return ACTIVATIONS[activation]


def _read_gemma(keys: Keys, family: Family) -> dict[str, Any]:
    if not family.gemma:
        return {}
    second = family.gemma == 2
    cap = keys.optional_number("attn_logit_softcapping", 50.0 if second else None)
    if not second and cap is not None:
        raise keys.refuse(
            "attn_logit_softcapping", "gemma3_text has q/k norms and never caps attention scores"
        )
    final_cap = keys.optional_number("final_logit_softcapping", 30.0 if second else None)
    return {
        "norm_offset": True,
        "post_norms": True,
        "embedding_scale": True,
        "attention_scale": keys.number("query_pre_attn_scalar", 256.0) ** -0.5,
        "attention_softcap": cap or 0.0,
        "final_softcap": final_cap or 0.0,
    }


def _read_windows(keys: Keys, family: Family, layers: int) -> tuple[int, tuple[int, ...]]:
    """Tokens that a local layer sees, and which layers are local."""
    if family.windows == "none":
        return 0, ()
    window = keys.optional_integer("sliding_window", 4096)
    local = tuple(range(layers))
    if family.windows == "upper":
        first = keys.integer("max_window_layers", 28, least=0)
        window = window if keys.flag("use_sliding_window", False) else None
        local = local[first:]
    elif family.windows == "pattern":
        pattern = family.pattern
        if family.gemma == 3:
            pattern = keys.integer("sliding_window_pattern", pattern)
        local = tuple(i for i in local if (i + 1) % pattern)
    if window is None and family.windows != "pattern":
        local = ()
    if keys.value("layer_types") is not None:
        named = _read_layer_types(keys, layers)
        if family.windows == "all" and named != local:
            raise keys.refuse("layer_types", "all layers of this family are of one type")
        local = named
    if local and window is None:
        raise keys.refuse("sliding_window", f"layers {local} are local and need one")
    return (window, local) if local and window is not None else (0, ())


def _read_layer_types(keys: Keys, layers: int) -> tuple[int, ...]:
    names = keys.value("layer_types")
    if not isinstance(names, list) or len(names) != layers:
        raise keys.refuse("layer_types", f"a list of {layers} names is right, one per layer")
    for name in names:
        if name not in LAYER_TYPES:
            raise keys.refuse(
                "layer_types", f"{name!r} is not implemented (known: {', '.join(LAYER_TYPES)})"
            )
    return tuple(i for i, name in enumerate(names) if name == LAYER_TYPES[1])
