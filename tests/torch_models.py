"""The same weights in the Hugging Face implementations, and the GRPO loss written in PyTorch."""

import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="the reference implementations need torch")
    transformers = pytest.importorskip(
        "transformers", reason="the reference implementations need transformers"
    )

PROJECTIONS = {"q": "q_proj", "k": "k_proj", "v": "v_proj"}
FEED_FORWARD = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
NORMS = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}


def name_weights(weights: Any) -> dict[str, np.ndarray]:
    """A tree of weights, or of their gradients, under Hugging Face names and in its shapes."""
    named = {
        "model.embed_tokens.weight": weights["embedding"],
        "model.norm.weight": weights["final_norm"],
    }
    if "head" in weights:
        named["lm_head.weight"] = weights["head"]
    layers = weights["layers"]
    for i in range(len(layers["q"])):
        layer = {name: stack[i] for name, stack in layers.items()}
        prefix = f"model.layers.{i}."
        for ours, theirs in NORMS.items():
            named[f"{prefix}{theirs}.weight"] = layer[ours]
        for ours, theirs in FEED_FORWARD.items():
            named[f"{prefix}mlp.{theirs}.weight"] = layer[ours].T
        for ours, theirs in PROJECTIONS.items():
            into, *out = layer[ours].shape
            named[f"{prefix}self_attn.{theirs}.weight"] = layer[ours].reshape(into, -1).T
            if f"{ours}_bias" in layer:
                named[f"{prefix}self_attn.{theirs}.bias"] = layer[f"{ours}_bias"].reshape(-1)
            if f"{ours}_norm" in layer:
                named[f"{prefix}self_attn.{ours}_norm.weight"] = layer[f"{ours}_norm"]
        out = layer["o"].shape[-1]
        named[f"{prefix}self_attn.o_proj.weight"] = layer["o"].reshape(-1, out).T
    return named


def make_model(family: str, config: Any, weights: Any, dtype: Any = None) -> Any:
    """`Llama`, `Qwen2` or `Qwen3` with these weights."""
    kinds = {
        "vocab_size": config.vocab,
        "hidden_size": config.embed,
        "intermediate_size": config.mlp,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_epsilon,
        "tie_word_embeddings": config.tied_head,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope.theta},
        "attn_implementation": "sdpa",  # eager takes its softmax in float32
        "pad_token_id": None,  # else that token gets no gradient
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if family != "Qwen2":  # it always has the bias
        kinds["attention_bias"] = config.attention_bias
    settings = getattr(transformers, f"{family}Config")(**kinds)
    model = getattr(transformers, f"{family}ForCausalLM")(settings)
    state = {
        name: torch.tensor(np.ascontiguousarray(w)) for name, w in name_weights(weights).items()
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= ({"lm_head.weight"} if config.tied_head else set())
    model.tie_weights()
    return model.to(dtype or torch.float32).eval()


def run_model(model: Any, tokens: np.ndarray, starts: np.ndarray) -> Any:
    """Logits [b, t, v]; columns before a row's start are masked and its positions begin there."""
    columns = np.arange(tokens.shape[1])[None]
    valid = columns >= starts[:, None]
    positions = np.maximum(columns - starts[:, None], 0)
    return model(
        input_ids=torch.tensor(tokens, dtype=torch.long),
        attention_mask=torch.tensor(valid, dtype=torch.long),
        position_ids=torch.tensor(positions, dtype=torch.long),
    ).logits


def grpo_loss(
    model: Any,
    batch: Any,
    *,
    group: int,
    temperature: float,
    clip_low: float,
    clip_high: float,
    kl_coefficient: float,
    denominator: str,
    mask_truncated: bool,
) -> Any:
    """The clipped GRPO loss of a minibatch, row by row, by definition (k3 divergence)."""
    rollouts = batch.rollouts
    response = rollouts.log_probs.shape[1]
    prompt = rollouts.tokens.shape[1] - response
    logits = run_model(model, rollouts.tokens, rollouts.starts) / temperature
    log_probs = torch.log_softmax(logits, -1)
    losses, lengths = [], []
    for row in range(len(batch.rewards)):
        if not batch.valid[row] or (mask_truncated and not rollouts.ended[row]):
            continue
        first = row // group * group
        members = [i for i in range(first, first + group) if batch.valid[i]]
        rewards = np.array([batch.rewards[i] for i in members], np.float64)
        advantage = (float(batch.rewards[row]) - rewards.mean()) / (rewards.std() + 1e-6)
        length = int(rollouts.lengths[row])
        total = 0.0
        for step in range(length):
            token = int(rollouts.tokens[row, prompt + step])
            now = log_probs[row, prompt + step - 1, token]
            ratio = torch.exp(now - float(rollouts.log_probs[row, step]))
            limited = torch.clamp(ratio, 1 - clip_low, 1 + clip_high)
            total = total - torch.minimum(ratio * advantage, limited * advantage)
            ahead = float(batch.reference[row, step]) - now
            total = total + kl_coefficient * (torch.exp(ahead) - ahead - 1)
        losses.append(total)
        lengths.append(length)
    if denominator == "tokens":
        return sum(losses) / sum(lengths)
    per_row = [loss / length for loss, length in zip(losses, lengths, strict=True)]
    return sum(per_row) / len(per_row)
