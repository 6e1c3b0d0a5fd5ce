"""The supervised warm-up: made once, keyed by what it depends on, away from the held-out set."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from trainer_runs import CONFIG, change, run

from jax_rl.config import Config
from jax_rl.errors import UserError
from jax_rl.model.weights import Weights
from jax_rl.records import WarmStart
from jax_rl.trainer import warm_start
from jax_rl.trainer.setup import prepare_run
from jax_rl.trainer.warm_start import cache_folder, hash_definition, make_warm_start

WARM: Config = change(CONFIG, warm_start={"updates": 30, "batch": 16, "learning_rate": 0.01})


def make(config: Config) -> tuple[Weights, WarmStart]:
    setup = prepare_run(config)
    with jax.set_mesh(setup.mesh):
        weights, report = make_warm_start(setup)
        return jax.device_get(weights), report


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Weights, WarmStart, list[Any]]:
    """The first warm-up in a new cache, and the examples that it has seen."""
    seen: list[Any] = []
    encode = warm_start._encode_examples

    def encode_and_note(setup: Any, examples: list[tuple[str, str]]) -> Any:
        seen.extend(examples)
        return encode(setup, examples)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_RL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(warm_start, "_encode_examples", encode_and_note)
        weights, report = make(WARM)
        again, cached = make(WARM)
    jax.tree.map(np.testing.assert_array_equal, weights, again)
    assert cached == dataclasses.replace(report, cached=True)
    return weights, report, seen


def test_it_learns_the_answers_and_says_how_long_it_took(
    made: tuple[Weights, WarmStart, list[Any]],
) -> None:
    _, report, _ = made
    # Uniform over 32 tokens is 3.47 nats; the answer is always "7" and the end.
    assert report.loss is not None and report.loss < 1.0 < math.log(32)
    assert not report.cached
    assert report.seconds > 0


def test_no_validation_prompt_is_among_the_examples(
    made: tuple[Weights, WarmStart, list[Any]],
) -> None:
    _, _, seen = made
    held_out = prepare_run(WARM).validation
    assert len(seen) == 30 * 16  # the cached call has seen none
    assert not {prompt for prompt, _ in seen} & set(held_out)
    # Of 100 prompts 84 are left: nearly all of them come up.
    assert len({prompt for prompt, _ in seen}) > 70


def test_the_same_definition_gives_the_same_weights_anew(
    made: tuple[Weights, WarmStart, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_RL_CACHE", str(tmp_path))
    weights, report = make(WARM)
    assert not report.cached and report.key == made[1].key
    jax.tree.map(np.testing.assert_array_equal, weights, made[0])
    assert [path.name for path in cache_folder().iterdir()] == [f"{report.key}.npz"]
    assert cache_folder() == tmp_path / "warm_start"
    # What a kill leaves behind of a save has another name.
    (cache_folder() / f"{report.key}.npz").rename(cache_folder() / f"{report.key}.1.tmp")
    monkeypatch.setattr(warm_start, "_train_on_examples", lambda setup: (weights, 0.5))
    assert not make(WARM)[1].cached


def test_cached_weights_are_laid_out_on_another_mesh(tmp_path: Path) -> None:
    start, _ = make(CONFIG)
    setup = prepare_run(change(CONFIG, run={"devices": 8, "layout": "fsdp"}))
    with jax.set_mesh(setup.mesh):
        weights, report = make_warm_start(setup)
        assert report.cached
        embedding = weights["embedding"]
        assert embedding.sharding.shard_shape(embedding.shape) == (32, 4)  # embed over 8
        jax.tree.map(np.testing.assert_array_equal, jax.device_get(weights), start)


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("task", {"name": "trainer_runs:SometimesBroken"}),
        ("task", {"max_response_length": 3}),
        ("model", {"layers": 2}),
        ("model", {"qk_norm": False}),
        ("warm_start", {"updates": 31}),
        ("warm_start", {"batch": 8}),
        ("warm_start", {"learning_rate": 0.02}),
        ("warm_start", {"seed": 1}),
        ("validation", {"prompts": 17}),
        ("validation", {"seed": 1}),
    ],
)
def test_the_key_moves_with_what_the_weights_depend_on(table: str, values: dict[str, Any]) -> None:
    changed = change(WARM, **{table: values})
    assert hash_definition(prepare_run(changed)) != hash_definition(prepare_run(WARM))


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("batch", {"size": 64, "group": 4}),
        ("run", {"seed": 7}),
        ("run", {"devices": 8, "layout": "fsdp_tensor"}),
        ("optimizer", {"learning_rate": 1e-4}),
        ("validation", {"every_samples": 64, "temperature": 0.5}),
        ("budget", {"samples": 32, "target": 0.5}),
        ("objective", {"kl_coefficient": 0.1}),
    ],
)
def test_the_key_stays_with_what_they_do_not(table: str, values: dict[str, Any]) -> None:
    changed = change(WARM, **{table: values})
    assert hash_definition(prepare_run(changed)) == hash_definition(prepare_run(WARM))


def test_its_time_is_in_the_record_and_in_no_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_slowly(path: Path, setup: Any) -> tuple[Weights, WarmStart]:
        weights, report = load(path, setup)
        return weights, dataclasses.replace(report, seconds=1000.0)

    load = warm_start._load
    make(CONFIG)
    monkeypatch.setattr(warm_start, "_load", load_slowly)
    record = run(tmp_path / "run", budget={"samples": 32})
    assert record.warm_start is not None and record.end is not None
    assert (record.warm_start.seconds, record.warm_start.cached) == (1000.0, True)
    assert record.warm_start.loss is None  # no updates, no loss
    assert record.end.elapsed_seconds < 1000


def test_a_batch_that_does_not_map_onto_the_mesh_is_refused() -> None:
    with pytest.raises(UserError, match=r"warm_start\.batch = 12 .* 8 shards; nearest: 8 or 16"):
        prepare_run(change(WARM, warm_start={"batch": 12}, run={"devices": 8}))
    prepare_run(change(CONFIG, warm_start={"batch": 12}, run={"devices": 8}))  # no updates
