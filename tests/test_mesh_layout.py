"""Layout files: strict, and refused with what would be right."""

import jax
import pytest
from programs import LAYOUTS

from jax_rl.errors import UserError
from jax_rl.mesh.layout import check_divides, load_layout, make_mesh, resolve_sizes

NAMES = ("fsdp", "fsdp_tensor", "replicated", "tensor")


def write(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_every_packaged_layout_is_here():
    assert tuple(sorted(path.stem for path in LAYOUTS.glob("*.toml"))) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_packaged_layouts_load_and_make_an_explicit_mesh_of_all_devices(name):
    layout = load_layout(LAYOUTS / f"{name}.toml")
    assert layout.name == name
    assert layout.description
    assert layout.batch_axes == ("data", "fsdp")
    assert {layout: 1}[load_layout(LAYOUTS / f"{name}.toml")] == 1
    mesh = make_mesh(layout, jax.devices())
    assert mesh.size == 8
    assert mesh.axis_names == ("data", "fsdp", "tensor")
    assert set(mesh.axis_types) == {jax.sharding.AxisType.Explicit}


def test_rules_become_partitions(tmp_path):
    layout = load_layout(
        write(
            tmp_path,
            '[mesh]\ndata = 2\nfsdp = -1\n[weights]\nembed = "fsdp"\n'
            '[compute]\nbatch = ["data", "fsdp"]\nvocab = "tensor"\n',
        )
    )
    assert layout.weight_spec(("layers", "embed", "mlp")) == jax.P(None, "fsdp", None)
    assert layout.compute_spec(("batch", None, "vocab")) == jax.P(("data", "fsdp"), None, "tensor")
    assert layout.compute_spec(("embed",)) == jax.P(None)
    assert layout.as_dict() == {
        "name": "mine",
        "description": "",
        "mesh": {"data": 2, "fsdp": -1, "tensor": 1},
        "weights": {"embed": ["fsdp"]},
        "compute": {"batch": ["data", "fsdp"], "vocab": ["tensor"]},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[weigths]\n", r"mine.toml: unknown key 'weigths'; did you mean 'weights'\?"),
        ("[mesh]\nfdsp = 2\n", r"\[mesh\]: unknown key 'fdsp'; did you mean 'fsdp'\?"),
        ('[weights]\nvocabulary = "tensor"\n', r"\[weights\]: .* did you mean 'vocab'\?"),
        ('[compute]\nvocab = "model"\n', r"vocab: unknown mesh axis 'model'; known: data, fsdp"),
        ('[compute]\nlength = "tensor"\n', "length cannot be split; a loop runs over it"),
        ('[weights]\nlayers = "fsdp"\n', "layers cannot be split"),
        ("[compute]\nvocab = 3\n", "vocab = 3: a mesh axis or a list of them"),
        ("[mesh]\ndata = 0\n", "data = 0: a size is 1, 2, ... or -1"),
        ("[mesh]\ndata = true\n", "data = True: a size is"),
        ('[mesh]\ndata = "all"\n', "data = 'all': a size is"),
        ("[mesh]\ndata = -1\nfsdp = -1\n", "only one axis may be -1"),
        ("mesh = 3\n", r"\[mesh\]: a table was expected, found 3"),
        ("[mesh\n", "mine.toml: not TOML"),
        ('[weights]\nembed = ["fsdp", "fsdp"]\n', "embed names the mesh axis 'fsdp' twice"),
        (
            '[weights]\nembed = "fsdp"\nmlp = "fsdp"\n',
            "embed and mlp both lie on 'fsdp', but one array has both",
        ),
    ],
)
def test_what_is_wrong_in_a_layout_file_is_named(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        load_layout(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.toml: the layout file cannot be read: No such"):
        load_layout(tmp_path / "none.toml")


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
