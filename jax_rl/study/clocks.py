"""The verdicts under the training and the elapsed clock, one beside the other."""

import dataclasses

from jax_rl.study.names import Names
from jax_rl.study.summary import Arm, Verdict, arm_of

CLOCKS = ("training", "elapsed")
"""Every verdict is made under both, and so is all that follows from it."""


def agree(verdict: Verdict, other: Verdict) -> bool:
    """Whether two verdicts say the same: of the fastest, of its rivals, and of every arm."""
    return (
        name_the_same(verdict, other)
        and set(verdict.arms) == set(other.arms)
        and _judge(verdict) == _judge(other)
    )


def name_the_same(verdict: Verdict, other: Verdict) -> bool:
    """Whether two verdicts name the same batch in the same setting as the fastest, or both none."""
    return (verdict.setting, verdict.fastest) == (other.setting, other.fastest)


def _judge(verdict: Verdict) -> dict[Arm, str]:
    """What is said of each arm against the reference."""
    return {arm_of(one): one.verdict for one in verdict.against_reference}


def add_difference(verdict: Verdict, other: Verdict, names: Names) -> Verdict:
    """Says in a verdict where the other clock's differs."""
    if agree(verdict, other):
        return verdict
    sentences = [
        *_describe_fastest(verdict, other, names),
        *_describe_judgements(verdict, other, names),
        *_describe_sets(verdict, other, names),
    ]
    return dataclasses.replace(verdict, sentences=[*verdict.sentences, " ".join(sentences)])


def _describe_fastest(verdict: Verdict, other: Verdict, names: Names) -> list[str]:
    if name_the_same(verdict, other):
        return []
    # One has no fastest only if the other has none, so both have a setting and a batch here.
    mine, theirs = names.show(_fastest(verdict)), names.show(_fastest(other))
    return [
        f"The clocks differ: batch {mine} is the fastest by the {verdict.clock} clock,"
        f" batch {theirs} by the {other.clock} clock."
    ]


def _describe_judgements(verdict: Verdict, other: Verdict, names: Names) -> list[str]:
    mine, theirs = _judge(verdict), _judge(other)
    parts = [
        f"{names.show(arm)} {mine.get(arm, 'not judged')} by the {verdict.clock} clock,"
        f" {theirs.get(arm, 'not judged')} by the {other.clock} clock"
        for arm in dict.fromkeys([*mine, *theirs])
        if mine.get(arm) != theirs.get(arm)
    ]
    return [f"Against the reference the clocks differ: {'; '.join(parts)}."] if parts else []


def _describe_sets(verdict: Verdict, other: Verdict, names: Names) -> list[str]:
    return [
        f"By the {one.clock} clock alone {names.join(alone)} cannot be told from the fastest."
        for one, against in ((verdict, other), (other, verdict))
        if (alone := [a for a in one.arms if a not in against.arms and a != _fastest(one)])
    ]


def _fastest(verdict: Verdict) -> Arm:
    return Arm(verdict.setting or "", verdict.fastest or 0)
