"""One program from the cache or from the compiler, on the devices that are here."""

from pathlib import Path
from typing import Any

import jax
import pytest
from plan_points import list_points

from jax_rl.plan import lower
from jax_rl.plan.cache import (
    cache_folder,
    hash_program,
    read_costs,
    read_program,
    write_costs,
    write_program,
)
from jax_rl.plan.jobs import choose_recipes
from jax_rl.plan.results import Obstacle, read_result
from jax_rl.plan.target import Target
from jax_rl.plan.topology import open_groups
from jax_rl.trainer.specs import ProgramSpecs

HERE = Target("here")


def specify() -> ProgramSpecs:
    (point,) = list_points(16)
    return lower.specify(point.request.config, open_groups(HERE))


def test_a_program_is_compiled_once_and_then_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_RL_CACHE", str(tmp_path))
    specs = specify()
    first = lower.compile_program(specs, "sync", HERE)
    assert not first["cached"]
    kept = sorted(path.name for path in cache_folder().iterdir())
    assert len(kept) == 2
    assert all(name.startswith(first["key"]) for name in kept)

    def compile_again(*args: Any) -> Any:
        raise AssertionError("compiled twice")

    monkeypatch.setattr(lower, "_compile", compile_again)
    assert lower.compile_program(specs, "sync", HERE) == {**first, "cached": True}
    # Costs that another version of their reader read are read again, off the same text.
    for path in cache_folder().glob("*.json"):
        path.rename(path.with_name(f"{first['key']}-0123456789abcdef.json"))
    assert lower.compile_program(specs, "sync", HERE) == {**first, "cached": True}


def test_what_the_compiler_refuses_for_memory_is_kept_as_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_RL_CACHE", str(tmp_path))
    message = (
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space"
        " hbm. Used 24.50G of 15.75G hbm. Exceeded hbm capacity by 8.75G.\nTotal hbm usage"
    )

    class Lowered:
        def compile(self) -> None:
            raise jax.errors.JaxRuntimeError(message)

    answer = lower._compile(Lowered(), HERE)
    assert answer["needs"] == int(24.5 * 2**30)
    assert answer["has"] == int(15.75 * 2**30)
    (point,) = list_points(16)
    recipe = choose_recipes([point], layers=None, every_batch=True, decode_trips=1)[0]["update"]
    result = read_result(recipe, {recipe[0].job: answer})
    assert isinstance(result, Obstacle)
    assert result.summary == "does not fit: needs 24.50 of 15.75 GiB"


def test_another_error_of_the_compiler_is_no_result() -> None:
    class Lowered:
        def compile(self) -> None:
            raise jax.errors.JaxRuntimeError("INTERNAL: broken")

    with pytest.raises(jax.errors.JaxRuntimeError, match="broken"):
        lower._compile(Lowered(), HERE)


def test_words_without_sizes_are_told_as_they_are() -> None:
    assert lower.read_out_of_memory("RESOURCE_EXHAUSTED: too much\nmore") == {
        "too_large": "RESOURCE_EXHAUSTED: too much"
    }


def test_the_hash_knows_program_mesh_target_and_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(text: str = "a", mesh: Any = (8,), target: str = "t") -> str:
        return hash_program(text, mesh=mesh, target=target)

    base = key()
    assert base == key()
    changed = {key(text="b"), key(mesh=(4, 2)), key(target="u")}
    monkeypatch.setenv("XLA_FLAGS", "--one_more")
    changed.add(key())
    assert len(changed | {base}) == 5


def test_a_spoilt_file_is_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_RL_CACHE", str(tmp_path))
    assert read_costs("k", None) is None
    write_costs("k", None, {"seconds": 1.0})
    assert read_costs("k", 4) is None
    write_program("k", {"text": "HloModule"})
    assert read_costs("k", None) == {"seconds": 1.0}
    assert read_program("k") == {"text": "HloModule"}
    for path in cache_folder().iterdir():
        path.write_bytes(path.read_bytes()[:-3])
    assert read_costs("k", None) is None
    assert read_program("k") is None
