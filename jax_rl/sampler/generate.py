"""Prompts to rollouts: prefill once per prompt, then decode in one compiled loop."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from flax import struct

from jax_rl.config import ModelConfig
from jax_rl.mesh.layout import Layout
from jax_rl.model.cache import KVCache, copy_rows, make_cache, share_prompts
from jax_rl.model.distribution import pick_log_prob, sampled_logits
from jax_rl.model.forward import forward, unstack_layers
from jax_rl.model.weights import Weights
from jax_rl.sampler.draw import draw_tokens, draw_uniforms, fold_sample_ids


@dataclasses.dataclass(frozen=True)
class SamplerSpec:
    """What is fixed when the sampler is compiled."""

    model: ModelConfig
    layout: Layout
    max_prompt_length: int
    max_response_length: int
    copies: int  # rows per prefilled prompt row
    end_ids: tuple[int, ...]  # any of them ends a response
    pad_id: int
    greedy: bool = False

    @property
    def columns(self) -> int:
        """Columns of a row: prompt and response."""
        return self.max_prompt_length + self.max_response_length


@struct.dataclass
class Prompts:
    """Right-aligned prompts and the ids of the rollouts that will be sampled from them."""

    tokens: jax.Array  # [r, p] int32; columns before `starts` are padding
    starts: jax.Array  # [r] int32
    groups: jax.Array  # [n] int32, n = r x copies
    members: jax.Array  # [n] int32
    # [n] int32 from 1 on: a row ends at this length, whatever is drawn; None: at an end token.
    lengths: jax.Array | None = None


@struct.dataclass
class Rollouts:
    """Sampled responses beside their prompts; nothing after `lengths` has a meaning."""

    tokens: jax.Array  # [n, p + t] int32
    starts: jax.Array  # [n] int32, first column of the prompt
    lengths: jax.Array  # [n] int32, response tokens, the end token included
    ended: jax.Array  # [n] bool, False: truncated at the length limit
    log_probs: jax.Array  # [n, t] float32 under the sampled distribution, 0 past the length


@struct.dataclass
class Decoding:
    """The carry of the decode loop, after `step` tokens of every row have been drawn."""

    cache: KVCache
    step: jax.Array  # [] int32
    last: jax.Array  # [n] int32, token drawn last
    responses: jax.Array  # [n, t] int32
    log_probs: jax.Array  # [n, t] float32
    lengths: jax.Array  # [n] int32
    ended: jax.Array  # [n] bool


@partial(jax.jit, static_argnames=("model", "layout"))
def sync_weights(weights: Weights, model: ModelConfig, layout: Layout) -> Weights:
    """The learner's weights as the sampler holds them; once per iteration, not per token."""
    return unstack_layers(weights, config=model, layout=layout)


@partial(jax.jit, static_argnames=("spec",))
def prefill(weights: Weights, prompts: Prompts, spec: SamplerSpec) -> tuple[KVCache, jax.Array]:
    """Runs each prompt once and shares its cache over its rows.

    Args:
      weights: as `sync_weights` returns them.
      prompts: the prompts.
      spec: the sampler.

    Returns:
      the cache of n rows with room for the responses, and the hidden states [n, d] that
      predict the first response token.
    """
    rows, length = prompts.tokens.shape
    if length != spec.max_prompt_length:
        raise ValueError(f"prompts have {length} columns, the sampler {spec.max_prompt_length}")
    small = make_cache(rows, length, starts=prompts.starts, config=spec.model, layout=spec.layout)
    hidden, cache = forward(
        weights, prompts.tokens, prompts.starts, small, config=spec.model, layout=spec.layout
    )
    assert cache is not None
    wide = share_prompts(
        cache, spec.copies, columns=spec.columns, config=spec.model, layout=spec.layout
    )
    out = spec.layout.compute_spec(("batch", None))
    return wide, copy_rows(hidden[:, -1], spec.copies, out)


@partial(jax.jit, static_argnames=("spec",), donate_argnames=("cache",))
def decode(
    weights: Weights,
    cache: KVCache,
    hidden: jax.Array,
    prompts: Prompts,
    key: jax.Array,
    temperature: jax.Array,
    spec: SamplerSpec,
) -> tuple[Rollouts, jax.Array, KVCache]:
    """Samples a response for every row until all have ended or the limit is reached.

    Args:
      weights: as `sync_weights` returns them.
      cache: prefilled; donated and handed back, so that the loop writes in place.
      hidden: [n, d] states that predict the first token.
      prompts: the prompts, for the sample ids and the rollouts' prompt columns.
      key: the seed's typed threefry key.
      temperature: [] float32 above 0; a greedy sampler only scores with it.
      spec: the sampler.

    Returns:
      rollouts, the number of decode steps [] int32, and the cache's buffers.
    """
    decoding = begin_decoding(weights, cache, hidden, prompts, key, temperature, spec)
    limit = jnp.int32(spec.max_response_length)
    decoding = continue_decoding(weights, decoding, prompts, key, temperature, limit, spec)
    columns = spec.layout.compute_spec(("batch", None))
    rollouts = Rollouts(
        tokens=jnp.concatenate(
            [copy_rows(prompts.tokens, spec.copies, columns), decoding.responses], axis=1
        ),
        starts=decoding.cache.starts,
        lengths=decoding.lengths,
        ended=decoding.ended,
        log_probs=decoding.log_probs,
    )
    return rollouts, decoding.step, decoding.cache


@partial(jax.jit, static_argnames=("spec",), donate_argnames=("cache",))
def begin_decoding(
    weights: Weights,
    cache: KVCache,
    hidden: jax.Array,
    prompts: Prompts,
    key: jax.Array,
    temperature: jax.Array,
    spec: SamplerSpec,
) -> Decoding:
    """The first token of every row; arguments as for `decode`, which goes on to the end."""
    if cache.columns < spec.columns:
        raise ValueError(f"the cache has {cache.columns} columns, {spec.columns} are needed")
    row_keys = fold_sample_ids(key, prompts.groups, prompts.members)
    drawn = _draw(weights, hidden, jnp.int32(0), row_keys, temperature, spec)
    return _record(_begin(cache, spec), *drawn, prompts.lengths, spec)


@partial(jax.jit, static_argnames=("spec",), donate_argnames=("decoding",))
def continue_decoding(
    weights: Weights,
    decoding: Decoding,
    prompts: Prompts,
    key: jax.Array,
    temperature: jax.Array,
    until: jax.Array,
    spec: SamplerSpec,
) -> Decoding:
    """Goes on until `until` [] int32 tokens of every row are drawn, or all rows have ended."""
    row_keys = fold_sample_ids(key, prompts.groups, prompts.members)

    def advance(state: Decoding) -> Decoding:
        hidden, cache = forward(
            weights,
            state.last[:, None],
            state.cache.starts,
            state.cache,
            config=spec.model,
            layout=spec.layout,
        )
        assert cache is not None
        drawn = _draw(weights, hidden[:, 0], state.step, row_keys, temperature, spec)
        return _record(dataclasses.replace(state, cache=cache), *drawn, prompts.lengths, spec)

    end = jnp.minimum(until, spec.max_response_length)
    return jax.lax.while_loop(lambda s: (s.step < end) & ~jnp.all(s.ended), advance, decoding)


def _draw(
    weights: Weights,
    hidden: jax.Array,
    step: jax.Array,
    row_keys: jax.Array,
    temperature: jax.Array,
    spec: SamplerSpec,
) -> tuple[jax.Array, jax.Array]:
    """Token and log-probability of every row, [n] each."""
    with jax.named_scope("draw"):
        head = weights["embedding" if spec.model.tied_head else "head"]
        logits = sampled_logits(  # [n, v]
            hidden, head, temperature, bound=spec.model.final_softcap, vocab=spec.model.vocab
        )
        if spec.greedy:
            tokens = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        else:
            tokens = draw_tokens(logits, draw_uniforms(row_keys, step), layout=spec.layout)
        return tokens, pick_log_prob(logits, tokens)


def _record(
    state: Decoding,
    tokens: jax.Array,
    log_probs: jax.Array,
    forced: jax.Array | None,
    spec: SamplerSpec,
) -> Decoding:
    """The carry with one token more of every row that has not ended."""
    live = ~state.ended
    tokens = jnp.where(live, tokens, spec.pad_id)
    at = (0, state.step)
    update = jax.lax.dynamic_update_slice
    lengths = state.lengths + live.astype(jnp.int32)
    if forced is None:
        ends = jnp.array(spec.end_ids, jnp.int32)
        ended = jnp.any(tokens[:, None] == ends[None, :], axis=-1)
    else:
        ended = lengths >= forced
    return dataclasses.replace(
        state,
        step=state.step + 1,
        last=tokens,
        responses=update(state.responses, tokens[:, None], at),
        log_probs=update(state.log_probs, jnp.where(live, log_probs, 0.0)[:, None], at),
        lengths=lengths,
        ended=state.ended | ended,
    )


def _begin(cache: KVCache, spec: SamplerSpec) -> Decoding:
    rows = cache.starts.shape[0]
    row = spec.layout.compute_spec(("batch",))
    square = spec.layout.compute_spec(("batch", None))
    limit = spec.max_response_length
    return Decoding(
        cache=cache,
        step=jnp.int32(0),
        last=jnp.full((rows,), spec.pad_id, jnp.int32, out_sharding=row),
        responses=jnp.full((rows, limit), spec.pad_id, jnp.int32, out_sharding=square),
        log_probs=jnp.zeros((rows, limit), jnp.float32, out_sharding=square),
        lengths=jnp.zeros((rows,), jnp.int32, out_sharding=row),
        ended=jnp.zeros((rows,), bool, out_sharding=row),
    )
