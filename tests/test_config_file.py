"""Strict TOML: what each message must tell a person."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from jax_rl.config import Config, RopeConfig
from jax_rl.config_checks import validate
from jax_rl.config_file import config_from_dict, config_to_dict, load_config
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


def test_defaults_are_valid_and_survive_the_round_trip() -> None:
    validate(Config())
    changed = change(
        batch={"size": 64},
        objective={"loss": "cispo"},
        run={"seed": 7},
        reward={"verifiers": ("numeric", "length"), "weights": (1.0, -0.5)},
        model={"local_layers": (0, 2), "rope": RopeConfig(scaling="linear", factor=4.0)},
    )
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


def test_lists_and_tables_in_tables_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        "[reward]\nverifiers = ['numeric', 'length']\nweights = [1, -0.5]\n"
        "[model]\nlocal_layers = [0, 1]\n[model.rope]\ntheta = 5e5\nscaling = 'linear'\n"
    )
    config = load_config(file)
    assert (config.reward.verifiers, config.reward.weights) == (("numeric", "length"), (1.0, -0.5))
    assert type(config.reward.weights[0]) is float
    assert config.model.local_layers == (0, 1)
    assert config.model.rope == RopeConfig(theta=5e5, scaling="linear")


def test_a_record_gives_lists_back_as_it_got_them() -> None:
    plain = config_to_dict(change(reward={"verifiers": ("exact",)}))
    assert json.loads(json.dumps(plain)) == plain


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[reward]\nverifiers = 'exact'", ["reward.verifiers must be a list", "'exact'"]),
        ("[reward]\nweights = ['a']", ["reward.weights must be a number", "'a'"]),
        ("[model]\nrope = 1e6", ["model.rope", "must be a table", "[model.rope]"]),
        ("[model.rope]\ntheata = 1.0", ["'theata' in [model.rope]", "did you mean 'theta'?"]),
        ("[model.rope]\nscaling = 'yarm'", ["model.rope.scaling", "did you mean 'yarn'?"]),
    ],
)
def test_wrong_lists_and_nested_tables_are_explained(
    text: str, parts: list[str], tmp_path: Path
) -> None:
    message = message_of(text, tmp_path)
    for part in parts:
        assert part in message
