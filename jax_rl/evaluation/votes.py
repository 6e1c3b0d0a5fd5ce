"""Which answer a response gives, for the vote of majority@k."""

from collections.abc import Hashable

from jax_rl.rewards.answers import find_boxed, find_tagged
from jax_rl.rewards.base import Problem
from jax_rl.rewards.numeric import find_number, read_number


def read_vote(problem: Problem, text: str) -> Hashable | None:
    r"""The answer that a response gives, equal for responses that say the same; None: no answer.

    It is looked for in the last <answer></answer>, or in the whole text without these tags. Where
    the problem's own answer is a number, it is the number that the text ends with. Elsewhere it is
    the content of the last \boxed{}, or the text itself, white space aside.
    """
    answer = problem.answer
    tagged = find_tagged(text)
    text = text if tagged is None else tagged
    if isinstance(answer, str | int | float) and read_number(str(answer)) is not None:
        number = find_number(text)
        return None if number is None else number.value
    boxed = find_boxed(text)
    return "".join(boxed.split()) if boxed else " ".join(text.split()) or None
