"""Phases add up to the elapsed time, by a clock that is set by hand."""

import pytest

from jax_rl.records import PHASES
from jax_rl.trainer.clock import PhaseClock


class Hand:
    """A time that goes on only when told to."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        self.time += seconds


def test_every_second_belongs_to_the_phase_it_was_spent_in() -> None:
    hand = Hand()
    clock = PhaseClock(now=hand)
    hand.wait(0.5)  # other, the phase at the start
    for phase, seconds in [("compile", 4.0), ("generate", 2.0), ("reward", 0.25), ("learn", 1.0)]:
        clock.enter(phase)
        hand.wait(seconds)
    clock.enter("validate")
    hand.wait(8.0)
    clock.enter("checkpoint")
    hand.wait(16.0)
    clock.enter("generate")
    hand.wait(0.125)  # still going on when the clock is read
    assert clock.totals == {
        "generate": 2.125,
        "reward": 0.25,
        "learn": 1.0,
        "sync": 0.0,
        "validate": 8.0,
        "checkpoint": 16.0,
        "compile": 4.0,
        "other": 0.5,
    }
    assert clock.elapsed == 31.875
    assert clock.training == 31.875 - 4.0 - 8.0 - 16.0


def test_time_after_stop_belongs_to_no_phase() -> None:
    hand = Hand()
    clock = PhaseClock(now=hand)
    hand.wait(1.0)
    clock.stop()
    hand.wait(5.0)
    assert clock.elapsed == 1.0
    clock.enter("learn")
    hand.wait(2.0)
    assert (clock.elapsed, clock.totals["other"], clock.totals["learn"]) == (3.0, 1.0, 2.0)


def test_cuts_are_disjoint_and_complete() -> None:
    hand = Hand()
    clock = PhaseClock(phases={"learn": 100.0}, hidden={"prompts": 7.0}, now=hand)
    clock.enter("learn")
    hand.wait(1.0)
    with clock.hide("prompts", busy=lambda: True):
        hand.wait(0.5)
    first = clock.cut()
    hand.wait(2.0)
    clock.enter("sync")
    hand.wait(4.0)
    clock.enter("compile")
    second = clock.cut()
    assert (first.phases["learn"], sum(first.phases.values())) == (1.5, 1.5)
    assert (first.elapsed, first.training, first.hidden) == (101.5, 101.5, {"prompts": 0.5})
    assert (second.phases["learn"], second.phases["sync"]) == (2.0, 4.0)
    assert (sum(second.phases.values()), second.hidden) == (6.0, {"prompts": 0.0})
    hand.wait(8.0)
    third = clock.cut()
    assert (third.elapsed, third.training, third.phases["compile"]) == (115.5, 107.5, 8.0)
    assert clock.elapsed == 115.5
    assert clock.hidden == {"prompts": 7.5}


def test_host_work_is_hidden_only_behind_a_busy_device() -> None:
    hand = Hand()
    clock = PhaseClock(now=hand)
    clock.enter("learn")
    for busy, seconds in [(True, 1.0), (False, 2.0), (True, 0.25)]:
        with clock.hide("prompts", busy=lambda busy=busy: busy):
            hand.wait(seconds)
    assert clock.hidden == {"prompts": 1.25}
    # Hidden work takes nothing from the phase: the device's time is the critical path.
    assert clock.totals["learn"] == clock.elapsed == 3.25


def test_a_resumed_clock_goes_on_from_earlier_totals() -> None:
    hand = Hand()
    clock = PhaseClock(phases={"compile": 3.0, "learn": 2.0}, now=hand)
    hand.wait(1.0)
    assert set(clock.totals) == set(PHASES)
    assert (clock.elapsed, clock.training) == (6.0, 3.0)


def test_a_phase_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="'dreaming' is no phase; known: generate, reward"):
        PhaseClock().enter("dreaming")
