"""Scoring in a pool of processes, each response with a hard limit in wall-clock time.

Workers are started as commands of their own and not through `multiprocessing`: a fork of a
process that runs JAX can hang, and spawn runs the user's script again where it has no
`if __name__ == "__main__"`. With one message for each response a late one is known at once, and
no other one fails with it.
"""

import dataclasses
import math
import pickle
import weakref
from collections.abc import Sequence

from jax_rl.config import RewardConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem, Response, Reward
from jax_rl.rewards.check import Outcome
from jax_rl.rewards.dispatch import Dispatcher, Item, Job
from jax_rl.rewards.process import count_cores
from jax_rl.rewards.score import Scores, gather_scores

_MOST_PROCESSES = 8


class RewardPool:
    """Processes that score responses; a context manager that ends them all when it is left.

    They are also ended when the pool is collected, when this process exits, and, within
    `seconds` and a moment, when it is killed.
    """

    def __init__(self, reward: Reward, config: RewardConfig, *, name: str):
        """Starts the processes, and does not wait for them.

        Args:
          reward: goes to the processes by name; what the main script defines, by value.
          config: seconds and processes.
          name: the task, for messages.

        Raises:
          UserError: a limit out of range, or a reward that cannot be pickled.
        """
        if not (0 < config.seconds < math.inf) or config.processes < 0:
            raise UserError(
                f"reward.seconds = {config.seconds} must be above 0, and reward.processes ="
                f" {config.processes} must be 0 or above"
            )
        count = config.processes or min(count_cores(), _MOST_PROCESSES)
        self._dispatcher = Dispatcher(
            _pickle_reward(reward), name=name, seconds=config.seconds, count=count
        )
        self._finalizer = weakref.finalize(self, self._dispatcher.stop)

    def submit(self, problems: Sequence[Problem], responses: Sequence[Response]) -> "PendingScores":
        """Scores the responses, response i being to problem i; returns at once.

        Raises:
          ValueError: as many problems as responses are needed.
        """
        pairs = list(zip(problems, responses, strict=True))
        job = Job(len(pairs))
        items = (_make_item(job, row, *pair) for row, pair in enumerate(pairs))
        self._dispatcher.add(job, [item for item in items if item is not None])
        return PendingScores(self, job, tuple(problems), tuple(responses))

    def close(self) -> None:
        """Ends all processes; what is not scored by then fails."""
        self._finalizer()

    def __enter__(self) -> "RewardPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclasses.dataclass(frozen=True)
class PendingScores:
    """Scores that are being worked out."""

    _pool: RewardPool  # a pool that nobody holds any more would be ended
    _job: Job
    _problems: tuple[Problem, ...]
    _responses: tuple[Response, ...]

    def result(self) -> Scores:
        """The scores, once all are there; all may have failed, which `check_scores` refuses.

        Raises:
          UserError: the processes could not load the reward.
          RuntimeError: the pool was closed before.
        """
        self._job.done.wait()
        if self._job.error is not None:
            raise self._job.error
        return gather_scores(self._job.outcomes, self._problems, self._responses)


def _pickle_reward(reward: Reward) -> bytes:
    import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps(reward)
    except Exception as error:
        raise UserError(
            f"the reward {reward!r} cannot be sent to other processes: {type(error).__name__}:"
            f" {error}; a function in a file of its own can"
        ) from error
    return pickled


def _make_item(job: Job, row: int, problem: Problem, response: Response) -> Item | None:
    """What is sent of a response; None if it cannot be sent, and so has failed."""
    try:
        payload = pickle.dumps((problem, response), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        failure = f"cannot be sent to another process: {type(error).__name__}: {error}"
        job.fill(row, Outcome(failure=failure))
        return None
    return Item(job, row, payload)
