"""Responses of a policy to problems, scored: what sampling and evaluating have in common."""

import dataclasses

import jax
import numpy as np

from jax_rl.evaluation.policy import load_policy
from jax_rl.evaluation.source import Source
from jax_rl.rewards.base import Response
from jax_rl.rewards.score import Scores, check_scores
from jax_rl.sampler.waves import PromptRows, split_waves
from jax_rl.trainer.feed import make_key
from jax_rl.trainer.programs import Compiler, compile_validation
from jax_rl.trainer.rollout import fetch_waves, generate, read_responses
from jax_rl.trainer.scoring import PendingScores, join_scores, open_scorer
from jax_rl.trainer.setup import RunSetup


@dataclasses.dataclass(frozen=True)
class Answers:
    """Responses to n problems, k to each: problem i has rows i k to (i + 1) k."""

    responses: list[Response]
    scores: Scores


def respond(source: Source, setup: RunSetup) -> Answers:
    """Answers the held-out set as validation does, a wave being scored during the next.

    Args:
      source: where the weights are.
      setup: for its configuration.

    Raises:
      UserError: no weights are there, or the reward failed on every response.
    """
    plan, config, problems = setup.validation_plan, setup.config, setup.validation
    # Whole shards are filled up with repeated prompts, which are taken off again at the end.
    filled = [problems[i % len(problems)] for i in range(plan.prompts)]
    rows = PromptRows(*setup.encode(filled), 0)
    with jax.set_mesh(setup.mesh), open_scorer(setup) as scorer:
        held = load_policy(source, setup)  # first: what cannot be read is said without a wait
        programs = compile_validation(setup, Compiler(lambda event: None))
        waves = split_waves(rows, plan, setup.decoding_sharding)
        key = make_key(config.validation.seed, validation=True, setup=setup)
        temperature = setup.put_whole(config.validation.temperature or 1.0)
        sampled, steps = generate(programs, held, waves, key, temperature)
        limit = config.task.max_prompt_length
        responses: list[Response] = []
        pending: list[PendingScores] = []
        for wave, own in fetch_waves(sampled, steps, filled, plan=plan, max_prompt_length=limit):
            read = read_responses(setup.tokenizer, wave)
            responses += read
            pending.append(scorer.submit(own, read))
        scores = join_scores([part.result() for part in pending])
    check_scores(scores, name=setup.task.name)
    count = len(problems) * plan.group
    return Answers(responses[:count], _cut(scores, count))


def _cut(scores: Scores, count: int) -> Scores:
    """The scores of the first `count` responses."""
    valid = scores.valid[:count]
    return dataclasses.replace(
        scores,
        rewards=scores.rewards[:count],
        valid=valid,
        failures=int(np.sum(~valid)),
    )
