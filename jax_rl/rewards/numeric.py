r"""The number that a response ends with, compared exactly with the answer's.

Accepted forms: signs, thousands (1,234), decimals, a/b and \frac{a}{b}, mixed numbers (2 1/2),
scientific notation (1.5e-3, 2 \times 10^5), with currency before and units after the number.
"""

import dataclasses
import re
import unicodedata
from fractions import Fraction

from jax_rl.rewards.answers import find_boxed, name_place, require_answer
from jax_rl.rewards.base import Problem, Response

_LONGEST = 200  # characters of a number
_LONGEST_EXPONENT = 4  # its sign and digits
_LONGEST_ANSWER = 1000  # characters of a marked part

# Bounded, as every group of a run may be tried as the first one. A longer run than that still ends
# in one number of more than _LONGEST characters, which is none.
_GROUPS = rf"(?:,[0-9]{{3}}){{1,{_LONGEST // 4}}}+(?![0-9]|,[0-9]{{3}})"
_INTEGER = rf"(?:[0-9]{{1,3}}{_GROUPS}|[0-9]++)"
_DECIMAL = rf"(?:{_INTEGER}(?:\.[0-9]++)?+|(?<![0-9.])\.[0-9]++)"
_POWER = (
    r"(?:[eE](?P<e>[-+]?[0-9]++)"
    r"|\s?(?:\\times|\\cdot|[×·*x])\s?10\s?(?:\^|\*\*)\s?(?:\{\s?(?P<t>[-+]?[0-9]++)\s?\}"
    r"|(?P<u>[-+]?[0-9]++)))"
)
# A sign belongs to the number it touches, unless it stands between two operands, as in 9-4; a
# number that touches a letter before it, as in x2, is none.
_NUMBER = re.compile(
    r"(?<![0-9A-Za-z_])(?<![0-9A-Za-z]\.)(?:(?<![0-9A-Za-z_)}\]%.])(?P<sign>[-+]))?(?:\\?[$€£¥₹]\s?)?"
    r"(?:(?<=[$€£¥₹])(?P<inner>[-+]))?"
    rf"(?:(?:(?P<whole>{_INTEGER})\s{{1,2}})?(?P<top>{_INTEGER})\s?/\s?"
    rf"(?P<bottom>{_INTEGER})(?!\.[0-9])"
    rf"|(?P<decimal>{_DECIMAL}){_POWER}?)"
    r"(?:\s?(?P<percent>\\?%|percent\b|per cent\b))?"
)
_FRACTION = re.compile(
    r"(?:(?P<before>[0-9])\s{0,2})?\\[dtc]?frac\s*+(?:\{\s*+(?P<a>[-+]?[0-9,.]{1,100})\s*+\}|(?P<b>[0-9]))"
    r"\s*+(?:\{\s*+(?P<c>[0-9,.]{1,100})\s*+\}|(?P<d>[0-9]))"
)
_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox|operatorname)\s?\{([^{}]*+)\}")
_DEGREES = re.compile(r"\^\s?(?:\\circ|\{\s?\\circ\s?\}|∘)|°")
_UNIT_EXPONENT = re.compile(r"(?<=[A-Za-z])\s?\^\s?(?:[0-9]|\{[-+]?[0-9]\})|[²³]")
_VULGAR = re.compile(r"[¼-¾⅐-⅞]")
_SPACING = re.compile(r"\\[,;:! ]|[\u00a0\u2009\u202f~]")
# What makes the number beside it another one: 3\pi, 2\sqrt{3}, x/2, 2^10, x + 5.
_OPERATORS = re.compile(r"\\(?:pi|sqrt|times|cdot|pm|div|[dtc]?frac)\b|[π√×÷±^]")
_BEFORE = re.compile(r"/|[-+]\s*$|[A-Za-z)]\s*\*\s*$")
_AFTER = re.compile(r"\s*\+")


@dataclasses.dataclass(frozen=True)
class Number:
    """A number that a text states."""

    value: Fraction
    percent: bool
    """Whether a percent sign follows it, which `value` leaves out."""


def score_numeric(problem: Problem, response: Response) -> float:
    r"""1 if the final number of the response is the answer's; else 0.

    The final number stands in the last \boxed{}, else behind the last ####, else it is the last
    number of the text. A box or a #### line states it alone, or as the right side of an equation;
    one that states several numbers, or a number times pi, states none. The answer is read alike,
    but always stands alone.

    A percent sign is a unit: 50% is 50. Where only one of the two has it, it may also be worked
    out: 50% is 0.5.

    Raises:
      ValueError: the problem has no answer, or one that states no number.
    """
    answer = read_number(str(require_answer(problem)))
    if answer is None:
        raise ValueError(f"the answer {problem.answer!r} is not one number{name_place(problem)}")
    found = find_number(response.text)
    return float(found is not None and _are_equal(found, answer))


def find_number(text: str) -> Number | None:
    r"""The number in the last \boxed{}, else behind the last ####, else the last of the text."""
    marked = _find_marked(text)
    if marked is not None:
        return _read_alone(marked)
    for line in reversed(text.splitlines()):
        numbers = list(_NUMBER.finditer(_simplify(line)))
        if numbers:
            return _convert(numbers[-1])
    return None


def read_number(text: str) -> Number | None:
    r"""The number in the last \boxed{}, else behind the last ####, else the text itself."""
    marked = _find_marked(text)
    return _read_alone(text if marked is None else marked)


def _find_marked(text: str) -> str | None:
    boxed = find_boxed(text)
    if boxed is not None:
        return boxed
    _, mark, behind = text.rpartition("####")
    # A model may go on after its answer, with another question for example.
    return behind.strip().split("\n", 1)[0] if mark else None


def _read_alone(text: str) -> Number | None:
    if len(text) > _LONGEST_ANSWER:
        return None
    side = _simplify(text).rpartition("=")[2].strip()
    side = re.sub(r"^([$*(]*[-+])\s+", r"\1", side)
    numbers = list(_NUMBER.finditer(side))
    if len(numbers) != 1:
        return None
    before, after = side[: numbers[0].start()], side[numbers[0].end() :]
    if _BEFORE.search(before) or _AFTER.match(after) or _OPERATORS.search(before + after):
        return None
    return _convert(numbers[0])


def _simplify(text: str) -> str:
    r"""The text with plain signs and spaces, \frac{a}{b} as a/b, and without units' exponents."""
    if not text.isascii():
        text = re.sub("[−﹣－–—]", "-", text)
        text = _VULGAR.sub(lambda m: f" {unicodedata.normalize('NFKC', m[0])}", text)
        text = text.replace("\N{FRACTION SLASH}", "/")
    text = text.replace("{,}", ",")
    if "\\" in text:
        text = text.replace("\\!", "")
        text = text.replace("\\left", "").replace("\\right", "")
        text = _FRACTION.sub(_write_fraction, text)
        text = _TEXT.sub(lambda m: f" {m[1]} ", text)
    # A thin space groups digits; any other is a space.
    text = re.sub(r"(?<=[0-9])(?:\\,|[\u00a0\u2009\u202f])(?=[0-9]{3}(?![0-9]))", "", text)
    text = _SPACING.sub(" ", text)
    text = _DEGREES.sub(" ", text)
    return _UNIT_EXPONENT.sub("", text)


def _write_fraction(match: re.Match[str]) -> str:
    top, bottom = match["a"] or match["b"], match["c"] or match["d"]
    whole = f"{match['before']} " if match["before"] else ""
    return f"{whole}{top}/{bottom}"


def _convert(match: re.Match[str]) -> Number | None:
    """The number that was matched; None if it is too large to convert, or divided by 0."""
    exponent = match["e"] or match["t"] or match["u"] or "0"
    if match.end() - match.start() > _LONGEST or len(exponent) > _LONGEST_EXPONENT:
        return None
    if match["top"]:
        bottom = _read(match["bottom"])
        if not bottom:
            return None
        value = _read(match["whole"] or "0") + _read(match["top"]) / bottom
    else:
        value = _read(match["decimal"]) * Fraction(10) ** int(exponent)
    if "-" in (match["sign"], match["inner"]):
        value = -value
    return Number(value=value, percent=match["percent"] is not None)


def _read(digits: str) -> Fraction:
    return Fraction(digits.replace(",", ""))


def _are_equal(found: Number, answer: Number) -> bool:
    if found.value == answer.value:
        return True
    if found.percent == answer.percent:
        return False
    percent, plain = (found, answer) if found.percent else (answer, found)
    return percent.value == plain.value * 100
