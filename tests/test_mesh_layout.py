"""Layout files: strict, and refused with what would be right."""

import jax
import pytest
from programs import LAYOUTS

from jax_rl.errors import UserError
from jax_rl.mesh.devices import make_mesh
from jax_rl.mesh.layout_file import load_layout

NAMES = ("fsdp", "fsdp_sampler_tensor", "fsdp_tensor", "multislice", "replicated", "tensor")


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
    whole = ("data", "fsdp", "tensor") if name == "fsdp_sampler_tensor" else ("data", "fsdp")
    assert layout.batch_axes == whole
    assert layout.decoding.batch_axes == ("data", "fsdp")
    assert layout.splits == (name == "fsdp_sampler_tensor")
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
        "sampler": {"batch": ["data", "fsdp"], "vocab": ["tensor"]},
        "cache": {"batch": ["data", "fsdp"]},
    }


def test_the_sampler_and_its_cache_follow_their_own_tables(tmp_path):
    """Each table stands for itself; one that is left out for the table before it."""
    own = load_layout(
        write(
            tmp_path,
            '[mesh]\nfsdp = 2\ntensor = 2\n[compute]\nbatch = ["fsdp", "tensor"]\n'
            '[sampler]\nbatch = "fsdp"\nkv_heads = "tensor"\nmlp = "tensor"\n'
            '[cache]\nbatch = ["fsdp", "tensor"]\n',
        )
    )
    column = ("batch", "kv_heads", None, "head_dim")
    assert own.compute_spec(column) == jax.P(("fsdp", "tensor"), None, None, None)
    assert own.decoding.compute_spec(column) == jax.P("fsdp", "tensor", None, None)
    assert own.cache_spec(column) == jax.P(("fsdp", "tensor"), None, None, None)
    assert own.splits
    assert not own.decoding.splits
    sizes = {"data": 1, "fsdp": 2, "tensor": 2}
    assert (own.count_shards(sizes), own.decoding.count_shards(sizes)) == (4, 2)
    assert own.count_decoding_shards(sizes) == 4  # the cache is cut into more parts
    same = load_layout(
        write(
            tmp_path,
            '[compute]\nbatch = "data"\n'
            '[sampler]\nbatch = "fsdp"\nkv_heads = "tensor"\nvocab = "tensor"\n',
        )
    )
    assert same.cache == (("batch", ("fsdp",)), ("kv_heads", ("tensor",)))
    emptied = load_layout(
        write(tmp_path, '[compute]\nbatch = "data"\nmlp = "tensor"\n[sampler]\n[cache]\n')
    )
    assert (emptied.sampler, emptied.cache) == ((), ())
    assert emptied.splits


def test_a_layout_that_goes_through_its_dict_is_the_same(tmp_path):
    """What stands in a record can be written as a file again."""
    for name in NAMES:
        layout = load_layout(LAYOUTS / f"{name}.toml")
        tables = layout.as_dict()
        text = [f"description = {tables['description']!r}"]
        for table in ("mesh", "weights", "compute", "sampler", "cache"):
            text += [f"[{table}]", *(f"{key} = {value!r}" for key, value in tables[table].items())]
        path = tmp_path / f"{name}.toml"
        path.write_text("\n".join(text))
        assert load_layout(path) == layout


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
        ("[mesh]\ndata = 0\n", r"data = 0: a size is 1, 2, \.\.\., -1 \(.*\) or 'slices'$"),
        ("[mesh]\ndata = true\n", "data = True: a size is"),
        ('[mesh]\ndata = "all"\n', "data = 'all': a size is"),
        ("[mesh]\ndata = -1\nfsdp = -1\n", "only one axis may be -1"),
        ('[mesh]\ndata = "slices"\nfsdp = "slices"\n', "only one axis may be 'slices'"),
        ("mesh = 3\n", r"\[mesh\]: a table was expected, found 3"),
        ("[mesh\n", "mine.toml: not TOML"),
        ('[weights]\nembed = ["fsdp", "fsdp"]\n', "embed names the mesh axis 'fsdp' twice"),
        (
            '[weights]\nembed = "fsdp"\nmlp = "fsdp"\n',
            "embed and mlp both lie on 'fsdp', but one array has both",
        ),
        ('[sampler]\nbach = "data"\n', r"\[sampler\]: unknown key 'bach'; did you mean 'batch'\?"),
        (
            '[cache]\nvocab = "tensor"\n',
            r"\[cache\]: unknown key 'vocab'.* Known: batch, kv_heads, head_dim$",
        ),
        ('[cache]\nheads = "tensor"\n', r"\[cache\]: unknown key 'heads'; did you mean"),
        ('[cache]\nlength = "tensor"\n', r"\[cache\]: unknown key 'length'"),
        ("sampler = 1\n", r"\[sampler\]: a table was expected, found 1"),
        ('[cache]\nbatch = "host"\n', r"\[cache\] batch: unknown mesh axis 'host'"),
        (
            '[sampler]\nbatch = "tensor"\nmlp = "tensor"\n',
            r"\[sampler\]: batch and mlp both lie on 'tensor', but one array has both",
        ),
        (
            '[cache]\nbatch = ["fsdp", "tensor"]\nkv_heads = "tensor"\n',
            r"\[cache\]: batch and kv_heads both lie on 'tensor'",
        ),
        (
            '[cache]\nkv_heads = "tensor"\nhead_dim = "tensor"\n',
            r"\[cache\]: kv_heads and head_dim both lie on 'tensor'",
        ),
    ],
)
def test_what_is_wrong_in_a_layout_file_is_named(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        load_layout(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.toml: the layout file cannot be read: No such"):
        load_layout(tmp_path / "none.toml")
