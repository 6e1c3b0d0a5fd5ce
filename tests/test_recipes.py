"""Recipes of configs/: they load, fit on paper, lie on the machines they name, and run tiny."""

import dataclasses
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from script_files import load_script
from trainer_runs import change

import jax_rl
from jax_rl.config import Config, study_batches
from jax_rl.config_file import load_config
from jax_rl.mesh.devices import check_divides, resolve_sizes
from jax_rl.mesh.layout_file import load_layout
from jax_rl.model.weights import count_parameters, dimensions
from jax_rl.resources import find_layout, list_known

CHECKOUT = Path(__file__).parents[1]
RECIPES = ("gsm8k_qwen3", "countdown_qwen25", "gsm8k_gemma3", "math_qwen3")
FAMILIES = dict(zip(RECIPES, ("qwen3", "qwen2", "gemma3", "qwen3"), strict=True))
PARAMETERS = {  # as published, a tied head counted once
    "gsm8k_qwen3": 596_049_920,
    "countdown_qwen25": 494_032_768,
    "gsm8k_gemma3": 999_885_952,
    "math_qwen3": 1_720_574_976,
}
CHAT = (
    "{% for m in messages %}<turn>{{ m.role }}: {{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant: "
    "{% if enable_thinking is defined and not enable_thinking %}(at once) {% endif %}{% endif %}"
)
WORDS = ("apples", "pears", "stones", "coins")
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("recipes")


def test_the_script_knows_every_recipe(script: ModuleType) -> None:
    assert script.RECIPES == RECIPES
    checkpoints = {name for name in list_known("configs") if load_config(name).model.checkpoint}
    assert checkpoints == set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_complete(name: str) -> None:
    config = load_config(name)
    assert len(study_batches(config)) == 5
    assert not Path(config.model.checkpoint).is_absolute()
    assert config.model.compute_dtype == "bfloat16"
    assert config.warm_start.updates == 0
    for path in (config.task.train, config.task.validation):
        assert path.startswith("data/") != (config.task.name == "countdown")
    # Warm-up is over within a tenth of the budget, at the largest batch of a study too.
    assert config.optimizer.warmup_samples <= config.budget.samples / 10
    assert config.batch.wave and config.batch.microbatch and config.validation.wave


def test_parameters_are_the_published_ones(script: ModuleType) -> None:
    counted = {row.recipe: count_parameters(row.config.model) for row in script.plan_recipes()}
    assert counted == PARAMETERS


def test_every_recipe_fits_on_every_machine_with_margin(script: ModuleType) -> None:
    rows = script.plan_recipes()
    assert len(rows) == 4 * 3
    for row in rows:
        share = row.memory.peak / row.machine.capacity
        assert share <= 0.8, f"{row.recipe} on {row.machine.name}: {share:.0%}"


def test_every_batch_of_a_study_maps_onto_every_machine_and_fits(script: ModuleType) -> None:
    for name in RECIPES:
        for size in study_batches(load_config(name)):
            for words, machine in zip(script.read_commands(name), script.MACHINES, strict=True):
                row = script.plan_recipe(name, [*words, "--batch.size", str(size)], machine)
                assert row.plan.size == size
                assert row.fits, f"{name} at {size} on {machine.name}"


def test_recomputing_blocks_is_what_makes_them_fit(script: ModuleType) -> None:
    for name in RECIPES:
        rows = [
            script.plan_recipe(name, [*words, "--model.remat", "none"], machine)
            for words, machine in zip(script.read_commands(name), script.MACHINES, strict=True)
        ]
        assert not rows[0].fits, f"{name} on {rows[0].machine.name}"  # one GPU
        assert sum(row.fits for row in rows) <= 1


def test_a_plan_that_does_not_fit_is_told(script: ModuleType) -> None:
    words = ["train", "math_qwen3", "--batch.wave", "128", "--batch.microbatch", "32"]
    row = script.plan_recipe("math_qwen3", words, script.MACHINES[0])
    assert not row.fits
    assert script.format_table([row]).endswith("| no |")


def test_command_lines_name_layouts_that_divide_the_real_shapes(script: ModuleType) -> None:
    for row in script.plan_recipes():
        for devices in {1, row.machine.devices}:
            layout = load_layout(find_layout(row.config.run.layout))
            check_divides(layout, resolve_sizes(layout, devices), dimensions(row.config.model))


def test_command_lines_cut_a_batch_without_changing_it(script: ModuleType) -> None:
    """What a machine overrides moves memory and speed, and nothing that is learnt."""
    for row in script.plan_recipes():
        config = load_config(row.recipe)
        same = change(
            row.config,
            model=dataclasses.asdict(config.model) | {"rope": config.model.rope},
            batch={"wave": config.batch.wave, "microbatch": config.batch.microbatch},
            validation={"wave": config.validation.wave},
            run={"layout": config.run.layout},
        )
        assert same == config


def test_docs_hold_the_table_as_printed(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main() == 0
    assert capsys.readouterr().out in (CHECKOUT / "docs" / "recipes.md").read_text()


def write_model(family: str, directory: Path) -> None:
    """A random checkpoint of the family with a tokenizer of 300 tokens and a chat template."""
    checkpoints = pytest.importorskip("checkpoints", reason="built with torch and transformers")
    tokenizers = pytest.importorskip("tokenizers")
    shape = checkpoints.FAMILIES[family]()
    shape.vocab_size, shape.max_position_embeddings = 304, 512
    checkpoints.random_model(shape).save_pretrained(directory)
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<pad>", "<begin>", "<end>", "<turn>"],
        show_progress=False,
    )
    backend.train_from_iterator(["Think step by step, and put the final answer."] * 4, trainer)
    backend.save(str(directory / "tokenizer.json"))
    words = {"eos_token": "<end>", "pad_token": "<pad>", "chat_template": CHAT}
    (directory / "tokenizer_config.json").write_text(json.dumps(words))


def write_rows(task: str, file: Path, *, first: int) -> None:
    """Twelve problems in the task's own format; `first` makes those of two files differ."""
    rows = []
    for i, prime in enumerate(PRIMES):
        asked = f"{first} {WORDS[i % 4]} and {prime} more: how many?"
        if task == "gsm8k":
            rows.append({"question": asked, "answer": f"They add up.\n#### {first + prime}"})
        else:
            rows.append({"problem": asked, "solution": f"It is $\\boxed{{{first + prime}}}$."})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def shrink(name: str, folder: Path, *, layout: str, devices: int) -> Config:
    """The recipe with a tiny model, tiny data, and two iterations; what it learns by is its own."""
    config = load_config(name)
    write_model(FAMILIES[name], folder / "model")
    files = {}
    if config.task.train:
        for number, field in enumerate(("train", "validation"), 1):
            files[field] = str(folder / f"{field}.jsonl")
            write_rows(config.task.name, folder / f"{field}.jsonl", first=number)
    return change(
        config,
        task={**files, "max_prompt_length": 288, "max_response_length": 8},
        reward={"processes": 1, "seconds": 60.0},
        model={"checkpoint": str(folder / "model")},
        batch={"size": 16, "wave": 16, "microbatch": 8},
        validation={"prompts": 8, "every_samples": 16, "wave": 8},
        budget={"samples": 32},
        checkpoint={"at_end": False},
        run={"layout": layout, "devices": devices},
    )


SLOW = pytest.mark.slow
RUNS: list[Any] = [
    *(pytest.param(name, "replicated", 1, marks=SLOW) for name in RECIPES),
    *(pytest.param(name, "fsdp", 8, marks=SLOW) for name in RECIPES),
]


@pytest.mark.parametrize(("name", "layout", "devices"), RUNS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_recipe_runs_at_tiny_size(name: str, layout: str, devices: int, tmp_path: Path) -> None:
    config = shrink(name, tmp_path, layout=layout, devices=devices)
    record = jax_rl.train(config, tmp_path / "run", progress=False)
    assert [iteration.samples for iteration in record.iterations] == [16, 32]
    assert [point.samples for point in record.validations] == [0, 16, 32]
    for iteration in record.iterations:
        for field, value in dataclasses.asdict(iteration).items():
            if isinstance(value, float):
                assert math.isfinite(value), field
        assert iteration.failed_rewards == 0
        assert (iteration.kl is not None) == (config.objective.kl_coefficient > 0)
    assert record.end is not None
    assert record.end.reason == "sample_budget"
