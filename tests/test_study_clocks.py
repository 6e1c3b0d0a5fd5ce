"""Where the verdicts of the two clocks differ, and what is said of it."""

import dataclasses

import pytest

from jax_rl.study.clocks import add_difference, agree, name_the_same
from jax_rl.study.names import Names
from jax_rl.study.summary import Arm, ArmVerdict, Interval, Verdict

NAMES = Names(("replicated",))
NOTHING = Interval(None, None, None)


def make(clock, *, fastest=256, near=(256,), **judged):
    verdicts = [
        ArmVerdict("replicated", int(name[1:]), word, NOTHING) for name, word in judged.items()
    ]
    arms = [Arm("replicated", batch) for batch in near]
    return Verdict(clock, "replicated", fastest, list(near), True, ["Said."], arms, [], verdicts)


TRAINING = make("training", b16="slower", b256="faster")


def test_equal_verdicts_agree_and_nothing_is_added():
    elapsed = dataclasses.replace(TRAINING, clock="elapsed")
    assert agree(TRAINING, elapsed)
    assert add_difference(TRAINING, elapsed, NAMES).sentences == ["Said."]


@pytest.mark.parametrize(
    ("elapsed", "words"),
    [
        (
            make("elapsed", b16="undecided", b256="faster"),
            "Against the reference the clocks differ: 16 slower by the training clock,"
            " undecided by the elapsed clock.",
        ),
        (
            make("elapsed", near=(64, 256), b16="slower", b256="faster"),
            "By the elapsed clock alone 64 cannot be told from the fastest.",
        ),
    ],
)
def test_the_same_fastest_with_other_verdicts_is_no_agreement(elapsed, words):
    assert name_the_same(TRAINING, elapsed)
    assert not agree(TRAINING, elapsed)
    assert add_difference(TRAINING, elapsed, NAMES).sentences == ["Said.", words]


def test_another_fastest_is_named_first():
    elapsed = make("elapsed", fastest=64, near=(64,), b16="slower", b256="faster")
    said = add_difference(TRAINING, elapsed, NAMES).sentences[-1]
    assert said == (
        "The clocks differ: batch 256 is the fastest by the training clock, batch 64 by the"
        " elapsed clock."
    )
