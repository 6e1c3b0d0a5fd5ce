"""Other readings of the same curves: crossings worked by hand, and what they change."""

import dataclasses
import math

import numpy as np
import pytest

from jax_rl.study.batches import fit_study
from jax_rl.study.certainty.sensitivity import choose_targets, cross_again, describe_sensitivity
from jax_rl.study.certainty.simulate import SETTING, make_cell_from_curve
from jax_rl.study.names import Names
from jax_rl.study.summary import Arm

NAMES = Names((SETTING,))
REFERENCE = Arm(SETTING, 10)


def run(batch, seed, scores, *, rate=100.0, target=0.6):
    samples = [1000 * i for i in range(len(scores))]
    return make_cell_from_curve(
        batch, seed, samples=samples, scores=list(scores), rate=rate, target=target
    )


def describe(cells, *, noise=0.05, target=0.6, clock="training", untuned=()):
    """Of cells, or of a fit of them."""
    fit = fit_study(cells, settings=NAMES.settings) if isinstance(cells, list) else cells
    return describe_sensitivity(
        fit,
        names=NAMES,
        reference=REFERENCE,
        target=target,
        noise=noise,
        prompts=100,
        clock=clock,
        untuned=untuned,
    )


def line(samples, *, length=13):
    """A straight curve from 0.2 through 0.6 at `samples`."""
    return [0.2 + 0.4 * 1000 * i / samples for i in range(length)]


def study(shapes, seeds=3):
    """Cells from {batch: (samples, rate)}, with a little scatter between seeds."""
    rng = np.random.default_rng(0)
    return [
        run(batch, seed, line(samples * math.exp(0.01 * rng.normal())), rate=rate)
        for seed in range(seeds)
        for batch, (samples, rate) in shapes.items()
    ]


def test_headline_reading_is_the_crossing_of_the_run():
    cell = run(10, 0, [0.2, 0.5, 0.7, 0.65, 0.8, 0.9])
    again = cross_again(cell, 0.6, "isotonic")
    assert again.crossing.samples == pytest.approx(cell.crossing.samples)
    assert again.crossing.training_seconds == pytest.approx(cell.crossing.training_seconds)
    assert again.crossing.raw_samples == cell.crossing.raw_samples
    assert again.rollouts_per_second == pytest.approx(100.0)


def test_another_target_and_rule_by_hand():
    cell = run(10, 0, [0.2, 0.4, 0.7, 0.3, 0.8, 0.9, 0.9])
    # 0.7 and 0.3 pool to 0.5: the fit meets 0.45 half-way from 1,000 to 2,000.
    assert cross_again(cell, 0.45, "isotonic").crossing.samples == pytest.approx(1500)
    assert cross_again(cell, 0.45, "raw").crossing.samples == 2000
    assert cross_again(cell, 0.45, "confirmed").crossing.samples == 4000
    assert cross_again(cell, 0.45, "confirmed").crossing.training_seconds == 40.0
    missed = cross_again(cell, 0.95, "isotonic")
    assert missed.crossing is None
    assert missed.samples == 6000


def test_targets_lie_between_all_starts_and_what_all_runs_hold():
    cells = [run(10, 0, [0.2, 0.5, 0.9]), run(10, 1, [0.3, 0.6, 0.8])]
    assert choose_targets(cells, 5) == pytest.approx([0.4, 0.5, 0.6, 0.7, 0.8])
    assert choose_targets([]) == []
    assert choose_targets([run(10, 0, [0.2, 0.8]), run(10, 1, [0.5, 0.9])], 1) == [0.8]
    assert choose_targets([run(10, 0, [0.2, 0.4]), run(10, 1, [0.5, 0.9])]) == []
    for cell in cells:
        assert all(cross_again(cell, t, "isotonic").crossing for t in choose_targets(cells))


def test_clear_study_does_not_depend_on_the_reading():
    found = describe(study({10: (6000, 100), 20: (6000, 200), 40: (7000, 300)}))
    assert [(r.rule, r.shift) for r in found.readings] == [
        ("isotonic", 0.0),
        ("raw", 0.0),
        ("confirmed", 0.0),
        ("isotonic", -2.0),
        ("isotonic", 2.0),
    ]
    assert [r.target for r in found.readings[3:]] == pytest.approx([0.5, 0.7])
    assert all(r.same_fastest and not r.changed for r in found.readings)
    assert {r.fastest for r in found.readings} == {40}
    assert {v.verdict for v in found.readings[0].verdicts} == {"faster"}


def test_curves_that_cross_have_another_fastest_at_another_target():
    # 20 is quick to 0.5 and then slow, 10 is steady; the curves meet at point 9.5 and score 0.78.
    quick = [0.2, *np.linspace(0.5, 0.9, 13)]
    cells = [run(20, s, quick, rate=200.0) for s in range(3)]
    cells += [run(10, s, np.linspace(0.2, 1.0, 14), rate=200.0) for s in range(3)]
    found = describe(cells, noise=0.1, target=0.6)
    fastest = {round(p.target, 3): p.fastest for p in found.targets}
    assert fastest[min(fastest)] == 20
    assert fastest[max(fastest)] == 10
    low, high = (next(r for r in found.readings if r.shift == s) for s in (-2.0, 2.0))
    assert (found.readings[0].fastest, low.fastest, high.fastest) == (20, 20, 10)
    assert high.changed == [Arm(SETTING, 20)]
    assert (high.same_fastest, low.same_fastest) == (False, True)
    point = found.targets[-1]
    times = {t.batch: t for t in point.times}
    assert times[10].seconds == pytest.approx(times[10].samples / 200.0)


def test_target_out_of_reach_is_censored_and_below_the_start_is_not_read():
    cells = study({10: (6000, 100), 20: (6000, 200)})
    cells = [
        dataclasses.replace(
            c,
            **{
                name: getattr(c, name)[:8]
                for name in (
                    "curve_samples",
                    "curve_scores",
                    "curve_fit",
                    "curve_training_seconds",
                    "curve_elapsed_seconds",
                    "curve_updates",
                )
            },
        )
        for c in cells
    ]
    found = describe(cells, noise=0.2)
    assert [r.shift for r in found.readings] == [0.0, 0.0, 0.0, 2.0]
    high = found.readings[-1]
    assert (high.censored, high.fastest, high.arms) == (6, None, [])
    assert high.changed == []


def test_unknown_noise_moves_no_target():
    found = describe(study({10: (6000, 100), 20: (6000, 200)}), noise=math.nan)
    assert [r.shift for r in found.readings] == [0.0] * 3
    assert found.noise is None


def test_validation_set_moves_all_runs_alike():
    # sqrt(0.6 * 0.4 / 100) = 0.049; on straight curves 0.4 per 6,000 samples that is 735 samples
    # either way.
    found = describe([run(10, s, line(6000)) for s in range(2)]).validation_set
    assert found.score_sd == pytest.approx(math.sqrt(0.0024))
    shift = found.score_sd / 0.4
    assert found.samples_lower == pytest.approx(1 - shift)
    assert found.samples_higher == pytest.approx(1 + shift)
    short = describe([run(10, 0, line(6000, length=7))]).validation_set
    assert short.samples_higher is None


def test_scores_that_are_no_shares_have_no_binomial_spread():
    far = [run(10, s, [10 * score for score in line(6000)], target=6.0) for s in range(2)]
    assert describe(far, target=6.0).validation_set.score_sd is None
    below = [run(10, s, [score - 0.5 for score in line(6000)], target=0.6) for s in range(2)]
    assert describe(below, target=0.1).validation_set.score_sd is None


def test_devices_that_grow_and_untuned_arms_are_those_of_the_verdict():
    cells = [
        dataclasses.replace(cell, device=f"{cell.batch} x H100 (gpu)", device_count=cell.batch)
        for cell in study({10: (6000, 100), 20: (6000, 200), 40: (7000, 300)})
    ]
    grown = fit_study(cells, settings=NAMES.settings, devices_grow=True)
    first = describe(grown).readings[0]
    assert (first.fastest, first.arms) == (40, [Arm(SETTING, 40)])
    assert [v.verdict for v in first.verdicts] == ["faster", "faster"]
    doubted = describe(grown, untuned=[Arm(SETTING, 20)])
    for point in (doubted.readings[0], doubted.targets[-1]):
        assert point.arms == [Arm(SETTING, 20), Arm(SETTING, 40)]
    assert [v.verdict for v in doubted.readings[0].verdicts] == ["undecided", "faster"]
