"""Generates with compiled programs and brings to the host what rewards need."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
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
    """Sampled responses on the host: those that this process scores, all of them if it is alone."""

    rows: np.ndarray  # [n] int64, places in the wave, or in the batch once waves are joined
    tokens: np.ndarray  # [n, t] int32
    lengths: np.ndarray  # [n] int32
    ended: np.ndarray  # [n] bool
    decode_steps: int  # of all waves together


def fetch(tree: Any) -> Any:
    """Device to host: the one place where the loop waits for the devices' values."""
    return jax.device_get(tree)


def fetch_rows(
    arrays: tuple[jax.Array, ...], beside: jax.Array
) -> tuple[np.ndarray, tuple[np.ndarray, ...], np.ndarray]:
    """The rows of a batch that are this process' own, and their values.

    Args:
      arrays: [n, ...], all split alike along their first axis and along no other.
      beside: what is whole on every device, fetched along.

    Returns:
      the rows [m], ascending, the arrays' values [m, ...], and that of `beside`; every row of the
      batch is the own one of exactly one process.
    """
    first = arrays[0]
    if first.is_fully_addressable:
        return np.arange(first.shape[0]), *fetch((arrays, beside))
    rows = _list_own_rows(first.sharding.devices_indices_map(first.shape), first.shape[0])
    return rows, tuple(_take_rows(array, rows) for array in arrays), fetch(beside)


def _list_own_rows(indices: Mapping[jax.Device, Any], count: int) -> np.ndarray:
    """Rows that several processes hold are dealt out among them in equal parts."""
    holders: dict[tuple[int, int], set[int]] = {}
    for device, index in indices.items():
        start, stop, _ = index[0].indices(count)
        holders.setdefault((start, stop), set()).add(device.process_index)
    own: list[np.ndarray] = []
    for (start, stop), processes in sorted(holders.items()):
        order = sorted(processes)
        if jax.process_index() in processes:
            parts = np.array_split(np.arange(start, stop), len(order))
            own.append(parts[order.index(jax.process_index())])
    return np.concatenate(own)


def _take_rows(array: jax.Array, rows: np.ndarray) -> np.ndarray:
    """These rows of an array, from the shards that this process holds."""
    values = np.empty(array.shape, array.dtype)
    held = {str(shard.index): shard for shard in array.addressable_shards}.values()
    for shard, data in zip(held, fetch([shard.data for shard in held]), strict=True):
        values[shard.index] = data
    return values[rows]


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
        sampled, step, spent = programs.decode(weights, cache, hidden, prompts, key, temperature)
        # The next wave's cache should find this one's memory free.
        del cache, spent
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
    """Waits for wave after wave; this process' responses, and the problem of each of them.

    Args:
      rollouts: of each wave, dispatched.
      steps: decode steps of each wave.
      problems: of the whole batch, plan.prompts of them.
      plan: how they were cut into waves.
      max_prompt_length: columns of the prompts.
    """
    per_wave = plan.wave // plan.group
    for number, (wave, step) in enumerate(zip(rollouts, steps, strict=True)):
        split = (wave.tokens, wave.lengths, wave.ended)
        rows, (tokens, lengths, ended), count = fetch_rows(split, step)
        of_wave = problems[number * per_wave : (number + 1) * per_wave]
        yield (
            Responses(rows, tokens[:, max_prompt_length:], lengths, ended, int(count)),
            [of_wave[row // plan.group] for row in rows],
        )


def join_responses(waves: Sequence[Responses], *, wave: int) -> Responses:
    """The responses of all waves, of `wave` rows each, as one batch."""
    return Responses(
        rows=np.concatenate([part.rows + number * wave for number, part in enumerate(waves)]),
        tokens=np.concatenate([part.tokens for part in waves]),
        lengths=np.concatenate([part.lengths for part in waves]),
        ended=np.concatenate([part.ended for part in waves]),
        decode_steps=sum(part.decode_steps for part in waves),
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
