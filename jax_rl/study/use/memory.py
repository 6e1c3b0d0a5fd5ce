"""Memory of a run by kind and by phase: on paper, as its programs were compiled, as measured."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jax_rl.records import RunRecord, Start

KINDS = {
    "weights": ("weights", "reference"),
    "optimizer": ("moments",),
    "gradients": ("gradients", "in_use"),
    "activations": ("activations",),
    "sampler's weights": ("sampler",),
    "cache": ("cache",),
    "decoding": ("sampling",),
}
"""What memory is used for, and the fields of `trainer.memory.MemoryPlan` that count it."""

PROGRAMS = {
    "sync": ("sync",),
    "generate": ("prefill", "decode"),
    "learn": ("join", "score", "update"),
    "validate": ("validation_prefill", "validation_decode"),
}
"""Compiled programs of each phase; no two run at once."""


@dataclasses.dataclass(frozen=True)
class MemoryUse:
    """Bytes on one device; empty or None where a record does not tell."""

    by_kind: dict[str, int]  # on paper, from shapes
    paper: dict[str, int]  # peak of sync, generate and learn, on paper
    compiled: dict[str, int]  # peak of each phase as compiled, the run's state included
    temporaries: dict[str, int]  # of them, what the compiler added to arguments and outputs
    measured: int | None  # peak of the whole run
    of_process: bool  # measured for the whole process, because the device does not tell
    unknown: str  # why nothing is known on paper; empty where it is


def read_memory(run: RunRecord) -> MemoryUse:
    """What a run's record says of its memory."""
    plan, unknown = _plan_memory(run.start)
    by_kind = {kind: sum(plan[name] for name in names) for kind, names in KINDS.items() if plan}
    compiled, temporaries = _read_compiled(run, plan)
    peak = run.end.peak_memory_bytes if run.end else 0
    return MemoryUse(
        by_kind=by_kind,
        paper={phase: plan[phase] for phase in ("sync", "generate", "learn") if plan},
        compiled=compiled,
        temporaries=temporaries,
        measured=peak or None,
        of_process=run.start.platform == "cpu",
        unknown=unknown,
    )


def _plan_memory(start: Start) -> tuple[dict[str, int], str]:
    """Fields and phases of the run's MemoryPlan, or none and why."""
    # The model's shapes need JAX, which a report of imported logs does without.
    from jax_rl.config_file import config_from_dict
    from jax_rl.errors import UserError
    from jax_rl.mesh.batch_plan import BatchPlan
    from jax_rl.trainer.memory import plan_memory

    if not start.batch_plan or not start.layout.get("axis_sizes"):
        return {}, "the record does not say how the batch lay on the devices"
    try:
        config = config_from_dict(start.config, where="the record")
        plan = BatchPlan(**start.batch_plan)
        layout = _restore_layout(start.layout)
        memory = plan_memory(config, plan, layout, start.layout["axis_sizes"])
    except (UserError, KeyError, TypeError) as error:
        return {}, f"the record is of another version: {error}"
    phases = {"sync": memory.sync, "generate": memory.generate, "learn": memory.learn}
    return dataclasses.asdict(memory) | phases, ""


def _restore_layout(data: Mapping[str, Any]) -> Any:
    """The `mesh.layout.Layout` that a record's start describes."""
    from jax_rl.mesh.layout import TABLES, Layout

    rules = {
        name: tuple((axis, tuple(value)) for axis, value in data[name].items()) for name in TABLES
    }
    return Layout(
        name=data["name"],
        description=data["description"],
        mesh=tuple(data["mesh"].items()),
        **rules,
    )


def _read_compiled(
    run: RunRecord, plan: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Peak and temporaries by phase; no peak where the state beside the programs is not known."""
    costs = {one.program: one.costs for one in run.compiles if one.costs}
    called = {phase: [name for name in names if name in costs] for phase, names in PROGRAMS.items()}
    temporaries = {
        phase: max(int(costs[name]["temporaries"]) for name in names)
        for phase, names in called.items()
        if names
    }
    if not plan:
        return {}, temporaries
    from jax_rl.costs.program import ProgramCosts
    from jax_rl.trainer.fit import list_needs

    state, reference = plan["weights"] + plan["moments"], plan["reference"]
    known = {name: ProgramCosts.from_dict(one) for name, one in costs.items()}
    needs = {n.program: n.bytes for n in list_needs(known, state=state, reference=reference)}
    peaks = {phase: max(needs[name] for name in names) for phase, names in called.items() if names}
    return peaks, temporaries
