"""The decoder-only transformer as one pure function, for learning and for sampling.

Weights come as the learner stores them (stacked, scanned, gathered a layer at a time) or as the
sampler holds them (`unstack_layers`: already gathered and cast, one tree per layer, unrolled).
Source: Llama (arXiv:2302.13971), grouped-query attention (arXiv:2305.13245), q/k norm and shapes
as in Qwen3 (arXiv:2505.09388).
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from jax_rl.config import ModelConfig
from jax_rl.mesh.layout import Layout
from jax_rl.model.cache import KVCache
from jax_rl.model.weights import Weights, describe_weights, gather_for_use

ACTIVATION = ("batch", None)
"""Of [b t, d], axis x in einsums; embed is whole in every activation. Outside of attention rows
and length are one axis: the gradient of a weight then contracts one axis, where with two XLA
writes a transposed copy of its operands."""


def forward(
    weights: Weights,
    tokens: jax.Array,
    starts: jax.Array,
    cache: KVCache | None = None,
    *,
    config: ModelConfig,
    layout: Layout,
) -> tuple[jax.Array, KVCache | None]:
    """Hidden states after the final norm, and the cache with these tokens written.

    Args:
      weights: stored weights (no cache) or the sampler's weights (with a cache).
      tokens: [b, t] int32; without a cache they are columns 0 to t, with one they go to the
        columns from its cursor on.
      starts: [b] int32, first valid column of each row; earlier columns are padding, which no
        valid token attends to.
      cache: earlier columns, or None.
      config: the model.
      layout: where everything lies.

    Returns:
      hidden [b, t, d] in the compute dtype (padding columns hold finite values without
      meaning), and the cache or None.
    """
    first = cache.cursor if cache is not None else jnp.int32(0)
    columns = first + jnp.arange(tokens.shape[1], dtype=jnp.int32)  # [t]
    positions = jnp.maximum(columns[None, :] - starts[:, None], 0)  # [b, t]
    span = cache.columns if cache is not None else tokens.shape[1]
    mask = _attention_mask(columns, starts, span)  # [b, t, s]
    rotation = _rotations(positions, config)
    block = functools.partial(
        _block, mask=mask, rotation=rotation, first=first, config=config, layout=layout
    )

    axes = jax.tree.map(lambda w: w.axes, describe_weights(config))
    dtype = jnp.dtype(config.compute_dtype)
    top = {name: value for name, value in weights.items() if name != "layers"}
    if cache is None:
        top = gather_for_use(top, {name: axes[name] for name in top}, layout, dtype)
    with jax.named_scope("embed"):
        x = top["embedding"].at[tokens].get(out_sharding=layout.compute_spec(("batch", None, None)))
    x = jnp.reshape(x, (-1, config.embed), out_sharding=layout.compute_spec(ACTIVATION))

    if cache is None:
        layer_axes = jax.tree.map(
            lambda names: names[1:], axes["layers"], is_leaf=lambda n: isinstance(n, tuple)
        )

        def scanned(x: jax.Array, layer: Weights) -> tuple[jax.Array, None]:
            x, _, _ = block(gather_for_use(layer, layer_axes, layout, dtype), x, None, None)
            return x, None

        x, _ = jax.lax.scan(_rematerialised(scanned, config), x, weights["layers"])
    else:
        keys: list[jax.Array] = []
        values: list[jax.Array] = []
        for layer, k, v in zip(weights["layers"], cache.keys, cache.values, strict=True):
            x, k, v = block(layer, x, k, v)
            keys.append(k)
            values.append(v)
        cursor = cache.cursor + tokens.shape[1]
        cache = dataclasses.replace(cache, keys=tuple(keys), values=tuple(values), cursor=cursor)
    hidden = _rms_norm(x, top["final_norm"], config.norm_epsilon)
    whole = layout.compute_spec(("batch", None, None))
    return jnp.reshape(hidden, (*tokens.shape, config.embed), out_sharding=whole), cache


def head_in_use(weights: Weights, *, config: ModelConfig, layout: Layout) -> jax.Array:
    """The head [v, d] as the forward pass uses it: the embedding where it is tied."""
    name = "embedding" if config.tied_head else "head"
    axes = describe_weights(config)[name].axes
    dtype = jnp.dtype(config.compute_dtype)
    return gather_for_use({name: weights[name]}, {name: axes}, layout, dtype)[name]


def unstack_layers(weights: Weights, *, config: ModelConfig, layout: Layout) -> Weights:
    """Stored weights as the sampler holds them: cast, gathered, one tree per layer."""
    axes = jax.tree.map(lambda w: w.axes, describe_weights(config))
    in_use = gather_for_use(weights, axes, layout, jnp.dtype(config.compute_dtype))
    layers = tuple(
        jax.tree.map(lambda stack, i=i: stack[i], in_use["layers"]) for i in range(config.layers)
    )
    return {**in_use, "layers": layers}


def _rematerialised(function: Any, config: ModelConfig) -> Any:
    if config.remat == "none":
        return function
    policies = jax.checkpoint_policies
    policy = policies.nothing_saveable if config.remat == "full" else policies.dots_saveable
    return jax.checkpoint(function, policy=policy, prevent_cse=False)


def _attention_mask(columns: jax.Array, starts: jax.Array, span: int) -> jax.Array:
    """[b, t, s] bool: key column s is valid for the query at `columns[t]` of row b."""
    key = jnp.arange(span, dtype=jnp.int32)
    causal = key[None, None, :] <= columns[None, :, None]
    return causal & (key[None, None, :] >= starts[:, None, None])


def _rotations(positions: jax.Array, config: ModelConfig) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine [b, t, 1, h/2] of the rotary angles (arXiv:2104.09864)."""
    half = config.head_dim // 2
    frequency = config.rope_theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = positions.astype(jnp.float32)[:, :, None, None] * frequency[None, None, None, :]
    return jnp.cos(angle), jnp.sin(angle)


def _rotate(x: jax.Array, rotation: tuple[jax.Array, jax.Array]) -> jax.Array:
    cos, sin = rotation
    low, high = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
    return rotated.astype(x.dtype)


def _rms_norm(x: jax.Array, scale: jax.Array, epsilon: float) -> jax.Array:
    wide = x.astype(jnp.float32)
    root = jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + epsilon)
    scale = jnp.expand_dims(scale.astype(jnp.float32), tuple(range(x.ndim - 1)))
    return (wide * root * scale).astype(x.dtype)


def _block(
    layer: Weights,
    x: jax.Array,
    cached_keys: jax.Array | None,
    cached_values: jax.Array | None,
    *,
    mask: jax.Array,
    rotation: tuple[jax.Array, jax.Array],
    first: jax.Array,
    config: ModelConfig,
    layout: Layout,
) -> tuple[jax.Array, Any, Any]:
    """One transformer block: [b t, d] -> [b t, d], and this layer's keys and values."""
    with jax.named_scope("attention"):
        normed = _rms_norm(x, layer["attention_norm"], config.norm_epsilon)
        projected = _project(layer, normed, rotation, config, layout)
        # Heads before length, as they are cached: then neither product copies the cache.
        q, k, v = (jnp.swapaxes(x, 1, 2) for x in projected)
        if cached_keys is not None and cached_values is not None:
            at = (0, 0, first, 0)
            k = jax.lax.dynamic_update_slice(cached_keys, k, at)
            v = jax.lax.dynamic_update_slice(cached_values, v, at)
        mixed = _attend(q, k, v, mask, layout)  # [b t, n, h]
        out = layout.compute_spec(ACTIVATION)
        x = x + jnp.einsum("xnh,nhd->xd", mixed, layer["o"], out_sharding=out)
    with jax.named_scope("mlp"):
        normed = _rms_norm(x, layer["mlp_norm"], config.norm_epsilon)
        gate = jnp.einsum("xd,df->xf", normed, layer["gate"])
        up = jnp.einsum("xd,df->xf", normed, layer["up"])
        hidden = jax.nn.silu(gate) * up
        x = x + jnp.einsum("xf,fd->xd", hidden, layer["down"], out_sharding=out)
    return x, k, v


def _project(
    layer: Weights,
    x: jax.Array,
    rotation: tuple[jax.Array, jax.Array],
    config: ModelConfig,
    layout: Layout,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries [b, t, n, h], keys and values [b, t, k, h], rotated to their positions."""
    rows, length = rotation[0].shape[:2]

    def project(name: str, heads: str) -> jax.Array:
        flat = jnp.einsum("xd,dnh->xnh", x, layer[name])
        spec = layout.compute_spec(("batch", None, heads, None))
        return jnp.reshape(flat, (rows, length, *flat.shape[1:]), out_sharding=spec)

    q, k, v = project("q", "heads"), project("k", "kv_heads"), project("v", "kv_heads")
    if config.attention_bias:
        q = q + layer["q_bias"][None, None]
        k = k + layer["k_bias"][None, None]
        v = v + layer["v_bias"][None, None]
    if config.qk_norm:
        q = _rms_norm(q, layer["q_norm"], config.norm_epsilon)
        k = _rms_norm(k, layer["k_norm"], config.norm_epsilon)
    return _rotate(q, rotation), _rotate(k, rotation), v


def _attend(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array, layout: Layout) -> jax.Array:
    """Softmax attention of n query heads over k kv heads: [b t, n, h]; scores in float32."""
    b, n, t, h = q.shape
    kv_heads = k.shape[1]
    grouped_spec = layout.compute_spec(("batch", "kv_heads", None, None, None))
    grouped = jnp.reshape(q, (b, kv_heads, n // kv_heads, t, h), out_sharding=grouped_spec)
    scores = jnp.einsum("bkgth,bksh->bkgts", grouped, k, preferred_element_type=jnp.float32) * (
        h**-0.5
    )
    # A padding query sees no key; a large finite number keeps its softmax finite.
    scores = jnp.where(mask[:, None, None], scores, -1e30)
    shares = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    mixed = jnp.einsum("bkgts,bksh->bkgth", shares, v)
    split = layout.compute_spec(("batch", "heads", None, None))
    mixed = jnp.swapaxes(jnp.reshape(mixed, (b, n, t, h), out_sharding=split), 1, 2)
    flat = layout.compute_spec(("batch", "heads", None))
    return jnp.reshape(mixed, (b * t, n, h), out_sharding=flat)
