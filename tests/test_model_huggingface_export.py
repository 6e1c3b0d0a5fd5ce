"""Arrays back into a checkpoint that transformers loads; nothing half written, nothing lost."""

import dataclasses
import json
import math
import os
import signal
import stat
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoints import FAMILIES, edit_config, read_json, torch, transformers, write_checkpoint
from safetensors import safe_open

from jax_rl.config import ModelConfig
from jax_rl.errors import UserError
from jax_rl.mesh.devices import make_mesh
from jax_rl.mesh.layout_file import load_layout
from jax_rl.model.huggingface import export as export_module
from jax_rl.model.huggingface.export import export_checkpoint, plan_shards
from jax_rl.model.huggingface.families import read_model_config
from jax_rl.model.huggingface.files import INDEX, SINGLE
from jax_rl.model.huggingface.load import load_weights
from jax_rl.model.huggingface.names import list_tensors
from jax_rl.model.weights import Weights
from jax_rl.resources import find_layout

CARRIED = {
    "tokenizer.json": "{}",
    "tokenizer_config.json": '{"pad_token": "é"}',
    "tokenizer.model": "\x00",
    "special_tokens_map.json": "{}",
    "added_tokens.json": "{}",
    "vocab.json": "{}",
    "merges.txt": "a b",
    "chat_template.jinja": "{{ messages }}",
    "additional_chat_templates/tool_use.jinja": "{{ tools }}",
    "LICENSE": "free",
}


def load(source: Path, layout: str = "replicated", devices: int = 1) -> tuple[Weights, ModelConfig]:
    config = read_model_config(source, base=ModelConfig())
    chosen = load_layout(find_layout(layout))
    with jax.set_mesh(make_mesh(chosen, jax.devices()[:devices])):
        return load_weights(source, config=config, layout=chosen), config


def read_tensors(directory: Path) -> dict[str, np.ndarray]:
    tensors: dict[str, np.ndarray] = {}
    for file in directory.glob("*.safetensors"):
        with safe_open(file, framework="np") as opened:
            assert opened.metadata() == {"format": "pt"}
            for name in opened.keys():  # noqa: SIM118 (not a mapping)
                assert name not in tensors
                tensors[name] = opened.get_tensor(name)
    return tensors


def load_with_transformers(directory: Path, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            directory, output_loading_info=True, attn_implementation="eager", **kwargs
        )
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not report[problem], report
    return model.eval()


@pytest.mark.parametrize("name", FAMILIES)
def test_round_trip_of_every_family(name: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    model = write_checkpoint(name, source)
    weights, config = load(source)
    with jax.transfer_guard("disallow"):  # every transfer is one that was asked for
        files = export_checkpoint(weights, target, config=config, source=source, dtype="float32")
    assert files == sorted(target / n for n in (SINGLE, "config.json", "generation_config.json"))
    assert read_json(target) == read_json(source)
    before, after = read_tensors(source), read_tensors(target)
    assert before.keys() == after.keys()
    for tensor, values in before.items():
        np.testing.assert_array_equal(after[tensor], values, err_msg=tensor, strict=True)
    again = load_with_transformers(target)
    tokens = torch.arange(3, 60)[None]
    with torch.no_grad():
        assert torch.equal(again(tokens).logits, model(tokens).logits)


@pytest.mark.parametrize("layout", ["replicated", "fsdp", "tensor", "fsdp_tensor"])
def test_every_layout_gives_the_same_files(layout: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_checkpoint("llama", source, max_shard_size="20KB")
    weights, config = load(source, layout, 8)
    export_checkpoint(
        weights, target, config=config, source=source, dtype="float32", shard_bytes=30_000
    )
    before, after = read_tensors(source), read_tensors(target)
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_shards_and_their_index(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_checkpoint("qwen2", source)
    weights, config = load(source)
    files = export_checkpoint(
        weights, target, config=config, source=source, dtype="bfloat16", shard_bytes=10_000
    )
    shards = sorted(file for file in files if file.suffix == ".safetensors")
    # Without headers 2 x (2048 embedding + 2 x 7808 a layer + 32 norm) = 35,392 bytes.
    assert [f.name for f in shards] == [f"model-0000{i}-of-00004.safetensors" for i in (1, 2, 3, 4)]
    index = read_json(target, INDEX)
    tensors = read_tensors(target)
    assert index["metadata"]["total_size"] == sum(values.nbytes for values in tensors.values())
    for shard in shards:
        with safe_open(shard, framework="np") as opened:
            names = set(opened.keys())
            assert sum(tensors[name].nbytes for name in names) <= 10_000
        assert names == {n for n, home in index["weight_map"].items() if home == shard.name}
    assert (target / SINGLE).exists() is False
    load_with_transformers(target)
    loaded, _ = load(target)
    for one, other in zip(jax.tree.leaves(loaded), jax.tree.leaves(weights), strict=True):
        np.testing.assert_array_equal(one, other.astype(jnp.bfloat16))


def test_shards_are_filled_in_order_and_a_large_tensor_has_its_own() -> None:
    config = ModelConfig(layers=1, embed=4, heads=1, kv_heads=1, head_dim=2, mlp=3, vocab=50)
    tensors = list_tensors(config)
    # Values: embedding 200, then norm 4, q 8, k 8, v 8, o 8, norm 4, gate 12, up 12, down 12,
    # q_norm 2, k_norm 2, and the final norm 4, in the order of the description.
    assert sum(math.prod(t.shape) for t in tensors) == 284
    shards = plan_shards(tensors, itemsize=2, shard_bytes=80)
    assert [t.weight for t in shards[0]] == ["embedding"]
    assert [t for shard in shards for t in shard] == tensors
    sizes = [2 * sum(math.prod(t.shape) for t in shard) for shard in shards]
    assert sizes == [400, 80, 80, 8]
    assert len(plan_shards(tensors, itemsize=2, shard_bytes=568)) == 1
    assert len(plan_shards(tensors, itemsize=2, shard_bytes=567)) == 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_types_round_as_torch_rounds_and_config_says_so(dtype: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    model = write_checkpoint("gemma3", source)
    weights, config = load(source)
    for style, keys in (("newer", ["dtype"]), ("older", ["torch_dtype"]), ("none", ["dtype"])):
        remove = [key for key in ("dtype", "torch_dtype") if key not in keys or style == "none"]
        edit_config(source, *remove, **({} if style == "none" else {keys[0]: "float32"}))
        target = tmp_path / style
        export_checkpoint(weights, target, config=config, source=source, dtype=dtype)
        data = read_json(target)
        assert [key for key in ("dtype", "torch_dtype") if key in data] == keys
        assert data[keys[0]] == dtype
    again = load_with_transformers(tmp_path / "newer", dtype="auto")
    kind = getattr(torch, dtype)
    for name, values in model.state_dict().items():
        assert again.state_dict()[name].dtype == kind
        assert torch.equal(again.state_dict()[name], values.to(kind)), name


def test_an_older_file_without_a_type_gets_the_older_key(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_checkpoint("llama", source)
    edit_config(source, "rope_parameters", "dtype", rope_theta=10_000.0)
    weights, config = load(source)
    export_checkpoint(weights, target, config=config, source=source, dtype="float16")
    assert read_json(target)["torch_dtype"] == "float16"
    assert "dtype" not in read_json(target)


def test_text_files_go_along_and_weights_do_not(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_checkpoint("llama", source)
    for name, text in CARRIED.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    for name in ("pytorch_model.bin", "tokenizer.safetensors", "README.md", "optimizer.pt"):
        (source / name).write_text("x")
    (source / "tokenizer.json").unlink()
    (tmp_path / "blob").write_text(CARRIED["tokenizer.json"])
    (source / "tokenizer.json").symlink_to(tmp_path / "blob")
    weights, config = load(source)
    target.mkdir()  # an empty directory is fine
    files = export_checkpoint(weights, target, config=config, source=source, dtype="float32")
    found = {file.relative_to(target).as_posix() for file in files}
    assert found == {*CARRIED, SINGLE, "config.json", "generation_config.json"}
    for name, text in CARRIED.items():
        assert (target / name).read_text(encoding="utf-8") == text
        assert not (target / name).is_symlink()
    modes = {
        stat.S_IMODE(file.stat().st_mode) for file in (target / SINGLE, target / "config.json")
    }
    assert len(modes) == 1  # whoever reads the one can read the other


def test_a_tied_head_is_one_tensor(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_checkpoint("qwen3", source)
    weights, config = load(source)
    export_checkpoint(weights, target, config=config, source=source, dtype="float32")
    assert "lm_head.weight" not in read_tensors(target)
    model = load_with_transformers(target)
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


def test_targets_that_are_refused(tmp_path: Path) -> None:
    source, full, file = tmp_path / "source", tmp_path / "full", tmp_path / "file"
    write_checkpoint("llama", source)
    weights, config = load(source)
    full.mkdir()
    (full / "x").write_text("mine")
    file.write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(source)
    for target, message in (
        (source, "never overwrites its source"),
        (link, "never overwrites its source"),
        (full, "is not empty"),
        (file, "is a file"),
        (file / "below", "cannot be written"),
    ):
        with pytest.raises(UserError, match=f"{target.name}: .*{message}"):
            export_checkpoint(weights, target, config=config, source=source, dtype="float32")
    assert (full / "x").read_text() == file.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full", "link", "source"]


def test_a_source_with_another_model_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_checkpoint("llama", source)
    weights, config = load(source)
    other = dataclasses.replace(config, vocab=63, compute_dtype="bfloat16", checkpoint="elsewhere")
    with pytest.raises(UserError, match=r"another model.*vocab = 63, not 64$"):
        export_checkpoint(weights, tmp_path / "t", config=other, source=source, dtype="float32")
    with pytest.raises(UserError, match=r"config\.json: not found"):
        export_checkpoint(weights, tmp_path / "t", config=config, source=tmp_path, dtype="float32")


def test_values_that_the_type_cannot_hold_are_named_and_nothing_is_left(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_checkpoint("llama", source)
    weights, config = load(source)
    down = np.array(weights["layers"]["down"])
    down[1, 2, 3] = 70_000.0
    weights["layers"]["down"] = jax.device_put(down, weights["layers"]["down"].sharding)
    with pytest.raises(UserError, match=r"model\.layers\.1\.mlp\.down_proj.*not finite in float16"):
        export_checkpoint(weights, target, config=config, source=source, dtype="float16")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    export_checkpoint(weights, target, config=config, source=source, dtype="bfloat16")


KILLED = """
import os, signal, sys
from pathlib import Path
import jax
from jax_rl.config import ModelConfig
from jax_rl.mesh.devices import make_mesh
from jax_rl.mesh.layout_file import load_layout
from jax_rl.model.huggingface import export
from jax_rl.model.huggingface.families import read_model_config
from jax_rl.model.huggingface.load import load_weights
from jax_rl.resources import find_layout
source, target = map(Path, sys.argv[1:])
config = read_model_config(source, base=ModelConfig())
layout = load_layout(find_layout("replicated"))
with jax.set_mesh(make_mesh(layout, jax.devices()[:1])):
    weights = load_weights(source, config=config, layout=layout)
write = export._write_shard
def die_at_the_second(values, file):
    write(values, file)
    if "00002" in file.name:
        os.kill(os.getpid(), signal.SIGKILL)
export._write_shard = die_at_the_second
export.export_checkpoint(
    weights, target, config=config, source=source, dtype="float32", shard_bytes=30_000
)
"""


def test_a_kill_leaves_nothing_under_the_name_and_the_next_export_works(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_checkpoint("llama", source)
    environment = {**os.environ, "PYTHONPATH": str(Path(export_module.__file__).parents[3])}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(source), str(target)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not target.exists()
    weights, config = load(source)
    export_checkpoint(weights, target, config=config, source=source, dtype="float32")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]
    assert (target / SINGLE).exists()
    assert not list(target.glob("*-of-*"))
    assert json.loads((target / "config.json").read_text())["model_type"] == "llama"
