"""Which programs a plan compiles, and how each point's costs are put together from them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jax_rl.bench.request import Request
from jax_rl.config import Config
from jax_rl.config_file import config_to_dict
from jax_rl.errors import UserError
from jax_rl.mesh.batch_plan import BatchPlan, plan_batch
from jax_rl.mesh.devices import check_divides, resolve_sizes
from jax_rl.mesh.layout import Layout
from jax_rl.mesh.layout_file import load_layout
from jax_rl.model.weights import dimensions
from jax_rl.resources import find_layout
from jax_rl.trainer.setup import check_length, pad_vocabulary
from jax_rl.trainer.specs import plan_validation

UNROLLED = ("sync", "prefill", "decode")
"""Programs with every layer written out; the learner's loop over them."""


@dataclasses.dataclass(frozen=True)
class Point:
    """One layout with one batch, mapped onto the target."""

    request: Request
    config: Config  # with the vocabulary padded
    layout: Layout
    sizes: Mapping[str, int]  # of the mesh axes
    plan: BatchPlan
    validation: BatchPlan

    @property
    def programs(self) -> tuple[str, ...]:
        """Names of the programs that an iteration calls."""
        join = ("join",) if self.plan.waves > 1 or self.layout.splits else ()
        score = ("score",) if self.config.objective.kl_coefficient > 0 else ()
        return ("sync", "prefill", "decode", *join, *score, "update")


@dataclasses.dataclass(frozen=True)
class Job:
    """One program to compile; equal ones are compiled once."""

    layout: str
    program: str
    layers: int
    shapes: tuple[Any, ...]  # what the program's shapes depend on, besides the configuration
    counted: (
        int | None
    )  # trips of its loop over microbatches, where other batches turn it otherwise
    config: Config = dataclasses.field(compare=False)

    def as_line(self) -> dict[str, Any]:
        """As `jax_rl.plan.worker` is told of it."""
        model = dataclasses.replace(self.config.model, layers=self.layers, padded_vocab=0)
        changed = dataclasses.replace(self.config, model=model)
        return {
            "config": config_to_dict(changed),
            "program": self.program,
            "counted": self.counted,
        }


@dataclasses.dataclass(frozen=True)
class Part:
    """A compiled program, and its weight in a sum that stands for another one."""

    job: Job
    weight: float = 1.0
    trips: float = 1.0  # of its loop of unknown length, or of its counted one
    turned: bool = False  # its loop turns as often as that of another batch


Recipe = tuple[Part, ...]


def map_point(request: Request, *, devices: int, groups: int) -> Point:
    """A requested point on so many devices.

    Raises:
      UserError: layout, model or batch do not fit them.
    """
    config = request.config
    layout = load_layout(find_layout(config.run.layout))
    sizes = resolve_sizes(layout, devices, slices=groups)
    config = pad_vocabulary(config, layout, sizes)
    check_divides(layout, sizes, dimensions(config.model))
    check_length(config)
    plan = plan_batch(config.batch, layout, sizes)
    validation = plan_validation(config, layout, sizes)
    return Point(request, config, layout, sizes, plan, validation)


def choose_recipes(
    points: Sequence[Point],
    *,
    layers: tuple[int, int] | None,
    every_batch: bool,
    decode_trips: float,
) -> list[dict[str, Recipe]]:
    """For each point, how each of its programs is put together from compiled ones.

    Args:
      points: of any layouts.
      layers: numbers of blocks to compile the unrolled programs with, in the place of the model's.
      every_batch: compile the update of each batch, also where one tells the others.
      decode_trips: how often the decode loop turns.
    """
    largest = {} if every_batch else _find_largest(points)
    return [
        {
            name: _choose_update(point, largest)
            if name == "update"
            else _choose_recipe(point, name, layers, decode_trips if name == "decode" else 1.0)
            for name in point.programs
        }
        for point in points
    ]


def check_layers(layers: Sequence[int], config: Config) -> tuple[int, int] | None:
    """Two numbers of blocks to compile with, or None for the model's own.

    Raises:
      UserError: not two different ones up to the model's, or a model whose layers differ.
    """
    if not layers:
        return None
    first, *rest = sorted(set(layers))
    most = config.model.layers
    if len(rest) != 1 or first < 1 or rest[0] > most:
        raise UserError(
            f"layers_compiled = {', '.join(map(str, layers))} must be two different numbers of"
            f" layers from 1 to the model's {most}, such as 2,4"
        )
    if config.model.local_layers:
        raise UserError(
            "layers_compiled needs layers that are all alike, but model.local_layers makes some"
            " of them local; leave it out"
        )
    return first, rest[0]


def _find_largest(points: Sequence[Point]) -> dict[tuple[Any, ...], Point]:
    """Of the points whose updates differ in the turns of one loop alone, the largest batch."""
    largest: dict[tuple[Any, ...], Point] = {}
    for point in sorted(points, key=lambda point: point.plan.size):
        if _tells(point):
            largest[_cut(point)] = point
    return largest


def _tells(point: Point) -> bool:
    """Whether the loop over microbatches can be known in its update by how often it turns.

    Norms of units put a loop within the loop, and leave the smallest batches out.
    """
    other_loops = (1, point.plan.updates)
    return point.plan.accumulation not in other_loops and not point.config.measure.noise_scale


def _cut(point: Point) -> tuple[Any, ...]:
    return point.request.layout, point.plan.microbatch, point.plan.updates


def _choose_update(point: Point, largest: Mapping[tuple[Any, ...], Point]) -> Recipe:
    """Its own program, or that of a larger batch with fewer turns of the loop over microbatches."""
    other = largest.get(_cut(point)) if point.plan.accumulation > 1 else None
    if other is None:
        return (Part(_make_job(point, "update", point.config.model.layers)),)
    job = _make_job(other, "update", other.config.model.layers, counted=other.plan.accumulation)
    return (Part(job, trips=point.plan.accumulation, turned=other is not point),)


def _choose_recipe(point: Point, name: str, layers: tuple[int, int] | None, trips: float) -> Recipe:
    most = point.config.model.layers
    if name not in UNROLLED or layers is None:
        return (Part(_make_job(point, name, most), trips=trips),)
    first, second = (_make_job(point, name, count) for count in layers)
    share = (most - layers[0]) / (layers[1] - layers[0])
    return Part(first, 1 - share, trips), Part(second, share, trips)


def _make_job(point: Point, name: str, layers: int, *, counted: int | None = None) -> Job:
    plan = point.plan
    shapes: dict[str, tuple[Any, ...]] = {
        "sync": (),
        "prefill": (plan.wave, plan.prefill_rows),
        "decode": (plan.wave, plan.prefill_rows),
        "join": (plan.wave, plan.waves),
    }
    return Job(
        layout=point.request.layout,
        program=name,
        layers=layers,
        shapes=shapes.get(name, (plan,)),
        counted=counted,
        config=point.request.config,
    )
