"""Countdown: an expression that uses each given number once and hits the target."""

import re
from collections.abc import Mapping
from fractions import Fraction

from jax_rl.rewards.answers import find_boxed, name_place, require_answer
from jax_rl.rewards.arithmetic import read_tokens, work_out
from jax_rl.rewards.base import Problem, Response

_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
# From a number, bracket or sign on: what an equation is written with.
_EQUATION = re.compile(r"[-−(0-9](?:[-−–+*/×·⋅÷=() \t0-9]|\.(?=[0-9]))*+")
_LATEX = ((r"\times", "*"), (r"\cdot", "*"), (r"\div", "/"), (r"\left", ""), (r"\right", ""))
_FRACTION = re.compile(r"\\[dtc]?frac\s?\{([^{}]*+)\}\s?\{([^{}]*+)\}")


def score_countdown(problem: Problem, response: Response) -> float:
    r"""1 if the response's expression uses each number exactly once and equals the target; else 0.

    The expression is the content of the last <answer></answer>, else of the last \boxed{}, else
    the last thing in the text that reads like arithmetic. It has whole numbers, + - * / (or × ÷)
    and parentheses; what may follow it behind "=" has to be the target.

    Raises:
      ValueError: the answer is not {"numbers": [...], "target": n} in whole numbers.
    """
    numbers, target = _read_answer(problem)
    expression, equals, stated = _find_expression(response.text).partition("=")
    tokens = read_tokens(expression)
    if tokens is None or sorted(int(t) for t in tokens if t.isdigit()) != sorted(numbers):
        return 0.0
    if equals and work_out(read_tokens(stated) or []) != target:
        return 0.0
    return float(work_out(tokens) == target)


def _read_answer(problem: Problem) -> tuple[list[int], Fraction]:
    answer = require_answer(problem)
    if isinstance(answer, Mapping):
        numbers, target = answer.get("numbers"), answer.get("target")
        if (
            isinstance(numbers, list | tuple)
            and all(isinstance(number, int) for number in numbers)
            and isinstance(target, int)
        ):
            return list(numbers), Fraction(target)
    raise ValueError(
        f"the answer {answer!r} is not like {{'numbers': [3, 7, 2], 'target': 27}}, in whole"
        f" numbers{name_place(problem)}"
    )


def _find_expression(text: str) -> str:
    tagged = _ANSWER.findall(text)
    marked = tagged[-1] if tagged else find_boxed(text)
    if marked is not None:
        return _drop_latex(marked)
    found = ""
    for match in _EQUATION.finditer(_drop_latex(text)):
        if re.search(r"[0-9)]\s*[-−–+*/×·⋅÷]", match[0]):
            found = match[0]
    return found


def _drop_latex(text: str) -> str:
    for command, plain in _LATEX:
        text = text.replace(command, plain)
    return _FRACTION.sub(r"(\1)/(\2)", text).strip().strip("$").strip()
