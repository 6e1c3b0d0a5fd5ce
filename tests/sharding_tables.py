"""Models, meshes and files of the golden sharding tables.

Used by the test and by `scripts/shardings.py`, which prints and rewrites them.
"""

from collections.abc import Iterator
from pathlib import Path

from jax_rl.config import (
    BatchConfig,
    Config,
    ModelConfig,
    RopeConfig,
    TaskConfig,
    ValidationConfig,
)
from jax_rl.errors import UserError
from jax_rl.mesh.devices import resolve_sizes
from jax_rl.mesh.layout import SLICES, Layout
from jax_rl.mesh.layout_file import load_layout
from jax_rl.resources import find_layout, list_known
from jax_rl.trainer.shardings import describe_shardings

FOLDER = Path(__file__).parent / "golden"
DEVICES, IN_SLICES = 256, 4
MODELS = {
    "qwen3_8b": ModelConfig(
        layers=36,
        embed=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        mlp=12_288,
        vocab=151_936,
        tied_head=False,
        rope=RopeConfig(theta=1e6),
        compute_dtype="bfloat16",
        remat="full",
    ),
    "llama_3_1_8b": ModelConfig(
        layers=32,
        embed=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        mlp=14_336,
        vocab=128_256,
        qk_norm=False,
        tied_head=False,
        rope=RopeConfig(theta=5e5, scaling="llama3", factor=8.0, original_length=8192),
        norm_epsilon=1e-5,
        compute_dtype="bfloat16",
        remat="full",
    ),
    "gemma_3_1b": ModelConfig(
        layers=26,
        embed=1152,
        heads=4,
        kv_heads=1,
        head_dim=256,
        mlp=6912,
        activation="gelu_tanh",
        vocab=262_144,
        rope=RopeConfig(theta=1e6, local_theta=1e4),
        norm_offset=True,
        post_norms=True,
        embedding_scale=True,
        sliding_window=512,
        local_layers=tuple(layer for layer in range(26) if layer % 6 != 5),
        compute_dtype="bfloat16",
        remat="full",
    ),
}
"""Shapes of published models."""


def list_tables() -> list[tuple[str, str]]:
    """Model and layout of every table."""
    return [(model, layout) for model in MODELS for layout in list_known("sharding")]


def find_table(model: str, layout: str) -> Path:
    """The golden file of a table."""
    return FOLDER / f"{model}.{layout}.txt"


def write_table(model: str, layout: str) -> str:
    """What the golden file has to be: the first mesh that the model divides into, in full."""
    config = Config(
        model=MODELS[model],
        task=TaskConfig(max_prompt_length=1024, max_response_length=3072),
        batch=BatchConfig(size=1024, group=8, microbatch=256),
        validation=ValidationConfig(prompts=256),
    )
    rules = load_layout(find_layout(layout))
    text = [f"{model} in the layout {layout}: {rules.description}"]
    for sizes in _list_meshes(rules):
        axes = " x ".join(f"{axis} {size}" for axis, size in sizes.items())
        text += ["", f"mesh {axes}"]
        try:
            text.append(describe_shardings(config, rules, sizes))
            break
        except UserError as error:
            text.append(f"refused: {error}")
    return "\n".join(text).rstrip() + "\n"


def _list_meshes(layout: Layout) -> Iterator[dict[str, int]]:
    """The sizes that the layout's file gives, then 16 x 16 and what is less tensor parallel."""
    slices = IN_SLICES if SLICES in dict(layout.mesh).values() else 1
    own = resolve_sizes(layout, DEVICES, slices=slices)
    yield own
    for tensor in (16, 8, 4, 2):
        if tensor != own["tensor"]:
            yield {"data": 1, "fsdp": DEVICES // tensor, "tensor": tensor}
