"""Where rewards are worked out: in this process, or in a pool beside the devices' work."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from jax_rl.hosts.channel import Channel
from jax_rl.rewards.base import Problem, Response, Reward
from jax_rl.rewards.pool import RewardPool
from jax_rl.rewards.score import Scores, check_scores, score
from jax_rl.trainer.rollout import Responses
from jax_rl.trainer.setup import RunSetup


class PendingScores(Protocol):
    """Scores that are being worked out."""

    def result(self) -> Scores:
        """The scores, once all are there."""


class Scorer(Protocol):
    """Scores responses; may work on after `submit` has returned."""

    def submit(self, problems: Sequence[Problem], responses: Sequence[Response]) -> PendingScores:
        """Takes responses to score, response i being to problem i."""


@dataclasses.dataclass(frozen=True)
class _Ready:
    scores: Scores

    def result(self) -> Scores:
        return self.scores


@dataclasses.dataclass(frozen=True)
class DirectScorer:
    """Scores in this process, before `submit` returns; for rewards that take linear time."""

    reward: Reward

    def submit(self, problems: Sequence[Problem], responses: Sequence[Response]) -> PendingScores:
        """The scores, at once."""
        return _Ready(score(self.reward, problems, responses))


@contextlib.contextmanager
def open_scorer(setup: RunSetup) -> Iterator[Scorer]:
    """The scorer of a run; its processes, if it has any, end with the context."""
    if not setup.scores_in_pool:
        yield DirectScorer(setup.reward)
        return
    with RewardPool(setup.reward, setup.config.reward, name=setup.task.name) as pool:
        yield pool


@dataclasses.dataclass(frozen=True)
class ScoredBatch:
    """A batch of n rollouts, the same on every process."""

    lengths: np.ndarray  # [n] int32
    ended: np.ndarray  # [n] bool
    decode_steps: int
    scores: Scores


def exchange_scores(
    responses: Responses, scores: Scores, *, channel: Channel, name: str
) -> ScoredBatch:
    """What every process has scored, put together by row.

    Args:
      responses: of this process.
      scores: of these responses.
      channel: between the processes.
      name: the task, for the message.

    Raises:
      UserError: every single reward failed.
    """
    parts = channel.gather(
        {
            "rows": responses.rows,
            "lengths": responses.lengths,
            "ended": responses.ended,
            **dataclasses.asdict(scores),
        }
    )
    order = np.argsort(np.concatenate([part["rows"] for part in parts]))

    def join(field: str) -> np.ndarray:
        joined: np.ndarray = np.concatenate([part[field] for part in parts])[order]
        return joined

    whole = Scores(
        rewards=join("rewards"),
        valid=join("valid"),
        failures=sum(part["failures"] for part in parts),
        first_failure=next((p["first_failure"] for p in parts if p["first_failure"]), None),
        timeouts=sum(part["timeouts"] for part in parts),
    )
    return ScoredBatch(
        lengths=join("lengths"),
        ended=join("ended"),
        decode_steps=responses.decode_steps,
        scores=check_scores(whole, name=name),
    )


def join_scores(parts: Sequence[Scores]) -> Scores:
    """The scores of all waves as one batch."""
    return Scores(
        rewards=np.concatenate([part.rewards for part in parts]),
        valid=np.concatenate([part.valid for part in parts]),
        failures=sum(part.failures for part in parts),
        first_failure=next((p.first_failure for p in parts if p.first_failure), None),
        timeouts=sum(part.timeouts for part in parts),
    )
