"""Generates with compiled programs and brings to the host what rewards need."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jax_rl.mesh.batch_plan import BatchPlan
from jax_rl.model.weights import Weights
from jax_rl.rewards.base import Problem, Response
from jax_rl.sampler.generate import Prompts, Rollouts
from jax_rl.text.base import Tokenizer
from jax_rl.trainer.programs import SamplerPrograms


@dataclasses.dataclass(frozen=True)
class Responses:
    """Sampled responses on the host."""

    tokens: np.ndarray  # [n, t] int32
    lengths: np.ndarray  # [n] int32
    ended: np.ndarray  # [n] bool
    decode_steps: int  # of all waves together


def fetch(tree: Any) -> Any:
    """Device to host: the one place where the loop waits for the devices' values."""
    return jax.device_get(tree)


def generate(
    programs: SamplerPrograms,
    weights: Weights,
    waves: Sequence[Prompts],
    key: jax.Array,
    temperature: jax.Array,
) -> tuple[list[Rollouts], list[jax.Array]]:
    """Dispatches prefill and decode of every wave; returns at once.

    Args:
      programs: compiled for one wave.
      weights: as `sync_weights` returns them.
      waves: prompts on the mesh.
      key: the seed's key on the mesh.
      temperature: [] float32.

    Returns:
      the waves' rollouts and their numbers of decode steps.
    """
    rollouts: list[Rollouts] = []
    steps: list[jax.Array] = []
    for prompts in waves:
        cache, hidden = programs.prefill(weights, prompts)
        sampled, step, _ = programs.decode(weights, cache, hidden, prompts, key, temperature)
        rollouts.append(sampled)
        steps.append(step)
    return rollouts, steps


def fetch_waves(
    rollouts: Sequence[Rollouts],
    steps: Sequence[jax.Array],
    problems: Sequence[Problem],
    *,
    plan: BatchPlan,
    max_prompt_length: int,
) -> Iterator[tuple[Responses, list[Problem]]]:
    """Waits for wave after wave; its responses, and the problem of each of them.

    Args:
      rollouts: of each wave, dispatched.
      steps: decode steps of each wave.
      problems: of the whole batch, plan.prompts of them.
      plan: how they were cut into waves.
      max_prompt_length: columns of the prompts.
    """
    per_wave = plan.wave // plan.group
    for number, (wave, step) in enumerate(zip(rollouts, steps, strict=True)):
        tokens, lengths, ended, count = fetch((wave.tokens, wave.lengths, wave.ended, step))
        own = problems[number * per_wave : (number + 1) * per_wave]
        yield (
            Responses(tokens[:, max_prompt_length:], lengths, ended, int(count)),
            [problem for problem in own for _ in range(plan.group)],
        )


def join_responses(waves: Sequence[Responses]) -> Responses:
    """The responses of all waves as one batch."""
    return Responses(
        tokens=np.concatenate([wave.tokens for wave in waves]),
        lengths=np.concatenate([wave.lengths for wave in waves]),
        ended=np.concatenate([wave.ended for wave in waves]),
        decode_steps=sum(wave.decode_steps for wave in waves),
    )


def read_responses(tokenizer: Tokenizer, responses: Responses) -> list[Response]:
    """The responses as a reward sees them."""
    texts = tokenizer.decode_rows(responses.tokens, responses.lengths)
    limit = responses.tokens.shape[1]
    numbers = zip(responses.lengths.tolist(), responses.ended.tolist(), strict=True)
    return [
        Response(text=text, tokens=length, ended=ended, limit=limit)
        for text, (length, ended) in zip(texts, numbers, strict=True)
    ]


def is_ready(tree: Any) -> bool:
    """Whether the devices have computed all of it."""
    return all(leaf.is_ready() for leaf in jax.tree.leaves(tree))
