#!/usr/bin/env python3
"""Prints what each recipe of configs/ needs of each machine's memory, on paper.

    python scripts/recipes.py

The command lines are those in the header of each recipe; the shapes are the published ones of
the models, read as a checkpoint's config.json is. Nothing is compiled and no model has to be
here. GiB on each device, by kind as in jax_rl/trainer/memory.py; exit code 1 if a recipe does
not fit with a margin of a fifth.
"""

import dataclasses
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from jax_rl.cli import parse
from jax_rl.commands.experiment import Train
from jax_rl.config import Config, ModelConfig
from jax_rl.config_checks import validate
from jax_rl.mesh.batch_plan import BatchPlan, plan_batch
from jax_rl.mesh.devices import check_divides, resolve_sizes
from jax_rl.mesh.layout_file import load_layout
from jax_rl.model.huggingface.families import read_model_config
from jax_rl.model.weights import count_parameters, dimensions
from jax_rl.resources import find_config, find_layout
from jax_rl.trainer.memory import MemoryPlan, plan_memory

RECIPES = ("gsm8k_qwen3", "countdown_qwen25", "gsm8k_gemma3", "math_qwen3")
MARGIN = 0.8
"""Share of the capacity that a plan may take."""
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Machine:
    """Devices that a recipe names a command line for."""

    name: str
    devices: int
    capacity: int
    """Bytes of one device that a program gets."""


MACHINES = (  # in the order of the command lines in a recipe
    # JAX takes three quarters of a GPU's memory unless XLA_PYTHON_CLIENT_MEM_FRACTION says more.
    Machine("1 GPU, 80 GB", 1, 60 * 10**9),
    Machine("8 GPUs, 80 GB", 8, 60 * 10**9),
    Machine("TPU v5e-8, 16 GB", 8, 15 * GIB + 3 * GIB // 4),  # the rest is the system's
)

_QWEN3 = {
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": True,
    "rope_theta": 1_000_000,
}
SHAPES: dict[str, dict[str, Any]] = {
    "Qwen3-0.6B": {**_QWEN3, "hidden_size": 1024, "intermediate_size": 3072},
    "Qwen3-1.7B": {**_QWEN3, "hidden_size": 2048, "intermediate_size": 6144},
    "Qwen2.5-0.5B-Instruct": {
        "model_type": "qwen2",
        "vocab_size": 151_936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": True,
        "rope_theta": 1_000_000,
    },
    "gemma-3-1b-it": {
        "model_type": "gemma3_text",
        "vocab_size": 262_144,
        "hidden_size": 1152,
        "intermediate_size": 6912,
        "num_hidden_layers": 26,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "max_position_embeddings": 32_768,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "rope_theta": 1_000_000,
        "rope_local_base_freq": 10_000,
    },
}
"""Published config.json of each model, as far as it says something about shape."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One recipe on one machine."""

    recipe: str
    machine: Machine
    config: Config
    plan: BatchPlan
    memory: MemoryPlan

    @property
    def fits(self) -> bool:
        """Whether the peak leaves the margin."""
        return self.memory.peak <= MARGIN * self.machine.capacity


def read_commands(recipe: str) -> list[list[str]]:
    """The command lines in a recipe's header, as words after `jax-rl`."""
    lines = find_config(recipe).read_text(encoding="utf-8").splitlines()
    header = "\n".join(line.removeprefix("#") for line in lines if line.startswith("#"))
    joined = header.replace("\\\n", " ").splitlines()
    found = [shlex.split(line) for line in joined if line.strip().startswith("jax-rl train ")]
    return [words[1:] for words in found]


def read_shape(name: str, base: ModelConfig) -> ModelConfig:
    """The model of that name as its checkpoint directory would give it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(SHAPES[name]), encoding="utf-8")
        return read_model_config(Path(folder), base=base)


def plan_recipe(recipe: str, words: list[str], machine: Machine) -> Row:
    """What a command line means on a machine, checked as a run would check it."""
    command = parse(words)
    assert isinstance(command, Train)
    config = command.config
    if command.layout is not None:
        config = dataclasses.replace(
            config, run=dataclasses.replace(config.run, layout=command.layout)
        )
    validate(config)
    model = read_shape(Path(config.model.checkpoint).name, config.model)
    config = dataclasses.replace(config, model=model)
    layout = load_layout(find_layout(config.run.layout))
    sizes = resolve_sizes(layout, machine.devices)
    check_divides(layout, sizes, dimensions(model))
    plan = plan_batch(config.batch, layout, sizes)
    return Row(recipe, machine, config, plan, plan_memory(config, plan, layout, sizes))


def plan_recipes() -> list[Row]:
    """Every recipe on every machine."""
    return [
        plan_recipe(recipe, words, machine)
        for recipe in RECIPES
        for words, machine in zip(read_commands(recipe), MACHINES, strict=True)
    ]


def format_table(rows: list[Row]) -> str:
    """The rows as a table in Markdown; memory in GiB on each device."""
    kinds = [field.name for field in dataclasses.fields(MemoryPlan)]
    head = ["recipe", "machine", "layout", "batch", "wave", "microbatch"]
    head += [name.replace("_", " ") for name in kinds]
    head += ["sync", "generate", "learn", "peak of capacity", "fits"]
    lines = [head, ["---"] * 3 + ["--:"] * (len(head) - 4) + ["---"]]
    for row in rows:
        memory, capacity = row.memory, row.machine.capacity
        numbers = [getattr(memory, name) for name in kinds]
        numbers += [memory.sync, memory.generate, memory.learn]
        lines.append(
            [
                row.recipe,
                row.machine.name,
                row.config.run.layout,
                *(str(n) for n in (row.plan.size, row.plan.wave, row.plan.microbatch)),
                *(f"{number / GIB:.2f}" for number in numbers),
                f"{memory.peak / GIB:.1f} of {capacity / GIB:.1f}, {memory.peak / capacity:.0%}",
                "yes" if row.fits else "no",
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_shapes(rows: list[Row]) -> str:
    """The models of the recipes and their parameters, as a table in Markdown."""
    lines = ["| recipe | model | parameters |", "|---|---|--:|"]
    models = {row.recipe: row.config for row in rows}
    commands = {recipe: parse(read_commands(recipe)[0]) for recipe in models}
    for recipe, command in commands.items():
        assert isinstance(command, Train)
        name = Path(command.config.model.checkpoint).name
        lines.append(f"| {recipe} | {name} | {count_parameters(models[recipe].model):,} |")
    return "\n".join(lines)


def main() -> int:
    """Prints both tables."""
    rows = plan_recipes()
    print(format_shapes(rows))
    print()
    print(format_table(rows))
    return 0 if all(row.fits for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
