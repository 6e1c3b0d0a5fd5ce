"""Countdown: an expression that uses each given number once and hits the target."""

import re
from collections.abc import Mapping
from fractions import Fraction

from jax_rl.rewards.answers import find_boxed, find_tagged, name_place, require_answer
from jax_rl.rewards.arithmetic import read_tokens, work_out
from jax_rl.rewards.base import Problem, Response

# From a number, bracket or sign on: what an equation is written with. The marks of a formula end
# it, unless its = is between them.
_EQUATION = re.compile(
    r"[-−(\[0-9](?:=[$` \t]*+|[-−–+*/×·⋅÷()\[\] \t0-9]|\.(?=[0-9])|[$`][$` \t]*+(?==))*+"
)
_OPERATION = re.compile(r"[0-9)\]]\s*+[-−–+*/×·⋅÷]\*?[-−(\[\s]*+[0-9]")
_MARKS = str.maketrans("$`", "  ")
# Stars that are not the power of a number; bounded, as each pair may be tried as the first one.
_BOLD = re.compile(r"(?<![0-9)\]*])\*\*(?=\S)([^\n]{1,200}?)(?<=\S)\*\*(?![-(\[0-9*])")
_LATEX = (
    (r"\times", "*"), (r"\cdot", "*"), (r"\div", "/"), (r"\left", ""), (r"\right", ""),
    (r"\(", "$"), (r"\)", "$"), (r"\[", "$"), (r"\]", "$"),
)  # fmt: skip
_FRACTION = re.compile(r"\\[dtc]?frac\s?\{([^{}]*+)\}\s?\{([^{}]*+)\}")


def score_countdown(problem: Problem, response: Response) -> float:
    r"""1 if the response's expression uses each number exactly once and equals the target; else 0.

    The expression is the content of the last <answer></answer>, or of a box in it, else of the
    last \boxed{}, else the last thing in the text that reads like arithmetic. Of several lines the
    first counts; bold, code and formula marks do not. It has whole numbers, + - * / (or × ÷) and
    brackets; what may stand on the other side of one "=" has to be the target.

    Raises:
      ValueError: the answer is not {"numbers": [...], "target": n} in whole numbers.
    """
    numbers, target = _read_answer(problem)
    sides = [read_tokens(side) or [] for side in _find_equation(response.text).split("=", 2)]
    if len(sides) > 2 or any(work_out(side) != target for side in sides):
        return 0.0
    return float(any(_list_numbers(side) == sorted(numbers) for side in sides))


def _list_numbers(tokens: list[str]) -> list[int]:
    return sorted(int(token) for token in tokens if token.isdigit())


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


def _find_equation(text: str) -> str:
    tagged = find_tagged(text)
    boxed = find_boxed(text if tagged is None else tagged)
    marked = tagged if boxed is None else boxed
    if marked is not None:
        lines = _simplify(marked).translate(_MARKS).strip().split("\n", 1)
        return lines[0].strip().removesuffix(".")
    found = ""
    for match in _EQUATION.finditer(_simplify(text)):
        parts = [match[0]]
        if match[0].count("[") != match[0].count("]"):  # one of the sentence around it
            parts = re.split(r"[\[\]]", match[0])
        for part in parts:
            if _OPERATION.search(part):
                found = part
    return found.translate(_MARKS)


def _simplify(text: str) -> str:
    r"""The text with plain operators, formula marks as $, \frac{a}{b} as (a)/(b), and no bold."""
    for command, plain in _LATEX:
        text = text.replace(command, plain)
    return _BOLD.sub(r" \1 ", _FRACTION.sub(r"(\1)/(\2)", text))
