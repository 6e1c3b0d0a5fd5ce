"""The section on learning rates: what it says of trials, of none, and of their effects."""

import dataclasses
import math

import matplotlib.pyplot as plt
import pytest
from test_study_rates_effects import SQRT, make_tuning

from jax_rl.report.sections.rates import show_rates
from jax_rl.study.names import Names
from jax_rl.study.rates.effects import find_effects
from jax_rl.study.rates.gradients import GradientResult
from jax_rl.study.rates.tuning import Tuning

NAMES = Names(("replicated",))
SETTINGS = {"replicated": SQRT}
GRADIENTS = [
    GradientResult("replicated", 64, 3, 1.0, 0.25, 0.8, 0.02, 0.02 / 64),
    GradientResult("replicated", 256, 3, 1.0, 0.5, 0.6, 0.03, 0.03 / 256),
]
TUNING = dataclasses.replace(
    make_tuning(
        {
            64: {0.5: 3000, 1.0: 2000, 2.0: 2500},
            256: {0.5: 5000, 1.0: 4000, 2.0: 3200},
            1024: {0.5: None, 1.0: None, 2.0: None},
        }
    ),
    samples=12_000,
    elapsed_seconds=600.0,
    samples_share=0.4,
    seconds_share=0.5,
)


def show(tuning=TUNING, gradients=GRADIENTS):
    effects = find_effects(tuning, SETTINGS, [], reference=64)
    return show_rates(tuning, effects, gradients, names=NAMES, settings=SETTINGS)


def test_words_of_a_tuned_study():
    words = " ".join(show().paragraphs)
    for part in (
        "the same 3 trial rates, ×0.5, ×1 and ×2 of its rule's rate",
        "The best rate of 256 is at the edge",
        "At 1024 no rate reached the target",
        "9 trials, 12,000 samples (40.0 % of all) and 10 min (50.0 % of all elapsed time)",
        "rate moved: 1.25× at 256, ×4 the reference (rate 0.001 against 0.002; 1 pair of trials)",
        "chose it: 1.25× at 256, ×4 the reference (rate 0.002 against 0.004; 1 pair of trials)",
        "25.0 % of updates (64) to 50.0 % (256)",
        'not measured at ×16 (study.rules = ["none", "sqrt"], or trials of ×1 and ×1/4, would',
        "At 256, a rate tuned at the reference alone",
    ):
        assert part in words, part


def test_tables_show_bounds_and_the_choice():
    trials, effects, gradients = show().tables
    assert trials.header[1:4] == ("×0.5", "×1", "×2")
    assert trials.rows[0][:5] == ("64", "3,000", "2,000 (best)", "2,500", "0.001")
    assert trials.rows[1][3] == "3,200 (best)" and trials.rows[1][5] == "yes"
    assert trials.rows[2][1:4] == ("> 9,000", "> 9,000 (best)", "> 9,000")
    assert [row[0] for row in effects.rows][:1] == ["256"]
    assert gradients.rows[1][:4] == ("256", "50.0 %", "1", "0.600")
    for table in (trials, effects, gradients):
        assert all(len(row) == len(table.header) for row in table.rows)


def test_a_study_without_trials_says_what_that_means():
    section = show(Tuning([], [], [], 0, 0, 0.0, 0.0, None, None), [])
    words, unmoved = section.paragraphs
    assert "by the rule sqrt and not tuned at each batch" in words
    assert unmoved.endswith(
        'not measured at ×4 and ×16 (study.rules = ["none", "sqrt"], or trials of ×1, ×1/2 and'
        " ×1/4, would tell)."
    )
    assert not section.tables and not section.drawings


def test_a_ratio_that_is_not_known_or_one_sided_is_said_so():
    def say(kept, moved):
        crossings = {64: {0.5: 3000, 1.0: 2000, 2.0: 2500}, 256: {0.5: kept, 1.0: moved, 2.0: 8000}}
        return " ".join(show(make_tuning(crossings)).paragraphs)

    assert "rate moved: ≥ 3.00× at 256" in say(None, 3000)
    assert "rate moved: not known at 256" in say(None, None)


def test_trials_are_drawn():
    (drawing,) = show().drawings
    figure, axes = plt.subplots()
    drawing.draw(axes)
    assert [label.get_text() for label in axes.get_legend().get_texts()] == ["64", "256", "1024"]
    points = axes.lines[0].get_xydata()
    assert points[:, 0] == pytest.approx([0.5, 1.0, 2.0])
    assert points[:, 1] == pytest.approx([3000, 2000, 2500])
    plt.close(figure)


def test_multiples_that_only_some_batches_had_are_said():
    arms = [
        dataclasses.replace(arm, extensions=2 if arm.batch == 256 else 0) for arm in TUNING.arms
    ]
    words = show(dataclasses.replace(TUNING, arms=arms)).paragraphs[0]
    assert "of its rule's rate (256 had 2 more beyond the edge), on 1 seed" in words
    assert "more beyond" not in show().paragraphs[0]


def test_equal_rates_name_the_batches_that_they_were_tried_at():
    best = {0.5: 3000, 1.0: 2000, 2.0: 2500}
    words = " ".join(show(make_tuning(dict.fromkeys((64, 256, 1024), best))).paragraphs)
    assert "would have been the best of those tried at 256 and 1024 too" in words


def test_a_batch_whose_gradients_are_not_known_is_not_ranked():
    lost = dataclasses.replace(GRADIENTS[0], batch=1024, clipped=math.nan)
    words = show(gradients=[lost, *GRADIENTS]).paragraphs[-1]
    assert "25.0 % of updates (64) to 50.0 % (256)" in words


def test_nothing_more_is_asked_of_imported_runs():
    nothing = Tuning([], [], [], 0, 0, 0.0, 0.0, None, None)
    section = show_rates(nothing, [], [], names=NAMES, settings=SETTINGS, imported=True)
    assert len(section.paragraphs) == 1
