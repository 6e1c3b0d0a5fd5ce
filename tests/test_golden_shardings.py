"""Where arrays lie, as text: a change of it shows as a diff of a table in tests/golden/."""

import dataclasses
import difflib

import pytest
from sharding_tables import FOLDER, MODELS, find_table, list_tables, write_table

from jax_rl.config import BatchConfig, Config, ModelConfig, TaskConfig, ValidationConfig
from jax_rl.errors import UserError
from jax_rl.mesh.layout import Layout
from jax_rl.mesh.layout_file import load_layout
from jax_rl.resources import find_layout
from jax_rl.trainer.shardings import describe_shardings

SIZES = {"data": 1, "fsdp": 2, "tensor": 2}
SMALL = Config(
    model=ModelConfig(layers=5, embed=512, heads=4, kv_heads=2, head_dim=64, mlp=768, vocab=30),
    task=TaskConfig(max_prompt_length=4, max_response_length=4),
    batch=BatchConfig(size=16, group=4),
    validation=ValidationConfig(prompts=4),
)


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        pytest.param(m, x, marks=() if m == "qwen3_8b" else pytest.mark.slow)
        for m, x in list_tables()
    ],
)
def test_arrays_lie_as_in_the_golden_table(model, layout):
    golden = find_table(model, layout).read_text(encoding="utf-8").splitlines()
    found = write_table(model, layout).splitlines()
    difference = difflib.unified_diff(golden, found, "golden", "found", lineterm="", n=2)
    text = "\n".join(difference)
    assert not text, f"{text}\n\nIf it is meant: python scripts/shardings.py --write"


def test_every_table_is_there_and_no_other():
    assert {*FOLDER.iterdir()} == {find_table(*names) for names in list_tables()}


@pytest.mark.parametrize("model", MODELS)
def test_a_layout_that_does_not_divide_says_so(model):
    text = find_table(model, "tensor").read_text(encoding="utf-8")
    refused = [line for line in text.splitlines() if line.startswith("refused")]
    heads = {"gemma_3_1b": 4}.get(model, 32)
    assert refused[0] == (
        f"refused: layout tensor [weights] splits heads = {heads} over tensor = 256 devices,"
        f" which does not divide; {heads} would"
    )
    # Eight heads of keys lie on eight devices at most, one head on one.
    assert ("mesh data 1 x fsdp 32 x tensor 8" in text) == (
        model != "gemma_3_1b" or len(refused) > 2
    )
    assert ("stored weights" in text) == (model != "gemma_3_1b")


def small_layout(**changes) -> Layout:
    layout = dataclasses.replace(load_layout(find_layout("fsdp_tensor")), name="mine")
    return dataclasses.replace(layout, **changes)


def read_section(text: str, title: str) -> list[str]:
    """The lines below a title, without their indentation and repeated spaces."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"{title}:"))
    last = lines.index("", first) if "" in lines[first:] else len(lines)
    return [" ".join(line.split()) for line in lines[first:last]]


def test_a_table_by_hand():
    """Four devices: two parts of the width, of heads, feed-forward and vocabulary two."""
    text = describe_shardings(SMALL, small_layout(), SIZES)
    embedding = 30 * 512 / 4
    attention = 2 * (512 * 4 * 64 + 512 * 2 * 64) / 4
    norms = 2 * 512 / 2 + 2 * 64
    layer = attention + 3 * 512 * 768 / 4 + norms
    total = (embedding + 5 * layer + 512 / 2) * 4 / 2**20
    weights = read_section(text, "stored weights")
    assert weights[0] == f"stored weights: {total:.2f} MiB per device"
    assert "gate f32[5 512/fsdp 768/tensor] 1.88" in weights
    assert "embedding f32[30/tensor 512/fsdp] 0.01" in weights
    assert read_section(text, "optimizer, second moment")[1:] == ["each as its weight"]
    held = read_section(text, "sampler's weights")
    assert "gate x 5 f32[512 768/tensor] 3.75" in held  # gathered over fsdp
    # Sixteen rows on two parts, one head of two, 8 columns of 64: 16 KiB a layer.
    assert read_section(text, "cache") == [
        "cache: 0.16 MiB per device",
        "k x 5 f32[16/data.fsdp 2/tensor 8 64] 0.08",
        "v x 5 f32[16/data.fsdp 2/tensor 8 64] 0.08",
    ]
    # A step of decoding two layers: scores of both, logits here and before the loop.
    decoding = read_section(text, "decode")
    assert "2 x attention f32[16/data.fsdp 2/tensor 2 1 8]" in decoding
    assert "2 x draw f32[16/data.fsdp 30/tensor]" in decoding
    assert "join:" not in text


@pytest.mark.parametrize(
    ("changes", "title", "expected"),
    [
        ({"weights": ()}, "stored weights", "gate f32[5 512 768] 7.50"),
        (
            {"cache": (("batch", ("data", "fsdp", "tensor")),)},
            "decode",
            "2 x attention f32[16/data.fsdp.tensor 2 2 1 8]",
        ),
        (
            {"compute": (("batch", ("data", "fsdp", "tensor")),)},
            "join",
            "1 x s32[16/data.fsdp 8] -> s32[16/data.fsdp.tensor 8]",
        ),
        (
            {"compute": (("batch", ("data", "fsdp", "tensor")),)},
            "update",
            "3 x mlp f32[128/data.fsdp.tensor 768]",
        ),
    ],
)
def test_a_changed_rule_changes_the_table(changes, title, expected):
    before = describe_shardings(SMALL, small_layout(), SIZES)
    after = read_section(describe_shardings(SMALL, small_layout(**changes), SIZES), title)
    assert expected in after
    assert f"{title}:" not in before or expected not in read_section(before, title)


def test_what_does_not_divide_is_refused():
    with pytest.raises(UserError, match=r"layout mine \[weights\] splits kv_heads = 2 .* = 4"):
        describe_shardings(SMALL, small_layout(), {"data": 1, "fsdp": 1, "tensor": 4})
