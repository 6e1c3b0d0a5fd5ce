"""Safetensors of every family into arrays, on one device and on eight; and what is refused."""

import shutil
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoints import FAMILIES, edit_tensors, write_checkpoint
from safetensors.numpy import load_file

from jax_rl.config import ModelConfig
from jax_rl.errors import UserError
from jax_rl.mesh.devices import make_mesh
from jax_rl.mesh.layout import Layout
from jax_rl.mesh.layout_file import load_layout
from jax_rl.model.huggingface import load as load_module
from jax_rl.model.huggingface.families import read_model_config
from jax_rl.model.huggingface.files import SINGLE, open_file
from jax_rl.model.huggingface.load import load_weights
from jax_rl.model.huggingface.names import list_tensors
from jax_rl.model.weights import Weights, init_weights, weight_specs
from jax_rl.resources import find_layout

HEAD_DIM_SPLIT = Layout(
    name="head_dim_split",
    description="every axis of attention split",
    mesh=(("data", 1), ("fsdp", 4), ("tensor", 2)),
    weights=(("head_dim", ("fsdp",)), ("heads", ("tensor",)), ("kv_heads", ("tensor",))),
    compute=(),
    sampler=(),
    cache=(),
)
PLACES = [  # of the family whose dimensions divide 8
    ("replicated", 1),
    ("replicated", 8),
    ("fsdp", 8),
    ("tensor", 8),
    ("fsdp_tensor", 8),
    ("head_dim_split", 8),
]


def get_layout(name: str) -> Layout:
    return HEAD_DIM_SPLIT if name == "head_dim_split" else load_layout(find_layout(name))


def load(directory: Path, layout: str = "replicated", devices: int = 1, **kwargs: Any) -> Weights:
    config = read_model_config(directory, base=ModelConfig())
    chosen = get_layout(layout)
    with jax.set_mesh(make_mesh(chosen, jax.devices()[:devices])):
        return load_weights(directory, config=config, layout=chosen, **kwargs)


def stack(state: dict[str, np.ndarray], name: str) -> np.ndarray:
    count = 1 + max(int(key.split(".")[2]) for key in state if key.startswith("model.layers."))
    return np.stack([state[f"model.layers.{i}.{name}"] for i in range(count)])


def expect_weights(model: Any) -> Weights:
    """Our tree from a state_dict, written out by hand, a family at a time."""
    theirs = model.config
    state = {name: values.numpy() for name, values in model.state_dict().items()}
    heads, kv_heads = theirs.num_attention_heads, theirs.num_key_value_heads

    def project(name: str, count: int) -> np.ndarray:
        weight = stack(state, f"self_attn.{name}_proj.weight")  # [l, n h, d]
        layers, _, embed = weight.shape
        return np.moveaxis(weight.reshape(layers, count, -1, embed), 3, 1)

    out = stack(state, "self_attn.o_proj.weight")  # [l, d, n h]
    layers = {
        "attention_norm": stack(state, "input_layernorm.weight"),
        "q": project("q", heads),
        "k": project("k", kv_heads),
        "v": project("v", kv_heads),
        "o": np.moveaxis(out.reshape(*out.shape[:2], heads, -1), 1, 3),
        "gate": stack(state, "mlp.gate_proj.weight").swapaxes(1, 2),
        "up": stack(state, "mlp.up_proj.weight").swapaxes(1, 2),
        "down": stack(state, "mlp.down_proj.weight").swapaxes(1, 2),
    }
    if theirs.model_type.startswith("gemma"):
        layers["attention_post_norm"] = stack(state, "post_attention_layernorm.weight")
        layers["mlp_norm"] = stack(state, "pre_feedforward_layernorm.weight")
        layers["mlp_post_norm"] = stack(state, "post_feedforward_layernorm.weight")
    else:
        layers["mlp_norm"] = stack(state, "post_attention_layernorm.weight")
    if theirs.model_type in ("qwen3", "gemma3_text"):
        layers["q_norm"] = stack(state, "self_attn.q_norm.weight")
        layers["k_norm"] = stack(state, "self_attn.k_norm.weight")
    if theirs.model_type == "qwen2":
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            bias = stack(state, f"self_attn.{name}_proj.bias")
            layers[f"{name}_bias"] = bias.reshape(len(bias), count, -1)
    weights = {
        "embedding": state["model.embed_tokens.weight"],
        "final_norm": state["model.norm.weight"],
        "layers": layers,
    }
    if not theirs.tie_word_embeddings:
        weights["head"] = state["lm_head.weight"]
    return weights


def check_equal(found: Weights, expected: Weights) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for (path, one), other in zip(
        jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(one), other, err_msg=jax.tree_util.keystr(path))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_equals_its_state_dict(name: str, tmp_path: Path) -> None:
    # Each family on one of the layouts that its dimensions take; the next test has them all.
    model = write_checkpoint(name, tmp_path)
    layout, devices = [("replicated", 1), ("fsdp", 8)][zlib.crc32(name.encode()) % 2]
    check_equal(load(tmp_path, layout, devices), expect_weights(model))


@pytest.mark.parametrize(("layout", "devices"), PLACES)
def test_every_layout_equals_the_state_dict(layout: str, devices: int, tmp_path: Path) -> None:
    model = write_checkpoint("llama", tmp_path, dtype="bfloat16", max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    weights = load(tmp_path, layout, devices)
    check_equal(weights, expect_weights(model))
    config = read_model_config(tmp_path, base=ModelConfig())
    specs = weight_specs(config, get_layout(layout))
    found = jax.tree.map(lambda array: array.sharding.spec, weights)
    assert found == specs
    assert {array.dtype for array in jax.tree.leaves(weights)} == {jnp.dtype("float32")}


def test_odd_heads_lie_on_as_many_devices_as_divide_them(tmp_path: Path) -> None:
    model = write_checkpoint("smollm2", tmp_path)
    check_equal(load(tmp_path, "tensor", 3), expect_weights(model))
    with pytest.raises(UserError, match="heads = 9 over tensor = 8"):
        load(tmp_path, "tensor", 8)


def test_the_tree_is_that_of_fresh_weights(tmp_path: Path) -> None:
    write_checkpoint("gemma3", tmp_path)
    config = read_model_config(tmp_path, base=ModelConfig())
    layout = get_layout("fsdp")
    with jax.set_mesh(make_mesh(layout, jax.devices())):
        fresh = jax.eval_shape(lambda: init_weights(jax.random.key(0), config, layout))
        loaded = load_weights(tmp_path, config=config, layout=layout)
    assert jax.tree.map(jax.typeof, loaded) == jax.tree.map(jax.typeof, fresh)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_types_on_disk_and_in_memory(dtype: str, tmp_path: Path) -> None:
    model = write_checkpoint("qwen2", tmp_path, dtype=dtype)
    check_equal(load(tmp_path), expect_weights(model))
    halved = jax.tree.map(lambda a: a.astype(jnp.bfloat16), expect_weights(model))
    check_equal(load(tmp_path, dtype=jnp.bfloat16), halved)


class Counter:
    """An open file, or a tensor in it, that counts the values that are read."""

    def __init__(self, inner: Any, read: dict[str, int], name: str = "") -> None:
        self.inner, self.read, self.name = inner, read, name

    def __enter__(self) -> "Counter":
        return Counter(self.inner.__enter__(), self.read)

    def __exit__(self, *error: Any) -> None:
        self.inner.__exit__(*error)

    def get_slice(self, name: str) -> "Counter":
        return Counter(self.inner.get_slice(name), self.read, name)

    def __getitem__(self, index: Any) -> np.ndarray:
        values = self.inner[index]
        self.read[self.name] = self.read.get(self.name, 0) + values.size
        return values


@pytest.mark.parametrize("layout", ["replicated", "fsdp_tensor"])
def test_values_are_read_once_however_many_devices_hold_them(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint("llama", tmp_path)
    read: dict[str, int] = {}
    monkeypatch.setattr(load_module, "open_file", lambda file: Counter(open_file(file), read))
    load(tmp_path, layout, 8)
    # Here all devices are this process's: each value once, in blocks, replicas not again.
    assert read == {name: values.size for name, values in load_file(tmp_path / SINGLE).items()}


def test_a_block_reads_nothing_beside_itself(tmp_path: Path) -> None:
    write_checkpoint("llama", tmp_path)
    config = read_model_config(tmp_path, base=ModelConfig())
    tensors = {tensor.weight: tensor for tensor in list_tensors(config) if tensor.layer != 0}
    state = load_file(tmp_path / SINGLE)
    read: dict[str, int] = {}
    with Counter(open_file(tmp_path / SINGLE), read) as opened:
        for weight, bounds, right in (  # n = 16 and d = 32 merged with h = 8
            ("q", ((8, 16), (2, 4), (0, 8)), lambda w: w[16:32, 8:16].reshape(2, 8, 8)),
            ("o", ((2, 4), (0, 8), (0, 16)), lambda w: w[:16, 16:32].reshape(16, 2, 8)),
            ("down", ((6, 12), (0, 32)), lambda w: w[:, 6:12]),
            ("embedding", ((60, 64), (31, 32)), lambda w: w[60:, 31:]),
        ):
            tensor = tensors[weight]
            block = load_module._read_block(opened.get_slice(tensor.name), tensor, bounds)
            assert block.shape == tuple(stop - start for start, stop in bounds)
            assert read[tensor.name] == block.size
            values = right(state[tensor.name])
            order = {"q": (2, 0, 1), "o": (1, 2, 0), "down": (1, 0), "embedding": (0, 1)}[weight]
            np.testing.assert_array_equal(block, values.transpose(order))


def test_known_buffers_and_an_equal_second_head_are_let_through(tmp_path: Path) -> None:
    model = write_checkpoint("llama_llama3", tmp_path)

    def add(state: dict[str, np.ndarray]) -> None:
        state["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
        state["lm_head.weight"] = state["model.embed_tokens.weight"].copy()

    edit_tensors(tmp_path, add)
    check_equal(load(tmp_path), expect_weights(model))

    def spoil(state: dict[str, np.ndarray]) -> None:
        state["lm_head.weight"][-1, -1] *= -1

    edit_tensors(tmp_path, spoil)
    with pytest.raises(UserError, match=r"lm_head\.weight differs from model\.embed"):
        load(tmp_path)


def test_links_into_a_store_are_followed(tmp_path: Path) -> None:
    store, links = tmp_path / "store", tmp_path / "snapshot"
    model = write_checkpoint("llama", store)
    links.mkdir()
    for file in store.iterdir():
        (links / file.name).symlink_to(file)
    check_equal(load(links), expect_weights(model))
    shutil.rmtree(store)
    with pytest.raises(UserError, match=r"config\.json: not found"):
        load(links)
