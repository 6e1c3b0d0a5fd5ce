"""Whether a run's compiled programs fit into the devices' memory, and which knob helps if not."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax

from jax_rl.costs.program import ProgramCosts
from jax_rl.errors import UserError

_GIB = 2**30
_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"

_KNOBS = {
    "state": "a layout that splits weights, or more devices,",
    "sync": "a layout that splits the sampler's weights ([sampler] in the layout file)",
    "prefill": "a smaller batch.wave",
    "decode": "a smaller batch.wave or task.max_response_length",
    "join": "a smaller batch.size",
    "score": "a smaller batch.microbatch",
    "update": 'a smaller batch.microbatch, model.remat = "full", or a layout that splits weights',
    "validation_prefill": "a smaller validation.wave",
    "validation_decode": "a smaller validation.wave",
}


@dataclasses.dataclass(frozen=True)
class Need:
    """Bytes that each device needs while one program runs."""

    program: str  # or `state`
    resident: int  # what lives beside the program's own arrays
    own: int  # its arguments, outputs and temporaries
    state: int = 0  # of all this, what lives as long as the run

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.resident + self.own

    @property
    def knob(self) -> str:
        """What makes it less."""
        return _KNOBS[self.program]


def count_bytes(tree: Any) -> int:
    """Bytes of a tree of abstract arrays on each device."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape) if leaf.sharding else leaf.shape)
        * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def list_needs(costs: Mapping[str, ProgramCosts], *, state: int, reference: int) -> list[Need]:
    """What each program of a run needs, the largest first.

    Args:
      costs: by program, as `compile_programs` names them.
      state: bytes of weights and optimizer state on each device.
      reference: bytes of the KL term's weights; 0 without it.
    """
    needs: list[Need] = []
    for program, cost in costs.items():
        # The learner's programs are handed what otherwise lives beside them.
        beside = {"update": reference, "sync": state + reference, "score": state + reference}
        handed = {"sync": cost.arguments, "score": reference}.get(program, 0)
        resident = beside.get(program, state + reference)
        needs.append(Need(program, resident, cost.peak - handed, state + reference))
    return sorted(needs, key=lambda need: -need.bytes)


def check_fits(needs: list[Need], capacity: int | None) -> None:
    """Refuses a run that would run out of memory.

    Args:
      needs: of its programs.
      capacity: bytes of one device, or None where it does not tell.

    Raises:
      UserError: the first need that is too large, and the knob that makes it less.
    """
    state = [Need("state", 0, need.state) for need in needs[:1]]
    for need in [*state, *needs]:
        if capacity is not None and need.bytes > capacity:
            raise UserError(
                f"{need.program} needs {need.bytes / _GIB:.2f} GiB on each device"
                f" ({need.state / _GIB:.2f} GiB of it for the run's state), but a device has"
                f" {capacity / _GIB:.2f} GiB; {need.knob} would need less"
            )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a compiler or a device says that memory does not suffice."""
    return isinstance(error, jax.errors.JaxRuntimeError) and _OUT_OF_MEMORY in str(error)


def explain_out_of_memory(error: BaseException, *, program: str, doing: str) -> UserError:
    """The message about it.

    Args:
      error: of the compiler or the device.
      program: that lacked memory, or `state` for what lives as long as the run.
      doing: compiling, running or making.
    """
    helps = f"; {_KNOBS[program]} would need less" if program in _KNOBS else ""
    where = f"{doing} {program}"
    first = str(error).splitlines()[0][:300]
    return UserError(f"{where} ran out of the devices' memory{helps} ({first})")


def find_capacity(device: jax.Device) -> int | None:
    """Bytes that programs may use on a device; None where it does not tell."""
    limit = (device.memory_stats() or {}).get("bytes_limit")
    return None if limit is None else int(limit)
