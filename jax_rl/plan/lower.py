"""Programs of a run for a target: traced, lowered, hashed, and compiled if that is new."""

import dataclasses
import re
import resource
import tempfile
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from jax_rl.config import Config
from jax_rl.costs.program import measure_program
from jax_rl.mesh.layout_file import load_layout
from jax_rl.plan.cache import (
    hash_program,
    read_costs,
    read_program,
    write_costs,
    write_program,
)
from jax_rl.plan.target import HERE, Target
from jax_rl.plan.topology import describe_gpu, lay_mesh
from jax_rl.resources import find_layout
from jax_rl.trainer.fit import is_out_of_memory
from jax_rl.trainer.programs import Compiler, Program, compile_programs
from jax_rl.trainer.setup import pad_vocabulary
from jax_rl.trainer.specs import ProgramSpecs, specify_programs

_SIZES = re.compile(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_MEMORY = tuple(
    f"{name}_size_in_bytes" for name in ("argument", "output", "temp", "alias", "generated_code")
)
_NO_END = (0,)
"""The token that ends a response: which one it is moves neither memory nor time."""


class _Collector(Compiler):
    """Traces one program of a run and compiles none."""

    def __init__(self, wanted: str):
        super().__init__(lambda event: None)
        self._wanted = wanted
        self.traced: Any = None

    def compile(self, name: str, function: Any, *args: Any, shapes: Any, **static: Any) -> Program:
        if name == self._wanted:
            self.traced = function.trace(*args, **static)
        return _never_called


def _never_called(*args: Any) -> Any:
    raise NotImplementedError("programs of a plan are not run")


def specify(config: Config, groups: Sequence[Sequence[Any]]) -> ProgramSpecs:
    """The programs of a configuration on these groups of devices.

    Raises:
      UserError: its layout or its sizes do not fit them.
    """
    layout = load_layout(find_layout(config.run.layout))
    mesh = lay_mesh(layout, groups)
    config = pad_vocabulary(config, layout, mesh.shape)
    return specify_programs(config, layout, mesh, end_ids=_NO_END, pad_id=0)


def compile_program(
    specs: ProgramSpecs, name: str, target: Target, *, counted: int | None = None
) -> dict[str, Any]:
    """What one program costs, from the cache or by compiling it.

    Args:
      specs: of the run, on the target's devices.
      name: prefill, decode, sync, join, score or update.
      target: the hardware.
      counted: trips of the program's loop over microbatches, if it is to be counted like one of
        unknown length.

    Returns:
      `key`, `cached`, and either `fixed` and `turned`, its costs with a loop of unknown length
      counted not at all and once, or `too_large`, what the compiler said, with `needs` and `has`
      in bytes if it told.
    """
    with jax.set_mesh(specs.mesh):
        collector = _Collector(name)
        compile_programs(specs, collector, validates=False)
        traced = collector.traced
        platforms = None if target.platform == HERE else (target.platform,)
        lowered = traced.lower(lowering_platforms=platforms)
        key = hash_program(
            lowered.as_text(), mesh=_describe_mesh(specs.mesh), target=_describe_target(target)
        )
        costs = read_costs(key, counted)
        if costs is not None:
            return {**costs, "key": key, "cached": True}
        program = read_program(key)
        cached = program is not None
        if program is None:
            program = _compile(lowered, target)
            write_program(key, program)
        costs = _measure(traced, program, dict(specs.mesh.shape), counted)
    write_costs(key, counted, costs)
    return {**costs, "key": key, "cached": cached}


def _compile(lowered: Any, target: Target) -> dict[str, Any]:
    """Text, memory and seconds of the compiled program, or what kept it from fitting."""
    start, processor = time.perf_counter(), _count_processor_seconds()
    try:
        compiled, text = _compile_tpu(lowered) if target.platform == "tpu" else _read(lowered)
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return read_out_of_memory(str(error))
    memory = compiled.memory_analysis()
    return {
        "text": text,
        "memory": {name: int(getattr(memory, name, 0)) for name in _MEMORY},
        "seconds": time.perf_counter() - start,
        "processor_seconds": _count_processor_seconds() - processor,
    }


def _measure(
    traced: Any, program: dict[str, Any], sizes: dict[str, int], counted: int | None
) -> dict[str, Any]:
    if "too_large" in program:
        return program
    compiled = _Kept(program["text"], types.SimpleNamespace(**program["memory"]))
    fixed, turned = (
        measure_program(traced.jaxpr, compiled, sizes, loop_trips=trips, counted=counted).as_dict()
        for trips in (0.0, 1.0)
    )
    seconds = {name: program[name] for name in ("seconds", "processor_seconds")}
    return {**seconds, "fixed": fixed, "turned": turned}


@dataclasses.dataclass(frozen=True)
class _Kept:
    """What costs are read off, of a program that was compiled before."""

    text: str
    memory: types.SimpleNamespace

    def as_text(self) -> str:
        return self.text

    def memory_analysis(self) -> types.SimpleNamespace:
        return self.memory


def _read(lowered: Any) -> tuple[Any, str]:
    compiled = lowered.compile()
    return compiled, compiled.as_text()


def _compile_tpu(lowered: Any) -> tuple[Any, str]:
    """Compiles for a TPU, and takes the text from the compiler's own dump.

    `compiled.as_text()` goes through a serialised form, in which jaxlib refuses some instructions
    that libtpu writes (seen with jaxlib 0.10.2 and libtpu 0.0.52: "async-update instruction should
    have 1 operands but sees 3", for an update of 36 layers).
    """
    with tempfile.TemporaryDirectory() as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        compiled = lowered.compile(compiler_options=options)
        found = sorted(Path(folder).glob("*.after_optimizations.txt"), key=_count_size)
        text = found[-1].read_text(encoding="utf-8") if found else compiled.as_text()
    return compiled, text


def _count_size(path: Path) -> int:
    return path.stat().st_size


def read_out_of_memory(message: str) -> dict[str, Any]:
    """The compiler's words, and what it needs and has in bytes where it says so."""
    found = _SIZES.search(message)
    sizes: dict[str, Any] = {}
    if found:
        sizes["needs"] = int(float(found[1]) * _UNITS[found[2]])
        sizes["has"] = int(float(found[3]) * _UNITS[found[4]])
    return {"too_large": message.splitlines()[0][:300], **sizes}


def _count_processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _describe_mesh(mesh: Mesh) -> list[Any]:
    return [dict(mesh.shape), [device.id for device in mesh.devices.flat]]


def _describe_target(target: Target) -> str:
    if target.platform == HERE:
        device = jax.devices()[0]
        return f"{device.platform} {device.device_kind}"
    return f"{target.name}\n{describe_gpu(target) if target.platform == 'cuda' else ''}"


def describe_devices(groups: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """What a plan has to know of the devices before it maps batches onto them."""
    first = groups[0][0]
    return {
        "count": sum(len(group) for group in groups),
        "groups": len(groups),
        "kind": first.device_kind,
        "platform": first.platform,
        "processes": len({device.process_index for group in groups for device in group}),
    }
