"""The terminal table: what it says, and that it fits."""

import dataclasses
import io

import pytest
from report_studies import CENSORED, HOSTILE, STUDIES, UNFINISHED, make_study, with_name
from rich.console import Console

from jax_rl.report import table
from jax_rl.study.summary import StudySummary


def print_plain(summary: StudySummary, width: int) -> str:
    """What a pipe gets."""
    console = Console(file=io.StringIO(), width=width, highlight=False)
    table.print_table(summary, console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", STUDIES)
def test_fits_and_is_plain_in_a_pipe(name: str, width: int) -> None:
    shown = print_plain(STUDIES[name], width)
    assert max(map(len, shown.splitlines())) <= width
    assert "\x1b" not in shown
    assert "…" not in shown


def test_row_of_a_batch_has_its_numbers() -> None:
    shown = print_plain(make_study(), 120)
    row = next(line for line in shown.splitlines() if line.strip().startswith("16 (×1)"))
    # 12,000 (1 + (16/512)^1.2) = 12,187.5; geometric mean over factors 0.95, 1, 1.05: x 0.99917.
    # 4,000 * 16 / 28 = 2,285.7, over 0.98, 1, 1.02: x 0.99987, and 12,177 / 2,285.4 = 5.33 s.
    assert " ".join(row.split()) == "16 (×1) 0.001 3 of 3 12,177 761 2,285 5.33 12.7"


def test_ratios_are_held_against_reference_and_smaller() -> None:
    study = make_study()
    reference = table.ratio_rows(study, lambda result: result.against_reference)
    assert [row[:2] for row in reference] == [
        ("4 (×1/4)", "16 (×1)"),
        ("64 (×4)", "16 (×1)"),
        ("256 (×16)", "16 (×1)"),
        ("1,024 (×64)", "16 (×1)"),
    ]
    smaller = table.ratio_rows(study, lambda result: result.against_smaller)
    assert [row[1] for row in smaller] == ["4 (×1/4)", "16 (×1)", "64 (×4)", "256 (×16)"]


def test_censored_batch_stays_as_a_bound() -> None:
    shown = print_plain(CENSORED, 100)
    assert "> 65,536" in shown
    assert "0 of 3" in shown
    assert "≥" in shown
    assert "> N: not every seed reached the target" in shown
    assert "> N" not in print_plain(make_study(), 100)


def test_unfinished_study_says_so() -> None:
    assert "12 of 15 planned runs are finished, 3 missing" in " ".join(
        print_plain(UNFINISHED, 100).split()
    )


def test_too_few_updates_are_marked() -> None:
    # At 1,024 the 39,536 samples are 38.6 updates; at 4,096 they are fewer than 20 x 4,096.
    study = make_study(batches=(16, 4096))
    shown = print_plain(study, 100)
    assert study.batches[1].too_coarse == ("too coarse" in shown)


def test_verdict_comes_for_both_clocks() -> None:
    shown = print_plain(make_study(), 80)
    assert "Verdict by the training clock" in shown
    assert "Verdict by the elapsed clock" in shown
    assert "The batch of 64 reaches the target first." in shown


def test_free_text_is_no_markup() -> None:
    shown = print_plain(with_name(make_study(note=HOSTILE), "[bold]x[/bold]\x1b[2J"), 120)
    assert "[bold]x[/bold] [2J" in shown
    assert "[red]" in shown


def test_the_same_fastest_with_other_verdicts_is_not_called_agreement() -> None:
    summary = dataclasses.replace(STUDIES["normal"], clocks_agree=False)
    assert table.describe_agreement(summary) == (
        "Both clocks name the same fastest batch, but differ on others: read both."
    )
