"""Comparisons and verdicts: factors that multiply, censoring, and the words."""

import dataclasses
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from study_records import build_cell

from jax_rl.study.batches import compare_arms, fit_study, summarise_arm
from jax_rl.study.judge import judge_arms
from jax_rl.study.names import Names
from jax_rl.study.summary import Arm, Comparison, Interval
from jax_rl.study.verdict import decide
from jax_rl.study.words import RateContext, describe_comparison, format_multiple

CONTEXT = RateContext("sqrt", 1e-3, 64)
ALONE = Names(("replicated",))
T_2, T_4 = 4.302653, 2.776445


def study(effects, *, seeds=3, noise=0.0, censored=(), missing=(), rng_seed=0):
    """Cells from {batch: (samples, rate)}, log-normal noise on both."""
    rng = np.random.default_rng(rng_seed)
    return [
        build_cell(
            batch,
            seed,
            samples=samples * math.exp(noise * rng.normal()),
            rate=rate * math.exp(noise * rng.normal() / 10),
            crossed=(batch, seed) not in censored,
        )
        for seed in range(seeds)
        for batch, (samples, rate) in effects.items()
        if (batch, seed) not in missing
    ]


def fit_one(cells):
    return fit_study(cells, settings=ALONE.settings)


def compare(fit, batch, *, against):
    return compare_arms(fit, Arm("replicated", batch), against=Arm("replicated", against))


def summarise(fit, batch):
    reference = Arm("replicated", 64)
    return summarise_arm(
        fit, Arm("replicated", batch), reference=reference, updates_per_iteration=1
    )


def judge(cells, clock="training", context=CONTEXT, untuned=()):
    fit = fit_one(cells)
    results = [summarise(fit, arm.batch) for arm in fit.censored]
    verdict = decide(fit, results, names=ALONE, clock=clock, context=context, untuned=untuned)
    return verdict, results


SHAPE = {16: (20_000, 500), 64: (20_000, 1000), 256: (22_000, 2100), 1024: (60_000, 2500)}


@pytest.mark.parametrize("missing", [(), ((16, 0), (1024, 2))])
@pytest.mark.parametrize("censored", [(), ((1024, 1),), ((16, 1), (64, 0), (64, 1), (64, 2))])
def test_factors_multiply_exactly(missing, censored):
    cells = study(SHAPE, noise=0.2, missing=missing, censored=censored)
    fit = fit_one(cells)
    for batch in SHAPE:
        for against in SHAPE:
            found = compare(fit, batch, against=against)
            if found.samples.estimate is None:
                assert found.training_time.estimate is None
                continue
            ratio = found.samples.estimate / found.throughput.estimate
            assert found.training_time.estimate == pytest.approx(ratio, rel=1e-12)
    for result in (summarise(fit, arm.batch) for arm in fit.complete):
        assert result.training_time == pytest.approx(
            result.samples_to_target / result.throughput, rel=1e-12
        )


def test_interval_by_hand():
    # Batch means of log samples differ by log 2; residuals +-d, +-d, 0 with d = 0.1 in one
    # pair of rows: SSR = 4 d^2 = 0.04, dof = 2, variance 0.02, standard error 0.1414 * sqrt(2/3).
    logs = {(64, 0): 0.1, (64, 1): -0.1, (64, 2): 0.0, (256, 0): -0.1, (256, 1): 0.1, (256, 2): 0}
    cells = [
        build_cell(b, s, samples=1000 * b / 64 / 2 * math.exp(value), rate=100.0)
        for (b, s), value in logs.items()
    ]
    fit = fit_one(cells)
    found = compare(fit, 256, against=64)
    half = T_2 * math.sqrt(0.02) * math.sqrt(2 / 3)
    assert fit.degrees_of_freedom == 2
    assert found.samples.estimate == pytest.approx(4)
    assert found.samples.low == pytest.approx(4 * math.exp(-half), rel=1e-6)
    assert found.samples.high == pytest.approx(4 * math.exp(half), rel=1e-6)
    assert found.throughput.estimate == pytest.approx(1)


def test_censored_ratios_are_one_sided():
    cells = study(SHAPE, noise=0.05, censored={(1024, 1), (16, 0)})
    fit = fit_one(cells)
    assert [arm.batch for arm in fit.complete] == [64, 256]
    assert fit.degrees_of_freedom == 2
    later = compare(fit, 1024, against=64)
    assert (later.samples.bound, later.training_time.bound) == ("at least", "at least")
    assert later.samples.high is None
    assert later.samples.low < later.samples.estimate
    assert later.throughput.bound == ""
    assert later.throughput.high is not None
    logs = {c.name: math.log(c.samples) for c in cells}
    mean = np.mean([logs[f"b01024_s{s}"] - logs[f"b00064_s{s}"] for s in range(3)])
    assert later.samples.estimate == pytest.approx(math.exp(mean), rel=1e-3)
    sooner = compare(fit, 64, against=1024)
    assert sooner.samples.bound == "at most"
    assert sooner.samples.low is None
    none = compare(fit, 16, against=1024)
    assert none.samples == Interval(None, None, None) == none.elapsed_time
    assert none.throughput.estimate == pytest.approx(500 / 2500, rel=0.05)
    result = summarise(fit, 1024)
    assert (result.samples_to_target, result.training_time, result.censored) == (None, None, 1)
    whole = np.exp(np.mean([logs[f"b01024_s{s}"] for s in range(3)]))
    assert result.samples_at_least == pytest.approx(whole, rel=1e-3)
    assert result.updates_to_target is None
    assert result.seeds == [0, 1, 2]


def test_too_coarse_counts_updates():
    _, results = judge(study({64: (1300, 100), 256: (4000, 200)}))
    # 20.3 updates of 64, 15.6 of 256.
    assert [r.too_coarse for r in results] == [False, True]
    assert results[1].updates_to_target == pytest.approx(4000 / 256)
    verdict, _ = judge(study({64: (1300, 100), 256: (2400, 200)}))
    assert verdict.fastest == 256
    assert any(s.startswith("Too coarse: 256 had fewer than 20 updates") for s in verdict.sentences)


def test_words_of_the_fastest():
    verdict, _ = judge(study(SHAPE, noise=0.0))
    # Times 40, 20, 10.476, 24: 2,100 / 1,000 = 2.1 and 22,000 / 20,000 = 1.1, so 1.909 sooner.
    assert verdict.sentences[0] == (
        "×4 batch (256) reaches the target 1.9× sooner: throughput ×2.1, samples ×1.1"
        " (under sqrt from rate 0.001 at 64)."
    )
    assert verdict.fastest == 256
    assert verdict.inside_range
    assert verdict.undistinguished == [256]
    assert "The optimum is inside the range of 16 to 1024." in verdict.sentences
    [sentence] = [s for s in verdict.sentences if s.startswith("Every other batch is slower")]
    assert "in at least 95 % of studies" in sentence
    # Without noise every interval is its point: 20 / 40, 20 / 10.476, 20 / 24 s the other way up.
    assert (
        "95 % interval of the time of 256 over that of 64: 0.52 to 0.52, one of 3 that hold"
        " together." in verdict.sentences
    )
    assert (
        "Against the reference 64, by intervals that hold together in 95 % of studies, faster: 256;"
        " slower: 16 and 1024." in verdict.sentences
    )


def test_words_when_the_reference_is_the_fastest():
    verdict, _ = judge(study({16: (3000, 100), 64: (2000, 200), 256: (6000, 400)}))
    assert verdict.fastest == 64
    assert verdict.sentences[0] == "The reference batch (64) reaches the target first."
    assert verdict.sentences[1] == (
        "Next, the ×4 batch (256) reaches the target 1.5× later: throughput ×2.0, samples ×3.0"
        " (under sqrt from rate 0.001 at 64)."
    )


def test_optimum_outside_the_range_is_said():
    verdict, _ = judge(study({64: (2000, 200), 256: (2000, 400)}))
    assert not verdict.inside_range
    assert (
        "The optimum is not inside the range: the fastest batch, 256, is the largest measured, and"
        " a larger one may be faster." in verdict.sentences
    )
    verdict, _ = judge(study({64: (2000, 200), 256: (9000, 400)}))
    assert any("is the smallest measured" in s for s in verdict.sentences)


def test_set_by_hand():
    # Time ratio 1.1 against the fastest. Dunnett's one-sided 5 % value for 2 comparisons and 4
    # degrees of freedom is 2.61. With residual sd 0.02 the bound of the log ratio is
    # 2.61 * 0.02 * sqrt(2/3) = 0.0426 < log 1.1 = 0.0953 away; with 0.05 it is 0.107 > it.
    for sd, expected in ((0.02, [256]), (0.05, [64, 256])):
        # A Latin square of +-d, 0 has no row or column means: SSR = 6 d^2, variance 1.5 d^2.
        d = sd / math.sqrt(1.5)
        square = [[d, -d, 0], [0, d, -d], [-d, 0, d]]
        times = {64: 11.0, 256: 10.0, 1024: 40.0}
        cells = [
            build_cell(batch, seed, samples=1000.0 * time * math.exp(square[i][seed]), rate=1000.0)
            for i, (batch, time) in enumerate(times.items())
            for seed in range(3)
        ]
        fit = fit_one(cells)
        assert fit.fits["training_time"].residual_sd == pytest.approx(sd)
        interval = compare(fit, 64, against=256).training_time
        assert interval.low == pytest.approx(1.1 * math.exp(-T_4 * sd * math.sqrt(2 / 3)), rel=1e-6)
        verdict, _ = judge(cells)
        assert verdict.undistinguished == expected
    [sentence] = [s for s in verdict.sentences if "cannot be told from the fastest" in s]
    assert sentence.startswith("64 cannot be told from the fastest, 256.")
    assert any("its edge (64) cannot be told from it" in s for s in verdict.sentences)


def test_verdicts_by_hand():
    # The same Latin square: residual sd 0.05, 4 degrees of freedom, so each log ratio to the
    # reference has standard error 0.05 sqrt(2/3) = 0.0408. Dunnett's two-sided 5 % value for 2
    # comparisons is 3.31, so a ratio is decided beyond 0.135 = log 1.145; Student's 2.776 for one
    # comparison would decide it beyond 0.113 = log 1.12.
    d = 0.05 / math.sqrt(1.5)
    square = [[d, -d, 0], [0, d, -d], [-d, 0, d]]
    for ratio, expected in ((1.13, "undecided"), (1.16, "slower"), (1 / 1.16, "faster")):
        times = {64: 10.0, 256: 10.0 * ratio, 1024: 40.0}
        cells = [
            build_cell(batch, seed, samples=1000.0 * time * math.exp(square[i][seed]), rate=1000.0)
            for i, (batch, time) in enumerate(times.items())
            for seed in range(3)
        ]
        verdict, _ = judge(cells)
        found = {v.batch: v for v in verdict.against_reference}
        assert [found[256].verdict, found[1024].verdict] == [expected, "slower"]
        half = 3.3104 * 0.05 * math.sqrt(2 / 3)
        assert found[256].time.high == pytest.approx(ratio * math.exp(half), rel=1e-3)
        own = compare(fit_one(cells), 256, against=64).training_time
        assert found[256].time.low < own.low < own.high < found[256].time.high
        if expected == "undecided":
            assert own.low > 1
            assert any("slower: 1024; undecided: 256." in s for s in verdict.sentences)


def test_one_comparison_needs_no_correction():
    cells = study({64: (20_000, 1000), 256: (22_000, 1100)}, noise=0.05)
    verdict, results = judge(cells)
    [only] = verdict.against_reference
    own = results[1].against_reference.training_time
    assert (only.time.low, only.time.high) == pytest.approx((own.low, own.high), rel=1e-5)
    assert not any("hold together." in s for s in verdict.sentences)


def test_censored_arm_is_slower_by_its_bound_or_undecided():
    verdict, _ = judge(study(SHAPE, noise=0.01, censored={(16, 2), (256, 1)}))
    found = {v.batch: v for v in verdict.against_reference}
    assert (found[16].verdict, found[16].time.bound, found[16].time.high) == (
        "slower",
        "at least",
        None,
    )
    # By its bound 256 takes half the time, which does not make it faster.
    assert found[256].verdict == "undecided"


def test_no_reference_and_no_degrees_of_freedom_decide_nothing():
    cells = [cell for cell in study(SHAPE) if cell.batch != 64]
    assert judge(cells)[0].against_reference == []
    verdict, _ = judge(study(SHAPE, seeds=1))
    assert {v.verdict for v in verdict.against_reference} == {"undecided"}
    assert not any(s.startswith("Against the reference") for s in verdict.sentences)


def test_set_keeps_the_best_of_equals():
    # Five equal arms, 3 seeds: the first is left out of the set in at most 5 % of studies, where
    # an argmin would leave it out in 80 %.
    rng = np.random.default_rng(5)
    kept, argmin = [], []
    for _ in range(300):
        cells = [
            build_cell(b, s, samples=20_000 * math.exp(0.1 * rng.normal()), rate=1000.0)
            for s in range(3)
            for b in (16, 32, 64, 128, 256)
        ]
        fit = fit_one(cells)
        judgement = judge_arms(fit, fit.complete, reference=Arm("replicated", 64), clock="training")
        kept.append(Arm("replicated", 16) in judgement.near)
        argmin.append(judgement.fastest == Arm("replicated", 16))
    # Four standard errors of a share of 0.95 over 300 studies are 0.05.
    assert 0.90 <= np.mean(kept) < 0.99
    assert np.mean(argmin) < 0.3


def test_one_seed_has_estimates_and_no_intervals():
    verdict, results = judge(study(SHAPE, seeds=1))
    assert verdict.fastest == 256
    assert verdict.undistinguished == [16, 64, 256, 1024]
    assert results[2].against_reference.training_time.estimate == pytest.approx(1.1 / 2.1)
    assert results[2].against_reference.training_time.low is None
    assert any(s.startswith("There are no intervals") for s in verdict.sentences)
    assert not any("95 % interval of the time" in s for s in verdict.sentences)


def test_censored_batch_is_never_the_fastest_but_may_stay_in_the_set():
    # By its bounds 256 takes 10.5 s, less than any other: it cannot be excluded.
    verdict, _ = judge(study(SHAPE, noise=0.01, censored={(256, 2)}))
    assert verdict.fastest == 64
    assert verdict.undistinguished == [64, 256]
    [sentence] = [s for s in verdict.sentences if "cannot be named the fastest" in s]
    assert "(1 of 3 runs of 256 censored, > 2" in sentence
    # 16 takes at least twice as long as 64: it can.
    verdict, _ = judge(study(SHAPE, noise=0.01, censored={(16, 2)}))
    assert verdict.undistinguished == [256]


def test_censored_reference_in_words():
    verdict, _ = judge(study(SHAPE, censored={(64, 0)}))
    assert verdict.sentences[0] == (
        "×4 batch (256) reaches the target at least 1.9× sooner: throughput ×2.1, samples at most"
        " ×1.1 (under sqrt from rate 0.001 at 64; 1 of 3 runs of 64 censored)."
    )
    verdict, _ = judge(study(SHAPE, censored={(b, 0) for b in SHAPE}))
    assert verdict.fastest is None
    assert not verdict.inside_range
    assert verdict.sentences[0].startswith("In no batch did every run reach the target")


def test_elapsed_clock_has_its_own_throughput():
    cells = [build_cell(64, s, samples=2000, rate=100, elapsed_rate=50) for s in range(2)] + [
        build_cell(256, s, samples=2000, rate=200, elapsed_rate=25) for s in range(2)
    ]
    assert judge(cells)[0].fastest == 256
    verdict, _ = judge(cells, "elapsed")
    assert verdict.fastest == 64
    assert (
        "×4 batch (256) reaches the target 2.0× later: rollouts per elapsed second ×0.50, samples"
        " ×1.0" in verdict.sentences[1]
    )


def test_rate_in_words():
    assert CONTEXT.describe() == "under sqrt from rate 0.001 at 64"
    assert RateContext("none", 2e-4, 64).describe() == "at rate 0.0002 for every batch"


def test_multiples():
    assert [format_multiple(m) for m in (1, 4, 0.25, 1 / 64)] == ["×1", "×4", "×1/4", "×1/64"]


@settings(max_examples=300, deadline=None)
@given(st.floats(-3, 3), st.floats(-3, 3))
def test_printed_factors_multiply(log_samples, log_throughput):
    samples, throughput = math.exp(log_samples), math.exp(log_throughput)

    def point(value):
        return Interval(value, None, None)

    text = describe_comparison(
        Comparison(
            "replicated",
            256,
            "replicated",
            64,
            point(samples),
            point(throughput),
            *[point(samples / throughput)] * 2,
        ),
        clock="training",
        context=CONTEXT,
        names=ALONE,
    )
    found = re.search(r"target (.*): throughput ×(\S+), samples ×(\S+) ", text)
    words, printed = found[1], float(found[2]) / float(found[3])
    time = re.match(r"([\d.]+)× (sooner|later)", words)
    factor, sooner = (float(time[1]), time[2] == "sooner") if time else (1.0, printed >= 1)
    assert (math.log(printed) >= 0) == sooner or factor == 1.0
    exact = printed if sooner else 1 / printed
    digits = len(time[1].split(".")[1]) if time and "." in time[1] else 0 if time else 2
    assert abs(exact - factor) <= 0.5 * 10**-digits + 1e-6
    assert float(found[3]) == pytest.approx(samples, rel=0.05)


def test_an_arm_whose_best_rate_is_at_the_edge_stays_undecided():
    effects = {16: (20_000, 500), 64: (20_000, 2000), 256: (30_000, 500)}
    cells = study(effects, noise=0.01)
    words = [one.verdict for one in judge(cells)[0].against_reference]
    assert words == ["slower", "slower"]
    opened, _ = judge(cells, untuned=[Arm("replicated", 256)])
    assert [one.verdict for one in opened.against_reference] == ["slower", "undecided"]
    assert [arm.batch for arm in opened.arms] == [64, 256]
    assert any("at the edge of those tried" in line for line in opened.sentences)
    # What is compared with an open reference is open.
    every, _ = judge(cells, untuned=[Arm("replicated", 64)])
    assert [one.verdict for one in every.against_reference] == ["undecided", "undecided"]


def test_arms_without_a_shared_seed_are_not_named_the_fastest():
    """256 took a hundredth of the time, on seeds that no other batch has."""
    cells = study({16: (20_000, 500), 64: (20_000, 1000)}, seeds=2, noise=0.01)
    cells += [build_cell(256, seed, samples=400, rate=2000.0) for seed in (2, 3)]
    verdict, _ = judge(cells)
    assert verdict.fastest == 64
    assert 256 in verdict.undistinguished
    [word] = [v.verdict for v in verdict.against_reference if v.batch == 256]
    assert word == "undecided"
    assert any(
        sentence.startswith("No shared seed connects 256 with 64") for sentence in verdict.sentences
    )
    # Without the reference it is the largest part that is connected.
    rest = [cell for cell in cells if cell.batch != 64]
    rest += [build_cell(32, seed, samples=20_000, rate=900.0) for seed in (0, 1)]
    assert judge(rest)[0].fastest == 32


def test_an_arm_that_shares_no_seed_is_no_next_one():
    cells = study({16: (20_000, 500), 64: (20_000, 1000)}, seeds=2, noise=0.01)
    cells += [build_cell(256, seed, samples=20_000, rate=999.0) for seed in (2, 3)]
    verdict, _ = judge(cells)
    assert verdict.fastest == 64
    assert "Next, the ×1/4 batch (16)" in verdict.sentences[1]


def test_a_setting_of_one_batch_beats_nothing():
    cells = study({16: (20_000, 500), 64: (20_000, 1000)}, noise=0.01)
    other = [
        dataclasses.replace(cell, setting="fsdp")
        for cell in study({64: (20_000, 900)}, noise=0.01, rng_seed=1)
    ]
    fit = fit_study([*cells, *other], settings=("replicated", "fsdp"))
    assert fit.degrees_of_freedom > 0
    reference = Arm("fsdp", 64)
    results = [summarise_arm(fit, reference, reference=reference, updates_per_iteration=1)]
    verdict = decide(fit, results, names=Names(("fsdp",)), clock="training", context=CONTEXT)
    words = " ".join(verdict.sentences)
    assert "No other batch was measured to compare 64 with." in words
    assert "Every other batch" not in words
