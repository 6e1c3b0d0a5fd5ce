"""The largest batch whose memory suffices, from the batches that were compiled."""

import dataclasses
import math
from collections.abc import Sequence

from jax_rl.config import resize_batch
from jax_rl.errors import UserError
from jax_rl.mesh.batch_plan import plan_batch
from jax_rl.plan.predict import STAGES, VALIDATE, Prediction

_FAR = 4
"""Times the largest batch that was compiled; what memory says beyond that is not worth a number."""


@dataclasses.dataclass(frozen=True)
class Largest:
    """The largest batch of a layout."""

    layout: str
    batch: int | None  # None: memory does not limit it, or is not known
    text: str


def find_largest(predictions: Sequence[Prediction]) -> Largest:
    """The largest batch that fits, from points of one layout.

    Each stage needs memory that is affine in the rows that are in it at once. While wave and
    microbatch stay as they are, only tokens and log-probabilities of the whole batch grow.
    """
    known = sorted(
        (one for one in predictions if set(one.memory) == {*STAGES, VALIDATE}),
        key=lambda one: one.point.plan.size,
    )
    layout = predictions[0].point.request.layout
    if not known:
        return Largest(layout, None, "not known: no batch was compiled in full")
    first, last = known[0], known[-1]
    if first is last:
        return _judge_one(layout, last)
    batch = _meet(first, last)
    # What was seen not to fit bounds it, whatever the line through the others says.
    failed = min((one.point.plan.size for one in predictions if one.fits is False), default=None)
    if failed is not None:
        batch = failed - 1 if batch is None else min(batch, failed - 1)
    if batch is None:
        fixed = last.point.plan.waves > 1 and last.point.plan.accumulation > 1
        why = ", as wave and microbatch are fixed" if fixed else ""
        far = _FAR * last.point.plan.size
        return Largest(layout, None, f"{far:,} and more: memory hardly grows with the batch{why}")
    fitting = _round_down(last, batch)
    if fitting is None:
        return Largest(layout, None, "none: not even the smallest that maps onto the mesh")
    how = "extrapolated" if fitting > last.point.plan.size else "between compiled batches"
    if any(fitting == one.point.plan.size and one.compiled for one in known):
        how = "compiled"
    return Largest(layout, fitting, f"{fitting:,} ({how})")


def _judge_one(layout: str, only: Prediction) -> Largest:
    size = only.point.plan.size
    verdict = "fits" if only.fits else "does not fit"
    return Largest(
        layout,
        size if only.fits else None,
        f"{size:,} {verdict}; name a second batch to see how memory grows",
    )


def _meet(first: Prediction, last: Prediction) -> float | None:
    """The batch at which a stage reaches the capacity; None if none of them grows."""
    low, high = first.point.plan.size, last.point.plan.size
    batches: list[float] = []
    for stage, at_low in first.memory.items():
        slope = (last.memory[stage] - at_low) / (high - low)
        if slope > 0:
            batches.append(low + (first.capacity - at_low) / slope)
        elif at_low > first.capacity:
            return 0.0
    meeting = min(batches, default=math.inf)
    return None if meeting > _FAR * high else meeting


def _round_down(like: Prediction, batch: float) -> int | None:
    """The largest batch up to this one that maps onto the mesh with its wave and microbatch."""
    config, layout, sizes = like.point.request.config.batch, like.point.layout, like.point.sizes
    shards = math.lcm(layout.count_shards(sizes), layout.count_decoding_shards(sizes))
    unit = math.lcm(config.group * config.updates, shards, config.wave or 1)
    unit = math.lcm(unit, (config.microbatch or 1) * config.updates)
    size = int(batch // unit) * unit
    while size > 0:
        try:
            plan_batch(resize_batch(config, size), layout, sizes)
        except UserError:
            size -= unit
            continue
        return size
    return None
