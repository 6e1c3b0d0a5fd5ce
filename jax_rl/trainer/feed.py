"""What the sampler is fed: the prompts of iteration after iteration, and the key they share."""

import dataclasses
from collections.abc import Callable, Iterator

import jax
import numpy as np

from jax_rl.rewards.base import Problem
from jax_rl.sampler.generate import Prompts
from jax_rl.sampler.waves import PromptRows, split_waves
from jax_rl.tasks.prompts import problem_batches
from jax_rl.trainer.placement import Placement
from jax_rl.trainer.setup import RunSetup

_TRAINING_STREAM, _VALIDATION_STREAM = 0, 1

ForcedLengths = Callable[[int], np.ndarray]
"""Response lengths [n] int32 of the iteration whose first group is the argument."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """The prompts of one iteration, on the host and on the mesh."""

    problems: list[Problem]
    waves: tuple[Prompts, ...]


def make_key(seed: int, *, validation: bool, setup: Placement) -> jax.Array:
    """The threefry key of a seed, on every device; training and validation never share one."""
    stream = _VALIDATION_STREAM if validation else _TRAINING_STREAM
    key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), stream)
    data = setup.put_whole(jax.random.key_data(key))
    return jax.random.wrap_key_data(data, impl="threefry2x32")


class Feed:
    """The training prompts of a run, read ahead by a thread."""

    def __init__(
        self, setup: RunSetup, *, iteration: int, forced_lengths: ForcedLengths | None = None
    ):
        """Starts with the prompts after so many iterations.

        Args:
          setup: of the run.
          iteration: that came before.
          forced_lengths: how long responses are made; None: until an end token.
        """
        self._setup, self._forced_lengths = setup, forced_lengths
        self._problems: Iterator[tuple[int, list[Problem]]] = problem_batches(
            setup.training(setup.config.run.seed),
            prompts=setup.plan.prompts,
            start_group=iteration * setup.plan.prompts,
        )

    def make_batch(self) -> Batch:
        """The prompts of the next iteration."""
        setup = self._setup
        first_group, problems = next(self._problems)
        forced = self._forced_lengths(first_group) if self._forced_lengths else None
        rows = PromptRows(*setup.encode(problems), first_group, forced)
        return Batch(problems, split_waves(rows, setup.plan, setup.decoding_sharding))

    def close(self) -> None:
        """Ends the thread that reads prompts ahead."""
        close = getattr(self._problems, "close", None)
        if close is not None:
            close()


def make_validation_batch(setup: RunSetup) -> Batch:
    """The held-out set, filled up to whole shards with repeated prompts."""
    count = setup.validation_plan.prompts
    problems = [setup.validation[i % len(setup.validation)] for i in range(count)]
    rows = PromptRows(*setup.encode(problems), 0)
    return Batch(problems, split_waves(rows, setup.validation_plan, setup.decoding_sharding))
