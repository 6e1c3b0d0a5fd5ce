"""What a task is, and the table of the built-in ones."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from jax_rl.config import TaskConfig
from jax_rl.registry import resolve
from jax_rl.tasks.addition import Addition
from jax_rl.tasks.partition import Partition
from jax_rl.tasks.tokenizer import Tokenizer


class Task(Protocol):
    """Prompts, worked answers and rewards; all randomness comes in as a generator."""

    @property
    def name(self) -> str:
        """Name in messages and records."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Between its texts and the policy's tokens."""

    @property
    def prompt_space(self) -> int:
        """Number of distinct contents that `draw_prompt` can give."""

    def draw_prompt(self, rng: np.random.Generator) -> str:
        """One prompt."""

    def solve(self, prompt: str, rng: np.random.Generator) -> str:
        """One response that earns the full reward, without an end token."""

    def reward(self, prompt: str, response: str) -> float:
        """Reward of a response; may raise, which masks the rollout."""

    def content(self, prompt: str) -> str:
        """Canonical form: two prompts that ask for the same have the same content."""


TASKS: Mapping[str, Callable[[TaskConfig], Task]] = {
    "addition": Addition,
    "partition": Partition,
}


def load_task(config: TaskConfig) -> Task:
    """The task that `config.name` names, made as `Class(config)`.

    Raises:
      UserError: no task has this name, or the task refuses the configuration.
    """
    task: Task = resolve(config.name, TASKS, "task.name")(config)
    return task
