"""One response as it grows, for a person who reads along."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jax_rl.mesh.devices import put
from jax_rl.model.weights import Weights
from jax_rl.sampler.generate import (
    Decoding,
    Prompts,
    SamplerSpec,
    begin_decoding,
    continue_decoding,
    prefill,
)
from jax_rl.sampler.waves import Sharding, put_prompts

_STEPS = 4
"""Decode steps between two looks at the tokens: a look waits for the device."""


def stream_tokens(
    weights: Weights,
    ids: Sequence[int],
    *,
    key: jax.Array,
    group: int = 0,
    temperature: float,
    spec: SamplerSpec,
    sharding: Sharding,
    rows: int,
) -> Iterator[list[int]]:
    """The response's tokens so far, again and again until it has ended.

    The tokens are those that `decode` draws for the sample id (group, 0); the programs are
    compiled at the first call for a shape.

    Args:
      weights: as `sync_weights` returns them.
      ids: the prompt, at most spec.max_prompt_length tokens.
      key: the seed's key on the mesh.
      group: of the sample id; another one for each response under the same key.
      temperature: above 0; a greedy sampler only scores with it.
      spec: the sampler, of one copy.
      sharding: of the mesh and layout in use.
      rows: shards of the batch; each decodes the same prompt, and the first is read.
    """
    prompts = _place(ids, group, rows, spec=spec, sharding=sharding)
    heat = put(np.float32(temperature), sharding(()))
    cache, hidden = prefill(weights, prompts, spec)
    decoding = begin_decoding(weights, cache, hidden, prompts, key, heat, spec)
    until = 1
    while True:
        said, length, ended = _look(decoding)
        yield said[:length].tolist()
        if ended or length >= spec.max_response_length:
            return
        until += _STEPS
        decoding = continue_decoding(weights, decoding, prompts, key, heat, jnp.int32(until), spec)


def _place(
    ids: Sequence[int], group: int, rows: int, *, spec: SamplerSpec, sharding: Sharding
) -> Prompts:
    """The prompt on the mesh, once for every shard."""
    start = spec.max_prompt_length - len(ids)
    tokens = np.full((rows, spec.max_prompt_length), spec.pad_id, np.int32)
    tokens[:, start:] = ids
    starts, groups = np.full(rows, start, np.int32), np.full(rows, group, np.int32)
    return put_prompts((tokens, starts, groups, np.zeros(rows, np.int32)), sharding)


def _look(decoding: Decoding) -> tuple[np.ndarray, int, bool]:
    """The first row's tokens, how many of them there are, and whether it has ended."""
    said, lengths, ended = jax.device_get((decoding.responses, decoding.lengths, decoding.ended))
    return said[0], int(lengths[0]), bool(ended[0])
