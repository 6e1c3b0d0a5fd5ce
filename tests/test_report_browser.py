"""The page in a browser: what its script adds, how it looks on a phone and in the dark."""

import csv
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, start_browser
from report_studies import HOSTILE, STUDIES

from jax_rl.report.contents import make_report
from jax_rl.report.drawings import save_figures
from jax_rl.report.exports import render_csv
from jax_rl.report.page import render_page
from jax_rl.report.parts import Part, Report
from jax_rl.report.section import Section, Table

EVERY_NUMBER = Section(
    id="numbers",
    title="Numbers",
    paragraphs=["Of every kind."],
    tables=[
        Table(
            id="kinds",
            title="Kinds of numbers",
            about="To be sorted.",
            header=["name", "value", "words"],
            rows=[
                ["a", "> 5,000", "beta"],
                ["b", "–", "=alpha"],
                ["c", "1,234", "ten, 10"],
                ["d", "×1.9\n1.7–2.2", 'said "nine"'],
                ["e", "5,000", "beta"],
                ["f", "×1/4", "–"],
                ["g", "-3.0 %", "gamma"],
                ["h", "2 min", "delta"],
                ["i", "0.5", "zeta"],
            ],
        )
    ],
    methods=["S(B) = S_min (1 + B / B_crit)"],
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with start_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def report() -> Report:
    return make_report(STUDIES["hostile"], [EVERY_NUMBER])


@pytest.fixture(scope="module")
def path(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with one figure, for drawing is slow."""
    directory = tmp_path_factory.mktemp("page")
    figures = save_figures(report.plots[:1], directory / "figures")
    path = directory / "report.html"
    path.write_text(render_page(report, figures), encoding="utf-8")
    return path


@pytest.fixture
def page(browser: Browser, path: Path) -> Iterator[Browser]:
    browser.allow_scripts(True)
    browser.set_dark(False)
    browser.resize(1280)
    browser.complaints.clear()
    browser.open(path)
    yield browser
    assert browser.complaints == []


def find_column(page: Browser, table: str, column: int) -> list[str]:
    cells = f"document.querySelectorAll('table[data-file=\"{table}.csv\"] tbody tr')"
    return list(page.run(f"[...{cells}].map(row => row.cells[{column}].firstChild.textContent)"))


def click_head(page: Browser, table: str, column: int) -> str | None:
    head = f"document.querySelector('table[data-file=\"{table}.csv\"]').tHead.rows[0]"
    page.run(f"{head}.cells[{column}].querySelector('button').click()")
    return str(page.run(f"{head}.cells[{column}].getAttribute('aria-sort') || ''"))


def find_runs(page: Browser) -> list[int]:
    """The runs that the chart shows, by their place."""
    return list(page.run("[...document.querySelectorAll('.run')].map(g => +g.dataset.run)"))


def test_nothing_is_fetched_and_hostile_text_is_text(page: Browser) -> None:
    assert page.run("performance.getEntriesByType('resource').map(e => e.name)") == []
    assert HOSTILE in page.run("document.body.innerText")
    # A script that is not the page's own is not run.
    page.run(
        "{const s = document.createElement('script'); s.textContent = 'window.evil = 1';"
        "document.body.append(s)}"
    )
    assert page.run("window.evil === undefined")
    assert any("Content Security Policy" in words for words in page.complaints)
    page.complaints.clear()


def test_columns_sort_by_number_then_back(page: Browser) -> None:
    before = find_column(page, "kinds", 1)
    assert click_head(page, "kinds", 1) == "ascending"
    # By hand: -0.03, 0.25, 0.5, 1.9, 120, 1234, 5000, more than 5000; no number comes last.
    ascending = ["-3.0 %", "×1/4", "0.5", "×1.9", "2 min", "1,234", "5,000", "> 5,000", "–"]
    assert find_column(page, "kinds", 1) == ascending
    assert click_head(page, "kinds", 1) == "descending"
    assert find_column(page, "kinds", 1) == [*ascending[-2::-1], "–"]
    assert click_head(page, "kinds", 1) == ""
    assert find_column(page, "kinds", 1) == before
    click_head(page, "kinds", 2)
    words = ["=alpha", "beta", "beta", "delta", "gamma", 'said "nine"', "ten, 10", "zeta", "–"]
    assert find_column(page, "kinds", 2) == words
    assert find_column(page, "kinds", 0)[1:3] == ["a", "e"]  # equal ones keep their order


def test_tables_sort_from_the_keyboard(page: Browser) -> None:
    page.run(
        "document.querySelector('table[data-file=\"runs.csv\"] th:nth-child(2) button').focus()"
    )
    page.press("Enter")
    batches = [int(text.replace(",", "")) for text in find_column(page, "runs", 1)]
    assert batches == sorted(batches) and batches[0] < batches[-1]


def save(page: Browser, button: str) -> dict[str, Any]:
    """What a button would save: its file's name, kind and text."""
    page.run(
        "URL.createObjectURL = blob => { window.saved = {type: blob.type, text: blob.text()};"
        " return 'blob:x' };"
        "HTMLAnchorElement.prototype.click = function() { window.saved.name = this.download };"
    )
    page.run(f"document.querySelector({button!r}).click()")
    return dict(page.run("window.saved.text.then(text => ({...window.saved, text}))"))


def test_saved_csv_has_the_rows_of_the_file(page: Browser, report: Report) -> None:
    for table in report.tables:
        label = f"Save the table {table.title} as CSV"
        saved = save(page, f'button[aria-label="{label}"]')
        assert (saved["name"], saved["type"]) == (f"{table.id}.csv", "text/csv")
        mine, expected = (
            list(csv.reader(io.StringIO(text))) for text in (saved["text"], render_csv(table))
        )
        assert mine == expected
        assert len(mine) == 1 + len(table.rows)


def test_saved_figures_are_whole_svg(page: Browser, report: Report) -> None:
    for heading, name in (
        (report.plots[0].heading, f"{report.plots[0].name}.svg"),
        ("Learning curves", "learning_curves.svg"),
    ):
        saved = save(page, f'button[aria-label="Save the figure {heading} as SVG"]')
        assert (saved["name"], saved["type"]) == (name, "image/svg+xml")
        parsed = page.run(
            "(s => { const d = new DOMParser().parseFromString(s, 'image/svg+xml');"
            " return [d.documentElement.tagName, d.querySelectorAll('parsererror').length,"
            " +d.documentElement.getAttribute('width') > 100] })"
            f"({saved['text']!r})"
        )
        assert parsed == ["svg", 0, True]


def test_seeds_and_batches_come_and_go(page: Browser) -> None:
    runs = page.run("JSON.parse(document.getElementById('curves-data').textContent).runs")
    assert find_runs(page) == list(range(15))
    page.run("document.querySelector('[data-kind=seed][data-value=\"1\"]').click()")
    assert find_runs(page) == [i for i, run in enumerate(runs) if run["seed"] != 1]
    page.run("document.querySelector('[data-kind=batch][data-value=\"64\"]').click()")
    expected = [i for i, run in enumerate(runs) if run["seed"] != 1 and run["batch"] != 64]
    assert find_runs(page) == expected
    page.run("document.querySelectorAll('[data-kind]:checked').forEach(box => box.click())")
    assert find_runs(page) == []
    assert "no run chosen" in page.run("document.querySelector('#curves .plot > svg').textContent")


def test_axis_and_values_switch(page: Browser) -> None:
    def find_points() -> list[float]:
        points = page.run("document.querySelector('.run polyline').getAttribute('points')")
        return [float(number) for number in re.split("[ ,]", points)]

    def choose(name: str, value: str) -> None:
        page.run(
            f"{{const s = document.getElementById('curves-{name}'); s.value = '{value}';"
            "s.dispatchEvent(new Event('change'))}"
        )

    drawings = {}
    axes = list(page.run("[...document.querySelectorAll('#curves-axis option')].map(o => o.value)"))
    assert axes[:3] == ["samples", "training_seconds", "elapsed_seconds"]
    assert axes[-1] == "device_hours"
    for axis in axes:
        choose("axis", axis)
        assert all(map(math.isfinite, find_points()))
        drawings[axis] = page.run("document.querySelector('#curves .plot > svg').textContent")
        assert len(page.run("[...document.querySelectorAll('.crossing')].map(c => c.r)")) == 15
    assert len(set(drawings.values())) == len(axes)
    assert "elapsed time (s)" in drawings["elapsed_seconds"]
    before = find_points()
    choose("values", "fit")
    assert find_points() != before
    choose("axis", "samples")
    page.run("document.getElementById('curves-log').click()")
    assert len(find_points()) == len(before) - 2  # a logarithmic axis has no place for 0


def test_pointing_and_keys_read_out_values(page: Browser) -> None:
    box = page.run(
        "(m => { m.scrollIntoView({block: 'center'}); const b = m.getBoundingClientRect();"
        " return [b.x + b.width / 2, b.y + b.height / 2] })"
        "(document.querySelector('.run polyline ~ *'))"
    )
    assert page.run("document.querySelector('.readout').hidden")
    page.point(*box)
    shown = page.run("document.querySelector('.readout').innerText")
    assert re.search(
        r"batch [\d,]+ \(×[\d/]+\), seed \d\nsamples: 0\nscore 0\.\d{3}, fit 0\.6", shown
    )
    page.run("document.querySelector('#curves .plot > svg').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    first = page.run("document.querySelector('[role=status]').textContent")
    page.press("ArrowDown")
    second = page.run("document.querySelector('[role=status]').textContent")
    assert "samples: 4,096" in first and "samples: 4,096" in second
    assert first.split(", samples")[0] != second.split(", samples")[0]
    page.press("Escape")
    assert page.run("document.querySelector('.readout').hidden")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_fits_the_window_and_can_be_read(page: Browser, width: int, dark: bool) -> None:
    page.resize(width)
    page.set_dark(dark)
    # The chart is drawn anew at the width of the window.
    wide = page.run(
        "new Promise(done => setTimeout(() => done([...document.querySelectorAll('body *')].filter("
        "e => !e.closest('.scroll table') && !e.closest('svg') && e.getBoundingClientRect().right >"
        " document.documentElement.clientWidth + 1).map(e => e.tagName + '.' + e.className)), 100))"
    )
    assert wide == []
    assert page.run("document.documentElement.scrollWidth") == width
    colors = "(s => [s.color, s.backgroundColor].map(c => c.match(/\\d+/g).map(Number)))"
    ink, paper = page.run(f"{colors}(getComputedStyle(document.body))")
    assert (sum(paper) < sum(ink)) == dark
    assert measure_contrast(ink, paper) > 7
    for selector in (".muted", "nav a", "caption span", "button", "figcaption"):
        ink, _ = page.run(f"{colors}(getComputedStyle(document.querySelector({selector!r})))")
        assert measure_contrast(ink, paper) > 4.5, selector


def measure_contrast(ink: list[float], paper: list[float]) -> float:
    """Contrast of two colours (WCAG 2.2, relative luminance)."""

    def light(color: list[float]) -> float:
        parts = [c / 255 for c in color[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dim = sorted((light(ink), light(paper)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_everything_that_works_has_a_name(page: Browser) -> None:
    nameless = page.run(
        "[...document.querySelectorAll('button, select, input, svg[role], [tabindex]')].filter(e =>"
        " !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') ||"
        " e.textContent.trim() || (e.labels && e.labels[0] && e.labels[0].textContent.trim())))"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert nameless == []
    assert page.run("document.querySelectorAll('main h2').length") == 7
    assert page.run("document.querySelector('details').textContent").endswith("Bcrit)")


def test_without_a_script_the_tables_and_figures_stay(browser: Browser, path: Path) -> None:
    browser.allow_scripts(False)
    browser.open(path)
    assert browser.run("document.querySelectorAll('button').length") == 0
    assert browser.run("document.getElementById('curves').hidden")
    assert browser.run("document.querySelectorAll('.plot > svg').length") == 1
    assert browser.run("document.querySelectorAll('table').length") == 6


def test_page_without_a_run_or_a_table_has_no_error(browser: Browser, tmp_path: Path) -> None:
    bare = Report("Nothing", "", [], [Part("verdict", "Verdict")], None)
    (tmp_path / "bare.html").write_text(render_page(bare, {}), encoding="utf-8")
    browser.allow_scripts(True)
    browser.complaints.clear()
    browser.open(tmp_path / "bare.html")
    assert browser.run("document.title") == "Nothing"
    assert browser.complaints == []
