"""What moving the rate does, read from trials and from runs of two rules; worked by hand."""

import dataclasses
import math

import pytest
from scipy import stats
from study_records import build_cell

from jax_rl.study.rates.effects import find_effects
from jax_rl.study.rates.trials import Trial, TrialPlan, TrialResult
from jax_rl.study.rates.tuning import Tuning, tune_arm
from jax_rl.study.settings import Setting

SQRT = Setting("replicated", "replicated", "sqrt", "prompts", 1, "fixed")
PLAN = TrialPlan(multiples=(0.5, 1.0, 2.0), seeds=(1000,), extensions=0)


def make_tuning(by_batch, *, rule="sqrt", reference=64):
    """{batch: {multiple: samples to target}}; None: not within 9,000 samples."""
    arms = []
    for batch, crossings in by_batch.items():
        moved = {"sqrt": math.sqrt(batch / reference), "none": 1.0}[rule]
        results = {
            Trial("", batch, multiple, 1000): TrialResult(
                1e-3 * moved * multiple, crossing, 9000, 0.5, 1.0, 2.0
            )
            for multiple, crossing in crossings.items()
        }
        arm = tune_arm("", batch, PLAN, results)
        arms.append(dataclasses.replace(arm, setting="replicated"))
    return Tuning([0.5, 1.0, 2.0], [1000], arms, 9, 0, 0.0, 0.0, None, None)


def find(tuning, setting=SQRT, cells=()):
    return find_effects(tuning, {"replicated": setting}, cells, reference=64)


def test_the_references_rate_is_half_the_rules_at_four_times_the_batch():
    tuning = make_tuning(
        {
            64: {0.5: 3000, 1.0: 2000, 2.0: 2500},
            256: {0.5: 5000, 1.0: 4000, 2.0: 3200},
            1024: {0.5: 9000, 1.0: 8000, 2.0: 7000},
        }
    )
    unmoved, *tuned = find(tuning)
    assert (unmoved.question, unmoved.batch, unmoved.factor) == ("unmoved", 256, 4)
    assert unmoved.learning_rate == pytest.approx(1e-3)
    assert unmoved.against_rate == pytest.approx(2e-3)
    assert unmoved.samples.estimate == pytest.approx(5000 / 4000)
    assert (unmoved.pairs, unmoved.samples.low, unmoved.samples.high) == (1, None, None)
    # At sixteen times it is a quarter, which was not tried. The reference's best is x1.
    assert [(e.question, e.batch) for e in tuned] == [("reference", 256), ("reference", 1024)]
    assert tuned[0].samples.estimate == pytest.approx(4000 / 3200)
    assert tuned[1].samples.estimate == pytest.approx(8000 / 7000)


def test_without_a_rule_the_moved_rate_is_the_multiple():
    tuning = make_tuning(
        {
            64: {0.5: 3000, 1.0: 2000, 2.0: 2500},
            256: {0.5: 6000, 1.0: 4000, 2.0: 3200},
        },
        rule="none",
    )
    unmoved, _ = find(tuning, dataclasses.replace(SQRT, rule="none"))
    assert unmoved.samples.estimate == pytest.approx(4000 / 3200)
    assert unmoved.against_rate == pytest.approx(2e-3)


def test_under_adam_trials_hold_no_unmoved_optimizer():
    tuning = make_tuning(
        {64: {0.5: 3000, 1.0: 2000, 2.0: 2500}, 256: {0.5: 6000, 1.0: 4000, 2.0: 3200}}
    )
    found = find(tuning, dataclasses.replace(SQRT, rule="adam"))
    assert [effect.question for effect in found] == ["reference"]


@pytest.mark.parametrize(
    ("kept", "moved", "estimate", "bound"),
    [
        (None, 3000, 3.0, "at least"),
        (3000, None, 1 / 3, "at most"),
        (None, None, None, ""),
    ],
)
def test_a_ratio_with_a_censored_side_is_a_bound(kept, moved, estimate, bound):
    tuning = make_tuning(
        {64: {0.5: 3000, 1.0: 2000, 2.0: 2500}, 256: {0.5: kept, 1.0: moved, 2.0: 8000}}
    )
    samples = find(tuning)[0].samples
    assert samples.estimate == (None if estimate is None else pytest.approx(estimate))
    assert samples.bound == bound


def test_arms_with_missing_trials_are_left_out():
    tuning = make_tuning({64: {0.5: 3000, 1.0: 2000, 2.0: 2500}, 256: {0.5: 6000, 1.0: 4000}})
    assert find(tuning) == []
    assert find(Tuning([], [], [], 0, 0, 0.0, 0.0, None, None)) == []


def test_runs_of_two_rules_are_compared_in_pairs():
    none = dataclasses.replace(SQRT, name="rate_none", rule="none")
    sqrt = dataclasses.replace(SQRT, name="rate_sqrt")
    other = dataclasses.replace(SQRT, name="other", updates=4)  # differs in more than the rule
    settings = {one.name: one for one in (none, sqrt, other)}
    numbers = {
        "rate_none": (5000, 7000, 6500),
        "rate_sqrt": (4000, 5000, 6000),
        "other": (1000, 1000, 1000),
    }
    cells = [
        dataclasses.replace(
            build_cell(256, seed, samples=samples, rate=100.0, layout=name), learning_rate=rate
        )
        for (name, values), rate in zip(numbers.items(), (1e-3, 2e-3, 1e-3), strict=True)
        for seed, samples in enumerate(values)
    ]
    nothing = Tuning([], [], [], 0, 0, 0.0, 0.0, None, None)
    (effect,) = find_effects(nothing, settings, cells, reference=64)
    logs = [math.log(5000 / 4000), math.log(7000 / 5000), math.log(6500 / 6000)]
    ends = stats.ttest_1samp(logs, 0.0).confidence_interval(0.95)
    assert (effect.setting, effect.against_setting, effect.source) == (
        "rate_none",
        "rate_sqrt",
        "runs",
    )
    assert (effect.learning_rate, effect.against_rate, effect.pairs) == (1e-3, 2e-3, 3)
    assert effect.samples.estimate == pytest.approx(math.exp(sum(logs) / 3))
    assert (effect.samples.low, effect.samples.high) == pytest.approx(
        (math.exp(ends.low), math.exp(ends.high))
    )


def test_tuned_runs_of_two_rules_do_not_answer_what_moving_the_rate_does():
    none = dataclasses.replace(SQRT, name="rate_none", rule="none")
    settings = {"rate_none": none, "replicated": SQRT}
    cells = [
        build_cell(256, seed, samples=5000.0, rate=100.0, layout=name)
        for name in settings
        for seed in (0, 1)
    ]
    tuning = make_tuning(
        {64: {0.5: 3000, 1.0: 2000, 2.0: 2500}, 256: {0.5: 5000, 1.0: 4000, 2.0: 8000}}
    )
    found = find_effects(tuning, settings, cells, reference=64)
    assert {(effect.question, effect.source) for effect in found} == {
        ("unmoved", "trials"),
        ("reference", "trials"),
    }


@pytest.mark.parametrize(
    "home",
    [
        {0.5: 3000, 1.0: 2500, 2.0: 2000},  # at the edge
        {0.5: None, 1.0: None, 2.0: None},  # chosen by score
    ],
)
def test_a_reference_whose_best_rate_is_not_known_carries_none_over(home):
    tuning = make_tuning({64: home, 256: {0.5: 5000, 1.0: 4000, 2.0: 8000}})
    assert [effect.question for effect in find(tuning)] == ["unmoved"]
