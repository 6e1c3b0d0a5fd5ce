"""Prompts on the host to sampler inputs on the mesh, wave by wave."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.sharding import NamedSharding

from jax_rl.mesh.batch_plan import BatchPlan
from jax_rl.sampler.generate import Prompts

Sharding = Callable[[tuple[str | None, ...]], NamedSharding]
"""Where an array with these logical axes lies."""

HostPrompts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""The fields of `Prompts` on the host."""


@dataclasses.dataclass(frozen=True)
class PromptRows:
    """Encoded prompts of consecutive groups."""

    tokens: np.ndarray  # [prompts, p] int32, right-aligned
    lengths: np.ndarray  # [prompts] int32
    first_group: int


def split_waves(rows: PromptRows, plan: BatchPlan, sharding: Sharding) -> tuple[Prompts, ...]:
    """Sampler inputs of every wave, on the mesh.

    Args:
      rows: the prompts of one iteration; plan.prompts of them.
      plan: how they map onto the mesh.
      sharding: of the mesh and layout in use.
    """
    return tuple(put_prompts(wave, sharding) for wave in _arrange(rows, plan))


def put_prompts(prompts: HostPrompts, sharding: Sharding) -> Prompts:
    """Tokens [r, p], starts [r], groups [n] and members [n] of the host, on the mesh."""
    tokens, *vectors = prompts
    starts, groups, members = (jax.device_put(v, sharding(("batch",))) for v in vectors)
    return Prompts(jax.device_put(tokens, sharding(("batch", None))), starts, groups, members)


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
