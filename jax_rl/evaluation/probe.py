"""Probes a run's newest checkpoint: where the noise of its gradient comes from."""

import dataclasses
import math
from pathlib import Path

import jax
import numpy as np

from jax_rl.config import CheckpointConfig, Config, MeasureConfig
from jax_rl.config_checks import validate
from jax_rl.errors import UserError
from jax_rl.evaluation.source import find_policy
from jax_rl.learner.probe import PairNorms, measure_pairs
from jax_rl.learner.update import score_rollouts
from jax_rl.model.weights import Weights
from jax_rl.rewards.base import Problem
from jax_rl.rewards.score import Scores, check_scores
from jax_rl.sampler.generate import Rollouts
from jax_rl.sampler.waves import PromptRows, split_waves
from jax_rl.study.noise.scale import Ratio
from jax_rl.study.noise.split import (
    FILE_NAME,
    CovarianceSplit,
    Estimated,
    PairProducts,
    check_prompts,
    split_covariance,
    write_split,
)
from jax_rl.trainer.checkpoints import Checkpoints, restore_weights
from jax_rl.trainer.feed import make_key
from jax_rl.trainer.fit import explain_out_of_memory, is_out_of_memory
from jax_rl.trainer.programs import (
    Compiler,
    abstract_state,
    compile_sampler,
    compile_sync,
    join_waves,
)
from jax_rl.trainer.rollout import fetch, fetch_waves, generate, read_responses
from jax_rl.trainer.scoring import PendingScores, Scorer, join_scores, open_scorer
from jax_rl.trainer.setup import RunSetup, prepare_policy, prepare_run
from jax_rl.trainer.start import make_starting_weights

GROUPS_PER_PROMPT = 2
"""Independent groups of each prompt."""


def probe(
    run: str | Path,
    *,
    prompts: int = 128,
    seed: int | None = None,
    layout: str | None = None,
    devices: int | None = None,
    output: Path | None = None,
) -> CovarianceSplit:
    """Splits the covariance of a run's gradient, prints the result, writes and returns it.

    Two groups are sampled for each of the next prompts that the run would have met, by its own
    sampler and reward, and the gradient of each group is taken by its own objective. The weights
    stay as they are.

    Args:
      run: directory of a run; its newest checkpoint has the weights.
      prompts: how many; the errors are taken over them.
      seed: of prompts and sampling; the run's own if left out.
      layout: how the weights lie on the devices that are here; the run's own if left out.
      devices: devices used, 0 for all; as in the run if left out.
      output: file of the result; probe.json in the run's directory if left out.

    Raises:
      UserError: no run with a checkpoint is there, or settings that do not fit.
    """
    check_prompts(prompts)
    directory = Path(run)
    path = output or directory / FILE_NAME
    if not path.parent.is_dir():
        raise UserError(f"{path}: cannot be written: {path.parent} is no directory")
    if not directory.is_dir():
        raise UserError(f"{run} is no directory; that of a run with a checkpoint can be probed")
    own = find_policy(directory).config
    changed = dataclasses.replace(
        own.run,
        seed=own.run.seed if seed is None else seed,
        layout=own.run.layout if layout is None else layout,
        devices=own.run.devices if devices is None else devices,
    )
    # Refuses advantages under which groups are not independent.
    measure = MeasureConfig(noise_scale=True)
    config = _cut_batch(dataclasses.replace(own, run=changed, measure=measure), prompts)
    validate(config)
    setup = prepare_run(config)
    samples = _find_samples(directory)
    with jax.set_mesh(setup.mesh), open_scorer(setup) as scorer:
        try:
            pairs = fetch(_measure(setup, directory, scorer, samples=samples))
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise explain_out_of_memory(error, program="update", doing="running") from error
    split = split_covariance(
        _widen(pairs),
        group=setup.plan.group,
        batch=own.batch.size,
        seed=own.run.seed,
        samples=samples,
    )
    print(_describe(split))
    write_split(split, path)
    print(f"written to {path}")
    return split


def _cut_batch(config: Config, prompts: int) -> Config:
    """The configuration of one batch of two groups per prompt, cut as the devices need it."""
    policy = prepare_policy(config)
    batch, sizes = config.batch, dict(policy.mesh.shape)
    shards = policy.layout.count_shards(sizes)
    if batch.group % shards:
        raise UserError(
            f"the layout {policy.layout.name} splits rows into {shards} shards, which do not divide"
            f" a group of {batch.group} rollouts, and a probe takes the gradient of one group at a"
            " time; choose fewer --devices, or another --layout"
        )
    size = GROUPS_PER_PROMPT * prompts * batch.group
    # What fits the memory in the run does so here.
    microbatch = min(batch.microbatch or batch.size // batch.updates, batch.group)
    wave = batch.wave or batch.size
    together = math.lcm(batch.group, policy.layout.count_decoding_shards(sizes))
    changed = dataclasses.replace(
        batch,
        size=size,
        updates=1,
        microbatch=_divide(batch.group, step=shards, limit=microbatch),
        wave=_divide(size, step=together, limit=wave),
    )
    return dataclasses.replace(config, batch=changed)


def _divide(total: int, *, step: int, limit: int) -> int:
    """The largest divisor of a total that is a multiple of `step` and within the limit, if any."""
    divisors = [d for d in range(step, total + 1, step) if total % d == 0] or [total]
    return max((d for d in divisors if d <= limit), default=divisors[0])


def _find_samples(run: Path) -> int:
    """Samples of the newest checkpoint, which the groups that a run has met follow from."""
    checkpoints = Checkpoints(run, CheckpointConfig())
    try:
        samples = checkpoints.latest()
    finally:
        checkpoints.close()
    if samples is None:
        raise UserError(f"{run}: no complete checkpoint is there, so there is nothing to probe")
    return samples


def _measure(setup: RunSetup, run: Path, scorer: Scorer, *, samples: int) -> PairNorms:
    """Samples, scores, and takes the gradients."""
    config = setup.config
    weights = restore_weights(run, abstract_state(setup), vocab=config.model.vocab)
    rollouts, scores = _sample(setup, weights, scorer, first=samples // setup.plan.group)
    temperature = setup.put_whole(config.sampler.temperature)
    reference = None
    if config.objective.kl_coefficient > 0:
        start, _ = make_starting_weights(setup)
        reference = score_rollouts(start, rollouts, temperature, setup.learner)
        del start
    return measure_pairs(
        weights,
        rollouts,
        setup.put_whole(scores.rewards),
        setup.put_whole(scores.valid),
        temperature,
        reference,
        setup.learner,
    )


def _sample(
    setup: RunSetup, weights: Weights, scorer: Scorer, *, first: int
) -> tuple[Rollouts, Scores]:
    """Two groups for each prompt, next to each other, with sample ids that the run has not used."""
    config, plan = setup.config, setup.plan
    compiler = Compiler(lambda event: None)
    sync = compile_sync(setup, compiler)
    programs, _ = compile_sampler(setup, setup.sampler, plan, compiler, prefix="")
    problems = _take_problems(setup, first=first, count=plan.prompts // GROUPS_PER_PROMPT)
    rows = PromptRows(*setup.encode(problems), first)
    waves = split_waves(rows, plan, setup.decoding_sharding)
    key = make_key(config.run.seed, validation=False, setup=setup)
    temperature = setup.put_whole(config.sampler.temperature)
    sampled, steps = generate(programs, sync(weights), waves, key, temperature)
    limit = config.task.max_prompt_length
    pending: list[PendingScores] = []
    for wave, own in fetch_waves(sampled, steps, problems, plan=plan, max_prompt_length=limit):
        pending.append(scorer.submit(own, read_responses(setup.tokenizer, wave)))
    scores = join_scores([part.result() for part in pending])
    return (
        join_waves(tuple(sampled), setup.layout),
        check_scores(scores, name=setup.task.name),
    )


def _take_problems(setup: RunSetup, *, first: int, count: int) -> list[Problem]:
    """The problems of the groups that follow, each as often as it has groups here."""
    source = setup.training(setup.config.run.seed)
    if len(source) < first + count:
        raise UserError(
            f"--prompts {count}: the run has read {first:,} of the {len(source):,} prompts that"
            f" there are; {max(0, len(source) - first):,} are left"
        )
    return [source[first + i // GROUPS_PER_PROMPT] for i in range(GROUPS_PER_PROMPT * count)]


def _widen(pairs: PairNorms) -> PairProducts:
    """The same on the host in double precision, in which they are subtracted."""

    def widen(products: jax.Array) -> np.ndarray:
        return np.asarray(products, np.float64)

    return PairProducts(
        first=widen(pairs.first),
        second=widen(pairs.second),
        between=widen(pairs.between),
        first_mean=widen(pairs.first_mean),
        second_mean=widen(pairs.second_mean),
        mean=float(pairs.mean),
    )


def _describe(split: CovarianceSplit) -> str:
    lines = [
        f"batch {split.batch}, seed {split.seed}, {split.samples:,} samples: {split.prompts}"
        f" prompts, two groups of {split.group} each; in brackets 95 % intervals over prompts",
        f"signal |G|²        {_show(split.signal)}",
        f"noise within       {_show(split.within)}  one prompt, other responses",
        f"noise between      {_show(split.between)}  prompts",
        f"share within       {_show(split.within_share)}",
        f"noise scale        {_show(split.rollouts)}  rollouts, one group per prompt",
    ]
    if not split.identified:
        lines.append("the noise scale is not identified: the interval of |G|² includes 0")
    return "\n".join(lines)


def _show(value: Estimated | Ratio) -> str:
    if value.estimate is None:
        return "–" if value.low is None else f"at least {value.low:.3g}"
    return f"{value.estimate:.3g} [{value.low:.3g}, {value.high:.3g}]"
