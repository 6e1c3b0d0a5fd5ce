"""One description per weight; shapes, shardings, initial values and counts come from it.

The tree of weights is a dict: `embedding`, `final_norm`, `head` (untied only) and `layers`,
whose leaves carry all layers stacked on their first axis.
"""

import dataclasses
import math
import zlib
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_rl.config import ModelConfig
from jax_rl.mesh.layout import Layout

Weights = dict[str, Any]
"""A tree of arrays, or of anything that stands for them (descriptions, shardings)."""


@dataclasses.dataclass(frozen=True)
class Weight:
    """Shape, logical axes and initial distribution of one weight."""

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    init: Literal["normal", "ones", "zeros"] = "normal"
    fan_in: int = 1  # a normal weight starts with variance 1 / fan_in
    padding: int = 0  # rows at the end of the first axis that stay zero

    @property
    def unpadded(self) -> tuple[int, ...]:
        """The shape without the padding."""
        return (self.shape[0] - self.padding, *self.shape[1:])

    @property
    def decays(self) -> bool:
        """Whether weight decay applies: to matrices, not to norms and biases."""
        return self.init == "normal"


def describe_weights(config: ModelConfig) -> Weights:
    """The tree of descriptions for a model."""
    c = config
    heads = ("heads", "head_dim")
    kv_heads = ("kv_heads", "head_dim")

    def stacked(shape: tuple[int, ...], axes: tuple[str, ...], **kwargs: Any) -> Weight:
        return Weight((c.layers, *shape), ("layers", *axes), **kwargs)

    scale: Literal["ones", "zeros"] = "zeros" if c.norm_offset else "ones"
    layers: Weights = {
        "attention_norm": stacked((c.embed,), ("embed",), init=scale),
        "q": stacked((c.embed, c.heads, c.head_dim), ("embed", *heads), fan_in=c.embed),
        "k": stacked((c.embed, c.kv_heads, c.head_dim), ("embed", *kv_heads), fan_in=c.embed),
        "v": stacked((c.embed, c.kv_heads, c.head_dim), ("embed", *kv_heads), fan_in=c.embed),
        "o": stacked(
            (c.heads, c.head_dim, c.embed), (*heads, "embed"), fan_in=c.heads * c.head_dim
        ),
        "mlp_norm": stacked((c.embed,), ("embed",), init=scale),
        "gate": stacked((c.embed, c.mlp), ("embed", "mlp"), fan_in=c.embed),
        "up": stacked((c.embed, c.mlp), ("embed", "mlp"), fan_in=c.embed),
        "down": stacked((c.mlp, c.embed), ("mlp", "embed"), fan_in=c.mlp),
    }
    if c.qk_norm:
        layers["q_norm"] = stacked((c.head_dim,), ("head_dim",), init=scale)
        layers["k_norm"] = stacked((c.head_dim,), ("head_dim",), init=scale)
    if c.post_norms:
        layers["attention_post_norm"] = stacked((c.embed,), ("embed",), init=scale)
        layers["mlp_post_norm"] = stacked((c.embed,), ("embed",), init=scale)
    if c.attention_bias:
        layers["q_bias"] = stacked((c.heads, c.head_dim), heads, init="zeros")
        layers["k_bias"] = stacked((c.kv_heads, c.head_dim), kv_heads, init="zeros")
        layers["v_bias"] = stacked((c.kv_heads, c.head_dim), kv_heads, init="zeros")
    table = Weight(
        (c.vocab_rows, c.embed),
        ("vocab", "embed"),
        fan_in=c.embed,
        padding=c.vocab_rows - c.vocab,
    )
    weights: Weights = {
        "embedding": table,
        "layers": layers,
        "final_norm": Weight((c.embed,), ("embed",), init=scale),
    }
    if not c.tied_head:
        weights["head"] = table
    return weights


def count_parameters(config: ModelConfig) -> int:
    """Number of scalar weights; a tied head counts once."""
    return sum(math.prod(w.unpadded) for w in jax.tree.leaves(describe_weights(config)))


def dimensions(config: ModelConfig) -> dict[str, int]:
    """Size of each logical axis that weights have."""
    sizes: dict[str, int] = {}
    for weight in jax.tree.leaves(describe_weights(config)):
        sizes.update(zip(weight.axes, weight.shape, strict=True))
    return sizes


def weight_specs(config: ModelConfig, layout: Layout) -> Weights:
    """Partition of every stored weight."""
    return jax.tree.map(lambda w: layout.weight_spec(w.axes), describe_weights(config))


def decay_mask(config: ModelConfig) -> Weights:
    """True where weight decay applies."""
    return jax.tree.map(lambda w: w.decays, describe_weights(config))


@partial(jax.jit, static_argnames=("config", "layout"))
def init_weights(key: jax.Array, config: ModelConfig, layout: Layout) -> Weights:
    """Float32 weights born on their devices; their values do not depend on the layout.

    Args:
      key: a typed threefry key.
      config: the model.
      layout: where the weights lie; the mesh is the one in context.
    """

    def init(path: tuple[Any, ...], weight: Weight) -> jax.Array:
        spec = layout.weight_spec(weight.axes)
        if weight.init == "normal":
            name = jax.tree_util.keystr(path).encode()
            weight_key = jax.random.fold_in(key, zlib.crc32(name) & 0x7FFFFFFF)
            return _draw_normal(weight_key, weight, spec) / math.sqrt(weight.fan_in)
        fill = float(weight.init == "ones")
        return jnp.full(weight.shape, fill, jnp.float32, out_sharding=spec)

    return jax.tree_util.tree_map_with_path(init, describe_weights(config))


def _draw_normal(key: jax.Array, weight: Weight, spec: PartitionSpec) -> jax.Array:
    """Standard normal numbers that do not depend on the padding, and zeros in its rows."""
    if not weight.padding:
        return jax.random.normal(key, weight.shape, jnp.float32, out_sharding=spec)
    # The rows without padding need not divide into the layout's parts.
    unsplit = PartitionSpec(None, *spec[1:])
    drawn = jax.random.normal(key, weight.unpadded, jnp.float32, out_sharding=unsplit)
    padded = jnp.pad(drawn, ((0, weight.padding), *((0, 0) for _ in weight.shape[1:])))
    return jax.sharding.reshard(padded, spec)


def gather_for_use(weights: Weights, axes: Weights, layout: Layout, dtype: jnp.dtype) -> Weights:
    """Stored weights as the forward pass uses them: cast, and laid out by the compute rules.

    The gradient of this function scatters back to the stored layout (a reduce-scatter where
    the forward gathers). Norm scales are cast like the rest and applied in float32.

    Args:
      weights: arrays.
      axes: the same tree of logical axis names.
      layout: the layout.
      dtype: type in use.
    """

    def use(array: jax.Array, names: tuple[str, ...]) -> jax.Array:
        return jax.sharding.reshard(array.astype(dtype), layout.compute_spec(names))

    return jax.tree.map(use, weights, axes)


def compute_specs(config: ModelConfig, layout: Layout) -> Weights:
    """Partition of every weight in use."""
    specs: dict[str, PartitionSpec] = jax.tree.map(
        lambda w: layout.compute_spec(w.axes), describe_weights(config)
    )
    return specs
