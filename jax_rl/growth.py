"""What grows with the batch: prompts, the group or both, and the devices with it or not."""

import dataclasses
import math

from jax_rl.config import BatchConfig, DeviceGrowth, Growth, resize_batch
from jax_rl.errors import UserError


def grow_batch(
    batch: BatchConfig, size: int, *, growth: Growth = "prompts", updates: int = 0
) -> BatchConfig:
    """The reference batch at another size N = prompts x group, and what must fit cut to it.

    Args:
      batch: the reference: its size, its group K, and so its prompts P = size / K.
      size: rollouts per iteration, N.
      growth: "prompts" keeps K; "group" keeps P; "both" multiplies each by the root of the factor.
      updates: minibatches per batch; 0: as in the reference.

    Raises:
      UserError: P or K would not be whole, or a group would have fewer than 2 rollouts.
    """
    group = _grow_group(batch, size, growth)
    cut = dataclasses.replace(batch, group=group, updates=updates or batch.updates)
    return resize_batch(cut, size)


def count_devices(devices: int, *, size: int, reference: int, growth: DeviceGrowth) -> int:
    """Devices of a batch: `devices`, or as many times that as the batch is the reference.

    Raises:
      UserError: they grow, and their number is not said or would not be whole.
    """
    if growth == "fixed":
        return devices
    if not devices:
        raise UserError(
            'study.devices = "batch" needs run.devices, the devices of the reference batch; it is 0'
        )
    grown = devices * size / reference
    if grown != int(grown):
        raise UserError(
            f'study.devices = "batch": batch {size} would have {grown:g} devices, with run.devices'
            f" = {devices} at batch.size = {reference}; raise run.devices or leave small batches"
            " out (study.smaller)"
        )
    return int(grown)


def _grow_group(batch: BatchConfig, size: int, growth: Growth) -> int:
    if growth == "prompts":
        return batch.group
    prompts = batch.size // batch.group
    if growth == "group":
        group, rest = divmod(size, prompts)
        if rest or group < 2:
            raise UserError(
                f'study.growth = "group": batch {size} with the {prompts} prompts of the reference'
                f" (batch.size {batch.size} / batch.group {batch.group}) would have groups of"
                f" {size / prompts:g}; they must be whole and of at least 2: lower study.smaller"
                " or raise batch.group"
            )
        return group
    factor = size / batch.size
    root = math.sqrt(factor)
    members, grown = batch.group * root, prompts * root
    # Powers of two and four are exact here, so a root that is not whole shows.
    if members != int(members) or grown != int(grown) or members < 2:
        raise UserError(
            f'study.growth = "both": batch {size} is x{factor:g} the reference, so prompts'
            f" ({prompts}) and group ({batch.group}) would grow by x{root:g}, to {grown:g} and"
            f" {members:g}; both must be whole, and a group of at least 2: take study.factor = 4,"
            " and a reference whose prompts and group can be halved study.smaller times"
        )
    return int(members)
