"""Checkpoint directories that are incomplete, damaged, or hold something else: one error each."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import edit_config, edit_tensors, write_checkpoint

from jax_rl.config import ModelConfig
from jax_rl.errors import UserError
from jax_rl.model.huggingface.families import read_model_config
from jax_rl.model.huggingface.files import INDEX, SINGLE, check_checkpoint


def check(directory: Path) -> None:
    check_checkpoint(directory, read_model_config(directory, base=ModelConfig()))


DOWN = "model.layers.1.mlp.down_proj.weight"


def _drop(name: str) -> Any:
    return lambda state: state.pop(name)


def _cast(name: str, dtype: Any) -> Any:
    return lambda state: state.update({name: state[name].astype(dtype)})


def _add(name: str) -> Any:
    return lambda state: state.update({name: np.ones(3, np.float32)})


def _rename_all(state: dict[str, np.ndarray]) -> None:
    for name in list(state):
        state[f"base.{name}"] = state.pop(name)


TENSORS = {
    "missing": (_drop(DOWN), f"missing tensor {DOWN}$"),
    "no head": (_drop("lm_head.weight"), "lm_head.weight is missing.*tie_word_embeddings"),
    "transposed": (
        lambda state: state.update({DOWN: np.ascontiguousarray(state[DOWN].T)}),
        rf"{SINGLE}: tensor {DOWN} has the shape \[48, 32\].*asks for \[32, 48\]",
    ),
    "unexpected": (
        _add("model.layers.0.lora"),
        f"{SINGLE}: the model.*no tensor model.layers.0.lora",
    ),
    "int8": (_cast(DOWN, np.int8), f"{SINGLE}: tensor {DOWN} is of type I8.*BF16.*Quantized"),
    "float64": (_cast(DOWN, np.float64), "is of type F64"),
    "other names": (_rename_all, r"missing 20 tensors: .*; the nearest there is base\."),
}


@pytest.mark.parametrize("case", TENSORS)
def test_wrong_tensors_are_named(case: str, tmp_path: Path) -> None:
    write_checkpoint("llama_linear", tmp_path)
    change, message = TENSORS[case]
    if case == "other names":
        edit_config(tmp_path, tie_word_embeddings=True)
    edit_tensors(tmp_path, change)
    with pytest.raises(UserError, match=message) as error:
        check(tmp_path)
    assert str(error.value).startswith(str(tmp_path))


def test_a_second_head_is_unexpected_only_if_untied(tmp_path: Path) -> None:
    write_checkpoint("llama_linear", tmp_path)
    edit_tensors(tmp_path, _add("lm_head.bias"))
    with pytest.raises(UserError, match=r"no tensor lm_head\.bias"):
        check(tmp_path)


def test_a_single_file_goes_before_an_index(tmp_path: Path) -> None:
    write_checkpoint("llama", tmp_path)
    (tmp_path / INDEX).write_text("{")
    check(tmp_path)


@pytest.mark.parametrize("kept", [0, 7, 300, 0.5, 0.999])
def test_truncated_files(kept: float, tmp_path: Path) -> None:
    write_checkpoint("llama", tmp_path)
    data = (tmp_path / SINGLE).read_bytes()
    length = kept if kept == int(kept) else math.floor(kept * len(data))
    (tmp_path / SINGLE).write_bytes(data[: int(length)])
    with pytest.raises(UserError, match=f"{SINGLE}: truncated.*found {int(length)} bytes"):
        check(tmp_path)


def test_pickles_are_refused_with_what_to_do(tmp_path: Path) -> None:
    write_checkpoint("llama", tmp_path)
    (tmp_path / SINGLE).rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(
        UserError, match=r"pickle \(file pytorch_model\.bin\).*safe_serialization=True"
    ):
        check(tmp_path)
    (tmp_path / "pytorch_model.bin").rename(tmp_path / "consolidated.safetensors")
    with pytest.raises(UserError, match=f"neither {SINGLE} nor.*found file consolidated"):
        check(tmp_path)
    (tmp_path / "consolidated.safetensors").unlink()
    with pytest.raises(UserError, match=f"neither {SINGLE} nor {INDEX} is there$"):
        check(tmp_path)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    write_checkpoint("llama", tmp_path, max_shard_size="20KB")
    check(tmp_path)
    return tmp_path


def edit_index(directory: Path, change: Any) -> None:
    index = json.loads((directory / INDEX).read_text())
    change(index)
    (directory / INDEX).write_text(json.dumps(index))


def test_an_absent_shard_is_named(sharded: Path) -> None:
    first, second, *_ = sorted(sharded.glob("model-*"))
    first.unlink()
    with pytest.raises(UserError, match=f"{INDEX}: names shard {first.name}, which is not"):
        check(sharded)
    second.unlink()
    with pytest.raises(UserError, match=f"2 shards: {first.name}, {second.name}, which are"):
        check(sharded)


def test_an_index_that_disagrees_with_its_shards(sharded: Path) -> None:
    def add(index: dict[str, Any]) -> None:
        index["weight_map"]["model.extra"] = index["weight_map"][DOWN]

    backup = (sharded / INDEX).read_text()
    shard = json.loads(backup)["weight_map"][DOWN]
    edit_index(sharded, add)
    with pytest.raises(UserError, match=f"{shard}: has no tensor model.extra, which {INDEX} names"):
        check(sharded)
    (sharded / INDEX).write_text(backup)
    edit_index(sharded, lambda index: index["weight_map"].pop(DOWN))
    with pytest.raises(UserError, match=f"{shard}: {INDEX} does not name tensor {DOWN}"):
        check(sharded)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("{}", "weight_map.*is missing"),
        ('{"weight_map": []}', "weight_map.*is missing"),
        ('{"weight_map": {"a": "../b.safetensors"}}', r"tensor a lies in '../b\.safetensors'"),
        ('{"weight_map": {"a": 3}}', "tensor a lies in 3"),
    ],
)
def test_a_broken_index(text: str, message: str, sharded: Path) -> None:
    (sharded / INDEX).write_text(text)
    with pytest.raises(UserError, match=f"{INDEX}: {message}"):
        check(sharded)


def test_a_truncated_shard(sharded: Path) -> None:
    shard = sorted(sharded.glob("model-*"))[-1]
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(UserError, match=f"{shard.name}: truncated"):
        check(sharded)
