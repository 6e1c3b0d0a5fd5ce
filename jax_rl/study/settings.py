"""Settings: everything besides batch and seed that the runs of one study may differ in.

A study crosses the values of its axes: layouts, rate rules, what grows, minibatches per batch,
and devices. One combination is a setting; a batch in a setting is an arm.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jax_rl.config import Config, DeviceGrowth, Growth, RateRule
from jax_rl.resources import find_layout


@dataclasses.dataclass(frozen=True)
class Setting:
    """One value of each axis of a study."""

    name: str  # of the axes with several values; the layout's where no axis has
    layout: str  # its name
    rule: RateRule  # how the rate moves with the minibatch
    growth: Growth  # what grows with the batch
    updates: int  # minibatches per batch
    devices: DeviceGrowth  # whether devices grow with the batch


def make_settings(config: Config) -> dict[str, Setting]:
    """The settings of a study by name, in the order of its axes; the first is the reference.

    A name is made of the values on those axes that have several, and of the layout wherever
    `study.layouts` names one: `fsdp`, `rate_none`, `fsdp-rate_sqrt-updates4`.
    """
    study = config.study
    named = tuple(name_layouts(config))
    axes: list[tuple[Any, ...]] = [
        named or (Path(config.run.layout).stem,),
        study.rules or (study.rate_rule,),
        study.growth or ("prompts",),
        study.updates or (config.batch.updates,),
        study.devices or ("fixed",),
    ]
    shown = [bool(named), *(len(values) > 1 for values in axes[1:])]
    settings = {}
    for layout, rule, growth, updates, devices in itertools.product(*axes):
        words = (layout, f"rate_{rule}", growth, f"updates{updates}", _name_devices(devices))
        name = "-".join(word for word, show in zip(words, shown, strict=True) if show)
        setting = Setting(name or layout, layout, rule, growth, updates, devices)
        settings[setting.name] = setting
    return settings


def has_prefix(config: Config) -> bool:
    """Whether the directories of cells begin with the setting's name: not with one unnamed."""
    return bool(config.study.layouts) or len(make_settings(config)) > 1


def name_layouts(config: Config) -> dict[str, str]:
    """The layouts to compare by name, as the configuration gives them; none for run.layout."""
    return {find_layout(layout).stem: layout for layout in config.study.layouts}


def describe_settings(settings: Mapping[str, Setting]) -> dict[str, dict[str, Any]]:
    """The settings as study.json keeps them; `read_settings` gives them back."""
    return {
        name: {key: value for key, value in dataclasses.asdict(one).items() if key != "name"}
        for name, one in settings.items()
    }


def read_settings(study: Mapping[str, Any]) -> dict[str, Setting]:
    """The settings of a study from its study.json, in order; the first is the reference.

    A file from before there were settings has names of layouts, or none: then the only setting
    is called after the layout of the configuration. Nothing is looked up besides the file.

    Args:
      study: the content of study.json: "config", and "settings" or "layouts" where it has them.
    """
    if study.get("settings"):
        return {name: Setting(name=name, **parts) for name, parts in study["settings"].items()}
    config = study.get("config", {})
    layout = Path(config.get("run", {}).get("layout", "")).stem
    rule = config.get("study", {}).get("rate_rule", "none")
    updates = int(config.get("batch", {}).get("updates", 1))
    return {
        name: Setting(name, name, rule, "prompts", updates, "fixed")
        for name in study.get("layouts") or [layout]
    }


def _name_devices(devices: DeviceGrowth) -> str:
    return "devices_fixed" if devices == "fixed" else "devices_grow"
