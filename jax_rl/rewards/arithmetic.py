"""Arithmetic in a response, worked out exactly and within bounds; never run as code."""

import re
from fractions import Fraction

_LONGEST = 500  # characters
_MOST_DIGITS = 15  # of one number
_DEEPEST = 40  # brackets and signs inside each other
_TOKEN = re.compile(r"[0-9]+|[-+*/()\[\]]")
_CLOSING = {"(": ")", "[": "]"}
_SIGNS = str.maketrans({"×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-"})


def read_tokens(text: str) -> list[str] | None:
    """Whole numbers, + - * / and brackets of a text; None if it has anything else, or is long.

    × and ÷ are read as * and /; brackets are () or [].
    """
    if len(text) > _LONGEST or re.search(r"[0-9]\s+[0-9]", text):
        return None
    text = "".join(text.translate(_SIGNS).split())
    tokens: list[str] = _TOKEN.findall(text)
    # What was left out, such as names or a decimal point, shows when they are joined again.
    if "".join(tokens) != text or any(len(token) > _MOST_DIGITS for token in tokens):
        return None
    return tokens


def work_out(tokens: list[str]) -> Fraction | None:
    """Value of the tokens; None if they are no expression, or divide by 0."""
    parser = _Parser(tokens)
    try:
        value = parser.read_sum(0)
    except (_NoExpressionError, ZeroDivisionError):
        return None
    return value if parser.is_at_end() else None


class _NoExpressionError(Exception):
    """The tokens are no expression."""


class _Parser:
    """Recursive descent: a sum of products of factors; the tokens bound its work."""

    def __init__(self, tokens: list[str]):
        self._tokens = tokens
        self._next = 0

    def is_at_end(self) -> bool:
        return self._next == len(self._tokens)

    def read_sum(self, depth: int) -> Fraction:
        value = self._read_product(depth)
        while (operator := self._take("+-")) is not None:
            term = self._read_product(depth)
            value = value + term if operator == "+" else value - term
        return value

    def _read_product(self, depth: int) -> Fraction:
        value = self._read_factor(depth)
        while (operator := self._take("*/")) is not None:
            factor = self._read_factor(depth)
            value = value * factor if operator == "*" else value / factor
        return value

    def _read_factor(self, depth: int) -> Fraction:
        if depth > _DEEPEST or self.is_at_end():
            raise _NoExpressionError
        token = self._tokens[self._next]
        self._next += 1
        if token == "-":
            return -self._read_factor(depth + 1)
        if token in _CLOSING:
            value = self.read_sum(depth + 1)
            if self._take(_CLOSING[token]) is None:
                raise _NoExpressionError
            return value
        if not token.isdigit():
            raise _NoExpressionError
        return Fraction(int(token))

    def _take(self, wanted: str) -> str | None:
        """The next token, if it is one of these characters."""
        if self.is_at_end() or self._tokens[self._next] not in wanted:
            return None
        self._next += 1
        return self._tokens[self._next - 1]
