"""The decoder-only transformer as one pure function, for learning and for sampling.

Weights come as the learner stores them (stacked, scanned, gathered a layer at a time) or as the
sampler holds them (`unstack_layers`: already gathered and cast, one tree per layer, unrolled).
What differs between families is a value of `ModelConfig`, never another function.
Source: Llama (arXiv:2302.13971), grouped-query attention (arXiv:2305.13245), q/k norm as in Qwen3
(arXiv:2505.09388), soft-capping as in Gemma 2 (arXiv:2408.00118), local layers and norms as in
Gemma 3 (arXiv:2503.19786).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_rl.config import ModelConfig
from jax_rl.mesh.layout import Layout
from jax_rl.model.cache import CACHE_AXES, KVCache
from jax_rl.model.distribution import softcap
from jax_rl.model.rope import Rotation, rotate, rotations
from jax_rl.model.weights import Weights, describe_weights, gather_for_use

ACTIVATION = ("batch", None)
"""Of [b t, d], axis x in einsums; embed is whole in every activation. Outside of attention rows
and length are one axis: the gradient of a weight then contracts one axis, where with two XLA
writes a transposed copy of its operands."""

Rule = Callable[[tuple[str | None, ...]], PartitionSpec]
"""From logical axes to their partition."""

View = tuple[jax.Array, Rotation]
"""What a layer sees: its attention mask [b, t, s], and the rotation of its positions."""


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
    everywhere, nearby = _make_views(columns, starts, positions, span, config)
    block = functools.partial(_block, first=first, config=config, layout=layout)

    axes = jax.tree.map(lambda w: w.axes, describe_weights(config))
    dtype = jnp.dtype(config.compute_dtype)
    top = {name: value for name, value in weights.items() if name != "layers"}
    if cache is None:
        top = gather_for_use(top, {name: axes[name] for name in top}, layout, dtype)
    with jax.named_scope("embed"):
        x = top["embedding"].at[tokens].get(out_sharding=layout.compute_spec(("batch", None, None)))
        if config.embedding_scale:
            x = x * jnp.asarray(config.embed**0.5, dtype)
    x = jnp.reshape(x, (-1, config.embed), out_sharding=layout.compute_spec(ACTIVATION))

    if cache is None:
        layer_axes = jax.tree.map(
            lambda names: names[1:], axes["layers"], is_leaf=lambda n: isinstance(n, tuple)
        )

        def scanned(x: jax.Array, xs: tuple[Weights, jax.Array]) -> tuple[jax.Array, None]:
            layer, local = xs
            view = everywhere
            if nearby is not None:
                view = jax.tree.map(lambda a, b: jnp.where(local, b, a), everywhere, nearby)
            layer = _flatten_heads(gather_for_use(layer, layer_axes, layout, dtype), layout)
            x, _, _ = block(layer, x, None, None, view)
            return x, None

        local = jnp.isin(jnp.arange(config.layers), jnp.array(config.local_layers, jnp.int32))
        x, _ = jax.lax.scan(_rematerialised(scanned, config), x, (weights["layers"], local))
    else:
        keys: list[jax.Array] = []
        values: list[jax.Array] = []
        layers = zip(weights["layers"], cache.keys, cache.values, strict=True)
        for number, (layer, k, v) in enumerate(layers):
            view = nearby if nearby is not None and number in config.local_layers else everywhere
            x, k, v = block(layer, x, k, v, view)
            keys.append(k)
            values.append(v)
        cursor = cache.cursor + tokens.shape[1]
        cache = dataclasses.replace(cache, keys=tuple(keys), values=tuple(values), cursor=cursor)
    hidden = _rms_norm(x, top["final_norm"], config)
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
    return {**in_use, "layers": tuple(_flatten_heads(layer, layout) for layer in layers)}


def _flatten_heads(layer: Weights, layout: Layout) -> Weights:
    """The layer with q, k and v as matrices [d, n h].

    With three axes the decode program for a TPU keeps a second copy of all of them.
    """

    def flatten(name: str, heads: str) -> jax.Array:
        weight = layer[name]
        spec = layout.compute_spec(("embed", heads))
        return jnp.reshape(weight, (weight.shape[0], -1), out_sharding=spec)

    kinds = {"q": "heads", "k": "kv_heads", "v": "kv_heads"}
    return layer | {name: flatten(name, heads) for name, heads in kinds.items()}


def _rematerialised(function: Any, config: ModelConfig) -> Any:
    if config.remat == "none":
        return function
    policies = jax.checkpoint_policies
    policy = policies.nothing_saveable if config.remat == "full" else policies.dots_saveable
    return jax.checkpoint(function, policy=policy, prevent_cse=False)


def _make_views(
    columns: jax.Array, starts: jax.Array, positions: jax.Array, span: int, config: ModelConfig
) -> tuple[View, View | None]:
    """What global layers see, and what local ones see if there are any.

    Key column s is seen by the query at `columns[t]` of row b if it is no padding and not later,
    and by a local layer only inside its window.
    """
    key = jnp.arange(span, dtype=jnp.int32)
    behind = columns[None, :, None] - key[None, None, :]
    seen = (behind >= 0) & (key[None, None, :] >= starts[:, None, None])
    everywhere = (seen, rotations(positions, config.rope, config.head_dim))
    if not config.local_layers:
        return everywhere, None
    turned = rotations(positions, config.rope, config.head_dim, local=True)
    return everywhere, (seen & (behind < config.sliding_window), turned)


def _rms_norm(x: jax.Array, scale: jax.Array, config: ModelConfig) -> jax.Array:
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    root = jax.lax.rsqrt(mean_square + config.norm_epsilon)
    scale = jnp.expand_dims(scale.astype(jnp.float32), tuple(range(x.ndim - 1)))
    return (wide * root * (scale + 1.0 if config.norm_offset else scale)).astype(x.dtype)


def _block(
    layer: Weights,
    x: jax.Array,
    cached_keys: jax.Array | None,
    cached_values: jax.Array | None,
    view: View,
    *,
    first: jax.Array,
    config: ModelConfig,
    layout: Layout,
) -> tuple[jax.Array, Any, Any]:
    """One transformer block: [b t, d] -> [b t, d], and this layer's keys and values."""
    mask, rotation = view
    out = layout.compute_spec(ACTIVATION)
    with jax.named_scope("attention"):
        normed = _rms_norm(x, layer["attention_norm"], config)
        projected = _project(layer, normed, rotation, config, layout)
        # Heads before length, as they are cached: then neither product copies the cache.
        q, k, v = (jnp.swapaxes(x, 1, 2) for x in projected)
        if cached_keys is not None and cached_values is not None:
            k, v = (jax.sharding.reshard(x, layout.cache_spec(CACHE_AXES)) for x in (k, v))
            at = (0, 0, first, 0)
            k = jax.lax.dynamic_update_slice(cached_keys, k, at)
            v = jax.lax.dynamic_update_slice(cached_values, v, at)
        where = layout.compute_spec if cached_keys is None else layout.cache_spec
        mixed = _attend(q, k, v, mask, where, config, layout)  # [b t, n, h]
        added = jnp.einsum("xnh,nhd->xd", mixed, layer["o"], out_sharding=out)
        if config.post_norms:
            added = _rms_norm(added, layer["attention_post_norm"], config)
        x = x + added
    with jax.named_scope("mlp"):
        normed = _rms_norm(x, layer["mlp_norm"], config)
        gate = jnp.einsum("xd,df->xf", normed, layer["gate"])
        up = jnp.einsum("xd,df->xf", normed, layer["up"])
        gate = jax.nn.silu(gate) if config.activation == "silu" else jax.nn.gelu(gate)
        added = jnp.einsum("xf,fd->xd", gate * up, layer["down"], out_sharding=out)
        if config.post_norms:
            added = _rms_norm(added, layer["mlp_post_norm"], config)
        x = x + added
    return x, k, v


def _project(
    layer: Weights,
    x: jax.Array,
    rotation: Rotation,
    config: ModelConfig,
    layout: Layout,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries [b, t, n, h], keys and values [b, t, k, h], rotated to their positions."""
    rows, length = rotation[0].shape[:2]

    def project(name: str, heads: str) -> jax.Array:
        spec = layout.compute_spec(("batch", None, heads, None))
        flat = jnp.einsum("xd,df->xf", x, layer[name])
        return jnp.reshape(flat, (rows, length, -1, config.head_dim), out_sharding=spec)

    q, k, v = project("q", "heads"), project("k", "kv_heads"), project("v", "kv_heads")
    if config.attention_bias:
        q = q + layer["q_bias"][None, None]
        k = k + layer["k_bias"][None, None]
        v = v + layer["v_bias"][None, None]
    if config.qk_norm:
        q = _rms_norm(q, layer["q_norm"], config)
        k = _rms_norm(k, layer["k_norm"], config)
    return rotate(q, rotation), rotate(k, rotation), v


def _attend(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array,
    where: Rule,
    config: ModelConfig,
    layout: Layout,
) -> jax.Array:
    """Softmax attention of n query heads over k kv heads: [b t, n, h]; scores in float32.

    It is done where the keys and values lie, by the rule `where`.
    """
    b, n, t, h = q.shape
    kv_heads = k.shape[1]
    mask = jax.sharding.reshard(mask, where(("batch", None, None)))
    grouped_spec = where(("batch", "kv_heads", None, None, None))
    grouped = jnp.reshape(q, (b, kv_heads, n // kv_heads, t, h), out_sharding=grouped_spec)
    scores = jnp.einsum("bkgth,bksh->bkgts", grouped, k, preferred_element_type=jnp.float32)
    scores = softcap(scores * (config.attention_scale or h**-0.5), config.attention_softcap)
    # A padding query sees no key; a large finite number keeps its softmax finite.
    scores = jnp.where(mask[:, None, None], scores, -1e30)
    shares = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    mixed = jnp.einsum("bkgts,bksh->bkgth", shares, v)
    split = layout.compute_spec(("batch", "heads", None, None))
    mixed = jnp.swapaxes(jnp.reshape(mixed, (b, n, t, h), out_sharding=split), 1, 2)
    flat = layout.compute_spec(("batch", "heads", None))
    return jnp.reshape(mixed, (b * t, n, h), out_sharding=flat)
