"""Reads and scores what a trained policy says."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from jax_rl.config import Config
from jax_rl.config_file import config_from_dict, load_config, validate
from jax_rl.errors import UserError
from jax_rl.model.weights import Weights
from jax_rl.records import FILE_NAME, read_run
from jax_rl.rewards.score import Scores
from jax_rl.sampler.waves import PromptRows, split_waves
from jax_rl.tasks.prompts import encode_prompts
from jax_rl.trainer.checkpoints import restore_weights
from jax_rl.trainer.loop import make_key
from jax_rl.trainer.programs import Compiler, abstract_state, compile_sync, compile_validation
from jax_rl.trainer.rollout import Responses, fetch_responses, generate, score_responses
from jax_rl.trainer.setup import RunSetup, prepare_run
from jax_rl.trainer.warm_start import make_warm_start


@dataclasses.dataclass(frozen=True)
class Sampled:
    """One response in words."""

    prompt: str
    response: str
    reward: float | None  # None: the reward failed
    tokens: int
    ended: bool  # False: cut at the length limit


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Score of a policy on held-out prompts."""

    score: float  # mean reward over valid responses
    standard_error: float  # over prompts, of the mean
    prompts: int
    responses: int
    failed_rewards: int
    mean_length: float
    truncated: float  # share of responses without an end token


def sample(
    source: Path,
    *,
    prompts: int = 8,
    prompt_texts: Sequence[str] = (),
    seed: int = 0,
    temperature: float | None = None,
) -> list[Sampled]:
    """Samples one response per prompt, prints them with their rewards, and returns them.

    Args:
      source: directory of a run (its newest checkpoint) or a configuration (its warm start).
      prompts: how many of the validation prompts.
      prompt_texts: prompts of your own, instead.
      seed: of the sampling.
      temperature: divides the logits, 0 is greedy; sampler.temperature if left out.

    Raises:
      UserError: nothing usable at `source`, or a prompt that the task cannot read.
    """
    config, weights = _load_policy(Path(source))
    heat = config.sampler.temperature if temperature is None else temperature
    count = len(prompt_texts) or prompts
    setup = _prepare(config, count, samples_per_prompt=1, temperature=heat, seed=seed)
    texts = tuple(prompt_texts) or setup.validation
    for text in prompt_texts:
        setup.task.reward(text, "")  # a prompt of the wrong form is refused before any work
    scores, responses, said = _respond(setup, weights, texts)
    found = [
        Sampled(
            prompt=text,
            response=said[row],
            reward=float(scores.rewards[row]) if scores.valid[row] else None,
            tokens=int(responses.lengths[row]),
            ended=bool(responses.ended[row]),
        )
        for row, text in enumerate(texts)
    ]
    for one in found:
        reward = "failed" if one.reward is None else f"{one.reward:g}"
        cut = "" if one.ended else "  (cut at the length limit)"
        print(f"{one.prompt}{one.response}  reward {reward}{cut}")
    return found


def evaluate(
    source: Path,
    *,
    prompts: int | None = None,
    samples_per_prompt: int | None = None,
    temperature: float | None = None,
) -> Evaluation:
    """Scores a policy on the held-out set, prints the result and returns it.

    Args:
      source: directory of a run (its newest checkpoint) or a configuration (its warm start).
      prompts: in the set; validation.prompts if left out. A larger set begins with the held-out
        one and goes on with prompts that training may have met, which is said.
      samples_per_prompt: responses per prompt; validation.samples_per_prompt if left out.
      temperature: divides the logits, 0 is greedy; validation.temperature if left out.

    Raises:
      UserError: nothing usable at `source`, or settings that do not fit.
    """
    config, weights = _load_policy(Path(source))
    chosen = config.validation
    setup = _prepare(
        config,
        prompts or chosen.prompts,
        samples_per_prompt=samples_per_prompt or chosen.samples_per_prompt,
        temperature=chosen.temperature if temperature is None else temperature,
        seed=chosen.seed,
    )
    scores, responses, _ = _respond(setup, weights, setup.validation)
    group = setup.validation_plan.group
    rewards = np.where(scores.valid, scores.rewards, np.nan).reshape(-1, group)
    per_prompt = np.nanmean(rewards[~np.all(np.isnan(rewards), axis=1)], axis=1)
    spread = float(np.std(per_prompt, ddof=1)) if len(per_prompt) > 1 else math.nan
    result = Evaluation(
        score=float(np.mean(scores.rewards[scores.valid], dtype=np.float64)),
        standard_error=spread / math.sqrt(len(per_prompt)),
        prompts=len(setup.validation),
        responses=len(responses.lengths),
        failed_rewards=scores.failures,
        mean_length=float(responses.lengths.mean()),
        truncated=float(1.0 - responses.ended.mean()),
    )
    print(
        f"score {result.score:.4f} +- {result.standard_error:.4f} (standard error over prompts),"
        f" {result.prompts} prompts x {group}, mean length {result.mean_length:.1f} tokens,"
        f" {result.truncated:.1%} truncated, {result.failed_rewards} failed rewards"
    )
    if result.prompts > chosen.prompts:
        print(f"only the first {chosen.prompts} prompts were held out of training")
    return result


def _load_policy(source: Path) -> tuple[Config, Weights]:
    """The configuration at `source` and the weights of its policy."""
    if source.is_file():
        config = load_config(source)
        validate(config)
        setup = prepare_run(config)
        with jax.set_mesh(setup.mesh):
            return config, make_warm_start(setup)[0]
    if not (source / FILE_NAME).exists():
        cells = source / "cells"
        inside = sorted(path.name for path in cells.iterdir()) if cells.is_dir() else []
        hint = f"; a study holds its runs under cells/: {', '.join(inside)}" if inside else ""
        raise UserError(
            f"{source}: neither the directory of a run ({FILE_NAME} is missing) nor a configuration"
            f" file{hint}"
        )
    recorded = read_run(source).start.config
    config = config_from_dict(recorded, where=f"{source / FILE_NAME}")
    setup = prepare_run(config)
    with jax.set_mesh(setup.mesh):
        return config, restore_weights(source, abstract_state(setup))


def _prepare(
    config: Config, prompts: int, *, samples_per_prompt: int, temperature: float, seed: int
) -> RunSetup:
    """The same task and model with another validation set."""
    changed = dataclasses.replace(
        config.validation,
        prompts=prompts,
        samples_per_prompt=samples_per_prompt,
        temperature=temperature,
        wave=0,
    )
    config = dataclasses.replace(config, validation=changed)
    validate(config)
    setup = prepare_run(config)
    # The set is that of the configuration; only its sampling takes the seed given here.
    sampling = dataclasses.replace(config.validation, seed=seed)
    return dataclasses.replace(setup, config=dataclasses.replace(config, validation=sampling))


def _respond(
    setup: RunSetup, weights: Weights, texts: Sequence[str]
) -> tuple[Scores, Responses, list[str]]:
    """Responses to the prompts, with scores and texts; the filling up to whole shards removed."""
    plan, config = setup.validation_plan, setup.config
    count = len(texts) * plan.group
    filled = [texts[i % len(texts)] for i in range(plan.prompts)]
    tokens, lengths = encode_prompts(
        setup.task.tokenizer, filled, max_prompt_length=config.task.max_prompt_length
    )
    with jax.set_mesh(setup.mesh):
        compiler = Compiler(lambda event: None)
        programs = compile_validation(setup, compiler)
        synced = compile_sync(setup, compiler)(weights)
        waves = split_waves(PromptRows(tokens, lengths, 0), plan, setup.sharding)
        key = make_key(config.validation.seed, validation=True, setup=setup)
        heat = setup.put_scalar(config.validation.temperature or 1.0)
        rollouts, steps = generate(programs, synced, waves, key, heat)
        responses = fetch_responses(
            rollouts, steps, max_prompt_length=config.task.max_prompt_length
        )
    kept = Responses(
        tokens=responses.tokens[:count],
        lengths=responses.lengths[:count],
        ended=responses.ended[:count],
        decode_steps=responses.decode_steps,
    )
    scores, said = score_responses(setup.task, texts, kept, group=plan.group)
    return scores, kept, said
