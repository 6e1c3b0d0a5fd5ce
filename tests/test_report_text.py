"""Numbers as they are printed."""

import math

import pytest
from report_studies import CENSORED, PARTLY, make_study

from jax_rl.report import text
from jax_rl.report.axes import spread
from jax_rl.study.summary import Interval


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (0.012345, "0.0123"),
        (3.14159, "3.14"),
        (5.0, "5"),
        (42.195, "42.2"),
        (99.97, "100"),
        (12_345.6, "12,346"),
        (-0.5, "-0.500"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_number_has_three_digits_or_is_whole(value: float | None, shown: str) -> None:
    assert text.format_number(value) == shown


@pytest.mark.parametrize(
    ("multiple", "shown"), [(0.25, "×1/4"), (1.0, "×1"), (16.0, "×16"), (1 / 512, "×1/512")]
)
def test_multiple_is_a_true_fraction(multiple: float, shown: str) -> None:
    assert text.format_multiple(multiple) == shown


@pytest.mark.parametrize(
    ("interval", "shown"),
    [
        (Interval(1.1, 0.93, 1.31), ("1.10", "0.930–1.31")),
        (Interval(2.17, 1.9, None, "at least"), ("≥ 2.17", "1.90 or more")),
        (Interval(0.5, None, 0.61, "at most"), ("≤ 0.500", "0.610 or less")),
        (Interval(1.1, None, None), ("1.10", "")),
        (Interval(None, None, None), ("–", "")),
        (None, ("–", "")),
    ],
)
def test_interval_says_its_sides(interval: Interval | None, shown: tuple[str, str]) -> None:
    assert text.format_interval(interval) == shown


def test_censored_quantity_is_a_bound() -> None:
    assert text.format_to_target(12_000.0, None) == "12,000"
    assert text.format_to_target(None, 65_536.0) == "> 65,536"
    assert text.format_to_target(None, None) == "–"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(42.0, "42 s"), (179.0, "179 s"), (180.0, "3 min"), (12_600.0, "3.50 h")]
)
def test_duration_takes_its_unit(seconds: float, shown: str) -> None:
    assert text.format_duration(seconds) == shown


def test_one_unit_for_a_column_follows_the_median() -> None:
    assert text.choose_time_unit([10.0, 400.0, None, 20_000.0]) == (60.0, "min")


def test_bound_on_seconds_takes_crossings_and_whole_censored_runs() -> None:
    # Batch 1024 of PARTLY: seeds 0 and 1 censored after 65,536 samples, seed 2 crosses.
    result = PARTLY.batches[-1]
    by_seed = {cell.seed: cell for cell in PARTLY.cells if cell.batch == 1024}
    crossing = by_seed[2].crossing
    assert crossing is not None
    product = by_seed[0].training_seconds * by_seed[1].training_seconds * crossing.training_seconds
    shown = text.seconds_at_least(result, "training")
    assert shown == pytest.approx(product ** (1 / 3), rel=1e-12)


def test_bound_on_seconds_leaves_out_runs_outside_the_row() -> None:
    result = CENSORED.batches[0]
    assert [cell.seed for cell in text.cells_of(CENSORED, result)] == [0, 1, 2]
    study = make_study()
    study.batches[0].seeds.remove(1)
    assert [cell.seed for cell in text.cells_of(study, study.batches[0])] == [0, 2]


def test_control_characters_do_not_reach_a_terminal() -> None:
    assert text.clean("a\x1b[31mred\nb\u202ec") == "a [31mred b c"


def test_spread_moves_labels_apart_and_no_further() -> None:
    assert spread([0.1, 0.5, 0.9], gap=0.1) == pytest.approx([0.1, 0.5, 0.9])
    assert spread([0.5, 0.5], gap=0.1) == pytest.approx([0.45, 0.55])
    # Three at 0.4, 0.45, 0.5 with gap 0.1: the middle stays, the others move by 0.05.
    assert spread([0.4, 0.45, 0.5], gap=0.1) == pytest.approx([0.35, 0.45, 0.55])
