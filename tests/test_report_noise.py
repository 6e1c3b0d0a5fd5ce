"""What the report says of the gradient noise scale."""

import dataclasses
import re

import pytest

from jax_rl.report.sections.noise import show_noise
from jax_rl.study.names import Names
from jax_rl.study.noise.batches import TurningPoint, summarise_noise
from jax_rl.study.noise.scale import NoiseScale, Ratio, measure_noise
from jax_rl.study.noise.split import CovarianceSplit, Estimated
from jax_rl.study.summary import Arm

NAMES = Names(("replicated",))
SCALE = NoiseScale(
    reason="",
    units=4,
    unit_groups=2,
    group=8,
    iterations=20,
    samples=1280,
    crossed=True,
    signal=0.004,
    signal_low=0.003,
    signal_high=0.005,
    noise=0.2,
    rollouts=400.0,
    rollouts_low=320.0,
    rollouts_high=530.0,
    curve_samples=[64, 640, 1280],
    curve_rollouts=[300.0, None, 500.0],
)
UNKNOWN = dataclasses.replace(
    SCALE,
    reason="not identified: the 95 % interval of |G|² includes 0",
    rollouts=None,
    rollouts_low=350.0,
    rollouts_high=None,
)
SPLIT = CovarianceSplit(
    batch=64,
    seed=0,
    samples=1280,
    prompts=128,
    group=8,
    signal=Estimated(0.004, 0.003, 0.005),
    within=Estimated(0.18, 0.17, 0.19),
    between=Estimated(0.02, 0.01, 0.03),
    within_share=Ratio(0.9, 0.85, 0.95),
    rollouts=Ratio(None, 280.0, None),
)


def summarise(*runs, **options):
    return summarise_noise(
        {(Arm("replicated", batch), seed): run for batch, seed, run in runs},
        setting="replicated",
        **options,
    )


def test_a_study_without_a_measurement_has_no_section():
    nothing = measure_noise([], group=8, crossing=None)
    assert show_noise(summarise((64, 0, nothing)), names=NAMES) is None


def test_values_bounds_and_reasons_by_batch():
    double = dataclasses.replace(SCALE, rollouts=900.0)
    one_unit = dataclasses.replace(
        SCALE, reason="not available: one", units=1, rollouts=None, rollouts_low=None
    )
    summary = summarise(
        (16, 0, one_unit), (64, 0, SCALE), (64, 1, double), (256, 0, SCALE), (256, 1, UNKNOWN)
    )
    section = show_noise(summary, names=NAMES)
    rows = {row[0]: row for row in section.tables[0].rows}
    assert all(len(row) == len(section.tables[0].header) for row in rows.values())
    assert rows["16"][3] == "not available: one"
    assert rows["64"][1:4] == ["4 × 2", "2 of 2", "600"]
    assert rows["64"][5:7] == ["0.004", "0.2"]
    assert rows["256"][2:5] == ["1 of 2", "≥ 374", "–"]  # sqrt(400 x 350)
    assert "is 600 rollouts at 64: an order of magnitude" in section.paragraphs[0]
    assert "No turning point" in section.paragraphs[1]


@pytest.mark.parametrize(
    ("rollouts", "bound", "words"),
    [
        (1200.0, "", r"is 1,200 rollouts, 3\.00 times .*: the same order of magnitude"),
        (5000.0, "", r"12\.5 times .*another order of magnitude"),
        (1200.0, "at least", r"is at least 1,200 rollouts.*on one side only"),
    ],
)
def test_beside_the_measured_turning_point(rollouts, bound, words):
    point = TurningPoint(rollouts, bound, "samples to target have doubled")
    section = show_noise(summarise((64, 0, SCALE), turning_point=point), names=NAMES)
    assert re.search(words, section.paragraphs[1])
    assert "(samples to target have doubled)" in section.paragraphs[1]


def test_no_batch_with_a_value_says_why():
    section = show_noise(summarise((64, 0, UNKNOWN)), names=NAMES)
    assert section.paragraphs == [f"No batch has a noise scale: {UNKNOWN.reason}."]


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((0.85, 0.95), "most of the noise lies within prompts"),
        ((0.1, 0.3), "most of the noise lies between prompts"),
        ((0.4, 0.7), "neither part is shown to be the larger"),
    ],
)
def test_the_split_of_a_probe(ends, words):
    split = dataclasses.replace(SPLIT, within_share=Ratio(0.9, *ends))
    section = show_noise(summarise(splits=[split]), names=NAMES)
    (said,), (table,) = section.paragraphs, section.tables
    assert words in said
    assert "90.0 % of a group's gradient noise is within its prompt" in said
    assert table.rows[0][:4] == [
        "batch 64 seed 0",
        "1,280",
        "128 × 2 × 8",
        "0.004 (0.003 to 0.005)",
    ]
    assert table.rows[0][-1] == "≥ 280"
    assert not section.drawings


def test_the_drawing_has_a_line_per_run_and_the_turning_point():
    from matplotlib.figure import Figure

    point = TurningPoint(1200.0, "", "samples to target have doubled")
    summary = summarise((64, 0, SCALE), (64, 1, SCALE), (256, 0, SCALE), turning_point=point)
    (drawing,) = show_noise(summary, names=NAMES).drawings
    axes = Figure().subplots()
    drawing.draw(axes)
    assert len(axes.lines) == 4
    assert {label.get_text() for label in axes.texts} == {"64", "256"}
    low, high = axes.get_ylim()
    assert low < 300
    assert high > 1200


def test_why_there_is_no_turning_point_is_said():
    section = show_noise(
        summarise((64, 0, SCALE), turning_reason="rates not tuned per batch"), names=NAMES
    )
    assert section.paragraphs[1] == (
        "No turning point was measured that it could be held against: rates not tuned per batch."
    )
