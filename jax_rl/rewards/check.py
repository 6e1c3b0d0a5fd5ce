"""Calls a reward and says what came of it; the same in this process and in a pool's."""

import dataclasses
from typing import Any

from jax_rl.rewards.base import Problem, Response, Reward

_LARGEST = float.fromhex("0x1.fffffep+127")  # of float32; a worker should not wait for NumPy
_LONGEST = 500


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of scoring one response."""

    reward: float = 0.0
    """0 where it failed."""
    failure: str = ""
    """Why there is no reward; empty where there is one."""
    timed_out: bool = False
    """Whether the reason is the time that it took."""


def try_reward(reward: Reward, problem: Problem, response: Response) -> Outcome:
    """The reward of a response, or why there is none; raises nothing of the reward's own."""
    try:
        return Outcome(reward=check_reward(reward(problem, response)))
    # A reward is a fork's own code: it may raise anything, or leave as a script does.
    except (Exception, SystemExit) as error:
        return Outcome(failure=shorten(f"{type(error).__name__}: {error}", _LONGEST))


def check_reward(value: Any) -> float:
    """The reward as a float.

    Raises:
      TypeError: it is None, or nothing that converts to a number.
      ValueError: it is not finite in float32.
    """
    if value is None:
        raise TypeError("the reward is None, not a number")
    if isinstance(value, str | bytes):
        raise TypeError(f"the reward is {shorten(repr(value), 80)}, a text and not a number")
    reward = float(value)
    # Not `reward > _LARGEST`: every comparison with NaN is False.
    if not abs(reward) <= _LARGEST:
        raise ValueError(f"the reward is {reward}, not a finite float32 number")
    return reward


def shorten(text: str, longest: int) -> str:
    """The text, its middle left out where it has more than `longest` characters."""
    if len(text) <= longest:
        return text
    return f"{text[: longest // 2]} ... {text[-(longest // 2) :]}"
