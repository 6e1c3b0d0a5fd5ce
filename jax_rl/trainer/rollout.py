"""Generates with compiled programs and brings to the host what rewards need."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jax_rl.learner.update import TrainState
from jax_rl.model.weights import Weights
from jax_rl.rewards.score import Scores, score
from jax_rl.sampler.generate import Prompts, Rollouts
from jax_rl.tasks.base import Task
from jax_rl.trainer.programs import SamplerPrograms


@dataclasses.dataclass(frozen=True)
class Responses:
    """Sampled responses on the host, waves joined."""

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


def fetch_responses(
    rollouts: Sequence[Rollouts], steps: Sequence[jax.Array], *, max_prompt_length: int
) -> Responses:
    """Waits for the sampler and brings the responses to the host."""
    host = fetch([(r.tokens, r.lengths, r.ended) for r in rollouts])
    columns = [np.concatenate(parts) for parts in zip(*host, strict=True)]
    return Responses(
        tokens=columns[0][:, max_prompt_length:],
        lengths=columns[1],
        ended=columns[2],
        decode_steps=int(np.sum(fetch(list(steps)))),
    )


def score_responses(
    task: Task, prompts: Sequence[str], responses: Responses, *, group: int
) -> tuple[Scores, list[str]]:
    """Rewards and texts of the responses to prompts of `group` members each."""
    texts = task.tokenizer.decode_rows(responses.tokens, responses.lengths)
    repeated = [prompt for prompt in prompts for _ in range(group)]
    return score(task, repeated, texts), texts


def is_busy(state: TrainState) -> bool:
    """Whether the devices have not yet finished the update that makes this state."""
    update: Any = state.update  # the type of arrays leaves is_ready out
    return not update.is_ready()
