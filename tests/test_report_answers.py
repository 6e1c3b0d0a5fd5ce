"""Sections on curves, choices, cost and other hardware: words, tables, and drawings that draw."""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
from matplotlib.figure import Figure
from study_records import build_cell
from test_study_decisions_transfer import point, table

from jax_rl.config import Config
from jax_rl.config_file import config_to_dict
from jax_rl.report.axes import use_style
from jax_rl.report.section import Section
from jax_rl.report.sections.choices import show_choices
from jax_rl.report.sections.cost import show_costs
from jax_rl.report.sections.fits import show_fits
from jax_rl.report.sections.quantities import show_ends, show_quantity
from jax_rl.report.sections.transfer import show_transfers
from jax_rl.study.batches import StudyFit, fit_study, summarise_arm
from jax_rl.study.curves.fits import fit_setting
from jax_rl.study.curves.scores import fit_scores
from jax_rl.study.decisions.choices import choose_batches
from jax_rl.study.decisions.cost import Price, summarise_costs
from jax_rl.study.decisions.transfer import Transfer, transfer_study
from jax_rl.study.summary import Arm, BatchResult, Cell, Interval

BATCHES = (8, 32, 128, 512, 2048)
REFERENCE = 32
GRID = [1024 * k for k in range(31)]


def build(setting: str = "replicated", *, censored: tuple[int, ...] = ()) -> list[Cell]:
    """Samples bend at 100, throughput at 60; scores are a sigmoid of the samples."""
    x = np.array(GRID[1:], float)
    scores = [0.2, *(0.2 + 0.7 / (1 + (6000 / x) ** 1.5))]
    return [
        dataclasses.replace(
            build_cell(
                batch,
                seed,
                samples=4000 * (1 + batch / 100) * math.exp(0.02 * ((seed + batch // 8) % 3)),
                rate=900 * batch / (batch + 60),
                crossed=batch not in censored,
            ),
            setting=setting,
            curve_samples=GRID,
            curve_training_seconds=[n * (batch + 60) / (900 * batch) for n in GRID],
            curve_elapsed_seconds=[2 * n * (batch + 60) / (900 * batch) for n in GRID],
            curve_scores=scores,
        )
        for seed in range(3)
        for batch in BATCHES
    ]


def prepare(cells: Sequence[Cell]) -> tuple[StudyFit, list[BatchResult]]:
    settings = tuple(dict.fromkeys(cell.setting for cell in cells))
    fit = fit_study(cells, settings=settings)
    base = Arm(settings[0], REFERENCE)
    return fit, [
        summarise_arm(fit, arm, reference=base, updates_per_iteration=1) for arm in fit.censored
    ]


def known(section: Section | None) -> Section:
    assert section is not None
    for part in section.tables:
        assert all(len(row) == len(part.header) for row in part.rows), part.id
    names = [part.id for part in section.tables] + [one.name for one in section.drawings]
    assert len(names) == len(set(names))
    return section


def draw(section: Section) -> list[Figure]:
    """Every drawing, drawn; warnings are errors."""
    figures = []
    with use_style():
        for drawing in section.drawings:
            figure = Figure(layout="constrained")
            drawing.draw(figure.subplots())
            figure.canvas.draw()
            figures.append(figure)
    return figures


def test_quantities_and_bounds_in_words() -> None:
    assert show_quantity(Interval(96.24, 60.0, 161.0), "rollouts") == "96.2 rollouts"
    assert show_quantity(Interval(2048.0, 900.0, None, "at least")) == "> 2,048"
    assert show_quantity(Interval(8.0, None, 9.0, "at most")) == "< 8"
    assert show_quantity(None) == "–"
    assert show_ends(Interval(96.24, 60.0, 161.0)) == "60 to 161"
    assert show_ends(Interval(2048.0, 900.0, None, "at least")) == "900 or more"
    assert show_ends(Interval(8.0, None, 9.0, "at most")) == "9 or less"
    assert show_ends(Interval(1.0, None, None)) == "–"


# Curves


def test_fits_say_turning_points_and_draw_both_curves() -> None:
    fit, _ = prepare(build())
    scores = [fit_scores(fit, arm) for arm in fit.complete]
    section = known(show_fits([fit_setting(fit, "replicated", tuned=True)], scores))
    assert "begin to grow with the batch at B_crit = " in section.paragraphs[0]
    assert "Throughput turns at 60.0 rollouts" in section.paragraphs[1]
    assert "T_max = 900 rollouts/s (T_max B / (B + B_half))" in section.paragraphs[1]
    assert "in 5 of 5 batches" in section.paragraphs[2]
    curves, extrapolated = section.tables
    assert [row[0] for row in curves.rows] == [
        "samples: S_min (1 + B / B_crit)",
        "throughput: T_max B / (B + B_half)",
        "throughput: linear, then flat",
    ]
    assert len(extrapolated.rows) == 5
    samples, throughput = draw(section)
    assert len(samples.axes[0].lines) == 3  # curve, turning point, means
    assert len(throughput.axes[0].lines) >= 4
    label = throughput.axes[0].get_ylabel()
    assert label == "rollouts per second"


def test_a_rule_for_all_batches_leaves_the_samples_out() -> None:
    fit, _ = prepare(build())
    section = known(show_fits([fit_setting(fit, "replicated", tuned=False)]))
    assert section.paragraphs[0] == ("No curve of samples is fitted: rates not tuned per batch.")
    assert [one.name for one in section.drawings] == ["fit_throughput"]
    assert section.tables[0].rows[0][-1] == "rates not tuned per batch"


def test_a_bound_is_said_and_drawn_without_a_turning_point() -> None:
    cells = [
        build_cell(batch, seed, samples=4000.0 + seed, rate=3.0 * batch)
        for seed in range(3)
        for batch in BATCHES
    ]
    fit, _ = prepare(cells)
    section = known(show_fits([fit_setting(fit, "replicated", tuned=True)]))
    assert "B_crit = > 2,048 rollouts" in section.paragraphs[0]
    assert "outside the measured batches" in section.paragraphs[0]
    assert "T_max = > 6,144 rollouts/s" in section.paragraphs[1]
    samples, _ = draw(section)
    assert len(samples.axes[0].lines) == 2


def test_two_settings_have_names_of_their_own() -> None:
    fit, _ = prepare([*build("fsdp"), *build("tensor")])
    fits = [fit_setting(fit, name, tuned=True) for name in ("fsdp", "tensor")]
    section = known(show_fits(fits))
    assert section.paragraphs[0].startswith("fsdp: ")
    assert {row[0] for row in section.tables[0].rows} == {"fsdp", "tensor"}
    assert len(section.drawings) == 4


def test_nothing_measured_has_no_section() -> None:
    assert show_choices([]) is None
    assert show_costs([]) is None
    assert show_transfers([]) is None
    assert show_fits([]) is None


# Choices


def test_choices_say_three_batches_and_what_each_half_costs() -> None:
    fit, results = prepare(build())
    choices = [
        choose_batches(fit, results, setting="replicated", reference=REFERENCE, clock=clock)
        for clock in ("training", "elapsed")
    ]
    section = known(show_choices(choices))
    assert "the fastest batch is 128" in section.paragraphs[0]
    assert "the largest efficient one 32, the reference itself" in section.paragraphs[0]
    assert (
        "by the point estimates a batch is slower than the reference (32) beyond"
        in (section.paragraphs[0])
    )
    (halves,) = section.tables
    assert [row[:3] for row in halves.rows[:3]] == [
        ["samples to target alone", "training", "8"],
        ["generation throughput alone", "training", "2,048"],
        ["throughput end to end alone", "training", "2,048"],
    ]
    # Times go as (1 + B / 100) (1 + 60 / B): 2,048 against 128 takes 22.1 / 3.35 times as long.
    assert float(halves.rows[1][3]) == pytest.approx(22.1 / 3.35, rel=0.03)


def test_choices_say_what_is_not_told_from_the_fastest() -> None:
    fit, results = prepare(build())
    found = choose_batches(
        fit, results, setting="replicated", reference=REFERENCE, clock="training"
    )

    def say(**changes: Any) -> str:
        return known(show_choices([dataclasses.replace(found, **changes)])).paragraphs[0]

    assert found.near == [128]
    assert "the fastest batch is 128;" in say()
    several = say(near=[32, 128, 2048])
    assert "the fastest batch is 128 (32 and 2,048 not told from it);" in several


@pytest.mark.parametrize(
    ("edge", "words"),
    [
        (Interval(32.0, None, None, "at least"), "no batch larger than the reference (32) has a"),
        (Interval(2048.0, 64.0, None, "at least"), "no larger batch is slower than the reference"),
        (Interval(math.exp(math.log(32)), None, None), "the next larger batch is slower than"),
        (Interval(90.0, 64.0, 200.0), "slower than the reference (32) beyond 90 rollouts"),
    ],
)
def test_the_break_even_in_words(edge: Interval, words: str) -> None:
    fit, results = prepare(build())
    found = choose_batches(
        fit, results, setting="replicated", reference=REFERENCE, clock="training"
    )
    shown = known(show_choices([dataclasses.replace(found, break_even=edge)])).paragraphs[0]
    assert words in shown
    assert ("by the point estimates" in shown) == (edge.estimate != 32.0 or not edge.bound)


def test_choices_without_the_reference_say_so() -> None:
    fit, results = prepare(build(censored=(REFERENCE,)))
    choices = choose_batches(
        fit, results, setting="replicated", reference=REFERENCE, clock="training"
    )
    section = known(show_choices([choices]))
    assert "something is missing, since some runs of the reference" in section.paragraphs[1]


# Cost


def test_costs_with_a_price_and_a_front() -> None:
    cells = build(censored=(2048,))
    fit, results = prepare(
        [dataclasses.replace(cell, device_count=max(1, cell.batch // 32)) for cell in cells]
    )
    costs = [
        summarise_costs(
            fit,
            results,
            reference=Arm("replicated", REFERENCE),
            clock=clock,
            price=Price(3.0, "EUR"),
        )
        for clock in ("training", "elapsed")
    ]
    section = known(show_costs(costs))
    assert "EUR" in section.paragraphs[0]
    assert "price at 3 EUR/h" in section.tables[0].header
    assert section.tables[0].rows[-1][3].startswith("> ")
    training, _ = draw(section)
    assert len(training.axes[0].texts) == 4
    assert training.axes[0].texts[-1].get_text() == "512, 16 devices"


def test_costs_without_a_price_are_device_hours() -> None:
    fit, results = prepare(build())
    costs = summarise_costs(
        fit,
        results,
        reference=Arm("replicated", REFERENCE),
        clock="training",
    )
    section = known(show_costs([costs]))
    assert "No price was given (--price)" in section.paragraphs[0]
    assert "EUR" not in section.paragraphs[0]
    assert section.drawings == []


def test_costs_are_no_more_certain_than_times() -> None:
    fit, results = prepare(build())
    costs = summarise_costs(fit, results, reference=Arm("replicated", REFERENCE), clock="training")
    several = dataclasses.replace(
        costs, cheapest=[Arm("replicated", 32), Arm("replicated", 128), Arm("replicated", 512)]
    )
    words = known(show_costs([several])).paragraphs[0]
    assert "the cheapest batch is 128 (32 and 512 not told from it) with" in words
    assert ": by the point estimates " in words
    assert "not told from it" not in known(show_costs([costs])).paragraphs[0]


def test_costs_on_two_kinds_of_device_say_why_there_are_none() -> None:
    cells = [
        dataclasses.replace(cell, device=f"1 x {'A100' if cell.batch < 100 else 'H100'} (gpu)")
        for cell in build()
    ]
    fit, results = prepare(cells)
    costs = summarise_costs(fit, results, reference=Arm("replicated", REFERENCE), clock="training")
    section = known(show_costs([costs]))
    assert section.paragraphs == [
        "By the training clock: no cost, runs on different devices (A100 (gpu); H100 (gpu))."
    ]
    assert (section.tables, section.drawings) == ([], [])


def test_the_interval_of_a_level_is_for_these_seeds() -> None:
    fit, _ = prepare(build())
    section = known(show_fits([fit_setting(fit, "replicated", tuned=True)]))
    assert "The interval of a level is for these seeds" in section.tables[0].about


def test_every_answer_is_plain_values() -> None:
    """summary.json holds them field by field."""
    fit, results = prepare(build())
    found = [
        fit_setting(fit, "replicated", tuned=True),
        *(fit_scores(fit, arm) for arm in fit.complete),
        choose_batches(fit, results, setting="replicated", reference=REFERENCE, clock="training"),
        summarise_costs(fit, results, reference=Arm("replicated", REFERENCE), clock="elapsed"),
        *move("measured"),
    ]
    for one in found:
        plain = dataclasses.asdict(one)
        assert json.loads(json.dumps(plain, allow_nan=False)) == plain


# Other hardware


def move(kind: Literal["measured", "predicted"]) -> list[Transfer]:
    fit, results = prepare(build(censored=(2048,)))
    other = dataclasses.replace(
        table(*(point(batch, 50.0 * batch) for batch in BATCHES[1:])), kind=kind
    )
    return transfer_study(
        fit,
        results,
        other,
        source="bench.json",
        setting="replicated",
        reference=REFERENCE,
        configs=dict.fromkeys(fit.censored, config_to_dict(Config())),
    )


def test_measured_times_there_stand_beside_those_here() -> None:
    section = known(show_transfers(move("measured")))
    assert "would reach the target first" in section.paragraphs[0]
    assert any("Left out: batch 8: not in the table" in line for line in section.paragraphs)
    (times,) = section.tables
    assert times.title == "Measured: 8 x TPU v5p (tpu), fsdp"
    assert times.rows[-1][3].startswith("> ")
    (figure,) = draw(section)
    assert len(figure.axes[0].lines) == 3


def test_the_same_table_twice_has_names_of_its_own() -> None:
    section = known(show_transfers([*move("measured"), *move("measured")]))
    assert (len(section.tables), len(section.drawings)) == (2, 2)


def test_predicted_times_are_bounds_and_no_verdict() -> None:
    section = known(show_transfers(move("predicted")))
    assert section.paragraphs[0].startswith("Predicted for 8 x TPU v5p (tpu)")
    (times,) = section.tables
    assert all(row[3].startswith("> ") for row in times.rows)
    assert all(row[2].startswith("≤ ") for row in times.rows)
    assert "against the reference" not in times.header
    words = " ".join(section.paragraphs)
    assert not any(word in words for word in ("faster", "slower", "sooner", "later"))
    draw(section)
