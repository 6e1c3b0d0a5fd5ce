"""From the costs of a point's programs to memory by stage, least seconds and throughput."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jax_rl.costs.chips import Chip
from jax_rl.costs.program import ProgramCosts
from jax_rl.costs.roofline import Roofline, bound_program
from jax_rl.plan.jobs import Point, Recipe
from jax_rl.plan.results import Obstacle, Result
from jax_rl.throughput import ThroughputPoint
from jax_rl.trainer.fit import Need, list_needs
from jax_rl.trainer.memory import estimate_validation_bytes, plan_memory

STAGES = {
    "sync": ("sync",),
    "generate": ("prefill", "decode"),
    "learn": ("join", "score", "update"),
}
"""Programs of each stage of an iteration; no two run at once."""
VALIDATE = "validate"
"""The stage that is not compiled: its memory is an estimate on paper."""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """One layout with one batch on the target."""

    point: Point
    costs: Mapping[str, ProgramCosts]  # of one call, by program
    obstacles: Mapping[str, Obstacle]  # programs without costs
    bounds: Mapping[str, Roofline]  # of one call, by program
    state: int  # bytes of weights, optimizer state and reference weights on each device
    memory: Mapping[str, int]  # bytes at the peak of each stage whose programs all have costs
    capacity: int
    compiled: bool  # every program as it is, none told by others
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool | None:
        """Whether memory suffices; None if a program could not be compiled."""
        too_large = any(one.too_large for one in self.obstacles.values())
        if too_large or any(need > self.capacity for need in self.memory.values()):
            return False
        return None if self.obstacles else True

    @property
    def calls(self) -> dict[str, int]:
        """How often each program runs in an iteration."""
        waves = self.point.plan.waves
        return {n: waves if n in ("prefill", "decode") else 1 for n in self.point.programs}

    @property
    def seconds(self) -> dict[str, float]:
        """Least seconds of each stage; empty if a program has no costs."""
        if self.obstacles:
            return {}
        calls = self.calls
        return {
            stage: sum(calls[n] * self.bounds[n].seconds for n in names if n in calls)
            for stage, names in STAGES.items()
        }

    @property
    def throughput(self) -> float:
        """Rollouts per second at most; 0 where it is not known, or does not fit."""
        seconds = sum(self.seconds.values())
        return self.point.plan.size / seconds if seconds and self.fits else 0.0

    @property
    def mfu(self) -> float:
        """Share of the peak rate in matrix products, over an iteration at this bound."""
        seconds = sum(self.seconds.values())
        calls = self.calls
        compute = sum(calls[name] * bound.compute for name, bound in self.bounds.items())
        return compute / seconds if seconds else 0.0


def predict(
    point: Point,
    results: Mapping[str, Result],
    chip: Chip,
    *,
    crossed: Mapping[str, int],
    recipes: Mapping[str, Recipe],
) -> Prediction:
    """Puts together what a point's programs say.

    Args:
      point: of the plan.
      results: of its programs, by name.
      chip: that they run on.
      crossed: slices or hosts along each mesh axis that crosses several.
      recipes: how each program's costs came about.
    """
    costs = {name: r for name, r in results.items() if isinstance(r, ProgramCosts)}
    obstacles = {name: r for name, r in results.items() if isinstance(r, Obstacle)}
    dtype = point.config.model.compute_dtype
    paper = plan_memory(point.config, point.plan, point.layout, point.sizes)
    state, reference = paper.weights + paper.moments, paper.reference
    # The code of all programs stays loaded.
    code = sum(one.code for one in costs.values())
    needs = {n.program: n for n in list_needs(costs, state=state, reference=reference)}
    return Prediction(
        point=point,
        costs=costs,
        obstacles=obstacles,
        bounds={n: bound_program(c, chip, dtype=dtype, crossed=crossed) for n, c in costs.items()},
        state=state + reference,
        memory=_sum_memory(point, needs, code=code)
        | {
            VALIDATE: paper.state
            + estimate_validation_bytes(point.config, point.layout, point.sizes)
        },
        capacity=chip.memory_bytes,
        compiled=not any(_describe_recipe(recipe) for recipe in recipes.values()),
        notes=tuple(_list_notes(point, obstacles, needs, recipes, capacity=chip.memory_bytes)),
    )


def _sum_memory(point: Point, needs: Mapping[str, Need], *, code: int) -> dict[str, int]:
    memory: dict[str, int] = {}
    for stage, names in STAGES.items():
        called = [name for name in names if name in point.programs]
        if all(name in needs for name in called):
            memory[stage] = max(needs[name].bytes for name in called) + code
    return memory


def _list_notes(
    point: Point,
    obstacles: Mapping[str, Obstacle],
    needs: Mapping[str, Need],
    recipes: Mapping[str, Recipe],
    *,
    capacity: int,
) -> list[str]:
    notes = [f"{name}: {one.summary}" for name, one in obstacles.items()]
    largest = max(needs.values(), key=lambda need: need.bytes, default=None)
    if largest is not None and largest.bytes > capacity:
        notes.append(f"{largest.program} needs the most; {largest.knob} would need less")
    for name, recipe in recipes.items():
        if words := _describe_recipe(recipe):
            notes.append(f"{name}: {words}")
    return notes


def _describe_recipe(recipe: Recipe) -> str:
    """How others tell of a program; nothing if it was compiled as it is."""
    jobs = [part.job for part in recipe]
    if len(jobs) > 1:
        return f"on a line through those compiled with {jobs[0].layers} and {jobs[1].layers} layers"
    if recipe[0].turned:
        size = jobs[0].config.batch.size
        return f"as compiled for batch {size:,}, with fewer turns of its loop over microbatches"
    return ""


def as_throughput(prediction: Prediction, *, length: float) -> ThroughputPoint:
    """The point as `bench` writes one: the rate at the rooflines, for responses of this length."""
    one, plan = prediction, prediction.point.plan
    return ThroughputPoint(
        layout=one.point.request.layout,
        batch=plan.size,
        rollouts_per_second=one.throughput,
        seconds=one.seconds,
        iterations=0,
        mean_length=length,
        decode_steps=plan.waves * length,
        peak_memory_bytes=max(one.memory.values()) if one.memory else None,
        fits=one.fits,
        notes=one.notes,
    )


def describe(prediction: Prediction) -> dict[str, Any]:
    """Everything about a point in plain values, for a file."""
    one = prediction
    return {
        "layout": one.point.request.layout,
        "batch": one.point.plan.size,
        "mesh": dict(one.point.sizes),
        "mapping": one.point.plan.describe(),
        "fits": one.fits,
        "capacity_bytes": one.capacity,
        "state_bytes": one.state,
        "memory_bytes": dict(one.memory),
        "seconds": one.seconds,
        "rollouts_per_second": one.throughput,
        "mfu": one.mfu,
        "programs": {name: _describe_program(one, name) for name in one.costs},
        "obstacles": {name: dataclasses.asdict(o) for name, o in one.obstacles.items()},
        "notes": list(one.notes),
    }


def _describe_program(prediction: Prediction, name: str) -> dict[str, Any]:
    bound = prediction.bounds[name]
    return {
        "calls": prediction.calls[name],
        "costs": prediction.costs[name].as_dict(),
        "peak_bytes": prediction.costs[name].peak,
        "compute_seconds": bound.compute,
        "memory_seconds": bound.memory,
        "link_seconds": dict(bound.links),
        "network_seconds": dict(bound.network),
        "seconds": bound.seconds,
        "bound": bound.bound,
        "mfu": bound.mfu,
    }
