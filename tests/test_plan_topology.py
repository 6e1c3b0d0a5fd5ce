"""Descriptions of absent devices, and the axes that cross between groups of them."""

import importlib.util

import jax
import pytest

from jax_rl.errors import UserError
from jax_rl.mesh.layout_file import load_layout
from jax_rl.plan.target import Target
from jax_rl.plan.topology import (
    check_extras,
    count_groups,
    describe_gpu,
    lay_mesh,
    make_environment,
    open_groups,
)
from jax_rl.resources import find_layout


def test_a_gpu_is_described_for_its_compiler() -> None:
    text = describe_gpu(Target("cuda", "h100", (8,)))
    assert "core_count: 132" in text
    assert "cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }" in text
    assert text.count("{") == text.count("}")
    older = describe_gpu(Target("cuda", "a100-80", (8,)))
    assert "cuda_compute_capability { major: 8 }" in older


def test_a_gpu_without_a_description_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        describe_gpu(Target("cuda", "mine", (8,)))
    assert "'mine' cannot be compiled for" in str(caught.value)
    assert "h100" in str(caught.value)


@pytest.mark.parametrize(
    ("sizes", "groups", "crossed"),
    [
        ((2, 4, 1), 2, {"data": 2}),  # each half of data is a group
        ((1, 8, 1), 1, {}),
        ((1, 8, 1), 2, {"fsdp": 2}),
        ((1, 4, 2), 2, {"fsdp": 2}),  # pairs of the tensor axis stay inside
        ((1, 2, 4), 4, {"fsdp": 2, "tensor": 2}),  # groups of two: the tensor axis is cut as well
    ],
)
def test_an_axis_crosses_the_groups_that_change_along_it(
    sizes: tuple[int, ...], groups: int, crossed: dict[str, int]
) -> None:
    named = dict(zip(("data", "fsdp", "tensor"), sizes, strict=True))
    assert count_groups(named, groups) == crossed


def test_devices_that_are_here_make_a_mesh() -> None:
    groups = open_groups(Target("here"))
    mesh = lay_mesh(load_layout(find_layout("fsdp_tensor")), groups)
    assert dict(mesh.shape) == {"data": 1, "fsdp": len(jax.devices()) // 2, "tensor": 2}


def test_several_groups_lie_along_data() -> None:
    devices = jax.devices()
    mesh = lay_mesh(load_layout(find_layout("multislice")), [devices[:4], devices[4:]])
    assert dict(mesh.shape) == {"data": 2, "fsdp": 4, "tensor": 1}
    assert [d.id for d in mesh.devices[1].flat] == [d.id for d in devices[4:]]


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for platform, chip in (("tpu", "v5e"), ("cuda", "h100")):
        with pytest.raises(UserError) as caught:
            check_extras(Target(platform, chip, (2, 2)))
        assert f"pip install 'jax-rl[aot-{platform}]'" in str(caught.value)
    check_extras(Target("here"))


def test_only_absent_devices_change_the_environment() -> None:
    own = {"PATH": "/bin", "JAX_PLATFORMS": "tpu", "XLA_FLAGS": "--xla_cpu_use=1"}
    assert make_environment(Target("here"), own) == own
    made = make_environment(Target("tpu", "v5e", (2, 2)), own)
    assert made["JAX_PLATFORMS"] == "cpu"
    assert made["PATH"] == "/bin"
    assert "XLA_FLAGS" not in made  # libtpu would end at a flag of another platform
    assert "XLA_FLAGS" in make_environment(Target("cuda", "h100", (8,)), own)
