"""Values of a configuration that are out of range, or do not fit each other."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

from jax_rl.config import BatchConfig, Config, RopeConfig, resize_batch, study_batches
from jax_rl.config_file import list_values
from jax_rl.config_study import check_study, cut_batches
from jax_rl.errors import UserError
from jax_rl.units import check_units

_POSITIVE = (
    "task.difficulty",
    "task.max_prompt_length",
    "task.max_response_length",
    "model.layers",
    "model.embed",
    "model.heads",
    "model.kv_heads",
    "model.head_dim",
    "model.mlp",
    "model.vocab",
    "model.rope.theta",
    "model.rope.factor",
    "model.rope.low_frequency_factor",
    "model.rope.high_frequency_factor",
    "model.rope.beta_fast",
    "model.rope.beta_slow",
    "model.rope.attention_factor",
    "model.norm_epsilon",
    "reward.seconds",
    "warm_start.batch",
    "warm_start.learning_rate",
    "batch.size",
    "batch.group",
    "batch.updates",
    "objective.clip_low",
    "objective.clip_high",
    "optimizer.epsilon",
    "optimizer.max_grad_norm",
    "validation.prompts",
    "validation.every_samples",
    "validation.samples_per_prompt",
    "budget.target",
    "budget.samples",
    "budget.seconds",
    "checkpoint.keep",
    "study.seeds",
    "study.steady_seconds",
    "study.trial_seeds",
    "study.early_stop_factor",
)
_NOT_NEGATIVE = (
    "reward.length_free",
    "reward.processes",
    "model.rope.local_theta",
    "model.rope.original_length",
    "model.max_length",
    "model.padded_vocab",
    "model.attention_scale",
    "model.attention_softcap",
    "model.final_softcap",
    "model.sliding_window",
    "warm_start.updates",
    "warm_start.seed",
    "batch.microbatch",
    "batch.wave",
    "sampler.temperature",
    "objective.kl_coefficient",
    "optimizer.learning_rate",
    "optimizer.warmup_samples",
    "optimizer.b1",
    "optimizer.b2",
    "optimizer.weight_decay",
    "validation.temperature",
    "warm_start.mistakes",
    "validation.wave",
    "validation.seed",
    "checkpoint.every_samples",
    "checkpoint.every_minutes",
    "study.smaller",
    "study.larger",
    "study.trial_extensions",
    "study.rate_power",
    "run.seed",
    "run.devices",
)


def validate(config: Config, *, study: bool = False) -> None:
    """Refuses values out of range, and values that do not fit each other.

    What depends on the devices is checked by `jax_rl.mesh.batch_plan`; names of tasks, objectives
    and layouts where they are looked up.

    Args:
      config: an experiment.
      study: check every batch of the study, not `batch.size` alone, and what it compares.

    Raises:
      UserError: the first thing that is wrong, with the nearest values that would be right.
    """
    for key, value in list_values(config):
        _check_range(key, value)
    _check_limits(config)
    _check_model(config)
    batches = study_batches(config) if study else (config.batch.size,)
    if study:
        check_study(config, batches)
    whole = resize_batch(config.batch, config.batch.size)
    for batch in itertools.chain([whole], cut_batches(config, batches) if study else ()):
        _check_batch(batch)
    if study and config.measure.noise_scale:
        _check_some_units(config, batches)
    _check_sampling(config)
    _check_grid(config, batches)


def _check_some_units(config: Config, batches: Sequence[int]) -> None:
    """A batch that is too small for two units is trained all the same, but not if all are."""
    refused = None
    for batch in cut_batches(config, batches):
        try:
            check_units(batch)
        except UserError as error:
            refused = error
        else:
            return
    if refused is not None:
        raise refused


def _check_range(key: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key} = {value} must be a finite number")
    if key in _POSITIVE and value <= 0:
        raise UserError(f"{key} = {value} must be above 0")
    if key in _NOT_NEGATIVE and value < 0:
        raise UserError(f"{key} = {value} must be 0 or above")
    if key.endswith(".seed") and value >= 2**31:
        raise UserError(f"{key} = {value} must be below 2**31")


def _check_limits(config: Config) -> None:
    if config.objective.clip_low > 1:
        raise UserError(
            f"objective.clip_low = {config.objective.clip_low} must be at most 1: the ratio is"
            " clipped at 1 - clip_low, and it is never negative"
        )
    for key, decay in (("b1", config.optimizer.b1), ("b2", config.optimizer.b2)):
        if decay >= 1:
            raise UserError(f"optimizer.{key} = {decay} must be below 1")
    if config.budget.target > 1:
        raise UserError(f"budget.target = {config.budget.target} must be a score of at most 1")
    if config.study.factor not in (2, 4):
        raise UserError(f"study.factor = {config.study.factor} must be 2 or 4")


def _check_model(config: Config) -> None:
    model = config.model
    if model.heads % model.kv_heads:
        raise UserError(
            f"model.kv_heads = {model.kv_heads} must divide model.heads = {model.heads};"
            f" nearest: {_near_divisors(model.kv_heads, model.heads)}"
        )
    if model.head_dim % 2:
        raise UserError(
            f"model.head_dim = {model.head_dim} must be even: rotary positions turn pairs;"
            f" nearest: {_near_multiples(model.head_dim, 2)}"
        )
    outside = [layer for layer in model.local_layers if not 0 <= layer < model.layers]
    if outside:
        raise UserError(
            f"model.local_layers names layer {outside[0]}, but the layers of the model are 0 to"
            f" {model.layers - 1}"
        )
    if bool(model.local_layers) != bool(model.sliding_window):
        raise UserError(
            f"model.local_layers = {list(model.local_layers)} and model.sliding_window ="
            f" {model.sliding_window} belong together: set both or neither"
        )
    _check_rope(model.rope)


def _check_rope(rope: RopeConfig) -> None:
    stretched = rope.scaling in ("llama3", "yarn")
    if stretched != bool(rope.original_length):
        raise UserError(
            f"model.rope.original_length = {rope.original_length} with model.rope.scaling ="
            f" {rope.scaling!r}: llama3 and yarn need it, the others do not have it"
        )
    if rope.low_frequency_factor >= rope.high_frequency_factor:
        raise UserError(
            f"model.rope.low_frequency_factor = {rope.low_frequency_factor} must be below"
            f" model.rope.high_frequency_factor = {rope.high_frequency_factor}"
        )


def _check_batch(batch: BatchConfig) -> None:
    size, group, updates = batch.size, batch.group, batch.updates
    if size % group:
        raise UserError(
            f"batch.size = {size} is not a whole number of groups of batch.group = {group};"
            f" nearest: {_near_multiples(size, group)}"
        )
    if (size // group) % updates:
        raise UserError(
            f"batch.updates = {updates} does not cut batch.size = {size} into equal minibatches of"
            f" whole groups of {group}; nearest: {_near_divisors(updates, size // group)}"
        )
    minibatch = size // updates
    if batch.microbatch and minibatch % batch.microbatch:
        raise UserError(
            f"batch.microbatch = {batch.microbatch} must divide the minibatch of {minibatch}"
            f" (batch.size {size} / batch.updates {updates}); nearest:"
            f" {_near_divisors(batch.microbatch, minibatch)}, or 0 for all of it"
        )
    if batch.wave and (batch.wave % group or size % batch.wave):
        raise UserError(
            f"batch.wave = {batch.wave} must divide batch.size = {size} and hold whole groups of"
            f" {group}; nearest: {_near_divisors(batch.wave, size, step=group)}, or 0 for all of it"
        )


def _check_sampling(config: Config) -> None:
    if config.sampler.temperature == 0:
        raise UserError(
            "sampler.temperature = 0 must be above 0 in training: the responses of a greedy group"
            " are all the same, so its advantages are 0 and it has no gradient"
        )
    validation = config.validation
    if validation.temperature == 0 and validation.samples_per_prompt != 1:
        raise UserError(
            f"validation.samples_per_prompt = {validation.samples_per_prompt} must be 1 at"
            " validation.temperature = 0: greedy responses are all the same"
        )


def _check_grid(config: Config, batches: tuple[int, ...]) -> None:
    step = config.validation.every_samples
    common = math.lcm(*batches)
    if step % common:
        named = f"batch.size = {batches[0]}" if len(batches) == 1 else f"all batches {batches}"
        raise UserError(
            f"validation.every_samples = {step} must be a multiple of {named}, so that every batch"
            f" is validated at the same sample counts; nearest: {_near_multiples(step, common)}"
        )
    if config.budget.samples % step:
        raise UserError(
            f"budget.samples = {config.budget.samples} must be a multiple of"
            f" validation.every_samples = {step}, so that the last validation is at the end;"
            f" nearest: {_near_multiples(config.budget.samples, step)}"
        )


def _near_multiples(value: int, step: int) -> str:
    below = value // step * step
    return f"{below} or {below + step}" if below else str(step)


def _near_divisors(value: int, total: int, *, step: int = 1) -> str:
    """The divisors of `total` next to `value`, below and above, among multiples of `step`."""
    divisors = [d for d in range(step, total + 1, step) if total % d == 0]
    below = [d for d in divisors if d < value][-1:]
    above = [d for d in divisors if d > value][:1]
    return " or ".join(map(str, below + above))
