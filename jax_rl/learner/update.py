"""Rollouts and rewards to new weights: advantages, gradients over microbatches, optimizer step.

What a row weighs is fixed from the whole minibatch before it is cut; gradients and metrics of
microbatches are sums, so that every cut gives the same update.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jax_rl.config import ModelConfig, OptimizerConfig
from jax_rl.learner.kl import find_kl_estimator
from jax_rl.learner.metrics import Max, Mean, Metrics, pool
from jax_rl.learner.noise import squared_norm
from jax_rl.learner.objectives import find_objective
from jax_rl.learner.rows import Rows, cut_rows, weigh_rows
from jax_rl.learner.spec import LearnerSpec
from jax_rl.model.distribution import score_tokens
from jax_rl.model.forward import forward, head_in_use
from jax_rl.model.weights import Weights, decay_mask
from jax_rl.sampler.generate import Rollouts
from jax_rl.units import count_unit_rows, count_units

SCORE_CHUNK = 256
"""Response tokens whose logits exist at once."""


@struct.dataclass
class TrainState:
    """What an update changes."""

    weights: Weights
    optimizer: optax.OptState
    update: jax.Array  # [] int32, updates made


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
    rows, metrics = weigh_rows(rollouts, rewards, valid, reference_log_probs, spec)
    minibatches = cut_rows(rows, spec.updates, spec.layout)

    def step(
        state: TrainState, inputs: tuple[Rows, jax.Array, jax.Array]
    ) -> tuple[TrainState, Metrics]:
        minibatch, rate, first = inputs
        return _apply_minibatch(state, minibatch, rate, first, temperature, spec)

    first = jnp.arange(spec.updates) == 0
    state, stacked = jax.lax.scan(step, state, (minibatches, rates, first))
    return state, {**metrics, **pool(stacked)}


def _apply_minibatch(
    state: TrainState,
    minibatch: Rows,
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
    weights: Weights, minibatch: Rows, temperature: jax.Array, spec: LearnerSpec
) -> tuple[Weights, Metrics]:
    """Gradient of the minibatch's loss, and metrics, summed over its microbatches."""
    sum_parts = _sum_units if spec.measure_noise else sum_microbatches
    gradients, metrics = sum_parts(weights, minibatch, temperature, spec)
    loss = metrics["loss"]
    assert isinstance(loss, Mean)
    metrics["loss"] = Mean(loss.total, jnp.float32(1.0))
    if spec.measure_noise:
        metrics["minibatch_norm_squared"] = Mean(squared_norm(gradients), jnp.float32(1.0))
    return gradients, metrics


def _sum_units(
    weights: Weights, minibatch: Rows, temperature: jax.Array, spec: LearnerSpec
) -> tuple[Weights, Metrics]:
    """The same sum by independent units, whose squared norms are among the metrics."""
    rows = minibatch.lengths.shape[0]
    units = count_units(rows, spec.microbatch, spec.group)
    whole = count_unit_rows(spec.microbatch, spec.group) == spec.microbatch
    # A unit of one microbatch needs no sum of its own, which would be another copy of the weights.
    sum_unit = _differentiate if whole else sum_microbatches

    def accumulate(total: Weights, unit: Rows) -> tuple[Weights, Metrics]:
        gradients, metrics = sum_unit(weights, unit, temperature, spec)
        squared = units**2 * squared_norm(gradients)
        metrics["unit_norm_squared"] = Mean(squared, jnp.float32(1.0))
        return jax.tree.map(jnp.add, total, gradients), metrics

    parts = cut_rows(minibatch, units, spec.layout)
    gradients, stacked = jax.lax.scan(accumulate, jax.tree.map(jnp.zeros_like, weights), parts)
    return gradients, pool(stacked)


def sum_microbatches(
    weights: Weights, rows: Rows, temperature: jax.Array, spec: LearnerSpec
) -> tuple[Weights, Metrics]:
    """Gradient of these rows' part of the loss, and metrics, a microbatch at a time."""
    parts = cut_rows(rows, rows.lengths.shape[0] // spec.microbatch, spec.layout)

    def accumulate(total: Weights, microbatch: Rows) -> tuple[Weights, Metrics]:
        gradients, metrics = _differentiate(weights, microbatch, temperature, spec)
        return jax.tree.map(jnp.add, total, gradients), metrics

    gradients, stacked = jax.lax.scan(accumulate, jax.tree.map(jnp.zeros_like, weights), parts)
    return gradients, pool(stacked)


def _differentiate(
    weights: Weights, microbatch: Rows, temperature: jax.Array, spec: LearnerSpec
) -> tuple[Weights, Metrics]:
    """Gradient of a microbatch's part of the loss, and metrics with the loss's sum among them."""
    differentiate = jax.value_and_grad(_sum_loss, has_aux=True)
    (loss, metrics), gradients = differentiate(weights, microbatch, temperature, spec)
    metrics["loss"] = Mean(loss, jnp.float32(0.0))
    return gradients, metrics


def _sum_loss(
    weights: Weights, rows: Rows, temperature: jax.Array, spec: LearnerSpec
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
    parts = cut_rows(
        Rows(
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
