"""The figures: that the marks stand where the numbers are."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from report_studies import CENSORED, NOTHING_FINISHED, PARTLY, STUDIES, TARGET, make_study

from jax_rl.report import figures, marks
from jax_rl.report.captions import CAPTIONS, describe_figure
from jax_rl.report.contents import make_report
from jax_rl.report.drawings import save_figures
from jax_rl.report.setting_figures import SETTING_FIGURES
from jax_rl.study.summary import Interval, StudySummary


def draw(name: str, summary: StudySummary) -> list[Axes]:
    """The axes of a figure."""
    figure = figures.FIGURES[name](summary)
    assert isinstance(figure, Figure)
    return list(figure.axes)


def points(axes: Axes, marker: str) -> list[tuple[float, float]]:
    """Data of all marks of a kind."""
    found = [line for line in axes.lines if line.get_marker() == marker]
    return [
        (float(x), float(y))
        for line in found
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


@pytest.mark.parametrize(
    "study",
    [
        *("hostile", "nothing_reached"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("one_batch", "unfinished")),
    ],
)
def test_every_figure_is_drawn_without_a_warning(study: str, tmp_path: Path) -> None:
    sources = save_figures(make_report(STUDIES[study]).plots, tmp_path)
    assert list(sources) == list(figures.FIGURES)
    assert [*SETTING_FIGURES, *figures.FIGURES] == list(CAPTIONS)
    for name, source in sources.items():
        assert (tmp_path / f"{name}.svg").read_text("utf-8") == source
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        ElementTree.fromstring(source)


def test_no_finished_run_gives_no_figures(tmp_path: Path) -> None:
    assert save_figures(make_report(NOTHING_FINISHED).plots, tmp_path) == {}


def test_same_summary_gives_the_same_bytes(tmp_path: Path) -> None:
    for place in ("a", "b"):
        save_figures(make_report(PARTLY).plots, tmp_path / place)
    for path in sorted((tmp_path / "a").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name
    assert not re.search(r"\d{4}-\d\d-\d\dT", (tmp_path / "a" / "throughput.svg").read_text())


def test_curves_cross_at_the_target() -> None:
    study = make_study()
    (axes,) = draw("validation_samples", study)
    crossings = sorted(x for x, _ in points(axes, "o"))
    expected = sorted(c.crossing.samples for c in study.cells if c.crossing is not None)
    assert np.allclose(crossings, expected)
    assert {y for _, y in points(axes, "o")} == {TARGET}
    assert "not reached" not in axes.get_xlabel()


def test_censored_curves_are_marked() -> None:
    (axes,) = draw("validation_samples", CENSORED)
    assert len(points(axes, "x")) == 3
    assert "target not reached" in axes.get_xlabel()


def test_curves_of_one_batch_share_a_colour_and_batches_do_not() -> None:
    study = make_study()
    (axes,) = draw("validation_seconds", study)
    curves = [line for line in axes.lines if len(line.get_xdata()) > 2]
    assert len(curves) == 15
    assert len({str(line.get_color()) for line in curves}) == 5


def test_far_apart_batches_get_a_logarithmic_axis() -> None:
    assert draw("validation_seconds", make_study())[0].get_xscale() == "linear"
    slow = make_study(batches=(1, 16, 64))  # 4,000 / 13 = 308 rollouts/s against 3,368
    assert draw("validation_seconds", slow)[0].get_xscale() == "symlog"


def test_samples_to_target_shows_means_and_bounds() -> None:
    (axes,) = draw("samples_to_target", PARTLY)
    hollow = {x: y for x, y in points(axes, "o") if x in (4, 16, 64, 256, 1024)}
    expected = {r.batch: r.samples_to_target for r in PARTLY.batches if r.censored == 0}
    assert hollow == pytest.approx(expected)
    bounds = dict(points(axes, "^"))
    assert bounds == pytest.approx(
        {r.batch: r.samples_at_least for r in PARTLY.batches if r.censored}
    )
    assert len(points(axes, r"$\uparrow$")) == 3
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [
        "×1/4\n4",
        "×1\n16",
        "×4\n64",
        "×16\n256",
        "×64\n1,024",
    ]
    low, high = axes.get_ylim()
    drawn = [y for line in axes.lines for y in np.asarray(line.get_ydata(), float)]
    assert low < min(drawn)
    assert max(drawn) < high


def test_factors_multiply_on_the_axis() -> None:
    _, lower = draw("time_to_target", make_study())
    drawn = {
        m: [y for _, y in sorted(points(lower, m))] for m in ("^", "s", "o")
    }  # samples, 1 / throughput, time
    assert np.allclose(np.multiply(drawn["^"], drawn["s"]), drawn["o"])
    assert drawn["o"][1] == 1.0


def test_reference_with_censored_runs_has_no_place_among_ratios() -> None:
    nothing = STUDIES["nothing_reached"]
    _, lower = draw("time_to_target", nothing)
    assert points(lower, "o") == []
    assert len(points(lower, "s")) == 5


def test_phase_shares_fill_the_bars() -> None:
    study = make_study()
    (axes,) = draw("phase_shares", study)
    ends = [patch.get_x() + patch.get_width() for patch in axes.patches]
    assert sorted(ends)[-5:] == pytest.approx([100.0] * 5)
    widths = [patch.get_width() for patch in axes.patches]
    assert widths[0] == pytest.approx(100 * study.batches[0].phase_shares["generate"])


def test_ratio_the_other_way_round() -> None:
    assert figures.invert(Interval(2.0, 1.6, 2.5)) == Interval(0.5, 0.4, 0.625)
    assert figures.invert(Interval(2.0, 1.6, None, "at least")) == Interval(
        0.5, None, 0.625, "at most"
    )


def test_interval_marks_return_what_they_span() -> None:
    axes = Figure().subplots()
    known = [(4.0, Interval(2.0, 1.6, 2.5)), (16.0, Interval(None, None, None))]
    assert marks.draw_intervals(axes, known, color="k", marker="o") == [[2.0, 1.6, 2.5]]


def test_descriptions_carry_the_numbers() -> None:
    words = describe_figure(CENSORED, "samples_to_target")
    assert "batch 16 (×1): 12,177" in words
    assert "batch 1,024 (×64): > 65,536" in words
