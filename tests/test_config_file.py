"""Strict TOML and the values that fit each other: what each message must tell a person."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_rl import config_file, resources
from jax_rl.config import Config, resize_batch
from jax_rl.config_file import config_from_dict, config_to_dict, load_config, validate
from jax_rl.errors import UserError


def message_of(text: str, tmp_path: Path) -> str:
    file = tmp_path / "experiment.toml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        load_config(file)
    assert str(file) in str(caught.value)
    return str(caught.value)


def change(**tables: dict[str, Any]) -> Config:
    """The defaults with some values replaced."""
    config = Config()
    return dataclasses.replace(
        config,
        **{
            table: dataclasses.replace(getattr(config, table), **values)
            for table, values in tables.items()
        },
    )


def refusal(config: Config, *, study: bool = False) -> str:
    with pytest.raises(UserError) as caught:
        validate(config, study=study)
    return str(caught.value)


def test_load_reads_values_and_leaves_the_rest_at_their_defaults(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        "[batch]\nsize = 64\n[model]\nqk_norm = false\nremat = 'dots'\n"
        "[optimizer]\nlearning_rate = 1\n[run]\nlayout = 'fsdp'\n"
    )
    config = load_config(str(file))
    assert config == change(
        batch={"size": 64},
        model={"qk_norm": False, "remat": "dots"},
        optimizer={"learning_rate": 1.0},
        run={"layout": "fsdp"},
    )
    assert type(config.optimizer.learning_rate) is float  # an int in the file


def test_load_finds_a_packaged_configuration_by_name() -> None:
    assert load_config("tiny").batch.size == 16


@pytest.mark.parametrize("name", resources.list_known("configs"))
def test_every_packaged_configuration_is_valid(name: str) -> None:
    config = load_config(name)
    validate(config)
    validate(config, study=True)


def test_defaults_are_valid_and_survive_the_round_trip() -> None:
    validate(Config())
    changed = change(batch={"size": 64}, objective={"loss": "cispo"}, run={"seed": 7})
    assert changed != Config()
    assert config_from_dict(config_to_dict(changed), where="record") == changed


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[bacth]\nsize = 1", ["'bacth'", "did you mean 'batch'?", "task, text, reward, model"]),
        ("[batch]\nsizes = 1", ["'sizes' in [batch]", "'size'?", "size, group, updates"]),
        ("[batch]\nlayers = 1", ["'layers' in [batch]", "it belongs in [model]"]),
        ("size = 1", ["unknown table 'size'", "it belongs in [batch]"]),
        ("batch = 1", ["batch = 1 must be a table", "[batch]"]),
        ("[batch]\nsize = true", ["batch.size must be a whole number", "true"]),
        ("[batch]\nsize = 1.0", ["batch.size must be a whole number", "1.0"]),
        ("[batch]\nsize = '8'", ["batch.size must be a whole number", "'8'", "a string"]),
        ("[batch.size]\nx = 1", ["batch.size must be a whole number", "a table"]),
        ("[batch]\nsize = [8]", ["batch.size must be a whole number", "a list"]),
        ("[model]\nqk_norm = 1", ["model.qk_norm must be true or false", "1"]),
        ("[run]\nlayout = 3", ["run.layout must be a string", "3"]),
        ("[optimizer]\nb1 = true", ["optimizer.b1 must be a number", "true"]),
        ("[model]\nremat = 'dot'", ["model.remat", "'none', 'dots', 'full'", "mean 'dots'?"]),
        ("[model]\nremat = 3", ["model.remat", "'none', 'dots', 'full'", "3"]),
        ("[study]\nrate_rule = 'root'", ["study.rate_rule", "'none', 'sqrt', 'linear'"]),
        ("[batch]\nsize = = 8", ["not valid TOML", "line 2, column 8"]),
        ("[batch]\nsize = 1\nsize = 2\n", ["not valid TOML", "line 3"]),
    ],
)
def test_broken_file_is_explained(text: str, parts: list[str], tmp_path: Path) -> None:
    message = message_of(text, tmp_path)
    for part in parts:
        assert part in message


def test_bytes_that_are_not_text_are_explained(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_bytes(b"[run]\nlayout = '\xff'")
    with pytest.raises(UserError, match="not UTF-8 text at byte 16"):
        load_config(file)


def test_missing_file_names_what_there_is() -> None:
    with pytest.raises(UserError, match=r"'nowhere/tinny.toml'.*mean 'tiny'.*Known: .*tiny"):
        load_config("nowhere/tinny.toml")


@pytest.mark.parametrize(
    ("tables", "parts"),
    [
        ({"model": {"layers": 0}}, ["model.layers = 0", "above 0"]),
        ({"model": {"heads": 6, "kv_heads": 4}}, ["kv_heads = 4", "heads = 6", "3 or 6"]),
        ({"model": {"head_dim": 15}}, ["head_dim = 15", "even", "14 or 16"]),
        ({"batch": {"size": 100}}, ["batch.size = 100", "batch.group = 8", "96 or 104"]),
        ({"batch": {"size": 4}}, ["batch.size = 4", "nearest: 8"]),
        ({"batch": {"updates": 3}}, ["batch.updates = 3", "batch.size = 128", "2 or 4"]),
        ({"batch": {"updates": 32}}, ["batch.updates = 32", "groups of 8", "nearest: 16"]),
        (
            {"batch": {"updates": 2, "microbatch": 24}},
            ["batch.microbatch = 24", "minibatch of 64", "16 or 32", "0 for all"],
        ),
        ({"batch": {"microbatch": 96}}, ["microbatch = 96", "64 or 128"]),
        ({"batch": {"wave": 48}}, ["batch.wave = 48", "batch.size = 128", "32 or 64"]),
        ({"batch": {"wave": 4}}, ["batch.wave = 4", "whole groups of 8", "nearest: 8"]),
        ({"batch": {"wave": -8}}, ["batch.wave = -8", "0 or above"]),
        ({"sampler": {"temperature": 0.0}}, ["sampler.temperature = 0", "no gradient"]),
        ({"sampler": {"temperature": -1.0}}, ["sampler.temperature = -1.0", "0 or above"]),
        ({"objective": {"clip_low": 1.5}}, ["clip_low = 1.5", "at most 1"]),
        ({"objective": {"clip_high": 0.0}}, ["clip_high = 0.0", "above 0"]),
        ({"objective": {"kl_coefficient": -0.1}}, ["kl_coefficient = -0.1", "0 or above"]),
        ({"optimizer": {"warmup_samples": -1}}, ["warmup_samples = -1", "0 or above"]),
        ({"optimizer": {"learning_rate": math.nan}}, ["learning_rate = nan", "finite"]),
        ({"optimizer": {"b2": 1.0}}, ["optimizer.b2 = 1.0", "below 1"]),
        ({"validation": {"samples_per_prompt": 4}}, ["samples_per_prompt = 4", "must be 1"]),
        ({"validation": {"every_samples": 2000}}, ["2000", "batch.size = 128", "1920 or 2048"]),
        ({"validation": {"every_samples": 64}}, ["every_samples = 64", "nearest: 128"]),
        ({"budget": {"samples": 65_000}}, ["samples = 65000", "63488 or 65536"]),
        ({"budget": {"target": 1.5}}, ["budget.target = 1.5", "at most 1"]),
        ({"budget": {"target": 0.0}}, ["budget.target = 0.0", "above 0"]),
        ({"budget": {"seconds": math.inf}}, ["budget.seconds = inf", "finite"]),
        ({"study": {"factor": 3}}, ["study.factor = 3", "2 or 4"]),
        ({"checkpoint": {"keep": 0}}, ["checkpoint.keep = 0", "above 0"]),
        ({"run": {"seed": -1}}, ["run.seed = -1", "0 or above"]),
        ({"run": {"seed": 2**31}}, ["run.seed = 2147483648", "below 2**31"]),
    ],
)
def test_values_that_do_not_fit_are_refused(
    tables: dict[str, dict[str, Any]], parts: list[str]
) -> None:
    message = refusal(change(**tables))
    for part in parts:
        assert part in message


def test_sampled_validation_may_have_several_responses() -> None:
    validate(change(validation={"samples_per_prompt": 4, "temperature": 1.0}))


def test_study_grid_is_a_multiple_of_its_largest_batch() -> None:
    # 128 with two steps of four above it: 2048 divides 2048, but not 1024.
    study = {"factor": 4, "smaller": 1, "larger": 2}
    validate(change(study=study), study=True)
    short = change(study=study, validation={"every_samples": 1024})
    validate(short)  # fine for the single run
    message = refusal(short, study=True)
    assert "(32, 128, 512, 2048)" in message
    assert "nearest: 2048" in message


def test_study_checks_every_batch_of_it() -> None:
    # A wave of 32 divides 96, but not 48.
    config = change(
        batch={"size": 96, "group": 4, "wave": 32},
        study={"factor": 2, "smaller": 1, "larger": 0},
        validation={"every_samples": 96},
        budget={"samples": 960},
    )
    validate(config)
    assert "batch.size = 48" in refusal(config, study=True)


def test_a_microbatch_or_wave_above_the_batch_is_all_of_it() -> None:
    config = change(batch={"microbatch": 256, "wave": 512}, study={"smaller": 1, "larger": 1})
    validate(config)
    validate(config, study=True)
    assert resize_batch(config.batch, 32) == dataclasses.replace(
        config.batch, size=32, microbatch=32, wave=32
    )


def test_study_of_one_batch_is_refused() -> None:
    assert "compares nothing" in refusal(change(study={"smaller": 0, "larger": 0}), study=True)


def test_study_with_a_fraction_of_a_batch_is_refused() -> None:
    assert "study.smaller = 3" in refusal(change(study={"smaller": 3}), study=True)


def test_every_number_has_a_range() -> None:
    ranged = set(config_file._POSITIVE) | set(config_file._NOT_NEGATIVE)
    numbers = {
        key for key, value in config_file.list_values(Config()) if type(value) in (int, float)
    }
    assert numbers - ranged == {"study.factor"}  # a choice of two
    assert ranged <= numbers


@given(value=st.integers(1, 200), step=st.integers(1, 50))
def test_near_multiples_are_multiples_on_both_sides(value: int, step: int) -> None:
    found = [int(part) for part in config_file._near_multiples(value, step).split(" or ")]
    assert all(part > 0 and part % step == 0 for part in found)
    assert found[-1] > value
    assert found[-1] - value <= step


@given(value=st.integers(1, 100), total=st.integers(1, 100))
def test_near_divisors_have_no_divisor_between_them_and_the_value(value: int, total: int) -> None:
    text = config_file._near_divisors(value, total)
    found = [int(part) for part in text.split(" or ") if part]
    gaps = range(min([*found, value]), max([*found, value]) + 1)
    assert [d for d in gaps if total % d == 0 and d != value] == sorted(found)
