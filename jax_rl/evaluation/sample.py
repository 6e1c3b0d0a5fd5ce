"""Reads what a policy says to held-out prompts."""

import dataclasses
from pathlib import Path

from jax_rl.config import Config
from jax_rl.config_checks import validate
from jax_rl.evaluation.respond import respond
from jax_rl.evaluation.source import find_policy
from jax_rl.rewards.base import Problem
from jax_rl.trainer.setup import prepare_run


@dataclasses.dataclass(frozen=True)
class Sampled:
    """One response in words."""

    prompt: str
    response: str
    reward: float | None  # None: the reward failed
    tokens: int
    ended: bool  # False: cut at the length limit


def sample(
    source: str | Path | Config,
    *,
    run: Path | None = None,
    prompts: int = 8,
    seed: int = 0,
    temperature: float | None = None,
) -> list[Sampled]:
    """Samples one response per prompt, prints them with their rewards, and returns them.

    For prompts of your own there is `chat`.

    Args:
      source: as for `evaluate`.
      run: as for `evaluate`.
      prompts: how many of the validation prompts.
      seed: of the sampling.
      temperature: divides the logits, 0 is greedy; sampler.temperature if left out.

    Raises:
      UserError: nothing usable at `source`, or settings that do not fit.
    """
    found = find_policy(source, run=run)
    heat = found.config.sampler.temperature if temperature is None else temperature
    changed = dataclasses.replace(
        found.config.validation, prompts=prompts, samples_per_prompt=1, temperature=heat, wave=0
    )
    config = dataclasses.replace(found.config, validation=changed)
    validate(config)
    setup = prepare_run(config)
    for note in setup.notes:
        print(note)
    # The set is that of the configuration; only its sampling takes the seed given here.
    changed = dataclasses.replace(changed, seed=seed)
    validate(dataclasses.replace(config, validation=changed))
    setup = dataclasses.replace(setup, config=dataclasses.replace(setup.config, validation=changed))
    answers = respond(found, setup)
    rewards = zip(answers.scores.rewards.tolist(), answers.scores.valid.tolist(), strict=True)
    sampled = [
        Sampled(
            prompt=_show_prompt(problem),
            response=response.text,
            reward=reward if valid else None,
            tokens=response.tokens,
            ended=response.ended,
        )
        for problem, response, (reward, valid) in zip(
            setup.validation, answers.responses, rewards, strict=True
        )
    ]
    for one in sampled:
        _print(one)
    return sampled


def _show_prompt(problem: Problem) -> str:
    if isinstance(problem.prompt, str):
        return problem.prompt
    return "\n".join(f"{turn['role']}: {turn['content']}" for turn in problem.prompt)


def _print(one: Sampled) -> None:
    reward = "reward failed" if one.reward is None else f"reward {one.reward:g}"
    cut = "" if one.ended else "  (cut at the length limit)"
    # A response of several lines does not belong on the line of its prompt.
    between = "\n" if "\n" in one.prompt + one.response else ""
    print(f"{one.prompt}{between}{one.response}  {reward}{cut}{between}")
