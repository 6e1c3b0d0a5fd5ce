"""Responses to rewards; a reward that fails is masked and counted, never a silent zero."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jax_rl.errors import UserError
from jax_rl.tasks.base import Task

_LARGEST = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True)
class Scores:
    """Rewards of n responses, and which of them can be trusted."""

    rewards: np.ndarray
    """[n] float32; 0 where `valid` is False."""
    valid: np.ndarray
    """[n] bool; False where the reward failed, and the rollout has to be masked."""
    failures: int
    """How many are not valid."""
    first_failure: str | None
    """The first of them in words: its row, prompt, response and cause."""


def score(task: Task, prompts: Sequence[str], responses: Sequence[str]) -> Scores:
    """Rewards of the responses, response i being to prompt i.

    A reward that raises, or is no finite float32 number, is 0 and not valid.

    Raises:
      UserError: every single reward failed.
      ValueError: as many prompts as responses are needed.
    """
    rewards = np.zeros(len(prompts), np.float32)
    valid = np.ones(len(prompts), bool)
    first_failure = None
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        try:
            rewards[row] = _check_reward(task.reward(prompt, response))
        except Exception as error:  # a reward is a fork's own code and may raise anything
            valid[row] = False
            if first_failure is None:
                first_failure = (
                    f"row {row}: prompt {prompt!r}, response {response!r}:"
                    f" {type(error).__name__}: {error}"
                )
    failures = len(prompts) - int(valid.sum())
    if failures and failures == len(prompts):
        raise UserError(
            f"task {task.name!r}: the reward failed on all {failures} responses; it has to return"
            f" a finite number for every response. The first failure, {first_failure}"
        )
    return Scores(rewards=rewards, valid=valid, failures=failures, first_failure=first_failure)


def _check_reward(value: float | None) -> float:
    """The reward as a float; one that is not finite in float32 raises."""
    if value is None:
        raise TypeError("the reward is None, not a number")
    reward = float(value)
    # Not `reward > _LARGEST`: every comparison with NaN is False.
    if not abs(reward) <= _LARGEST:
        raise ValueError(f"the reward is {reward}, not a finite float32 number")
    return reward
