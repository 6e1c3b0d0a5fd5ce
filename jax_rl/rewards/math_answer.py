"""Mathematical equality through math-verify (the extra `math`).

Imported only when it is chosen: math-verify is optional, and takes a second to load, which a
worker spends before the clock of its first response starts.
"""

import logging

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

from jax_rl.rewards.answers import find_boxed, name_place, require_answer
from jax_rl.rewards.base import Problem, Response

_FORMS = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())
_NO_LIMIT = 0  # its own limits are signals, which need the main thread; the pool's kill stands


def score_math(problem: Problem, response: Response) -> float:
    """1 if math-verify finds the response's final answer equal to the problem's; else 0.

    The problem's answer is its last box where it has one, as a worked solution does. A response
    that math-verify cannot parse or compare is wrong. Unbounded in time: for a pool.

    Raises:
      ValueError: the problem has no answer, or one that math-verify cannot parse.
    """
    answer = str(require_answer(problem))
    boxed = find_boxed(answer)
    # Each process that goes without its limits would be warned about it.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    gold = parse(
        f"\\boxed{{{answer if boxed is None else boxed}}}", _FORMS, parsing_timeout=_NO_LIMIT
    )
    if not gold:
        raise ValueError(f"math-verify cannot parse the answer {answer!r}{name_place(problem)}")
    found = parse(response.text, _FORMS, parsing_timeout=_NO_LIMIT)
    return float(verify(gold, found, timeout_seconds=_NO_LIMIT))
