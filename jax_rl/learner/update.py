"""Rollouts and rewards to new weights: advantages, gradients over microbatches, optimizer step.

What a row weighs is fixed from the whole minibatch before it is cut; gradients and metrics of
microbatches are sums, so that every cut gives the same update.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jax_rl.config import ModelConfig, ObjectiveConfig, OptimizerConfig
from jax_rl.learner.advantages import estimate_advantages, tied_groups
from jax_rl.learner.denominators import row_weights
from jax_rl.learner.kl import find_kl_estimator
from jax_rl.learner.metrics import Max, Mean, Metrics, pool
from jax_rl.learner.objectives import find_objective
from jax_rl.mesh.layout import Layout
from jax_rl.model.distribution import score_tokens
from jax_rl.model.forward import forward, head_in_use
from jax_rl.model.weights import Weights, decay_mask
from jax_rl.sampler.generate import Rollouts

SCORE_CHUNK = 256
"""Response tokens whose logits exist at once."""


@dataclasses.dataclass(frozen=True)
class LearnerSpec:
    """What is fixed when the learner is compiled."""

    model: ModelConfig
    layout: Layout
    objective: ObjectiveConfig
    optimizer: OptimizerConfig
    group: int
    updates: int
    microbatch: int
    max_prompt_length: int
    max_response_length: int


@struct.dataclass
class TrainState:
    """What an update changes."""

    weights: Weights
    optimizer: optax.OptState
    update: jax.Array  # [] int32, updates made


@struct.dataclass
class _Rows:
    """One minibatch or microbatch, all leaves [n, ...]."""

    tokens: jax.Array  # [n, p + t]
    starts: jax.Array  # [n]
    lengths: jax.Array  # [n], 0 for a row that is not counted
    old_log_probs: jax.Array  # [n, t]
    reference_log_probs: jax.Array | None  # [n, t]
    advantages: jax.Array  # [n]
    weights: jax.Array  # [n], weight of the row's summed token loss


def make_optimizer(config: OptimizerConfig, model: ModelConfig) -> optax.GradientTransformation:
    """AdamW with global-norm clipping, without the rate, which each update is handed."""
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.scale_by_adam(b1=config.b1, b2=config.b2, eps=config.epsilon),
        optax.add_decayed_weights(config.weight_decay, mask=decay_mask(model)),
    )


@partial(jax.jit, static_argnames=("optimizer", "model"))
def init_state(weights: Weights, optimizer: OptimizerConfig, model: ModelConfig) -> TrainState:
    """The state before the first update; moments lie as the weights do."""
    moments = make_optimizer(optimizer, model).init(weights)
    return TrainState(weights, moments, jnp.int32(0))


@partial(jax.jit, static_argnames=("spec",), donate_argnames=("state",))
def update(
    state: TrainState,
    rollouts: Rollouts,
    rewards: jax.Array,
    valid: jax.Array,
    rates: jax.Array,
    temperature: jax.Array,
    reference_log_probs: jax.Array | None,
    spec: LearnerSpec,
) -> tuple[TrainState, Metrics]:
    """All updates of one iteration.

    Args:
      state: donated.
      rollouts: n rows, the members of a group next to each other.
      rewards: [n] float32, replicated.
      valid: [n] bool, replicated; False where the reward failed.
      rates: [updates] float32, the learning rate of each.
      temperature: [] float32 that the rollouts were sampled at.
      reference_log_probs: [n, t] or None without a KL term.
      spec: the learner.

    Returns:
      the new state and the iteration's metrics.
    """
    rows, metrics = _weigh_rows(rollouts, rewards, valid, reference_log_probs, spec)
    minibatches = _cut(rows, spec.updates, spec.layout)

    def step(
        state: TrainState, inputs: tuple[_Rows, jax.Array, jax.Array]
    ) -> tuple[TrainState, Metrics]:
        minibatch, rate, first = inputs
        return _apply_minibatch(state, minibatch, rate, first, temperature, spec)

    first = jnp.arange(spec.updates) == 0
    state, stacked = jax.lax.scan(step, state, (minibatches, rates, first))
    return state, {**metrics, **pool(stacked)}


def _weigh_rows(
    rollouts: Rollouts,
    rewards: jax.Array,
    valid: jax.Array,
    reference_log_probs: jax.Array | None,
    spec: LearnerSpec,
) -> tuple[_Rows, Metrics]:
    """Advantages of all groups, and each row's weight inside its minibatch."""
    objective, group = spec.objective, spec.group
    whole = jax.sharding.PartitionSpec(None)
    split = spec.layout.compute_spec(("batch",))
    lengths = jax.sharding.reshard(rollouts.lengths, whole)
    ended = jax.sharding.reshard(rollouts.ended, whole)
    by_group = (rewards.reshape(-1, group), valid.reshape(-1, group))
    advantages = estimate_advantages(objective.advantage, *by_group).reshape(-1)
    tied = tied_groups(*by_group)
    counted = valid
    if objective.mask_truncated:
        counted = counted & ended
    if not objective.count_tied_groups:
        counted = counted & ~jnp.repeat(tied, group)
    counted_lengths = jnp.where(counted, lengths, 0)
    weigh = partial(
        row_weights,
        objective.denominator,
        group=group,
        max_response_length=spec.max_response_length,
    )
    weights = jax.vmap(lambda n, c: weigh(mask_lengths=n, counted=c))(
        counted_lengths.reshape(spec.updates, -1), counted.reshape(spec.updates, -1)
    ).reshape(-1)
    rows = _Rows(
        tokens=rollouts.tokens,
        starts=rollouts.starts,
        lengths=jax.sharding.reshard(counted_lengths, split),
        old_log_probs=rollouts.log_probs,
        reference_log_probs=reference_log_probs,
        advantages=jax.sharding.reshard(advantages, split),
        weights=jax.sharding.reshard(weights, split),
    )
    everything = jnp.ones_like(valid)
    return rows, {
        "reward": Mean.of(rewards, valid),
        "counted": Mean.of(counted.astype(jnp.float32), everything),
        "tied_groups": Mean.of(tied.astype(jnp.float32), jnp.ones_like(tied)),
    }


def _cut(rows: _Rows, parts: int, layout: Layout) -> _Rows:
    """Rows [n, ...] as [parts, n / parts, ...], in global order and each part over all shards."""

    def cut(array: jax.Array) -> jax.Array:
        axes = (None, "batch", *(None for _ in array.shape[1:]))
        shape = (parts, array.shape[0] // parts, *array.shape[1:])
        return jnp.reshape(array, shape, out_sharding=layout.compute_spec(axes))

    return jax.tree.map(cut, rows)


def _apply_minibatch(
    state: TrainState,
    minibatch: _Rows,
    rate: jax.Array,
    first: jax.Array,
    temperature: jax.Array,
    spec: LearnerSpec,
) -> tuple[TrainState, Metrics]:
    """One optimizer step from the summed gradients of the microbatches."""
    gradients, metrics = minibatch_gradients(state.weights, minibatch, temperature, spec)
    optimizer = make_optimizer(spec.optimizer, spec.model)
    directions, optimizer_state = optimizer.update(gradients, state.optimizer, state.weights)
    steps = jax.tree.map(lambda direction: -rate * direction, directions)
    norm = optax.tree.norm(gradients)
    one = jnp.float32(1.0)
    # Only the first update sees the weights that the rollouts were sampled with.
    mismatch_mean, mismatch_max = metrics.pop("mismatch_mean"), metrics.pop("mismatch_max")
    assert isinstance(mismatch_mean, Mean) and isinstance(mismatch_max, Max)
    metrics |= {
        "grad_norm": Mean(norm, one),
        "clipped_gradient": Mean((norm > spec.optimizer.max_grad_norm).astype(jnp.float32), one),
        "update_norm": Mean(optax.tree.norm(steps), one),
        "mismatch_mean": Mean(
            jnp.where(first, mismatch_mean.total, 0.0), jnp.where(first, mismatch_mean.weight, 0.0)
        ),
        "mismatch_max": Max(jnp.where(first, mismatch_max.peak, 0.0)),
    }
    weights = optax.apply_updates(state.weights, steps)
    return TrainState(weights, optimizer_state, state.update + 1), metrics


def minibatch_gradients(
    weights: Weights, minibatch: _Rows, temperature: jax.Array, spec: LearnerSpec
) -> tuple[Weights, Metrics]:
    """Gradient of the minibatch's loss, and metrics, summed over its microbatches."""
    parts = _cut(minibatch, minibatch.lengths.shape[0] // spec.microbatch, spec.layout)
    differentiate = jax.value_and_grad(_sum_loss, has_aux=True)

    def accumulate(total: Weights, microbatch: _Rows) -> tuple[Weights, Metrics]:
        (loss, metrics), gradients = differentiate(weights, microbatch, temperature, spec)
        metrics["loss"] = Mean(loss, jnp.float32(0.0))
        return jax.tree.map(jnp.add, total, gradients), metrics

    gradients, stacked = jax.lax.scan(accumulate, jax.tree.map(jnp.zeros_like, weights), parts)
    metrics = pool(stacked)
    loss = metrics["loss"]
    assert isinstance(loss, Mean)
    metrics["loss"] = Mean(loss.total, jnp.float32(1.0))
    return gradients, metrics


def _sum_loss(
    weights: Weights, rows: _Rows, temperature: jax.Array, spec: LearnerSpec
) -> tuple[jax.Array, Metrics]:
    """This microbatch's part of the minibatch's loss."""
    objective = spec.objective
    log_probs, entropies = _score_responses(weights, rows.tokens, rows.starts, temperature, spec)
    columns = jax.lax.broadcasted_iota(jnp.int32, (1, spec.max_response_length), 1)
    mask = columns < rows.lengths[:, None]  # [n, t]
    # Masked before anything is exponentiated: what lies past a response must not reach a sum.
    log_probs = jnp.where(mask, log_probs, 0.0)
    old_log_probs = jnp.where(mask, rows.old_log_probs, 0.0)
    per_token = find_objective(objective.loss)(
        log_probs,
        old_log_probs,
        rows.advantages,
        clip_low=objective.clip_low,
        clip_high=objective.clip_high,
    )
    loss = per_token.loss
    mismatch = jnp.abs(jax.lax.stop_gradient(log_probs) - old_log_probs)
    metrics: Metrics = {
        "entropy": Mean.of(entropies, mask),
        "ratio_clipped": Mean.of(per_token.clipped.astype(jnp.float32), mask),
        "mismatch_mean": Mean.of(mismatch, mask),
        "mismatch_max": Max.of(mismatch, mask),
    }
    if rows.reference_log_probs is not None:
        reference = jnp.where(mask, rows.reference_log_probs, 0.0)
        divergence = find_kl_estimator(objective.kl_estimator)(log_probs, reference)
        loss = loss + objective.kl_coefficient * divergence
        metrics["kl"] = Mean.of(jax.lax.stop_gradient(divergence), mask)
    summed = jnp.sum(jnp.where(mask, loss, 0.0), axis=-1)
    return jnp.sum(rows.weights * summed), metrics


def _score_responses(
    weights: Weights,
    tokens: jax.Array,
    starts: jax.Array,
    temperature: jax.Array,
    spec: LearnerSpec,
) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities and entropies [n, t] of the response columns."""
    hidden, _ = forward(weights, tokens, starts, config=spec.model, layout=spec.layout)
    prompt = spec.max_prompt_length
    return score_tokens(
        hidden[:, prompt - 1 : -1],
        head_in_use(weights, config=spec.model, layout=spec.layout),
        tokens[:, prompt:],
        temperature,
        bound=spec.model.final_softcap,
        vocab=spec.model.vocab,
        chunk=SCORE_CHUNK,
    )


@partial(jax.jit, static_argnames=("spec",))
def score_rollouts(
    weights: Weights, rollouts: Rollouts, temperature: jax.Array, spec: LearnerSpec
) -> jax.Array:
    """Log-probabilities [n, t] of rollouts under other weights, a microbatch at a time."""
    rows = rollouts.lengths.shape[0]
    zeros = jnp.zeros_like(rollouts.lengths, jnp.float32)
    parts = _cut(
        _Rows(
            rollouts.tokens,
            rollouts.starts,
            rollouts.lengths,
            rollouts.log_probs,
            None,
            zeros,
            zeros,
        ),
        rows // spec.microbatch,
        spec.layout,
    )
    log_probs = jax.lax.map(
        lambda part: _score_responses(weights, part.tokens, part.starts, temperature, spec)[0],
        parts,
    )
    spec_out = spec.layout.compute_spec(("batch", None))
    return jnp.reshape(log_probs, (rows, spec.max_response_length), out_sharding=spec_out)
