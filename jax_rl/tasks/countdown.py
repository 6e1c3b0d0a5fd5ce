"""Countdown: numbers and a target; an equation with each number once is asked for."""

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem
from jax_rl.rewards.countdown import score_countdown
from jax_rl.tasks.columns import choose_column, find_value, show
from jax_rl.tasks.fields import refuse_unused
from jax_rl.tasks.problems import ProblemBuilder, Rows, load_rows, plan_prompt
from jax_rl.tasks.rows import Row
from jax_rl.tasks.template import parse_template
from jax_rl.text.base import Message

_FEWEST, _MOST = 2, 5  # numbers of a drawn problem
_LARGEST_NUMBER, _LARGEST_TARGET = 99, 999
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_TEMPLATE = (
    "Write {target} as an expression of the numbers {numbers}. Use each of them exactly once,"
    " with +, -, *, / and parentheses. Think it through step by step, and put the final"
    " expression between <answer> and </answer>."
)


class Countdown:
    """Drawn problems: `config.difficulty` numbers from 1 to 99, and a target from 1 to 999.

    The target is what the numbers give when they are combined in random order, so that every
    problem has a solution; no step of it leaves 1 .. 999. A template may name {numbers} (or
    {nums}) and {target}; "{numbers}={target}:" has characters alone that the character tokenizer
    knows.

    Raises:
      UserError: a difficulty out of range, a field that is not used, or a template that is none.
    """

    name = "countdown"
    quick_reward = True
    reward = staticmethod(score_countdown)

    def __init__(self, config: TaskConfig):
        refuse_unused(config, ("difficulty", "template", "long_prompts"), why="without files")
        if not _FEWEST <= config.difficulty <= _MOST:
            raise UserError(
                f"task.difficulty = {config.difficulty}: countdown takes how many numbers are"
                f" given, {_FEWEST} to {_MOST}"
            )
        self._count = config.difficulty
        self._template = parse_template(config.template or _TEMPLATE)
        # At least that many: every choice of numbers has a target, their sum for one.
        self.prompt_space = math.comb(_LARGEST_NUMBER + self._count - 1, self._count)

    def draw(self, rng: np.random.Generator) -> Problem:
        """Numbers, and the target of a random combination of them."""
        numbers = rng.integers(1, _LARGEST_NUMBER + 1, self._count).tolist()
        values = list(numbers)
        # One draw of an array: a scalar draw for each choice would cost more than the rest.
        for one, other, how in rng.random((self._count - 1, 3)).tolist():
            a = values.pop(int(one * len(values)))
            b = values.pop(int(other * len(values)))
            results = _combine(a, b)
            values.append(results[int(how * len(results))][0])
        return self.ask(numbers, values[0])

    def ask(self, numbers: list[int], target: int) -> Problem:
        """The problem of these numbers and target."""
        row = _complete({}, numbers, target, place="")
        return _make_problem(self._template.render(row.values, place=""), numbers, target, place="")

    def solve(self, problem: Problem, rng: np.random.Generator) -> str:
        """One of the right expressions.

        Raises:
          UserError: none was found whose steps stay in 1 .. 999.
        """
        numbers, target = problem.answer["numbers"], problem.answer["target"]
        order = [(numbers[i], str(numbers[i])) for i in rng.permutation(len(numbers))]
        found = _search(order, target)
        if found is None:
            raise UserError(f"{problem.content}: no expression of these numbers was found")
        return found.removeprefix("(").removesuffix(")") if len(numbers) > 1 else found


def load_countdown(config: TaskConfig) -> Countdown | Rows:
    """Rows of files with "numbers" (or "nums") and "target"; without a file, drawn problems.

    Numbers are a list, or its text as CSV has it. A template may name any column, and {numbers}
    and {target}; `config.prompt_column` names a column with prompts instead.

    Raises:
      UserError: a file or a row that cannot be used, or a field that is not used.
    """
    if not config.train and not config.validation:
        return Countdown(config)
    return load_rows(
        config,
        _plan,
        name="countdown",
        used=("prompt_column", "template"),
        quick_reward=True,
        find_reward=lambda problems: score_countdown,
        why="with files",
    )


def _plan(config: TaskConfig, first: Row) -> ProblemBuilder:
    if config.template or config.prompt_column:
        read = plan_prompt(config, first, columns=())
    else:
        read = plan_prompt(dataclasses.replace(config, template=_TEMPLATE), first, columns=())
    column = choose_column(first.values, ("numbers", "nums"))

    def build(row: Row) -> Problem:
        numbers, target = _read_numbers(row, column), _read_target(row)
        prompt = read(_complete(row.values, numbers, target, place=row.place))
        return _make_problem(prompt, numbers, target, place=row.place)

    return build


def _complete(values: Mapping[str, Any], numbers: list[int], target: int, *, place: str) -> Row:
    """The row with what a template may name, whatever its columns are called."""
    return Row({**values, "numbers": numbers, "nums": numbers, "target": target}, place)


def _make_problem(
    prompt: str | tuple[Message, ...], numbers: list[int], target: int, *, place: str
) -> Problem:
    ordered = sorted(numbers)
    return Problem(
        prompt=prompt,
        content=f"{' '.join(map(str, ordered))} = {target}",
        answer={"numbers": ordered, "target": target},
        place=place,
    )


def _read_numbers(row: Row, column: str) -> list[int]:
    value = find_value(row.values, column, field="numbers of countdown", place=row.place)
    items = (
        value.strip().strip("[]()").replace(",", " ").split() if isinstance(value, str) else value
    )
    numbers = [_read_integer(item) for item in items] if isinstance(items, list) else []
    whole = [number for number in numbers if number is not None and number >= 0]
    if not numbers or len(whole) != len(numbers):
        raise UserError(
            f"{row.place}: column {column!r} has {show(value)}, where a list of whole numbers,"
            " such as [3, 7, 2], is right"
        )
    return whole


def _read_target(row: Row) -> int:
    value = find_value(row.values, "target", field="target of countdown", place=row.place)
    target = _read_integer(value)
    if target is None:
        raise UserError(
            f"{row.place}: column 'target' has {show(value)}, where a whole number is right"
        )
    return target


def _read_integer(value: Any) -> int | None:
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    # Data frames turn whole numbers into floats where a column has gaps.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if type(value) is int else None


def _combine(a: int, b: int) -> list[tuple[int, str]]:
    """Results of one step with two numbers, in 1 .. 999, larger number first; at least one."""
    larger, smaller = max(a, b), min(a, b)
    results = [(a + b, "+"), (larger - smaller, "-"), (a * b, "*")]
    if larger % smaller == 0:
        results.append((larger // smaller, "/"))
    return [result for result in results if 1 <= result[0] <= _LARGEST_TARGET]


def _search(terms: list[tuple[int, str]], target: int) -> str | None:
    """An expression of all terms, values with their texts, that equals the target."""
    if len(terms) == 1:
        return terms[0][1] if terms[0][0] == target else None
    for i, j in itertools.combinations(range(len(terms)), 2):
        others = [term for k, term in enumerate(terms) if k not in (i, j)]
        (a, first), (b, second) = sorted((terms[i], terms[j]), key=lambda term: -term[0])
        for value, operator in _combine(a, b):
            found = _search([(value, f"({first}{operator}{second})"), *others], target)
            if found is not None:
                return found
    return None
