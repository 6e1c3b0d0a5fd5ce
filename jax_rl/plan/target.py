"""The hardware that a plan is for, as a command line names it; needs no JAX."""

import dataclasses
import math
import re
from collections.abc import Mapping

from jax_rl.costs.chips import Chip, find_chip
from jax_rl.errors import UserError, suggest

HERE = "here"
FORMS = "tpu:v5p:4x4x4, tpu:v5p:4x4x4*2 (two slices), cuda:h100:8, cuda:h200:8x4 (four hosts), here"
_PLATFORMS = ("tpu", "cuda")


@dataclasses.dataclass(frozen=True)
class Target:
    """Devices of one kind that are compiled for."""

    platform: str  # tpu, cuda or here
    chip: str = ""  # name of the chip; empty for `here`
    shape: tuple[int, ...] = ()  # tpu: chips of a slice along each axis; cuda: devices of a host
    groups: int = 1  # slices of TPUs, hosts of GPUs: a slower network joins them

    @property
    def name(self) -> str:
        """As a command line names it."""
        if self.platform == HERE:
            return HERE
        shape = "x".join(map(str, self.shape))
        groups = {"tpu": f"*{self.groups}", "cuda": f"x{self.groups}"}[self.platform]
        return f"{self.platform}:{self.chip}:{shape}{groups if self.groups > 1 else ''}"

    @property
    def chips(self) -> int:
        """Chips in all groups together; 0 for `here`."""
        return math.prod(self.shape) * self.groups if self.shape else 0


def parse_target(text: str, chips: Mapping[str, Chip]) -> Target:
    """Reads a target.

    Args:
      text: such as tpu:v5p:4x4x4.
      chips: those that are known.

    Raises:
      UserError: not a target, or a chip that is not known on its platform.
    """
    if text == HERE:
        return Target(HERE)
    platform, *rest = text.split(":")
    if platform not in _PLATFORMS:
        raise UserError(
            f"target {text!r}: unknown platform {platform!r}"
            f"{suggest(platform, (*_PLATFORMS, HERE))}; right are targets such as {FORMS}"
        )
    if len(rest) != 2:
        raise UserError(
            f"target {text!r} must be platform:chip:shape; right are targets such as {FORMS}"
        )
    name, shape = rest
    try:
        find_chip(name, {key: chip for key, chip in chips.items() if chip.platform == platform})
    except UserError as error:
        raise UserError(f"target {text!r}: {error}") from None
    read = _read_slices if platform == "tpu" else _read_hosts
    return Target(platform, name, *read(text, shape))


def _read_slices(text: str, shape: str) -> tuple[tuple[int, ...], int]:
    found = re.fullmatch(r"([1-9]\d*(?:x[1-9]\d*){1,2})(?:\*([1-9]\d*))?", shape)
    if found is None:
        raise UserError(
            f"target {text!r}: {shape!r} must be the chips of a slice along its two or three axes,"
            " and *N for N slices, as in 4x4x4 or 16x16*2"
        )
    return tuple(int(size) for size in found[1].split("x")), int(found[2] or 1)


def _read_hosts(text: str, shape: str) -> tuple[tuple[int, ...], int]:
    found = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", shape)
    if found is None:
        raise UserError(
            f"target {text!r}: {shape!r} must be the devices of a host, and xN for N hosts, as in"
            " 8 or 8x4"
        )
    return (int(found[1]),), int(found[2] or 1)
