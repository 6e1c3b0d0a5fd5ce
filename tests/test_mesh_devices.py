"""A layout on devices: sizes, slices, dimensions that do not divide, arrays put in place."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import NamedSharding
from programs import LAYOUTS

from jax_rl.errors import UserError
from jax_rl.mesh.devices import (
    check_divides,
    count_vocab_shards,
    list_slices,
    make_mesh,
    put,
    resolve_sizes,
)
from jax_rl.mesh.layout import Layout
from jax_rl.mesh.layout_file import load_layout

SPLIT = Layout(
    name="mine",
    description="",
    mesh=(("data", 1), ("fsdp", 2), ("tensor", 4)),
    weights=(("embed", ("fsdp",)),),
    compute=(("batch", ("fsdp", "tensor")),),
    sampler=(("batch", ("fsdp",)),),
    cache=(("batch", ("fsdp",)),),
)
SIZES = {"data": 1, "fsdp": 2, "tensor": 4}


@dataclasses.dataclass(frozen=True)
class Device:
    """As much of a device as a mesh looks at."""

    id: int
    platform: str
    process_index: int
    slice_index: int | None = None
    device_kind: str = "TPU v5 lite"

    @property
    def coords(self) -> tuple[int, int, int]:
        """Place in its slice, of 2 x 2 chips with one core each."""
        return (self.id % 2, self.id // 2 % 2, 0)

    @property
    def core_on_chip(self) -> int:
        return 0


def make_devices(slices: int, each: int, platform: str, *, named: bool = True) -> list[Device]:
    """Devices of several slices, shuffled; without a name a slice is a process."""
    devices = [
        Device(id=i, platform=platform, process_index=i // each, slice_index=i // each)
        for i in range(slices * each)
    ]
    if not named:
        devices = [dataclasses.replace(device, slice_index=None) for device in devices]
    order = np.random.default_rng(0).permutation(len(devices))
    return [devices[i] for i in order]


def packaged(name: str) -> Layout:
    return load_layout(LAYOUTS / f"{name}.toml")


def write(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_sizes_fit_the_devices(tmp_path):
    layout = load_layout(LAYOUTS / "fsdp_tensor.toml")
    assert resolve_sizes(layout, 8) == {"data": 1, "fsdp": 4, "tensor": 2}
    assert resolve_sizes(layout, 2) == {"data": 1, "fsdp": 1, "tensor": 2}
    with pytest.raises(
        UserError, match=r"does not fit 3 devices; .* multiply to 2, which must div"
    ):
        resolve_sizes(layout, 3)
    fixed = load_layout(write(tmp_path, "[mesh]\ndata = 2\nfsdp = 2\n"))
    assert resolve_sizes(fixed, 4) == {"data": 2, "fsdp": 2, "tensor": 1}
    with pytest.raises(UserError, match=r"does not fit 8 devices; .* multiply to 4, which must eq"):
        resolve_sizes(fixed, 8)


def test_a_dimension_that_does_not_divide_is_refused():
    layout = load_layout(LAYOUTS / "tensor.toml")
    sizes = resolve_sizes(layout, 8)
    check_divides(layout, sizes, {"heads": 16, "kv_heads": 8, "mlp": 24, "vocab": 32, "embed": 3})
    with pytest.raises(UserError, match=r"splits kv_heads = 6 over tensor = 8 devices.*; 6 would"):
        check_divides(layout, sizes, {"heads": 16, "kv_heads": 6, "mlp": 24, "vocab": 32})
    with pytest.raises(UserError, match=r"\[weights\] splits vocab = 20 .*; 5 would"):
        check_divides(layout, sizes, {"vocab": 20})


@pytest.mark.parametrize("table", ["weights", "compute", "sampler", "cache"])
def test_every_table_has_to_divide_and_is_named(table):
    axis = {"weights": "mlp", "cache": "kv_heads"}.get(table, "heads")
    layout = dataclasses.replace(
        SPLIT, **{table: (*getattr(SPLIT, table)[:0], (axis, ("fsdp", "tensor")))}
    )
    check_divides(layout, SIZES, {axis: 16, "embed": 2})
    message = rf"layout mine \[{table}\] splits {axis} = 12 over fsdpxtensor = 8 .*; 6 would$"
    with pytest.raises(UserError, match=message):
        check_divides(layout, SIZES, {axis: 12, "embed": 2})


@pytest.mark.parametrize(
    ("weights", "compute", "sampler", "expected"),
    [
        ((), (), (), 1),
        (("tensor",), (), (), 4),
        ((), ("fsdp",), ("tensor",), 4),
        (("fsdp",), ("data",), ("fsdp", "tensor"), 8),
    ],
)
def test_the_vocabulary_is_cut_by_all_tables_together(weights, compute, sampler, expected):
    tables = {"weights": weights, "compute": compute, "sampler": sampler}
    layout = dataclasses.replace(SPLIT, **{k: (("vocab", v),) for k, v in tables.items()})
    assert count_vocab_shards(layout, SIZES) == expected
    # 3 and 4 parts: their least common multiple, not the larger of the two.
    assert (
        count_vocab_shards(
            dataclasses.replace(
                SPLIT, weights=(("vocab", ("fsdp",)),), sampler=(("vocab", ("data",)),)
            ),
            {"data": 4, "fsdp": 3, "tensor": 1},
        )
        == 12
    )


def test_the_vocabulary_of_the_packaged_layouts():
    found = {
        path.stem: count_vocab_shards(packaged(path.stem), resolve_sizes(packaged(path.stem), 8))
        for path in LAYOUTS.glob("*.toml")
    }
    whole = {"fsdp": 1, "multislice": 1, "replicated": 1}
    assert found == {**whole, "tensor": 8, "fsdp_tensor": 2, "fsdp_sampler_tensor": 4}


# Slices


def test_sizes_of_several_slices():
    layout = packaged("multislice")
    assert resolve_sizes(layout, 8) == {"data": 1, "fsdp": 8, "tensor": 1}
    assert resolve_sizes(layout, 8, slices=2) == {"data": 2, "fsdp": 4, "tensor": 1}
    assert resolve_sizes(layout, 256, slices=4) == {"data": 4, "fsdp": 64, "tensor": 1}
    with pytest.raises(UserError, match=r"'data': 3.* does not fit 8 devices; .* multiply to 3"):
        resolve_sizes(layout, 8, slices=3)
    # A layout that does not name them takes the devices of all slices as one.
    assert resolve_sizes(packaged("fsdp"), 8, slices=2) == {"data": 1, "fsdp": 8, "tensor": 1}


@pytest.mark.parametrize("named", [True, False], ids=["slice", "process"])
def test_devices_by_slice_or_else_by_process(named):
    slices = list_slices(make_devices(3, 4, "gpu", named=named))
    assert [sorted(d.id for d in part) for part in slices] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]


@pytest.mark.parametrize("platform", ["tpu", "gpu", "cpu"])
def test_the_data_axis_alone_crosses_slices(platform):
    mesh = make_mesh(packaged("multislice"), make_devices(2, 4, platform))
    assert dict(mesh.shape) == {"data": 2, "fsdp": 4, "tensor": 1}
    found = np.vectorize(lambda device: device.slice_index)(mesh.devices)
    assert found[:, :, 0].tolist() == [[0] * 4, [1] * 4]
    assert set(mesh.axis_types) == {jax.sharding.AxisType.Explicit}


def test_a_data_axis_longer_than_the_slices_stays_inside_with_what_is_left(tmp_path):
    layout = load_layout(write(tmp_path, "[mesh]\ndata = 4\ntensor = 2\n"))
    mesh = make_mesh(layout, make_devices(2, 4, "tpu"))
    found = np.vectorize(lambda device: device.slice_index)(mesh.devices)
    assert found[:, 0, :].tolist() == [[0, 0], [0, 0], [1, 1], [1, 1]]


def test_a_layout_that_cannot_cross_slices_is_refused_on_a_tpu_by_name():
    message = (
        r"layout fsdp: 8 devices are in 2 slices, and the mesh axis data = 1 cannot cross them;"
        r" it must be a multiple of 2, as in the layout multislice$"
    )
    with pytest.raises(UserError, match=message):
        make_mesh(packaged("fsdp"), make_devices(2, 4, "tpu"))


def test_hosts_of_gpus_are_crossed_by_any_axis_one_host_after_the_other():
    mesh = make_mesh(packaged("fsdp"), make_devices(2, 4, "gpu"))
    assert dict(mesh.shape) == {"data": 1, "fsdp": 8, "tensor": 1}
    found = [device.slice_index for device in mesh.devices.flat]
    assert found == [0] * 4 + [1] * 4
    paired = make_mesh(packaged("fsdp_tensor"), make_devices(2, 4, "gpu"))
    hosts = np.vectorize(lambda device: device.slice_index)(paired.devices)
    assert np.all(hosts[..., 0] == hosts[..., 1])  # tensor pairs stay on one host


def test_two_slices_of_a_real_tpu_topology(monkeypatch):
    pytest.importorskip("libtpu", reason="describing a TPU needs libtpu")
    monkeypatch.setenv("XLA_FLAGS", "")  # libtpu would read it too, and knows other flags
    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "localhost")
    monkeypatch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    chips = topologies.get_topology_desc(
        platform="tpu", topology_name="v5e:2x2", num_slices=2
    ).devices
    assert [len(part) for part in list_slices(chips)] == [4, 4]
    mesh = make_mesh(packaged("multislice"), chips)
    assert dict(mesh.shape) == {"data": 2, "fsdp": 4, "tensor": 1}
    slices = np.vectorize(lambda device: device.slice_index)(mesh.devices)
    assert slices[:, :, 0].tolist() == [[0] * 4, [1] * 4]
    with pytest.raises(UserError, match=r"layout fsdp: 8 devices are in 2 slices"):
        make_mesh(packaged("fsdp"), chips)


# Arrays


def test_a_host_array_is_put_where_it_belongs():
    mesh = make_mesh(packaged("fsdp"), jax.devices())
    values = np.arange(32, dtype=np.int32).reshape(16, 2)
    sharding = NamedSharding(mesh, jax.P("fsdp", None))
    found = put(values, sharding)
    assert found.sharding == sharding
    np.testing.assert_array_equal(found, values)
    for shard in found.addressable_shards:
        np.testing.assert_array_equal(shard.data, values[shard.index])


def test_of_an_array_of_several_processes_each_puts_its_part(monkeypatch):
    """As if only some of the mesh were here: the parts come from a callback."""
    mesh = make_mesh(packaged("fsdp"), jax.devices())
    values = np.arange(16, dtype=np.float32)
    sharding = NamedSharding(mesh, jax.P("fsdp"))
    monkeypatch.setattr(NamedSharding, "is_fully_addressable", property(lambda self: False))
    asked: list[tuple[slice, ...]] = []
    real = jax.make_array_from_callback

    def note(shape, where, callback):
        def count(index):
            asked.append(index)
            return callback(index)

        return real(shape, where, count)

    monkeypatch.setattr(jax, "make_array_from_callback", note)
    found = put(values, sharding)
    monkeypatch.undo()
    assert sorted(index[0].start for index in asked) == [0, 2, 4, 6, 8, 10, 12, 14]
    np.testing.assert_array_equal(found, values)
