"""Responses to rewards; a reward that fails is masked and counted, never a silent zero."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem, Response, Reward
from jax_rl.rewards.check import Outcome, shorten, try_reward

_SHOWN = 300


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
    timeouts: int = 0
    """How many of the failures took longer than they may."""


def score(reward: Reward, problems: Sequence[Problem], responses: Sequence[Response]) -> Scores:
    """Rewards of the responses, response i being to problem i, in this process.

    For rewards that take time linear in the response; others belong into a `RewardPool`. A
    reward that raises, or is no finite float32 number, is 0 and not valid.

    Raises:
      ValueError: as many problems as responses are needed.
    """
    pairs = zip(problems, responses, strict=True)
    outcomes = [try_reward(reward, problem, response) for problem, response in pairs]
    return gather_scores(outcomes, problems, responses)


def check_scores(scores: Scores, *, name: str) -> Scores:
    """The scores as they are.

    Args:
      name: the task, for the message.

    Raises:
      UserError: every single reward failed.
    """
    if scores.failures and scores.failures == len(scores.valid):
        raise UserError(
            f"task {name!r}: the reward failed on all {scores.failures} responses; it has to return"
            " a finite number for every response. The first failure,"
            f" {scores.first_failure}"
        )
    return scores


def gather_scores(
    outcomes: Sequence[Outcome], problems: Sequence[Problem], responses: Sequence[Response]
) -> Scores:
    """The scores that n outcomes make."""
    failed = [row for row, outcome in enumerate(outcomes) if outcome.failure]
    first_failure = None
    if failed:
        row = failed[0]
        first_failure = _describe(row, outcomes[row], problems[row], responses[row])
    valid = np.ones(len(outcomes), bool)
    valid[failed] = False
    return Scores(
        rewards=np.array([outcome.reward for outcome in outcomes], np.float32),
        valid=valid,
        failures=len(failed),
        first_failure=first_failure,
        timeouts=sum(outcome.timed_out for outcome in outcomes),
    )


def _describe(row: int, outcome: Outcome, problem: Problem, response: Response) -> str:
    place = f" ({problem.place})" if problem.place else ""
    prompt, text = shorten(repr(problem.prompt), _SHOWN), shorten(repr(response.text), _SHOWN)
    return f"row {row}{place}: prompt {prompt}, response {text}: {outcome.failure}"
