"""From a configuration to everything that is fixed during a run."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_rl.config import BatchConfig, Config, WarmStartConfig
from jax_rl.errors import UserError
from jax_rl.learner.advantages import check_group
from jax_rl.learner.denominators import DENOMINATORS
from jax_rl.learner.kl import find_kl_estimator
from jax_rl.learner.objectives import find_objective
from jax_rl.learner.update import LearnerSpec
from jax_rl.mesh.batch_plan import BatchPlan, plan_batch
from jax_rl.mesh.layout import Layout, check_divides, load_layout, make_mesh, resolve_sizes
from jax_rl.model.weights import dimensions
from jax_rl.registry import resolve
from jax_rl.resources import find_layout, list_known
from jax_rl.rewards.base import Problem, Reward
from jax_rl.rewards.combine import make_reward
from jax_rl.sampler.generate import SamplerSpec
from jax_rl.tasks.base import Task, has_rows, load_task
from jax_rl.tasks.drawn import Fits
from jax_rl.tasks.prompts import (
    drop_long,
    encode_prompts,
    training_problems,
    validation_problems,
)
from jax_rl.text.base import Tokenizer
from jax_rl.trainer.policy import choose_end_ids, choose_tokenizer, resolve_model


@dataclasses.dataclass(frozen=True)
class PolicySetup:
    """What a configuration's policy means on these devices."""

    config: Config  # the model's shape as its checkpoint gives it
    notes: tuple[str, ...]  # what a reader of the record must know
    tokenizer: Tokenizer
    end_ids: tuple[int, ...]  # any of them ends a response
    pad_id: int
    layout: Layout
    mesh: Mesh

    def sharding(self, axes: tuple[str | None, ...]) -> NamedSharding:
        """Where an array with these logical axes lies."""
        return NamedSharding(self.mesh, self.layout.compute_spec(axes))

    def put_scalar(self, value: float) -> jax.Array:
        """A float32 on every device."""
        return jax.device_put(np.float32(value), NamedSharding(self.mesh, PartitionSpec()))

    def put_rows(self, values: np.ndarray) -> jax.Array:
        """A small host array, whole on every device."""
        return jax.device_put(values, NamedSharding(self.mesh, PartitionSpec(None)))


@dataclasses.dataclass(frozen=True)
class RunSetup(PolicySetup):
    """What a configuration means on these devices."""

    task: Task
    reward: Reward
    plan: BatchPlan
    sampler: SamplerSpec
    learner: LearnerSpec
    validation: tuple[Problem, ...]  # held out of training
    validation_plan: BatchPlan
    validation_sampler: SamplerSpec

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


def prepare_run(config: Config) -> RunSetup:
    """Resolves names, maps the batch onto the mesh and fixes the held-out set.

    Raises:
      UserError: whatever in the configuration does not fit the devices, the model or the task.
    """
    _check_objective(config)
    policy = prepare_policy(config)
    config, layout = policy.config, policy.layout
    _check_length(config)
    task = load_fitting_task(policy)
    # A task may need a package for its own reward, which verifiers stand in for.
    reward = make_reward(config.reward, None if config.reward.verifiers else task.reward)
    sizes = dict(policy.mesh.shape)
    plan = plan_batch(config.batch, layout, sizes)
    _check_warm_start(config.warm_start, plan.shards)
    validation = validation_problems(
        task,
        config.validation.prompts,
        seed=config.validation.seed,
        fits=_make_fits(config, policy.tokenizer),
    )
    validation_plan = _plan_validation(config, layout, sizes)
    sampler = SamplerSpec(
        model=config.model,
        layout=layout,
        max_prompt_length=config.task.max_prompt_length,
        max_response_length=config.task.max_response_length,
        copies=plan.copies,
        end_ids=policy.end_ids,
        pad_id=policy.pad_id,
    )
    notes = (*policy.notes, *(task.notes if has_rows(task) else ()))
    setup = RunSetup(
        config=config,
        notes=notes,
        tokenizer=policy.tokenizer,
        end_ids=policy.end_ids,
        pad_id=policy.pad_id,
        layout=layout,
        mesh=policy.mesh,
        task=task,
        reward=reward,
        plan=plan,
        sampler=sampler,
        learner=_make_learner(config, layout, plan),
        validation=validation,
        validation_plan=validation_plan,
        validation_sampler=dataclasses.replace(
            sampler, copies=validation_plan.copies, greedy=config.validation.temperature == 0
        ),
    )
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


def _make_learner(config: Config, layout: Layout, plan: BatchPlan) -> LearnerSpec:
    return LearnerSpec(
        model=config.model,
        layout=layout,
        objective=config.objective,
        optimizer=config.optimizer,
        group=plan.group,
        updates=plan.updates,
        microbatch=plan.microbatch,
        max_prompt_length=config.task.max_prompt_length,
        max_response_length=config.task.max_response_length,
    )


def _check_objective(config: Config) -> None:
    """Refuses an objective whose parts are unknown, or do not fit the group."""
    objective = config.objective
    check_group(
        objective.advantage, config.batch.group, count_tied_groups=objective.count_tied_groups
    )
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


def _check_length(config: Config) -> None:
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
        fitting = [name for name in list_known("sharding") if _fits(name, mesh.size, sizes)]
        would = f"; layouts that would do: {', '.join(fitting)}" if fitting else ""
        raise UserError(f"{error}{would}") from None


def _fits(name: str, devices: int, sizes: Mapping[str, int]) -> bool:
    layout = load_layout(find_layout(name))
    try:
        check_divides(layout, resolve_sizes(layout, devices), sizes)
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
    return devices[: count or len(devices)]


def _plan_validation(config: Config, layout: Layout, sizes: dict[str, int]) -> BatchPlan:
    """Maps the validation set onto the mesh, filled up to whole shards with repeated prompts."""
    validation = config.validation
    group = validation.samples_per_prompt
    shards = layout.count_shards(sizes)
    unit = math.lcm(shards // math.gcd(shards, group), max(validation.wave // group, 1))
    prompts = -(-validation.prompts // unit) * unit
    size = prompts * group
    wave = validation.wave or size
    if size % wave or wave % group or wave % shards:
        raise UserError(
            f"validation.wave = {wave} does not cut {size} responses ({prompts} prompts x {group})"
            f" into whole groups, and rows on each of {shards} shard(s); 0 decodes them at once,"
            f" a multiple of {math.lcm(group, shards)} part by part"
        )
    return plan_batch(BatchConfig(size=size, group=group, wave=wave), layout, sizes)
