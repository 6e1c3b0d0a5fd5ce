"""Rotary positions of a checkpoint: `rope_scaling` of older, `rope_parameters` of newer files."""

import dataclasses
import math

from jax_rl.config import RopeConfig
from jax_rl.model.huggingface.keys import Keys

LAYER_TYPES = ("full_attention", "sliding_attention")


def read_rope(keys: Keys, *, length: int) -> RopeConfig:
    """Rotary positions of a family that has the same in all layers.

    Args:
      keys: config.json.
      length: `max_position_embeddings`.

    Raises:
      UserError: a kind of scaling that is not implemented, a missing or contradicting value.
    """
    theta = keys.number("rope_theta", 10_000.0)
    ropes = []
    for name in ("rope_parameters", "rope_scaling"):
        table = keys.table(name)
        if table is None:
            continue
        if any(layer_type in table for layer_type in LAYER_TYPES):
            raise keys.refuse(name, "rotary positions by layer type exist for gemma3_text only")
        ropes.append(_read_table(table, keys, theta=_own_theta(table, keys, theta), length=length))
    return _agree(ropes, keys, RopeConfig(theta=theta))


def read_local_rope(keys: Keys, *, length: int) -> RopeConfig:
    """Rotary positions of Gemma 3, whose local layers have a base of their own and no scaling.

    Args and errors: as in `read_rope`.
    """
    theta = keys.number("rope_theta", 1_000_000.0)
    local_theta = keys.number("rope_local_base_freq", 10_000.0)
    ropes = []
    scaling = keys.table("rope_scaling")
    if scaling is not None:
        ropes.append(_read_table(scaling, keys, theta=theta, length=length))
    nested = keys.table("rope_parameters")
    if nested is not None:
        if not any(layer_type in nested for layer_type in LAYER_TYPES):
            raise keys.refuse("rope_parameters", f"{' and '.join(LAYER_TYPES)} are missing")
        full, local = (nested.table(layer_type) for layer_type in LAYER_TYPES)
        if full is not None:
            own = _own_theta(full, keys, theta)
            ropes.append(_read_table(full, keys, theta=own, length=length))
        if local is not None:
            local_theta = _own_theta(local, keys, local_theta, name="rope_local_base_freq")
            if _read_table(local, keys, theta=local_theta, length=length).scaling != "none":
                raise nested.refuse(
                    LAYER_TYPES[1], "rope scaling in local layers is not implemented"
                )
    rope = _agree(ropes, keys, RopeConfig(theta=theta))
    return dataclasses.replace(rope, local_theta=local_theta)


def _own_theta(table: Keys, keys: Keys, theta: float, *, name: str = "rope_theta") -> float:
    """The table's own base, else `theta`, which is what `name` beside the table gives."""
    own = table.number("rope_theta", theta)
    if name in keys and own != theta:
        raise keys.refuse(name, f"rope_theta inside the rope table is {own:g}; keep one")
    return own


def _agree(ropes: list[RopeConfig], keys: Keys, default: RopeConfig) -> RopeConfig:
    if any(rope != ropes[0] for rope in ropes):
        raise keys.refuse("rope_scaling", "rope_parameters says something else; keep one of them")
    return ropes[0] if ropes else default


def _read_table(table: Keys, keys: Keys, *, theta: float, length: int) -> RopeConfig:
    older = table.text("type", "default")
    kind = table.text("rope_type", older)
    if "type" in table and older != kind:
        raise table.refuse("type", f"rope_type is {kind!r}; keep one of them")
    if table.value("partial_rotary_factor", 1.0) not in (None, 1):
        raise table.refuse("partial_rotary_factor", "rotating a part of a head is not implemented")
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind == "linear":
        return RopeConfig(theta=theta, scaling="linear", factor=table.number("factor"))
    name = "original_max_position_embeddings"
    # As transformers has it: the value beside the table goes before the one inside.
    original = (keys if name in keys else table).integer(name, length)
    if kind == "llama3":
        return _read_llama3(table, theta=theta, original=original)
    if kind == "yarn":
        return _read_yarn(table, theta=theta, original=original, length=length)
    raise table.refuse(
        "rope_type" if "rope_type" in table else "type",
        "this rope scaling is not implemented (known: default, linear, llama3, yarn)",
    )


def _read_llama3(table: Keys, *, theta: float, original: int) -> RopeConfig:
    rope = RopeConfig(
        theta=theta,
        scaling="llama3",
        factor=table.number("factor"),
        original_length=original,
        low_frequency_factor=table.number("low_freq_factor"),
        high_frequency_factor=table.number("high_freq_factor"),
    )
    if rope.high_frequency_factor <= rope.low_frequency_factor:
        raise table.refuse("high_freq_factor", "it must be above low_freq_factor")
    return rope


def _read_yarn(table: Keys, *, theta: float, original: int, length: int) -> RopeConfig:
    """YaRN (arXiv:2309.00071), with the attention factor that transformers would take."""
    if "factor" in table and table.value("factor") is None:
        factor = length / original
    else:
        factor = table.number("factor")
    attention_factor = table.optional_number("attention_factor", None)
    scale, scale_all = (_number_or(table, name, 0.0) for name in ("mscale", "mscale_all_dim"))
    if attention_factor is None and scale and scale_all:
        attention_factor = _magnitude(factor, scale) / _magnitude(factor, scale_all)
    elif attention_factor is None:
        attention_factor = _magnitude(factor, 1.0)
    return RopeConfig(
        theta=theta,
        scaling="yarn",
        factor=factor,
        original_length=original,
        beta_fast=_number_or(table, "beta_fast", 32.0),
        beta_slow=_number_or(table, "beta_slow", 1.0),
        attention_factor=attention_factor,
        truncate=table.flag("truncate", True),
    )


def _number_or(table: Keys, name: str, default: float) -> float:
    # transformers takes null and zero here for the default.
    return default if table.value(name) in (None, 0) else table.number(name)


def _magnitude(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0
