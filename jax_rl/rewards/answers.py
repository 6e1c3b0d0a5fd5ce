"""Where the final answer stands in a text."""

import re

from jax_rl.rewards.base import Problem

# A box; an escaped character, which may be a brace; a brace.
_BRACES = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*+(?:\{|(?P<bare>[^\s{}$][^{}$\n]*+)))|\\.|[{}]")

_TAGGED = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)


def require_answer(problem: Problem) -> object:
    """The answer of a problem.

    Raises:
      ValueError: it has none.
    """
    if problem.answer is None:
        raise ValueError(f"the problem has no answer to compare with{name_place(problem)}")
    return problem.answer


def name_place(problem: Problem) -> str:
    """Where the problem stands, as the end of a message."""
    return f" ({problem.place})" if problem.place else ""


def find_tagged(text: str) -> str | None:
    """Content of the last <answer></answer>; None if there is none. Takes linear time."""
    found = None
    for match in _TAGGED.finditer(text):
        found = match[1]
    return found


def find_boxed(text: str) -> str | None:
    r"""Content of the \boxed{...} that closes last and is not empty; None if there is none.

    Takes time linear in the text. A box that is never closed, as in a response that was cut, is
    none; \boxed 5 ends with the formula or line.
    """
    boxed = ""
    opened: list[int] = []  # where the content of each open box starts; -1 for any other brace
    for match in _BRACES.finditer(text):
        content = match["bare"] or ""
        if match[0] == "}":
            start = opened.pop() if opened else -1
            content = text[start : match.start()] if start >= 0 else ""
        elif match["box"] and not content:
            opened.append(match.end())
        elif match[0] == "{":
            opened.append(-1)
        boxed = content.strip() or boxed
    return boxed or None
