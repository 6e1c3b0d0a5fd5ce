"""How the N = P x K rollouts of an iteration lie on the devices."""

import dataclasses
import math
from collections.abc import Mapping

from jax_rl.config import BatchConfig, resize_batch
from jax_rl.errors import UserError
from jax_rl.mesh.layout import Layout


@dataclasses.dataclass(frozen=True)
class BatchPlan:
    """The mapping of one batch to one mesh; all counts are rollouts unless named otherwise."""

    size: int  # N
    prompts: int  # P
    group: int  # K
    shards: int  # parts that the learner's batch is split into over the mesh
    decoding_shards: int  # the same of the sampler's
    rows_per_shard: int  # of a wave
    waves: int  # sampler calls per iteration
    wave: int  # rollouts per sampler call
    prefill_rows: int  # prompt rows prefilled per wave
    copies: int  # cache copies per prefilled row
    updates: int  # optimizer updates per iteration
    minibatch: int
    microbatch: int
    accumulation: int  # microbatches per minibatch

    def describe(self) -> str:
        """One line for people."""
        learner = "" if self.shards == self.decoding_shards else f" on {self.shards} shard(s)"
        return (
            f"{self.size} rollouts = {self.prompts} prompts x {self.group};"
            f" {self.waves} wave(s) of {self.wave} on {self.decoding_shards} shard(s)"
            f" ({self.rows_per_shard} rows each, {self.prefill_rows} prefilled"
            f" x {self.copies} copies);"
            f" {self.updates} update(s) of {self.minibatch}"
            f" = {self.accumulation} x {self.microbatch}{learner}"
        )


def plan_batch(batch: BatchConfig, layout: Layout, sizes: Mapping[str, int]) -> BatchPlan:
    """Maps a batch onto a mesh.

    Args:
      batch: sizes asked for.
      layout: its batch rule says which mesh axes split the batch.
      sizes: sizes of the mesh axes.

    Raises:
      UserError: a size that the shards do not divide, with the sizes near it that would do.
    """
    batch = resize_batch(batch, batch.size)
    shards, decoding = layout.count_shards(sizes), layout.count_decoding_shards(sizes)
    wave = batch.wave or batch.size
    minibatch = batch.size // batch.updates
    microbatch = batch.microbatch or minibatch
    groups = math.lcm(shards, decoding, batch.group)
    _check_shards("batch.size", batch.size, math.lcm(shards, decoding), unit=groups)
    _check_shards(
        "batch.wave", wave, decoding, unit=math.lcm(decoding, batch.group), whole=batch.size
    )
    if minibatch % shards:
        right = [u for u in range(1, batch.size + 1) if batch.size % (u * groups) == 0]
        raise UserError(
            f"batch.updates = {batch.updates} makes a minibatch of {minibatch}, which does not map"
            f" onto the mesh's {shards} shards; valid: {', '.join(map(str, right))}"
        )
    _check_shards("batch.microbatch", microbatch, shards, unit=shards, whole=minibatch)
    # A run of `copies` rows has one prompt and one shard, so that its cache is copied locally
    # even when a group is larger than a shard.
    copies = math.gcd(batch.group, wave // decoding)
    return BatchPlan(
        size=batch.size,
        prompts=batch.size // batch.group,
        group=batch.group,
        shards=shards,
        decoding_shards=decoding,
        rows_per_shard=wave // decoding,
        waves=batch.size // wave,
        wave=wave,
        prefill_rows=wave // copies,
        copies=copies,
        updates=batch.updates,
        minibatch=minibatch,
        microbatch=microbatch,
        accumulation=minibatch // microbatch,
    )


def _check_shards(
    field: str, value: int, shards: int, *, unit: int, whole: int | None = None
) -> None:
    """Refuses a size that the shards do not divide; multiples of `unit` that cut `whole` would."""
    if value % shards == 0:
        return
    if whole is None:
        below = value // unit * unit
        right = [size for size in (below, below + unit, below + 2 * unit) if size]
    else:
        sizes = [size for size in range(unit, whole + 1, unit) if whole % size == 0]
        right = sorted(sorted(sizes, key=lambda size: abs(size - value))[:3])
    raise UserError(
        f"{field} = {value} does not map onto the mesh, which splits the batch into"
        f" {shards} shards; valid sizes near it: {', '.join(map(str, right))}"
    )
