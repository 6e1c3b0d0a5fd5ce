"""What is fixed when the programs of a run are compiled; needs no weights, task or tokenizer."""

import dataclasses
import math
from collections.abc import Mapping

from jax.sharding import Mesh

from jax_rl.config import BatchConfig, Config
from jax_rl.errors import UserError
from jax_rl.learner.spec import LearnerSpec
from jax_rl.mesh.batch_plan import BatchPlan, plan_batch
from jax_rl.mesh.layout import Layout
from jax_rl.sampler.generate import SamplerSpec
from jax_rl.trainer.placement import Placement
from jax_rl.units import FEWEST_UNITS, count_units


@dataclasses.dataclass(frozen=True)
class ProgramSpecs(Placement):
    """The programs of a run, before they are compiled."""

    plan: BatchPlan
    sampler: SamplerSpec
    learner: LearnerSpec
    validation_plan: BatchPlan
    validation_sampler: SamplerSpec


def specify_programs(
    config: Config, layout: Layout, mesh: Mesh, *, end_ids: tuple[int, ...], pad_id: int
) -> ProgramSpecs:
    """Maps batch and validation set onto the mesh, and fixes sampler and learner.

    Args:
      config: an experiment, config.model as its checkpoint gives it and its vocabulary padded.
      layout: where everything lies.
      mesh: of real devices, or of a topology that is only compiled for.
      end_ids: tokens that end a response.
      pad_id: any row of the embedding.

    Raises:
      UserError: a size that does not map onto the mesh.
    """
    sizes = dict(mesh.shape)
    plan = plan_batch(config.batch, layout, sizes)
    validation_plan = plan_validation(config, layout, sizes)
    sampler = SamplerSpec(
        model=config.model,
        layout=layout.decoding,
        max_prompt_length=config.task.max_prompt_length,
        max_response_length=config.task.max_response_length,
        copies=plan.copies,
        end_ids=end_ids,
        pad_id=pad_id,
    )
    return ProgramSpecs(
        config=config,
        layout=layout,
        mesh=mesh,
        plan=plan,
        sampler=sampler,
        learner=_make_learner(config, layout, plan),
        validation_plan=validation_plan,
        validation_sampler=dataclasses.replace(
            sampler, copies=validation_plan.copies, greedy=config.validation.temperature == 0
        ),
    )


def plan_validation(config: Config, layout: Layout, sizes: Mapping[str, int]) -> BatchPlan:
    """Maps the validation set onto the mesh, filled up to whole shards with repeated prompts.

    Raises:
      UserError: validation.wave does not cut it.
    """
    validation = config.validation
    group = validation.samples_per_prompt
    # Nothing is learnt from it: only the sampler's shards count.
    layout = layout.decoding
    shards = layout.count_decoding_shards(sizes)
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


def _make_learner(config: Config, layout: Layout, plan: BatchPlan) -> LearnerSpec:
    units = count_units(plan.minibatch, plan.microbatch, plan.group)
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
        # A study's smallest batch may have one unit only: it trains, and is not measured.
        measure_noise=config.measure.noise_scale and units >= FEWEST_UNITS,
    )
