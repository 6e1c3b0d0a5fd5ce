"""Prompts on the host to sampler inputs on the mesh, wave by wave."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jax.sharding import NamedSharding

from jax_rl.mesh.batch_plan import BatchPlan
from jax_rl.mesh.devices import put
from jax_rl.sampler.generate import Prompts

Sharding = Callable[[tuple[str | None, ...]], NamedSharding]
"""Where an array with these logical axes lies."""

HostPrompts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""The fields of `Prompts` on the host, but for forced lengths."""


@dataclasses.dataclass(frozen=True)
class PromptRows:
    """Encoded prompts of consecutive groups."""

    tokens: np.ndarray  # [prompts, p] int32, right-aligned
    lengths: np.ndarray  # [prompts] int32
    first_group: int
    # [prompts * group] int32 that the responses are forced to; None: end tokens end them.
    response_lengths: np.ndarray | None = None


def split_waves(rows: PromptRows, plan: BatchPlan, sharding: Sharding) -> tuple[Prompts, ...]:
    """Sampler inputs of every wave, on the mesh.

    Args:
      rows: the prompts of one iteration; plan.prompts of them.
      plan: how they map onto the mesh.
      sharding: of the mesh and layout in use.
    """
    forced: list[np.ndarray | None] = [None] * plan.waves
    if rows.response_lengths is not None:
        forced = list(rows.response_lengths.reshape(plan.waves, plan.wave))
    waves = zip(_arrange(rows, plan), forced, strict=True)
    return tuple(put_prompts(wave, sharding, lengths) for wave, lengths in waves)


def put_prompts(
    prompts: HostPrompts, sharding: Sharding, lengths: np.ndarray | None = None
) -> Prompts:
    """Tokens [r, p], starts [r], groups [n], members [n] and forced lengths [n], on the mesh."""
    tokens, *vectors = prompts
    starts, groups, members = (put(v, sharding(("batch",))) for v in vectors)
    forced = None if lengths is None else put(lengths, sharding(("batch",)))
    return Prompts(put(tokens, sharding(("batch", None))), starts, groups, members, forced)


def _arrange(rows: PromptRows, plan: BatchPlan) -> Sequence[HostPrompts]:
    repeats = plan.group // plan.copies  # prefilled rows per prompt
    per_wave = plan.wave // plan.group
    starts = np.int32(rows.tokens.shape[1]) - rows.lengths
    waves: list[HostPrompts] = []
    for wave in range(plan.waves):
        part = slice(wave * per_wave, (wave + 1) * per_wave)
        group = np.arange(part.start, part.stop, dtype=np.int32) + np.int32(rows.first_group)
        waves.append(
            (
                np.repeat(rows.tokens[part], repeats, axis=0),
                np.repeat(starts[part], repeats),
                np.repeat(group, plan.group),
                np.tile(np.arange(plan.group, dtype=np.int32), per_wave),
            )
        )
    return waves
