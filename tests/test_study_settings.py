"""Settings of a study: their names, and how study.json tells them, now and before."""

import dataclasses
import json

from jax_rl.config import Config, StudyConfig
from jax_rl.config_file import config_to_dict
from jax_rl.study.settings import (
    Setting,
    describe_settings,
    has_prefix,
    make_settings,
    read_settings,
)


def make_config(**study):
    return dataclasses.replace(Config(), study=StudyConfig(**study))


def test_a_study_of_one_setting_is_called_after_its_layout():
    config = make_config(rate_rule="linear")
    only = Setting("replicated", "replicated", "linear", "prompts", 1, "fixed")
    assert make_settings(config) == {"replicated": only}
    assert not has_prefix(config)
    named = make_config(layouts=("fsdp",))
    assert list(make_settings(named)) == ["fsdp"] and has_prefix(named)


def test_names_are_made_of_the_axes_with_several_values():
    assert list(make_settings(make_config(rules=("none", "sqrt")))) == ["rate_none", "rate_sqrt"]
    assert list(make_settings(make_config(growth=("group", "both"), rules=("adam",)))) == [
        "group",
        "both",
    ]
    settings = make_settings(
        make_config(layouts=("fsdp", "tensor"), updates=(1, 4), devices=("fixed", "batch"))
    )
    assert list(settings) == [
        "fsdp-updates1-devices_fixed",
        "fsdp-updates1-devices_grow",
        "fsdp-updates4-devices_fixed",
        "fsdp-updates4-devices_grow",
        "tensor-updates1-devices_fixed",
        "tensor-updates1-devices_grow",
        "tensor-updates4-devices_fixed",
        "tensor-updates4-devices_grow",
    ]
    last = settings["tensor-updates4-devices_grow"]
    assert (last.layout, last.updates, last.devices) == ("tensor", 4, "batch")


def test_settings_come_back_from_the_description():
    settings = make_settings(make_config(rules=("none", "power"), growth=("prompts", "group")))
    study = json.loads(json.dumps({"settings": describe_settings(settings), "config": {}}))
    assert read_settings(study) == settings
    assert list(read_settings(study)) == list(settings)


def test_a_study_from_before_there_were_settings_is_read():
    config = config_to_dict(make_config(rate_rule="linear"))
    config["run"]["layout"] = "somewhere/mine.toml"
    for axis in ("rules", "growth", "updates", "devices"):
        del config["study"][axis]
    assert read_settings({"config": config}) == {
        "mine": Setting("mine", "mine", "linear", "prompts", 1, "fixed")
    }
    several = read_settings({"config": config, "layouts": ["fsdp", "tensor"]})
    assert [(one.name, one.layout, one.rule) for one in several.values()] == [
        ("fsdp", "fsdp", "linear"),
        ("tensor", "tensor", "linear"),
    ]
