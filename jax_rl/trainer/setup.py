"""From a configuration to everything that is fixed during a run."""

import dataclasses
import math

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_rl.config import BatchConfig, Config
from jax_rl.errors import UserError
from jax_rl.learner.advantages import check_group
from jax_rl.learner.denominators import DENOMINATORS
from jax_rl.learner.kl import find_kl_estimator
from jax_rl.learner.objectives import find_objective
from jax_rl.learner.update import LearnerSpec
from jax_rl.mesh.batch_plan import BatchPlan, plan_batch
from jax_rl.mesh.layout import Layout, check_divides, load_layout, make_mesh
from jax_rl.model.weights import dimensions
from jax_rl.registry import resolve
from jax_rl.resources import find_layout
from jax_rl.sampler.generate import SamplerSpec
from jax_rl.tasks.base import Task, load_task
from jax_rl.tasks.prompts import encode_prompts, validation_prompts


@dataclasses.dataclass(frozen=True)
class RunSetup:
    """What a configuration means on these devices."""

    config: Config
    task: Task
    layout: Layout
    mesh: Mesh
    plan: BatchPlan
    sampler: SamplerSpec
    learner: LearnerSpec
    validation: tuple[str, ...]  # held-out prompts
    validation_plan: BatchPlan
    validation_sampler: SamplerSpec

    @property
    def held_out(self) -> frozenset[str]:
        """Contents that training must not meet."""
        return frozenset(map(self.task.content, self.validation))

    def sharding(self, axes: tuple[str | None, ...]) -> NamedSharding:
        """Where an array with these logical axes lies."""
        return NamedSharding(self.mesh, self.layout.compute_spec(axes))

    def put_scalar(self, value: float) -> jax.Array:
        """A float32 on every device."""
        return jax.device_put(np.float32(value), NamedSharding(self.mesh, PartitionSpec()))

    def put_rows(self, values: np.ndarray) -> jax.Array:
        """A small host array, whole on every device."""
        return jax.device_put(values, NamedSharding(self.mesh, PartitionSpec(None)))


def prepare_run(config: Config) -> RunSetup:
    """Resolves names, maps the batch onto the mesh and fixes the held-out set.

    Raises:
      UserError: whatever in the configuration does not fit the devices, the model or the task.
    """
    objective = config.objective
    check_group(
        objective.advantage, config.batch.group, count_tied_groups=objective.count_tied_groups
    )
    find_objective(objective.loss)
    find_kl_estimator(objective.kl_estimator)
    resolve(objective.denominator, DENOMINATORS, "objective.denominator")
    task = load_task(config.task)
    if config.model.vocab < task.tokenizer.size:
        raise UserError(
            f"model.vocab = {config.model.vocab} is smaller than the tokenizer of task"
            f" {task.name!r}, which has {task.tokenizer.size} tokens; at least that many are needed"
        )
    layout = load_layout(find_layout(config.run.layout))
    mesh = make_mesh(layout, take_devices(config.run.devices))
    sizes = dict(mesh.shape)
    check_divides(layout, sizes, dimensions(config.model))
    plan = plan_batch(config.batch, layout, sizes)
    if config.warm_start.updates and config.warm_start.batch % plan.shards:
        below = config.warm_start.batch // plan.shards * plan.shards
        raise UserError(
            f"warm_start.batch = {config.warm_start.batch} does not map onto the mesh, which"
            f" splits it into {plan.shards} shards; nearest: {below or below + plan.shards}"
            f" or {below + plan.shards}"
        )
    validation = validation_prompts(task, config.validation.prompts, seed=config.validation.seed)
    encode_prompts(task.tokenizer, validation, max_prompt_length=config.task.max_prompt_length)
    validation_plan = _plan_validation(config, layout, sizes)
    sampler = SamplerSpec(
        model=config.model,
        layout=layout,
        max_prompt_length=config.task.max_prompt_length,
        max_response_length=config.task.max_response_length,
        copies=plan.copies,
        end_ids=task.tokenizer.end_ids,
        pad_id=task.tokenizer.pad_id,
    )
    return RunSetup(
        config=config,
        task=task,
        layout=layout,
        mesh=mesh,
        plan=plan,
        sampler=sampler,
        learner=LearnerSpec(
            model=config.model,
            layout=layout,
            objective=objective,
            optimizer=config.optimizer,
            group=config.batch.group,
            updates=plan.updates,
            microbatch=plan.microbatch,
            max_prompt_length=config.task.max_prompt_length,
            max_response_length=config.task.max_response_length,
        ),
        validation=validation,
        validation_plan=validation_plan,
        validation_sampler=dataclasses.replace(
            sampler, copies=validation_plan.copies, greedy=config.validation.temperature == 0
        ),
    )


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
    shards = math.prod(sizes[axis] for axis in layout.batch_axes)
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
