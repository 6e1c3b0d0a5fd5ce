"""What a run needs of each device's memory, on paper: bytes by kind, before anything is compiled.

Weights, moments and cache are counted exactly. What a program needs besides its arguments is an
estimate from the shapes of its largest arrays, in the number of copies that the constants below
name: a compiler that fuses more needs less, one that fuses less needs more. Compiled programs
say what they really need (`compiled.memory_analysis()`); this says what is worth compiling.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jax_rl.config import Config, ModelConfig
from jax_rl.learner.update import SCORE_CHUNK
from jax_rl.mesh.batch_plan import BatchPlan
from jax_rl.mesh.layout import Layout
from jax_rl.model.cache import CACHE_AXES
from jax_rl.model.weights import Weight, describe_weights
from jax_rl.trainer.specs import plan_validation
from jax_rl.units import count_unit_rows

_FLOAT32 = 4  # bytes
_MOMENTS = 2  # of Adam
_GRADIENTS = 2  # the sum over microbatches, and the one that is added to it
_IN_USE = 3  # embedding and head as the forward uses them, and two gradients before they are added
_LOGITS = 3  # logits, their softmax, and a gradient or a masked copy
_SCORES = 2  # attention scores, and their softmax or gradient, in float32
_WIDE = 4  # activations of the feed-forward's and the heads' width in a block's backward pass
_NARROW = 4  # activations of the residual stream's width there, each in both types
_FORWARD_WIDE = 2  # the same in the forward pass of the sampler
_FORWARD_NARROW = 2


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """Bytes on each device, by kind."""

    weights: int
    """Stored float32 weights."""
    moments: int
    """Two moments of the optimizer, laid as the weights."""
    reference: int
    """Weights of the KL term; 0 without it."""
    sampler: int
    """The sampler's weights, in the compute dtype, laid by the compute rules."""
    cache: int
    """Keys and values of the largest wave, of training or of validation."""
    sampling: int
    """Estimate: what prefill and decode need besides."""
    gradients: int
    """Float32 gradients: the sum over microbatches, one microbatch's, and one unit's sum if the
    noise scale is measured on units of several microbatches."""
    in_use: int
    """Estimate: embedding, head and one block as the learner uses them, with their gradients."""
    activations: int
    """Estimate: what one microbatch leaves for its backward pass, and what that works on."""

    @property
    def state(self) -> int:
        """What lives as long as the run."""
        return self.weights + self.moments + self.reference

    @property
    def sync(self) -> int:
        """Peak while the sampler's weights are made: they are gathered, then cut into layers."""
        return self.state + 2 * self.sampler

    @property
    def generate(self) -> int:
        """Peak while responses are sampled."""
        return self.state + self.sampler + self.cache + self.sampling

    @property
    def learn(self) -> int:
        """Peak of the update; the sampler's weights are let go before it."""
        return self.state + self.gradients + self.in_use + self.activations

    @property
    def peak(self) -> int:
        """The largest of the three."""
        return max(self.sync, self.generate, self.learn)


def plan_memory(
    config: Config, plan: BatchPlan, layout: Layout, sizes: Mapping[str, int]
) -> MemoryPlan:
    """Counts the memory of a run on each device.

    Args:
      config: an experiment, config.model as its checkpoint gives it.
      plan: its batch on the mesh.
      layout: where everything lies.
      sizes: sizes of the mesh axes.

    Raises:
      UserError: the validation's wave does not map onto the mesh.
    """
    model = config.model
    stored = count_stored_bytes(model, layout, sizes)
    waves = (plan, plan_validation(config, layout, sizes))
    prompt, response = config.task.max_prompt_length, config.task.max_response_length
    columns = prompt + response
    rows = plan.microbatch // plan.shards
    return MemoryPlan(
        weights=stored,
        moments=_MOMENTS * stored,
        reference=stored if config.objective.kl_coefficient > 0 else 0,
        sampler=count_sampler_bytes(model, layout.decoding, sizes),
        cache=max(
            count_cache_bytes(model, layout, sizes, rows=wave.wave, columns=columns)
            for wave in waves
        ),
        sampling=max(
            estimate_sampling_bytes(
                model, wave, layout.decoding, sizes, prompt=prompt, response=response
            )
            for wave in waves
        ),
        gradients=(_GRADIENTS + _sums_units(config, plan)) * stored,
        in_use=estimate_in_use_bytes(model, layout, sizes),
        activations=estimate_activation_bytes(
            model, layout, sizes, rows=rows, prompt=prompt, response=response
        ),
    )


def _sums_units(config: Config, plan: BatchPlan) -> bool:
    """Whether the gradients of independent units are sums over microbatches of their own."""
    unit = count_unit_rows(plan.microbatch, plan.group)
    return config.measure.noise_scale and plan.microbatch < unit < plan.minibatch


def estimate_validation_bytes(config: Config, layout: Layout, sizes: Mapping[str, int]) -> int:
    """Bytes of the sampler's weights, of one wave of the validation set, and of decoding it.

    On paper, as all here: for a plan that does not compile these programs too.
    """
    model, task = config.model, config.task
    plan = plan_validation(config, layout, sizes)
    prompt, response = task.max_prompt_length, task.max_response_length
    cache = count_cache_bytes(model, layout, sizes, rows=plan.wave, columns=prompt + response)
    sampling = estimate_sampling_bytes(
        model, plan, layout.decoding, sizes, prompt=prompt, response=response
    )
    return count_sampler_bytes(model, layout.decoding, sizes) + cache + sampling


def count_stored_bytes(model: ModelConfig, layout: Layout, sizes: Mapping[str, int]) -> int:
    """Bytes of the stored float32 weights on each device."""
    weights = jax.tree.leaves(describe_weights(model))
    return sum(_share(w, layout.weight_spec(w.axes), sizes) for w in weights) * _FLOAT32


def count_sampler_bytes(model: ModelConfig, layout: Layout, sizes: Mapping[str, int]) -> int:
    """Bytes of the sampler's weights on each device."""
    return _count_in_use(describe_weights(model), model, layout, sizes)


def count_cache_bytes(
    model: ModelConfig, layout: Layout, sizes: Mapping[str, int], *, rows: int, columns: int
) -> int:
    """Bytes of the keys and values of `rows` rows on each device."""
    shape = (rows, model.kv_heads, columns, model.head_dim)
    parts = _count_parts(layout.cache_spec(CACHE_AXES), sizes)
    return 2 * model.layers * math.prod(shape) // parts * _width(model)


def estimate_sampling_bytes(
    model: ModelConfig,
    plan: BatchPlan,
    layout: Layout,
    sizes: Mapping[str, int],
    *,
    prompt: int,
    response: int,
) -> int:
    """Bytes that prefill or decode of one wave needs besides its arguments on each device.

    Prefill: the cache of the prompts before it is copied to the rows, and one block. Decode: the
    logits of one step, and one block.
    """
    parts = _Parts.of(layout, sizes)
    short = count_cache_bytes(model, layout, sizes, rows=plan.prefill_rows, columns=prompt)
    rows = plan.prefill_rows // plan.decoding_shards
    prefill = short + _forward_bytes(model, parts, rows=rows, queries=prompt, keys=prompt)
    rows = plan.rows_per_shard
    logits = _LOGITS * rows * model.vocab_rows // parts.vocab * _FLOAT32
    block = _forward_bytes(model, parts, rows=rows, queries=1, keys=prompt + response)
    return max(prefill, logits + block)


def estimate_in_use_bytes(model: ModelConfig, layout: Layout, sizes: Mapping[str, int]) -> int:
    """Bytes of embedding, head and one block in use in the learner, with their gradients."""
    described = describe_weights(model)
    layers = _count_in_use(described.pop("layers"), model, layout, sizes)
    return _IN_USE * (_count_in_use(described, model, layout, sizes) + layers // model.layers)


def estimate_activation_bytes(
    model: ModelConfig,
    layout: Layout,
    sizes: Mapping[str, int],
    *,
    rows: int,
    prompt: int,
    response: int,
) -> int:
    """Bytes of the activations of one microbatch on each device.

    What each block leaves for the backward pass under model.remat, and the larger of one block's
    working set and the logits of one chunk of the responses: they are not there together.

    Args:
      model: the model.
      layout: where activations lie.
      sizes: sizes of the mesh axes.
      rows: rollouts of the microbatch on each device.
      prompt: columns of the prompts.
      response: columns of the responses.
    """
    parts, length = _Parts.of(layout, sizes), prompt + response
    block = _block_bytes(model, parts, rows=rows, length=length)
    chunk = next(c for c in range(min(SCORE_CHUNK, response), 0, -1) if response % c == 0)
    logits = _LOGITS * rows * chunk * model.vocab_rows // parts.vocab * _FLOAT32
    kept = rows * length * model.embed * _width(model)  # what enters the block
    if model.remat == "dots":
        kept += _dot_bytes(model, parts, rows=rows, length=length)
    elif model.remat == "none":
        kept += block
    return model.layers * kept + max(block, logits)


@dataclasses.dataclass(frozen=True)
class _Parts:
    """Parts that the compute rules split an axis of activations into."""

    heads: int
    kv_heads: int
    mlp: int
    vocab: int

    @staticmethod
    def of(layout: Layout, sizes: Mapping[str, int]) -> "_Parts":
        return _Parts(
            *(
                _count_parts(layout.compute_spec((axis,)), sizes)
                for axis in ("heads", "kv_heads", "mlp", "vocab")
            )
        )


def _block_bytes(model: ModelConfig, parts: _Parts, *, rows: int, length: int) -> int:
    """One block's backward pass: scores, and what is as wide as heads, feed-forward and embed."""
    wide = _WIDE * (_projected(model, parts) + model.mlp // parts.mlp) * _width(model)
    narrow = _NARROW * model.embed * (_width(model) + _FLOAT32)
    scores = _score_bytes(model, parts, rows=rows, queries=length, keys=length)
    return scores + rows * length * (wide + narrow)


def _forward_bytes(model: ModelConfig, parts: _Parts, *, rows: int, queries: int, keys: int) -> int:
    """One block's forward pass: attention or feed-forward, which are not there together."""
    scores = _score_bytes(model, parts, rows=rows, queries=queries, keys=keys)
    tokens, width = rows * queries, _FORWARD_WIDE * _width(model)
    attention = scores + tokens * _projected(model, parts) * width
    mlp = tokens * model.mlp // parts.mlp * width
    narrow = tokens * _FORWARD_NARROW * model.embed * _width(model)
    return max(attention, mlp) + narrow


def _score_bytes(model: ModelConfig, parts: _Parts, *, rows: int, queries: int, keys: int) -> int:
    """Attention scores in float32, and their softmax in the compute dtype."""
    heads = model.heads // parts.heads
    return rows * heads * queries * keys * (_SCORES * _FLOAT32 + _width(model))


def _projected(model: ModelConfig, parts: _Parts) -> int:
    """Numbers that q, k and v of one token have."""
    heads, kv_heads = model.heads // parts.heads, model.kv_heads // parts.kv_heads
    return (heads + 2 * kv_heads) * model.head_dim


def _dot_bytes(model: ModelConfig, parts: _Parts, *, rows: int, length: int) -> int:
    """The outputs of one block's matrix products: scores in float32, the others as computed."""
    heads, kv_heads = model.heads // parts.heads, model.kv_heads // parts.kv_heads
    scores = rows * heads * length * length * _FLOAT32
    attention = (2 * heads + 2 * kv_heads) * model.head_dim  # q, k, v and what they mix
    mlp = 2 * model.mlp // parts.mlp  # gate and up
    return scores + rows * length * (attention + mlp + 2 * model.embed) * _width(model)


def _count_in_use(
    described: Any, model: ModelConfig, layout: Layout, sizes: Mapping[str, int]
) -> int:
    weights = jax.tree.leaves(described)
    count = sum(_share(w, layout.compute_spec(w.axes), sizes) for w in weights)
    return count * _width(model)


def _share(weight: Weight, spec: jax.sharding.PartitionSpec, sizes: Mapping[str, int]) -> int:
    """Elements of a weight on each device."""
    return math.prod(weight.shape) // _count_parts(spec, sizes)


def _count_parts(spec: jax.sharding.PartitionSpec, sizes: Mapping[str, int]) -> int:
    """Parts that an array with this partition is cut into."""
    names = [(e,) if isinstance(e, str) else e for e in spec if e is not None]
    return math.prod(sizes[name] for entry in names for name in entry)


def _width(model: ModelConfig) -> int:
    """Bytes of a number in the compute dtype."""
    return int(jnp.dtype(model.compute_dtype).itemsize)
