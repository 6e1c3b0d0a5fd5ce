"""The section on certainty: sentences and cells from numbers worked by hand."""

import dataclasses
import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from jax_rl.report.axes import use_style
from jax_rl.report.sections.certainty import show_certainty
from jax_rl.report.sections.certainty_tables import tabulate_targets
from jax_rl.study.batches import fit_study, summarise_arm
from jax_rl.study.certainty.describe import describe_certainty
from jax_rl.study.certainty.sensitivity import ArmTime, SetUncertainty, TargetPoint
from jax_rl.study.certainty.simulate import SCENARIOS, SETTING, simulate_study
from jax_rl.study.certainty.spread import MoreSeeds
from jax_rl.study.names import Names
from jax_rl.study.summary import Arm
from jax_rl.study.verdict import decide
from jax_rl.study.words import RateContext

NAMES = Names((SETTING,))
REFERENCE = Arm(SETTING, 16)


def analyse(name="plain", seeds=3, **changes):
    scenario = dataclasses.replace(next(one for one in SCENARIOS if one.name == name), **changes)
    cells, _ = simulate_study(scenario, np.random.default_rng(0), seeds=seeds)
    fit = fit_study(cells, settings=[SETTING])
    results = [
        summarise_arm(fit, arm, reference=REFERENCE, updates_per_iteration=1)
        for arm in fit.censored
    ]
    context = RateContext("none", 1e-3, REFERENCE.batch)
    return describe_certainty(
        fit,
        decide(fit, results, names=NAMES, clock="training", context=context),
        names=NAMES,
        reference=REFERENCE.batch,
        target=scenario.target,
        noise=0.02,
        prompts=scenario.prompts,
    )


def test_every_part_is_there_and_every_row_fits_its_header():
    section = show_certainty(analyse("censored"), names=NAMES)
    assert [table.id for table in section.tables] == [
        "certainty_readings",
        "certainty_spread",
        "certainty_intervals",
        "certainty_censored",
        "certainty_targets",
    ]
    for table in section.tables:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.header)}
        assert all(cell for row in table.rows for cell in row[:2])
    assert [drawing.name for drawing in section.drawings] == ["time_against_target"]
    assert section.tables[0].rows[0][:3] == ("isotonic fit", "0.700", "128")


def test_numbers_of_the_tables_are_those_of_the_analysis():
    certainty = analyse()
    spread, sensitivity = certainty.spread, certainty.sensitivity
    section = show_certainty(certainty, names=NAMES)
    tables = {table.id: table for table in section.tables}
    assert "certainty_censored" not in tables
    targets = tables["certainty_targets"]
    point = sensitivity.targets[2]
    row = targets.rows[2]
    assert row[0] == f"{point.target:.3f}"
    assert row[targets.header.index("256")] == f"{point.times[-1].seconds:.2f}"
    assert [r[0] for r in tables["certainty_spread"].rows] == ["16", "32", "64", "128", "256"]
    text = " ".join(section.paragraphs)
    scatter = math.expm1(spread.residual_sd)
    assert f"±{100 * scatter:.1f} % about the effects" in text
    assert f"p = {spread.p_value:.2g}" in text
    assert "Another validation set of 512 prompts would shift every score by about ±0.020" in text


def test_more_seeds_in_words():
    certainty = analyse()

    def say(*needs):
        spread = dataclasses.replace(certainty.spread, more_seeds=list(needs))
        changed = dataclasses.replace(certainty, spread=spread)
        return show_certainty(changed, names=NAMES).paragraphs

    assert (
        "For 32, a difference of 5.0 % in time, the one seen: about 40 more seeds, 43 in all, would"
        " decide it, with a probability of 80 % at the spread seen."
    ) in say(MoreSeeds(SETTING, 32, 1.05, 3, 40))
    assert any("more than 1,000 seeds" in p for p in say(MoreSeeds(SETTING, 32, 1.0001, 3, None)))
    assert any(
        p.startswith("A difference of 10.0 % in time: the 3 seeds at hand are enough")
        for p in say(MoreSeeds(None, None, 1.1, 3, 0))
    )


def test_readings_in_words():
    certainty = analyse()
    headline, other, *_ = certainty.sensitivity.readings

    def say(*readings):
        sensitivity = dataclasses.replace(certainty.sensitivity, readings=list(readings))
        changed = dataclasses.replace(certainty, sensitivity=sensitivity)
        return show_certainty(changed, names=NAMES).paragraphs[0]

    same = dataclasses.replace(other, same_fastest=True, changed=[])
    assert say(headline, same) == (
        f"Under all 1 other readings of the curves {headline.fastest} is the fastest too, and no"
        " verdict against the reference changes."
    ).replace("all 1 other readings", "the one other reading")
    moved = dataclasses.replace(other, same_fastest=False, fastest=32, setting=SETTING)
    assert say(headline, moved) == (
        "The verdict depends on how the curves are read: by the first score at the target 32 is"
        " the fastest."
    )
    shifted = dataclasses.replace(same, changed=[Arm(SETTING, 64)], shift=2.0, target=0.74)
    assert "at target 0.740 the verdict on 64 changes" in say(headline, shifted)
    assert say(headline) == "The curves were read in one way alone."


def test_no_fastest_no_section():
    assert analyse(budget=8192) is None
    assert show_certainty(None, names=NAMES) is None


@pytest.mark.parametrize("name", ["plain", "censored"])
def test_figure_draws_one_line_per_arm(name):
    [drawing] = show_certainty(analyse(name), names=NAMES).drawings
    with use_style():
        axes = Figure().subplots()
        drawing.draw(axes)
    lines = [line for line in axes.lines if line.get_label() in ("16", "32", "64", "128", "256")]
    assert len(lines) == 5
    assert axes.get_yscale() == "log"
    assert "is the fastest" in drawing.description


def test_targets_say_the_set_and_not_the_fastest_alone():
    certainty = analyse()
    first, *_ = certainty.sensitivity.targets

    def say(*points):
        sensitivity = dataclasses.replace(certainty.sensitivity, targets=list(points))
        changed = dataclasses.replace(certainty, sensitivity=sensitivity)
        return show_certainty(changed, names=NAMES).paragraphs[1]

    def point(target, fastest, *near):
        arms = [Arm(SETTING, batch) for batch in near]
        return dataclasses.replace(first, target=target, fastest=fastest, arms=arms)

    assert say(point(0.4, 64, 64), point(0.5, 64, 64), point(0.6, 64, 32, 64, 128)) == (
        "The fastest by the target that one sets: 64 at 0.400 to 0.500; 64 (32 and 128 not told"
        " from it) at 0.600."
    )


def test_arms_stand_in_the_order_of_the_study():
    certainty = analyse()
    names = Names(("zebra", "apple"))
    times = [ArmTime(setting, 16, 1.0, 1.0) for setting in ("apple", "zebra")]
    target = TargetPoint(0.5, times, "zebra", 16, [])
    sensitivity = dataclasses.replace(certainty.sensitivity, targets=[target, target])
    table = tabulate_targets(sensitivity, names)
    assert table.header[1:3] == ("zebra 16", "apple 16")


def test_a_validation_set_of_other_scores_says_nothing():
    certainty = analyse()

    def say(prompts):
        found = SetUncertainty(prompts, None, None, None)
        sensitivity = dataclasses.replace(certainty.sensitivity, validation_set=found)
        changed = dataclasses.replace(certainty, sensitivity=sensitivity)
        return show_certainty(changed, names=NAMES).paragraphs[-1]

    assert "are not shares between 0 and 1" in say(512)
    assert "How many prompts the validation set has is not known" in say(0)
