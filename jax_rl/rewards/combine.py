"""The reward that a configuration asks for: a verifier by name, or a weighted sum of several."""

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from jax_rl.config import RewardConfig
from jax_rl.errors import UserError
from jax_rl.registry import resolve
from jax_rl.rewards.base import Problem, Response, Reward
from jax_rl.rewards.check import check_reward
from jax_rl.rewards.countdown import score_countdown
from jax_rl.rewards.exact import score_exact
from jax_rl.rewards.length import Length
from jax_rl.rewards.numeric import score_numeric
from jax_rl.rewards.patterns import Format, Regex


def make_reward(config: RewardConfig, own: Reward | None = None) -> Reward:
    """The task's own reward, or the weighted sum of the verifiers that the configuration names.

    The sum can be pickled: its own parts, and a function of the user's, go by name. If one
    verifier fails, the sum does, and its message names the verifier.

    Args:
      config: verifiers and what they need.
      own: the task's reward, which empty `verifiers` choose; None if it has none.

    Raises:
      UserError: an unknown verifier, one whose package is missing, weights that do not fit, a
        pattern or length_free that is missing, wrong or not used by any, or a function whose
        parameters are neither (problem, response) nor (prompt, response, answer).
    """
    names = config.verifiers
    weights = config.weights or (1.0,) * len(names)
    if len(weights) != len(names):
        raise UserError(
            f"reward.weights has {len(weights)} numbers for the {len(names)} of reward.verifiers ="
            f" {list(names)}; give one for each, or leave reward.weights out for all 1"
        )
    _check_used(config)
    if not names:
        if own is None:
            raise UserError(
                "reward.verifiers is empty and the task has no reward of its own; name at least"
                f" one of {', '.join(_MAKERS)}, or `module:function` of your own"
            )
        return own
    for name, weight in zip(names, weights, strict=True):
        _check_weight(name, weight)
    return WeightedSum(names, tuple(_make(name, config) for name in names), weights)


@dataclasses.dataclass(frozen=True)
class WeightedSum:
    """The sum of rewards, each times its weight.

    Raises ValueError: a reward in it raised, or gave no finite float32 number.
    """

    names: tuple[str, ...]
    rewards: tuple[Reward, ...]
    weights: tuple[float, ...]

    def __call__(self, problem: Problem, response: Response) -> float:
        total = 0.0
        for name, reward, weight in zip(self.names, self.rewards, self.weights, strict=True):
            try:
                total += weight * check_reward(reward(problem, response))
            except Exception as error:
                raise ValueError(f"{name}: {type(error).__name__}: {error}") from error
        return total


class UserReward:
    """A callable of the user's own, by name, in either of two forms.

    It takes (problem, response), or the texts of both and the answer: (prompt, response, answer).
    The turns of a chat are joined with an empty line between them. Pickled as its name.
    """

    def __init__(self, name: str):
        """Imports `module:function`; UserError if there is none, or it takes something else."""
        self.name = name
        self._function = resolve(name, _MAKERS, "reward.verifiers")
        self._takes_texts = _count_parameters(name, self._function) == 3

    def __call__(self, problem: Problem, response: Response) -> float:
        if not self._takes_texts:
            return self._function(problem, response)
        prompt = problem.prompt
        if not isinstance(prompt, str):
            prompt = "\n\n".join(message["content"] for message in prompt)
        return self._function(prompt, response.text, problem.answer)

    def __reduce__(self) -> tuple[type["UserReward"], tuple[str]]:
        return UserReward, (self.name,)


def _make(name: str, config: RewardConfig) -> Reward:
    made: Reward
    if name in _MAKERS or ":" not in name:
        made = resolve(name, _MAKERS, "reward.verifiers")(config)
    else:
        made = UserReward(name)
    return made


def _count_parameters(name: str, function: Any) -> int:
    """2 or 3: how many arguments the function takes by position."""
    wanted = (
        "it has to be a function of exactly (problem, response) or (prompt, response, answer),"
        " without defaults; any other parameters are keyword-only and have one"
    )
    if name.startswith("__main__:"):
        raise UserError(
            f"reward.verifiers = {name!r}: other processes cannot import the main script; put the"
            " function into a file of its own and name that"
        )
    if not callable(function) or inspect.isclass(function):
        raise UserError(f"reward.verifiers = {name!r} is a {type(function).__name__}; {wanted}")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise UserError(f"reward.verifiers = {name!r} tells no parameters; {wanted}") from error
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    others = [p for p in parameters if p not in positional]
    # With a default, (a, b, c=0) could be meant either way.
    spoilt = any(p.default is not p.empty for p in positional) or any(
        p.kind is p.VAR_POSITIONAL or (p.kind is p.KEYWORD_ONLY and p.default is p.empty)
        for p in others
    )
    if spoilt or len(positional) not in (2, 3) or inspect.iscoroutinefunction(function):
        shown = "async " if inspect.iscoroutinefunction(function) else ""
        raise UserError(
            f"reward.verifiers = {name!r} is {shown}{inspect.signature(function)}; {wanted}"
        )
    return len(positional)


def _check_used(config: RewardConfig) -> None:
    names = config.verifiers
    if config.pattern and not {"regex", "format"} & set(names):
        raise UserError(
            f"reward.pattern = {config.pattern!r} is not used: neither regex nor format is in"
            f" reward.verifiers = {list(names)}"
        )
    if config.length_free and "length" not in names:
        raise UserError(
            f"reward.length_free = {config.length_free} is not used: length is not in"
            f" reward.verifiers = {list(names)}"
        )


def _check_weight(name: str, weight: float) -> None:
    if not math.isfinite(weight):
        raise UserError(f"reward.weights: {weight} for {name} must be a finite number")
    if name == "length" and weight > 0:
        raise UserError(
            f"reward.weights: {weight:g} for length would reward long responses; length is a"
            " penalty that grows from 0 to 1, so its weight must be below 0, such as -0.5"
        )


def _compile_pattern(config: RewardConfig, name: str) -> re.Pattern[str]:
    if not config.pattern:
        raise UserError(f"reward.pattern is empty, and {name} in reward.verifiers needs one")
    try:
        return re.compile(config.pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UserError(
            f"reward.pattern = {config.pattern!r} is not a regular expression: {error}"
        ) from error


def _make_regex(config: RewardConfig) -> Reward:
    if not _compile_pattern(config, "regex").groups:
        raise UserError(
            f"reward.pattern = {config.pattern!r} has no group; regex compares the first one with"
            r" the answer, as in 'Answer: (\d+)'"
        )
    return Regex(config.pattern)


def _make_format(config: RewardConfig) -> Reward:
    return Format(_compile_pattern(config, "format").pattern)


def _make_length(config: RewardConfig) -> Reward:
    if config.length_free < 0:
        raise UserError(f"reward.length_free = {config.length_free} must be 0 or above")
    return Length(config.length_free)


def _make_math(config: RewardConfig) -> Reward:
    try:
        from jax_rl.rewards.math_answer import score_math
    except ImportError as error:
        raise UserError(
            f"reward.verifiers: math needs the package math-verify ({error}); run"
            " pip install 'jax-rl[math]'"
        ) from error
    return score_math


_MAKERS: Mapping[str, Callable[[RewardConfig], Reward]] = {
    "numeric": lambda config: score_numeric,
    "math": _make_math,
    "exact": lambda config: score_exact,
    "regex": _make_regex,
    "format": _make_format,
    "countdown": lambda config: score_countdown,
    "length": _make_length,
}
