"""What programs need beside what lives as long as the run, and what is said if it is too much."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from trainer_runs import run

from jax_rl.costs.program import ProgramCosts
from jax_rl.errors import UserError
from jax_rl.trainer import run as run_module
from jax_rl.trainer.fit import (
    check_fits,
    count_bytes,
    explain_out_of_memory,
    is_out_of_memory,
    list_needs,
)

GIB = 2**30


def cost(arguments=0, outputs=0, temporaries=0, aliased=0):
    return ProgramCosts(
        flops=0.0,
        matmul_flops=0.0,
        bytes=0.0,
        collectives=(),
        arguments=arguments,
        outputs=outputs,
        temporaries=temporaries,
        aliased=aliased,
        code=0,
    )


def test_what_a_program_is_handed_is_counted_once():
    costs = {
        # State of 30 in, state of 30 out in the same memory; rollouts of 2.
        "update": cost(arguments=32, outputs=31, aliased=30, temporaries=7),
        # Weights of 10 in, which are part of the state; the sampler's of 5 out.
        "sync": cost(arguments=10, outputs=5, temporaries=3),
        "decode": cost(arguments=5 + 20, outputs=21, aliased=20, temporaries=1),
    }
    needs = {need.program: need for need in list_needs(costs, state=30, reference=10)}
    assert needs["update"].bytes == 10 + 32 + 1 + 7
    assert needs["sync"].bytes == 30 + 10 + 5 + 3
    assert needs["decode"].bytes == 30 + 10 + 25 + 1 + 1
    assert [n.program for n in list_needs(costs, state=30, reference=10)] == [
        "decode",
        "update",
        "sync",
    ]


def test_bytes_are_those_on_each_device():
    mesh = jax.make_mesh((4, 2), ("fsdp", "tensor"), devices=jax.devices())
    split = NamedSharding(mesh, PartitionSpec("fsdp", None))
    tree = {
        "split": jax.ShapeDtypeStruct((8, 3), jnp.float32, sharding=split),
        "whole": jax.ShapeDtypeStruct((5,), jnp.bfloat16),
    }
    assert count_bytes(tree) == 2 * 3 * 4 + 5 * 2


def test_a_need_above_the_capacity_names_the_knob():
    needs = list_needs({"update": cost(temporaries=3 * GIB)}, state=0, reference=GIB)
    check_fits(needs, 4 * GIB)
    check_fits(needs, None)
    with pytest.raises(
        UserError,
        match=r"update needs 4\.00 GiB on each device \(1\.00 GiB .*has 3\.99 GiB; a smaller"
        r" batch\.microbatch, model\.remat",
    ):
        check_fits(needs, 4 * GIB - 2**23)


def test_a_run_that_cannot_fit_ends_before_its_first_iteration(tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "find_capacity", lambda device: 10_000)
    with pytest.raises(UserError, match=r"state needs 0\.00 GiB on each device"):
        run(tmp_path / "run")
    # Nothing was written, so that the next try is not told of a run that is there.
    monkeypatch.undo()
    assert run(tmp_path / "run", budget={"samples": 32}).end is not None


def test_what_lives_as_long_as_the_run_is_looked_at_first():
    needs = list_needs({"update": cost(temporaries=3 * GIB)}, state=5 * GIB, reference=0)
    with pytest.raises(UserError, match=r"state needs 5\.00 GiB .* more devices, would need less"):
        check_fits(needs, 4 * GIB)


def break_program(monkeypatch, name, *, call):
    """The program runs out of memory when it is called for the `call`th time."""
    compile_all = run_module.compile_programs

    def compile_broken(*args, **kwargs):
        programs = compile_all(*args, **kwargs)
        calls = []

        def fail(*inputs):
            calls.append(1)
            if len(calls) == call:
                raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory, 9 bytes.")
            return real(*inputs)

        if name in ("prefill", "decode"):
            real = getattr(programs.sampler, name)
            sampler = dataclasses.replace(programs.sampler, **{name: fail})
            return dataclasses.replace(programs, sampler=sampler)
        if name == "validation_decode":
            real = programs.validation.decode
            validation = dataclasses.replace(programs.validation, decode=fail)
            return dataclasses.replace(programs, validation=validation)
        real = getattr(programs, name)
        return dataclasses.replace(programs, **{name: fail})

    monkeypatch.setattr(run_module, "compile_programs", compile_broken)


@pytest.mark.parametrize(
    ("name", "call", "said", "knob"),
    [
        ("decode", 2, "decode", "batch.wave"),  # while the update before it is still running
        ("prefill", 1, "decode", "batch.wave"),
        ("update", 2, "update", "batch.microbatch"),
        ("validation_decode", 2, "validation_decode", "validation.wave"),
        ("sync", 3, "sync", "layout"),
    ],
)
def test_a_device_out_of_memory_is_a_message_with_the_knob(
    tmp_path, monkeypatch, name, call, said, knob
):
    break_program(monkeypatch, name, call=call)
    with pytest.raises(UserError, match=rf"running {said} ran out .*{knob}.*memory, 9 bytes"):
        run(tmp_path / "run")


def test_other_errors_of_the_runtime_are_left_alone():
    assert not is_out_of_memory(jax.errors.JaxRuntimeError("INTERNAL: no"))
    assert not is_out_of_memory(ValueError("RESOURCE_EXHAUSTED"))
    error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm")
    assert is_out_of_memory(error)
    message = str(explain_out_of_memory(error, program="validation_decode", doing="compiling"))
    assert message.startswith("compiling validation_decode ran out of the devices' memory; a smal")
