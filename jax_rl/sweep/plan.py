"""What a sweep runs: the order of its cells, and the configuration of each."""

import dataclasses
import itertools

import numpy as np

from jax_rl.config import Config, study_batches
from jax_rl.config_file import config_to_dict
from jax_rl.errors import UserError
from jax_rl.growth import count_devices, grow_batch
from jax_rl.learner.schedule import scale_optimizer
from jax_rl.mesh.batch_plan import plan_batch
from jax_rl.study.cells import Planned
from jax_rl.study.rates.trials import Trial, plan_trials
from jax_rl.study.settings import Setting, has_prefix, make_settings, name_layouts
from jax_rl.trainer.setup import PolicySetup, prepare_policy


def order_cells(config: Config) -> list[Planned]:
    """The order of running: blocks of one seed, settings x batches in random order in each.

    A drift of the machine then falls on all settings and batches alike.
    """
    rng = np.random.default_rng(config.run.seed)
    arms = list_arms(config)
    seeds = range(config.run.seed, config.run.seed + config.study.seeds)
    shuffled = [(seed, arms[i]) for seed in seeds for i in rng.permutation(len(arms))]
    return [Planned(setting, batch, seed) for seed, (setting, batch) in shuffled]


def order_trials(config: Config) -> list[Trial]:
    """The trials that every arm begins with, in the same way: blocks of one seed, shuffled."""
    plan = plan_trials(config_to_dict(config))
    if not plan.multiples:
        return []
    rng = np.random.default_rng(plan.seeds[0])
    pairs = list(itertools.product(list_arms(config), plan.multiples))
    shuffled = [(seed, pairs[i]) for seed in plan.seeds for i in rng.permutation(len(pairs))]
    return [
        Trial(setting, batch, multiple, seed) for seed, ((setting, batch), multiple) in shuffled
    ]


def list_arms(config: Config) -> list[tuple[str, int]]:
    """Every setting, as directories are named after it, with every batch."""
    names = make_settings(config) if has_prefix(config) else ("",)
    return list(itertools.product(names, study_batches(config)))


def make_cell_config(config: Config, cell: Planned | Trial, *, multiple: float = 1.0) -> Config:
    """The configuration of one run: its batch as it grows, its devices, its rate, its seed.

    Args:
      config: the experiment.
      cell: a compared run, or a trial.
      multiple: of the rule's rate.
    """
    setting = find_setting(config, cell.setting)
    batch = grow_batch(config.batch, cell.batch, growth=setting.growth, updates=setting.updates)
    optimizer = scale_optimizer(
        config.optimizer,
        rule=setting.rule,
        minibatch=batch.size // batch.updates,
        reference_minibatch=config.batch.size // config.batch.updates,
        power=config.study.rate_power,
    )
    rate = optimizer.learning_rate * multiple
    # Nothing reads the last weights of a trial.
    kept = config.checkpoint.at_end and not isinstance(cell, Trial)
    return dataclasses.replace(
        _lie(config, setting, cell.batch, seed=cell.seed),
        batch=batch,
        checkpoint=dataclasses.replace(config.checkpoint, at_end=kept),
        optimizer=dataclasses.replace(optimizer, learning_rate=rate),
    )


def find_setting(config: Config, name: str) -> Setting:
    """The setting of that name; of no name, the only one."""
    settings = make_settings(config)
    return settings[name] if name else next(iter(settings.values()))


def check_settings(config: Config) -> None:
    """Refuses a setting that does not fit the model, the devices or a batch, before any run.

    Raises:
      UserError: naming the setting or its layout and, where it matters, the batch.
    """
    policies: dict[tuple[str, int], PolicySetup] = {}
    for setting in make_settings(config).values():
        for size in study_batches(config):
            lying = _lie(config, setting, size, seed=config.run.seed)
            key = (lying.run.layout, lying.run.devices)
            policy = policies.get(key) or prepare_policy(lying)
            policies[key] = policy
            batch = grow_batch(config.batch, size, growth=setting.growth, updates=setting.updates)
            try:
                plan_batch(batch, policy.layout, policy.mesh.shape)
            except UserError as error:
                where = (
                    f"layout {policy.layout.name}"
                    if setting.name == setting.layout
                    else f"setting {setting.name}"
                )
                raise UserError(f"{where}, batch {size}: {error}") from None


def _lie(config: Config, setting: Setting, batch: int, *, seed: int) -> Config:
    """The configuration with the layout, the devices and the seed of one run."""
    devices = count_devices(
        config.run.devices, size=batch, reference=config.batch.size, growth=setting.devices
    )
    layout = name_layouts(config).get(setting.layout, config.run.layout)
    run = dataclasses.replace(config.run, seed=seed, layout=layout, devices=devices)
    return dataclasses.replace(config, run=run)
