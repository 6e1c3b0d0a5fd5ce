"""Values that are out of range or do not fit each other: what each message must tell."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_rl import config_checks, resources
from jax_rl.config import Config, RopeConfig, resize_batch, study_batches
from jax_rl.config_checks import validate
from jax_rl.config_file import list_values, load_config
from jax_rl.errors import UserError


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


@pytest.mark.parametrize("name", resources.list_known("configs"))
def test_every_packaged_configuration_is_valid(name: str) -> None:
    config = load_config(name)
    validate(config)
    validate(config, study=True)
    assert config.batch.size in study_batches(config)


@pytest.mark.parametrize(
    ("tables", "parts"),
    [
        ({"model": {"layers": 0}}, ["model.layers = 0", "above 0"]),
        ({"model": {"heads": 6, "kv_heads": 4}}, ["kv_heads = 4", "heads = 6", "3 or 6"]),
        ({"model": {"head_dim": 15}}, ["head_dim = 15", "even", "14 or 16"]),
        ({"model": {"local_layers": (2,), "sliding_window": 4}}, ["names layer 2", "0 to 1"]),
        ({"model": {"sliding_window": 4}}, ["sliding_window = 4", "belong together"]),
        ({"model": {"local_layers": (0,)}}, ["local_layers = [0]", "belong together"]),
        (
            {"model": {"rope": RopeConfig(scaling="yarn")}},
            ["model.rope.original_length = 0", "'yarn'"],
        ),
        (
            {"model": {"rope": RopeConfig(original_length=64)}},
            ["model.rope.original_length = 64", "'none'"],
        ),
        ({"model": {"rope": RopeConfig(theta=0.0)}}, ["model.rope.theta = 0.0", "above 0"]),
        (
            {"model": {"rope": RopeConfig(low_frequency_factor=4.0)}},
            ["low_frequency_factor = 4.0 must be below"],
        ),
        ({"reward": {"seconds": 0.0}}, ["reward.seconds = 0.0", "above 0"]),
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
    several = change(validation={"samples_per_prompt": 4, "temperature": 1.0})
    validate(several)
    assert several.validation.samples_per_prompt == 4


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


@pytest.mark.parametrize(
    ("layouts", "parts"),
    [
        (("fsdp", ""), ["study.layouts = ['fsdp', '']", "empty name", "replicated"]),
        (("fsdp", "tensor", "fsdp"), ["names 'fsdp' twice"]),
        (("fsdpp",), ["no layout 'fsdpp'", "Did you mean 'fsdp'?"]),
    ],
)
def test_study_layouts_are_found_and_told_apart(layouts: tuple[str, ...], parts: list[str]) -> None:
    message = refusal(change(study={"layouts": layouts}), study=True)
    assert all(part in message for part in parts), message
    validate(change(study={"layouts": layouts}))  # a single run does not use them


def test_study_layouts_of_one_file_name_are_refused(tmp_path: Path) -> None:
    mine = tmp_path / "fsdp.toml"
    mine.write_text("")
    message = refusal(change(study={"layouts": ("fsdp", str(mine))}), study=True)
    assert f"names 'fsdp' twice, as 'fsdp' and as {str(mine)!r}" in message


def test_study_of_one_batch_may_compare_layouts() -> None:
    study = {"smaller": 0, "larger": 0, "layouts": ("fsdp", "tensor")}
    validate(change(study=study), study=True)
    assert "compares nothing" in refusal(change(study=study | {"layouts": ("fsdp",)}), study=True)


@pytest.mark.parametrize(
    ("study", "parts"),
    [
        ({"rules": ("sqrt", "none", "sqrt")}, ["study.rules", "'sqrt' twice"]),
        ({"updates": (1, 0)}, ["study.updates = [1, 0]", "at least 1"]),
        ({"updates": (1, 3)}, ["batch.updates = 3", "nearest: 2 or 4"]),
        ({"growth": ("both",), "factor": 2}, ["study.growth", "x0.5 the reference"]),
        ({"growth": ("group",), "smaller": 2}, ["batch 8", "groups of 0.5"]),
        ({"devices": ("fixed", "batch")}, ["study.devices", "needs run.devices"]),
        ({"trials": (0.5, 1.0)}, ["study.trials = [0.5, 1.0]", "at least three rising"]),
        ({"trials": (0.5, 2.0, 1.0)}, ["at least three rising"]),
        ({"trials": (0.0, 1.0, 2.0)}, ["above 0"]),
        ({"trials": (0.5, 1.0, math.inf)}, ["study.trials"]),
        ({"early_stop_factor": 0.5}, ["study.early_stop_factor = 0.5", "at least 1"]),
    ],
)
def test_axes_and_trials_that_do_not_fit_are_refused(
    study: dict[str, Any], parts: list[str]
) -> None:
    config = change(study={"smaller": 1, "larger": 1} | study)
    message = refusal(config, study=True)
    assert all(part in message for part in parts), message
    validate(config)  # a single run does not use them


def test_axes_may_be_compared_at_one_batch() -> None:
    one = {"smaller": 0, "larger": 0}
    for axis in ({"rules": ("none", "sqrt")}, {"updates": (1, 2)}, {"growth": ("group", "both")}):
        validate(change(study=one | axis), study=True)


def test_growing_groups_need_no_whole_groups_of_the_reference() -> None:
    # 8 prompts x 12: a quarter of the batch has groups of 3, and 24 is no multiple of 12 by need.
    grid: dict[str, dict[str, Any]] = {
        "validation": {"every_samples": 288},
        "budget": {"samples": 2880},
    }
    study = {"factor": 4, "smaller": 1, "larger": 0, "growth": ("group",)}
    validate(change(study=study, batch={"size": 96, "group": 12}, **grid), study=True)
    prompts = study | {"growth": ("prompts",)}
    message = refusal(change(study=prompts, batch={"size": 72, "group": 24}, **grid), study=True)
    assert "study.smaller = 1" in message


def test_every_number_has_a_range() -> None:
    ranged = set(config_checks._POSITIVE) | set(config_checks._NOT_NEGATIVE)
    numbers = {key for key, value in list_values(Config()) if type(value) in (int, float)}
    assert numbers - ranged == {"study.factor"}  # a choice of two
    assert ranged <= numbers


@given(value=st.integers(1, 200), step=st.integers(1, 50))
def test_near_multiples_are_multiples_on_both_sides(value: int, step: int) -> None:
    found = [int(part) for part in config_checks._near_multiples(value, step).split(" or ")]
    assert all(part > 0 and part % step == 0 for part in found)
    assert found[-1] > value
    assert found[-1] - value <= step


@given(value=st.integers(1, 100), total=st.integers(1, 100))
def test_near_divisors_have_no_divisor_between_them_and_the_value(value: int, total: int) -> None:
    text = config_checks._near_divisors(value, total)
    found = [int(part) for part in text.split(" or ") if part]
    gaps = range(min([*found, value]), max([*found, value]) + 1)
    assert [d for d in gaps if total % d == 0 and d != value] == sorted(found)
