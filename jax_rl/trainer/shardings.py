"""Where the arrays of a run lie, as a table of text: a change of it is read as a diff.

Programs are traced on an abstract mesh of any size; nothing is compiled or executed, and no device
is needed. In the table `4096/fsdp` is an axis of 4,096 that is split over the mesh axis `fsdp`.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.sharding import AbstractMesh, AxisType, Mesh

from jax_rl.config import Config
from jax_rl.learner.update import TrainState
from jax_rl.mesh.devices import check_divides
from jax_rl.mesh.layout import Layout
from jax_rl.model.weights import dimensions
from jax_rl.trainer.programs import Compiler, abstract_state, compile_programs
from jax_rl.trainer.setup import pad_vocabulary
from jax_rl.trainer.specs import ProgramSpecs, specify_programs

TRACED_LAYERS = 2
"""Of the programs: all layers of a model lie alike."""
_SCOPES = re.compile(r"\b(embed|attention|mlp|draw)\b")
_MIB = 2**20


class _Tracer(Compiler):
    """Stands where programs are compiled and keeps what they were traced with instead."""

    def __init__(self) -> None:
        super().__init__(lambda event: None)
        self.arguments: dict[str, tuple[Any, ...]] = {}
        self.bodies: dict[str, ClosedJaxpr] = {}

    def compile(self, name: str, function: Any, *args: Any, shapes: Any, **static: Any) -> Any:
        self.arguments[name] = args
        self.bodies[name] = function.trace(*args, **static).jaxpr


def describe_shardings(config: Config, layout: Layout, sizes: Mapping[str, int]) -> str:
    """The table of one model in one layout on a mesh with axes of these sizes.

    Stored weights, optimizer state, the sampler's weights and its KV cache, each with its bytes
    per device; then, program by program, what every matrix product gives (an activation or a
    gradient) and what is moved between devices on purpose, with the number of places in the
    program, a loop's body counting once and a model of two layers being traced.

    Raises:
      UserError: the layout does not fit the model or the batch.
    """
    config = pad_vocabulary(config, layout, sizes)
    check_divides(layout, sizes, dimensions(config.model))
    mesh = AbstractMesh(
        tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Explicit,) * len(sizes)
    )
    with jax.sharding.use_abstract_mesh(mesh):
        specs = _specify(config, layout, mesh)
        state = abstract_state(specs)
        tracer = _Tracer()
        compile_programs(_shorten(specs, layout, mesh), tracer, validates=False)
    lines = [f"batch: {part}" for part in specs.plan.describe().split("; ")]
    lines += _list_state(state)
    lines += _list_sampler(tracer.arguments["decode"], config.model.layers)
    for name, body in tracer.bodies.items():
        lines += ["", f"{name}:", *_list_points(body)]
    return "\n".join(lines) + "\n"


def _list_state(state: TrainState) -> Iterator[str]:
    """Weights, and the moments of Adam, which are two trees like them."""
    stored = list(_list_leaves(state.weights))
    yield from (*_title("stored weights", state.weights), *stored)
    for adam in (part for part in state.optimizer if hasattr(part, "mu")):
        for name, tree in (("first", adam.mu), ("second", adam.nu)):
            found = list(_list_leaves(tree))
            yield from _title(f"optimizer, {name} moment", tree)
            yield from ["  each as its weight"] if found == stored else found


def _list_sampler(arguments: tuple[Any, ...], layers: int) -> Iterator[str]:
    """What the decode program is given; its layers are fewer, but alike."""
    weights, cache, *_ = arguments
    held = {**weights, "layers": weights["layers"][0]}
    cached = {"layers": {"k": cache.keys[0], "v": cache.values[0]}}
    for title, tree in (("sampler's weights", held), ("cache", cached)):
        yield from (*_title(title, tree, layers), *_list_leaves(tree, layers))


def _specify(config: Config, layout: Layout, mesh: AbstractMesh) -> ProgramSpecs:
    # Only shapes and shardings are taken from the mesh, which an abstract one has as well.
    return specify_programs(config, layout, cast(Mesh, mesh), end_ids=(0,), pad_id=0)


def _shorten(specs: ProgramSpecs, layout: Layout, mesh: AbstractMesh) -> ProgramSpecs:
    """The programs of the same model with few layers, of which one is local if any is."""
    model = specs.config.model
    few = dataclasses.replace(
        model,
        layers=min(model.layers, TRACED_LAYERS),
        local_layers=(0,) if model.local_layers else (),
    )
    return _specify(dataclasses.replace(specs.config, model=few), layout, mesh)


def _title(title: str, tree: Any, layers: int = 1) -> list[str]:
    """What all arrays of a tree take, over them."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    total = sum(_count_layers(path, layers) * _count_bytes(leaf) for path, leaf in leaves)
    return ["", f"{title}: {total / _MIB:.2f} MiB per device"]


def _list_leaves(tree: Any, layers: int = 1) -> Iterator[str]:
    """A line per array; what is under `layers` is there so many times."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        times, name = _count_layers(path, layers), str(path[-1].key)
        label = f"{name} x {times}" if times > 1 else name
        yield f"  {label:<24}{_write_array(leaf):<48}{times * _count_bytes(leaf) / _MIB:>10.2f}"


def _count_layers(path: tuple[Any, ...], layers: int) -> int:
    return layers if path[0].key == "layers" else 1


def _list_points(body: ClosedJaxpr) -> Iterator[str]:
    """Products and moves of a program, each kind once, in the order of the program."""
    counts = collections.Counter(_find_points(body.jaxpr))
    for (scope, text), count in counts.items():
        yield f"  {count:>3} x {scope:<10}{text}"


def _find_points(body: Jaxpr, scope: str = "") -> Iterator[tuple[str, str]]:
    for equation in body.eqns:
        found = _SCOPES.search(str(equation.source_info.name_stack))
        inner = found.group(1) if found else scope
        name = equation.primitive.name
        if name == "dot_general":
            yield inner, _write_array(equation.outvars[0].aval)
        elif name in ("reshard", "reshape"):
            before, after = equation.invars[0].aval, equation.outvars[0].aval
            if _moves(name, before, after):
                yield inner, f"{_write_array(before)} -> {_write_array(after)}"
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                part = part.jaxpr if isinstance(part, ClosedJaxpr) else part
                if isinstance(part, Jaxpr):
                    yield from _find_points(part, inner)


def _moves(name: str, before: Any, after: Any) -> bool:
    """Whether values may cross devices; a reshape renames axes, but splits over the same ones."""
    if AxisType.Auto in (*before.sharding.mesh.axis_types, *after.sharding.mesh.axis_types):
        return False  # a gather is entered or left, which the compiler lays out
    one, other = before.sharding.spec, after.sharding.spec
    if name == "reshard":
        return bool(_partition(one) != _partition(other))
    return sorted(sum(_partition(one), ())) != sorted(sum(_partition(other), ()))


def _partition(spec: Any) -> tuple[tuple[str, ...], ...]:
    """Mesh axes of every dimension."""
    return tuple(
        () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
        for entry in spec
    )


def _write_array(array: Any) -> str:
    parts = _partition(array.sharding.spec)
    axes = [
        str(size) + ("/" + ".".join(names) if names else "")
        for size, names in zip(array.shape, parts, strict=True)
    ]
    return f"{_SHORT.get(str(array.dtype), str(array.dtype))}[{' '.join(axes)}]"


_SHORT = {"float32": "f32", "bfloat16": "bf16", "int32": "s32", "bool": "pred"}


def _count_bytes(array: Any) -> int:
    """On one device."""
    sizes = array.sharding.mesh.shape
    split = math.prod(sizes[name] for names in _partition(array.sharding.spec) for name in names)
    return math.prod(array.shape) * array.dtype.itemsize // split
