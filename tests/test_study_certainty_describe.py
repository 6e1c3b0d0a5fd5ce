"""The certainty of a verdict is about that verdict."""

import dataclasses
import math

import numpy as np
import pytest

from jax_rl.study.batches import fit_study, summarise_arm
from jax_rl.study.certainty.describe import describe_certainty
from jax_rl.study.certainty.simulate import SCENARIOS, SETTING, simulate_study
from jax_rl.study.names import Names
from jax_rl.study.summary import Arm
from jax_rl.study.verdict import decide
from jax_rl.study.words import RateContext

NAMES = Names((SETTING,))


def analyse(name, clock, *, untuned=(), **changes):
    scenario = dataclasses.replace(next(one for one in SCENARIOS if one.name == name), **changes)
    cells, _ = simulate_study(scenario, np.random.default_rng(1), seeds=4)
    fit = fit_study(cells, settings=[SETTING])
    reference = scenario.batches[0]
    results = [
        summarise_arm(fit, arm, reference=Arm(SETTING, reference), updates_per_iteration=1)
        for arm in fit.censored
    ]
    context = RateContext("none", 1e-3, reference)
    verdict = decide(fit, results, names=NAMES, clock=clock, context=context, untuned=untuned)
    return verdict, describe_certainty(
        fit,
        verdict,
        names=NAMES,
        reference=reference,
        target=scenario.target,
        noise=0.02,
        prompts=scenario.prompts,
        untuned=untuned,
    )


@pytest.mark.parametrize("clock", ["training", "elapsed"])
@pytest.mark.parametrize("name", ["equal", "censored"])
def test_first_reading_is_the_verdict_itself(name, clock):
    verdict, certainty = analyse(name, clock)
    headline = certainty.sensitivity.readings[0]
    assert (headline.setting, headline.fastest) == (verdict.setting, verdict.fastest)
    assert headline.arms == verdict.arms
    assert headline.verdicts == verdict.against_reference
    assert (certainty.clock, headline.changed) == (clock, [])
    undecided = [v for v in verdict.against_reference if v.verdict == "undecided"]
    assert undecided
    seen = [need for need in certainty.spread.more_seeds if need.batch is not None]
    bounded = [v.batch for v in undecided if v.time.bound]
    assert [need.batch for need in seen] == [v.batch for v in undecided if v.batch not in bounded]
    for need in seen:
        [mine] = [v for v in undecided if v.batch == need.batch]
        assert abs(math.log(need.ratio)) == pytest.approx(abs(math.log(mine.time.estimate)))
    assert {ratio.batch for ratio in certainty.censored} == set(bounded)


def test_nothing_is_certain_about_no_verdict():
    verdict, certainty = analyse("plain", "training", budget=8192)
    assert verdict.fastest is None
    assert certainty is None


def test_untuned_arms_ask_for_no_seeds():
    def count(untuned):
        _, certainty = analyse("equal", "training", untuned=[Arm(SETTING, b) for b in untuned])
        return [n.batch for n in certainty.spread.more_seeds if n.batch is not None]

    every = count([])
    assert len(every) > 1
    assert count(every[:1]) == every[1:]
    assert count([16]) == []  # the reference
