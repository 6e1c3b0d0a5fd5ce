"""From a configuration to everything that is fixed during a run."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.sharding import Mesh

from jax_rl.config import Config, WarmStartConfig
from jax_rl.errors import UserError
from jax_rl.learner.advantages import check_group
from jax_rl.learner.denominators import DENOMINATORS
from jax_rl.learner.kl import find_kl_estimator
from jax_rl.learner.noise import check_noise_advantage
from jax_rl.learner.objectives import find_objective
from jax_rl.mesh.devices import (
    check_divides,
    count_vocab_shards,
    list_slices,
    make_mesh,
    resolve_sizes,
)
from jax_rl.mesh.layout import Layout
from jax_rl.mesh.layout_file import load_layout
from jax_rl.model.weights import dimensions
from jax_rl.registry import resolve
from jax_rl.resources import find_layout, list_known
from jax_rl.rewards.base import Problem, Reward
from jax_rl.rewards.combine import make_reward
from jax_rl.tasks.base import Task, has_rows, load_task
from jax_rl.tasks.drawn import Fits
from jax_rl.tasks.prompts import (
    drop_long,
    encode_prompts,
    training_problems,
    validation_problems,
)
from jax_rl.text.base import Tokenizer
from jax_rl.trainer.placement import Placement
from jax_rl.trainer.policy import choose_end_ids, choose_tokenizer, resolve_model
from jax_rl.trainer.specs import ProgramSpecs, specify_programs


@dataclasses.dataclass(frozen=True)
class PolicySetup(Placement):
    """What a configuration's policy means on these devices."""

    notes: tuple[str, ...]  # what a reader of the record must know
    tokenizer: Tokenizer
    end_ids: tuple[int, ...]  # any of them ends a response
    pad_id: int


@dataclasses.dataclass(frozen=True)
class RunSetup(PolicySetup, ProgramSpecs):
    """What a configuration means on these devices: the policy, its programs, what it is asked."""

    task: Task
    reward: Reward
    validation: tuple[Problem, ...]  # held out of training

    @property
    def held_out(self) -> frozenset[str]:
        """Contents that training must not meet."""
        return frozenset(problem.content for problem in self.validation)

    @property
    def scores_in_pool(self) -> bool:
        """Whether rewards need processes of their own: all but a task's own quick one do."""
        return bool(self.config.reward.verifiers) or not self.task.quick_reward

    def training(self, seed: int) -> Sequence[Problem]:
        """The problem of every group."""
        return training_problems(
            self.task,
            seed=seed,
            held_out=self.held_out,
            fits=_make_fits(self.config, self.tokenizer),
        )

    def encode(self, problems: Sequence[Problem]) -> tuple[np.ndarray, np.ndarray]:
        """Tokens [n, max_prompt_length], right-aligned, and lengths [n] of prompts."""
        return encode_prompts(
            self.tokenizer,
            problems,
            max_prompt_length=self.config.task.max_prompt_length,
            vocab=self.config.model.vocab,
        )


def prepare_policy(config: Config) -> PolicySetup:
    """Reads the model's shape, finds its tokenizer, and lays it on the devices.

    Raises:
      UserError: no usable model or tokenizer, or a layout that does not fit model and devices.
    """
    config, notes = resolve_model(config)
    tokenizer = choose_tokenizer(config)
    layout = load_layout(find_layout(config.run.layout))
    mesh = make_mesh(layout, take_devices(config.run.devices))
    config = pad_vocabulary(config, layout, mesh.shape)
    _check_layout(layout, mesh, dimensions(config.model))
    return PolicySetup(
        config=config,
        notes=notes,
        tokenizer=tokenizer,
        end_ids=choose_end_ids(tokenizer, config.model.vocab),
        # Never looked at, but it has to be a row of the embedding.
        pad_id=tokenizer.pad_id if tokenizer.pad_id < config.model.vocab else 0,
        layout=layout,
        mesh=mesh,
    )


def pad_vocabulary(config: Config, layout: Layout, sizes: Mapping[str, int]) -> Config:
    """The configuration with as many rows of the embedding as the layout can split.

    Raises:
      UserError: model.padded_vocab is too small, or cannot be split.
    """
    model, shards = config.model, count_vocab_shards(layout, sizes)
    least = -(-model.vocab // shards) * shards
    if model.padded_vocab and (model.padded_vocab < model.vocab or model.padded_vocab % shards):
        raise UserError(
            f"model.padded_vocab = {model.padded_vocab} must be at least model.vocab ="
            f" {model.vocab} and a multiple of {shards}, the parts that layout {layout.name} splits"
            f" it into; {least} is the least, and what 0 takes"
        )
    rows = model.padded_vocab or least
    # Equal to the vocabulary is no padding: said in one way, so that programs are shared.
    padded = 0 if rows == model.vocab else rows
    return dataclasses.replace(config, model=dataclasses.replace(model, padded_vocab=padded))


def prepare_run(config: Config) -> RunSetup:
    """Resolves names, maps the batch onto the mesh and fixes the held-out set.

    Raises:
      UserError: whatever in the configuration does not fit the devices, the model or the task.
    """
    _check_objective(config)
    policy = prepare_policy(config)
    config = policy.config
    check_length(config)
    task = load_fitting_task(policy)
    # A task may need a package for its own reward, which verifiers stand in for.
    reward = make_reward(config.reward, None if config.reward.verifiers else task.reward)
    specs = specify_programs(
        config, policy.layout, policy.mesh, end_ids=policy.end_ids, pad_id=policy.pad_id
    )
    _check_warm_start(config.warm_start, specs.plan.shards)
    validation = validation_problems(
        task,
        config.validation.prompts,
        seed=config.validation.seed,
        fits=_make_fits(config, policy.tokenizer),
    )
    notes = (*policy.notes, *(task.notes if has_rows(task) else ()))
    fields = {**vars(policy), **vars(specs), "notes": notes}
    setup = RunSetup(**fields, task=task, reward=reward, validation=validation)
    setup.encode(validation)  # one that does not fit is refused before any work
    return setup


def load_fitting_task(policy: PolicySetup) -> Task:
    """The task of a configuration, without the rows that task.long_prompts leaves out.

    Raises:
      UserError: the task refuses the configuration, or a row does not fit the policy.
    """
    config = policy.config
    task = load_task(config.task)
    if not has_rows(task):
        return task
    fitting, _ = drop_long(
        task,
        policy.tokenizer,
        max_prompt_length=config.task.max_prompt_length,
        vocab=config.model.vocab,
        policy=config.task.long_prompts,
    )
    return fitting


def _check_objective(config: Config) -> None:
    """Refuses an objective whose parts are unknown, or do not fit the group."""
    objective = config.objective
    check_group(
        objective.advantage, config.batch.group, count_tied_groups=objective.count_tied_groups
    )
    if config.measure.noise_scale:
        check_noise_advantage(objective.advantage, config.batch.group)
    find_objective(objective.loss)
    find_kl_estimator(objective.kl_estimator)
    resolve(objective.denominator, DENOMINATORS, "objective.denominator")


def _check_warm_start(warm_start: WarmStartConfig, shards: int) -> None:
    if warm_start.updates and warm_start.batch % shards:
        below = warm_start.batch // shards * shards
        raise UserError(
            f"warm_start.batch = {warm_start.batch} does not map onto the mesh, which"
            f" splits it into {shards} shards; nearest: {below or below + shards}"
            f" or {below + shards}"
        )


def _make_fits(config: Config, tokenizer: Tokenizer) -> Fits | None:
    """Whether a drawn prompt is short enough; None where one that is not has to be told."""
    if config.task.long_prompts == "refuse":
        return None
    limit = config.task.max_prompt_length
    return lambda problem: len(tokenizer.encode_prompt(problem.prompt)) <= limit


def check_length(config: Config) -> None:
    """Refuses a prompt and response longer than the model was made for."""
    task, most = config.task, config.model.max_length
    length = task.max_prompt_length + task.max_response_length
    if most and length > most:
        raise UserError(
            f"task.max_prompt_length {task.max_prompt_length} + task.max_response_length"
            f" {task.max_response_length} = {length} tokens, but the model was made for {most}"
            " (model.max_length)"
        )


def _check_layout(layout: Layout, mesh: Mesh, sizes: Mapping[str, int]) -> None:
    """Refuses a layout that the model does not divide into, and names those that would do."""
    try:
        check_divides(layout, dict(mesh.shape), sizes)
    except UserError as error:
        slices = len(list_slices(list(mesh.devices.flat)))
        known = list_known("sharding")
        fitting = [name for name in known if _fits(name, mesh.size, slices, sizes)]
        would = f"; layouts that would do: {', '.join(fitting)}" if fitting else ""
        raise UserError(f"{error}{would}") from None


def _fits(name: str, devices: int, slices: int, sizes: Mapping[str, int]) -> bool:
    layout = load_layout(find_layout(name))
    try:
        check_divides(layout, resolve_sizes(layout, devices, slices=slices), sizes)
    except UserError:
        return False
    return True


def take_devices(count: int) -> list[jax.Device]:
    """The first `count` devices, or all of them for 0."""
    devices = jax.devices()
    if count > len(devices):
        raise UserError(
            f"run.devices = {count}, but {len(devices)} {devices[0].platform} device(s) are here"
        )
    taken = devices[: count or len(devices)]
    per_process = Counter(device.process_index for device in taken)
    if len(per_process) < jax.process_count() or len(set(per_process.values())) > 1:
        raise UserError(
            f"run.devices = {count} gives the {jax.process_count()} processes unequal numbers of"
            f" devices, or none; 0 takes all {len(devices)}"
        )
    return taken
