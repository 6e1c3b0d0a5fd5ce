"""The report of a study of several layouts: tables by layout and batch, its figures, its page."""

import dataclasses
import io
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from rich.console import Console
from study_records import BUDGET, write_run, write_study
from test_report_page import Outline
from test_study_rates_effects import make_tuning

from jax_rl.report import page, setting_tables, table
from jax_rl.report.build import build_report
from jax_rl.report.captions import CAPTIONS, describe_figure
from jax_rl.report.contents import cell_rows, make_report
from jax_rl.report.figures import FIGURES
from jax_rl.report.setting_figures import SETTING_FIGURES, list_setting_figures
from jax_rl.report.trust import list_facts
from jax_rl.report.views import list_views, name_files
from jax_rl.study.analyse import analyse
from jax_rl.study.summary import StudySummary

# Rollouts per second; 5,000 samples to target everywhere but in `tensor 256`, which misses it.
RATES = {
    "replicated": {16: 200.0, 64: 500.0, 256: 800.0},
    "fsdp": {16: 100.0, 64: 400.0, 256: 1000.0},
    "tensor": {16: 250.0, 64: 250.0, 256: 250.0},
}


def make_runs() -> dict[tuple[str, int, int], tuple[float, float]]:
    return {
        (layout, batch, seed): (
            2.0 * BUDGET if (layout, batch) == ("tensor", 256) else 5000.0 + 10 * seed,
            rate,
        )
        for seed in (0, 1)
        for layout, rates in RATES.items()
        for batch, rate in rates.items()
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("studies") / "trade"
    write_study(directory, make_runs())
    return directory


@pytest.fixture(scope="module")
def summary(study: Path) -> StudySummary:
    return analyse(study)


@pytest.fixture(scope="module")
def source(summary: StudySummary) -> str:
    """The page, one small picture standing for every figure."""
    picture = '<svg width="9pt" height="9pt"><path id="a"/></svg>'
    report = make_report(summary)
    return page.render_page(report, {plot.name: picture for plot in report.plots})


def print_plain(summary: StudySummary) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False)
    table.print_table(summary, console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def find_row(shown: str, title: str, name: str) -> list[str]:
    """The words of the row that begins with a name, of the first table under a title."""
    after = shown[shown.index(title) :].splitlines()
    return next(line.split() for line in after if line.split()[:1] == [name])


def test_time_relative_to_the_best_by_hand(summary: StudySummary) -> None:
    header, rows = setting_tables.heat_rows(summary, summary.training)
    assert header == ["layout", "16 (×1/4)", "64 (×1)", "256 (×4)"]
    shown = {layout: [cell.shown for cell in cells] for layout, cells in rows}
    # The best takes 5 s at 1,000 rollouts a second.
    assert shown["replicated"] == ["5.00", "2.00", "1.25"]
    assert shown["fsdp"] == ["10.0", "2.50", "1"]
    # 16,384 samples over the geometric mean of 5,000 and 5,010, times 4.
    bound = 4 * BUDGET / math.sqrt(5000 * 5010)
    assert shown["tensor"] == ["4.00", "4.00", f"> {bound:.1f}"]
    heat = dict(rows)
    assert [cell.heat for cell in heat["fsdp"]] == pytest.approx(
        [0.0, 1 - math.log(2.5) / math.log(4), 1.0]
    )
    assert [cell.near for cell in heat["fsdp"]] == [False, False, True]


def test_terminal_has_everything_and_fits(summary: StudySummary) -> None:
    shown = print_plain(summary)
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert find_row(shown, "relative to the best, training", "fsdp") == [
        "fsdp",
        "10.0",
        "2.50",
        "1",
    ]
    assert find_row(shown, "Throughput, rollouts per second", "tensor") == ["tensor"] + ["250"] * 3
    assert find_row(shown, "Training time to target, s", "tensor")[-2:] == [">", "65.5"]
    order = [f"Layout {layout} (data 1" for layout in RATES]
    order += ["All layouts", "Samples to target between layouts", "Both clocks name"]
    places = [shown.index(words) for words in order]
    assert places == sorted(places)
    flat = " ".join(shown.split())
    assert "fsdp 256 reaches the target 2.0× sooner than replicated 64" in flat
    assert "The fastest batch in each layout: replicated 256; fsdp 256; tensor" in flat
    assert "no dependence on the layout that these could show" in flat
    assert "Ratios against replicated, same batch" in shown


def test_page_has_a_part_for_each_layout(source: str, summary: StudySummary) -> None:
    outline = Outline(source)
    assert len(set(outline.ids)) == len(outline.ids)
    assert {"settings", "t-heat-training", "t-heat-elapsed", "t-samples"} <= set(outline.ids)
    for layout in RATES:
        assert {f"batches-{layout}", f"figures-{layout}", f"t-target-{layout}"} <= set(outline.ids)
    assert outline.tags["svg"] == 3 + 3 * len(FIGURES)
    wanted = {v for _, name, v in outline.attributes if name == "aria-labelledby"}
    assert wanted <= set(outline.ids)
    words = ["fsdp 256 (×4)", "At the reference batch 64 the fastest layout is replicated."]
    words += [
        "Time to target relative to the best",
        "Layout replicated (data 1",
        "Layout tensor (data 1",
    ]
    places = [outline.text.index(word) for word in words]
    assert places == sorted(places)
    assert 'style="--shade: 1.000">1<' in source
    header, rows = cell_rows(summary)
    assert header[:3] == ["order", "layout", "batch"]
    assert rows[0][:3] == ["1", "replicated", "16"]


def test_every_layout_has_the_verdict_of_a_study_of_it_alone(
    tmp_path: Path, summary: StudySummary
) -> None:
    alone = {(b, s): value for (layout, b, s), value in make_runs().items() if layout == "fsdp"}
    write_study(tmp_path, alone)
    expected = analyse(tmp_path)
    view = list_views(summary)[1]
    assert (view.setting, view.planned_cells, len(view.cells)) == ("fsdp", 6, 6)
    assert view.training.fastest == expected.training.fastest == 256
    # How many digits the factors get may hang on the last bit.
    mine, alone_says = (s.training.sentences[0].split(":")[0] for s in (view, expected))
    assert mine == alone_says == "×4 batch (256) reaches the target 2.5× sooner"
    assert table.target_rows(view) == table.target_rows(expected)
    assert table.throughput_rows(view) == table.throughput_rows(expected)
    assert list_views(expected) == [expected]


def test_curves_of_layouts_stand_where_the_numbers_are(summary: StudySummary) -> None:
    def curves(name: str) -> dict[str, list[float]]:
        figure = SETTING_FIGURES[name](summary)
        axes = figure.axes[0]
        assert isinstance(axes, Axes)
        lines = [line for line in axes.lines if len(line.get_xdata()) > 1]
        assert len({str(line.get_color()) for line in lines}) == 3
        drawn = [[float(y) for y in np.asarray(line.get_ydata())] for line in lines]
        return dict(zip(RATES, drawn, strict=True))

    rates = curves("settings_throughput")
    assert rates == {layout: pytest.approx(list(by.values())) for layout, by in RATES.items()}
    times = curves("settings_time")
    mean = math.sqrt(5000 * 5010)
    assert times["fsdp"] == pytest.approx([mean / 100, mean / 400, mean / 1000])
    assert len(times["tensor"]) == 2  # the third is a bound, drawn as an arrow
    samples = SETTING_FIGURES["settings_samples"](summary).axes[0]
    arrows = [line for line in samples.lines if line.get_marker() == r"$\uparrow$"]
    assert [float(line.get_ydata()[0]) for line in arrows] == [BUDGET, BUDGET]


def test_files_and_words_of_the_figures(summary: StudySummary) -> None:
    plots = make_report(summary).plots
    names = [plot.name for plot in plots]
    assert names[:3] == ["settings_time", "settings_throughput", "settings_samples"]
    assert names[3] == "validation_samples_replicated"
    assert len(set(names)) == len(names) == 3 + 3 * len(FIGURES)
    headings = {plot.heading.split(":")[0] for plot in plots}
    assert headings == {caption.heading for caption in CAPTIONS.values()}
    words = describe_figure(summary, "settings_time")
    assert "batch fsdp 256 (×4): 5.00 s" in words
    assert "batch tensor 256 (×4): > 65.5 s" in words


def test_odd_names_of_layouts_do_not_reach_files_and_ids(tmp_path: Path) -> None:
    runs = {
        (layout, b, s): (5000.0, 100.0)
        for layout in ("plain", 'a "b" <i>')
        for b in (16, 64)
        for s in (0, 1)
    }
    write_study(tmp_path, runs)
    summary = analyse(tmp_path)
    assert name_files(summary) == {"plain": "plain", 'a "b" <i>': "setting2"}
    source = page.render_page(make_report(summary), {})
    assert "<i>" not in source
    assert 'a "b" <i>' in Outline(source).text
    print_plain(summary)


def test_different_devices_leave_samples_alone(tmp_path: Path) -> None:
    runs = {k: v for k, v in make_runs().items() if k[0] != "tensor"}
    write_study(tmp_path, runs)
    for (layout, batch, seed), (samples, rate) in runs.items():
        if layout == "fsdp":
            (tmp_path / "cells" / f"fsdp_b{batch:05d}_s{seed}" / "records.jsonl").unlink()
            start = {"device_kind": "TPU v5e", "platform": "tpu"}
            write_run(tmp_path, batch, seed, layout=layout, samples=samples, rate=rate, start=start)
    summary = analyse(tmp_path)
    assert list_setting_figures(summary) == ["settings_samples"]
    assert [grid.title for grid in setting_tables.list_grids(summary)] == ["Samples to target"]
    assert setting_tables.heat_rows(summary, summary.training)[1] == []
    shown = " ".join(print_plain(summary).split())
    assert "relative to the best" not in shown
    assert "only samples to target are compared" in shown
    text = Outline(page.render_page(make_report(summary), {})).text
    assert "No fastest layout and batch" in text
    assert "1 x TPU v5e (tpu); 1 x cpu (cpu)" in text


def test_trust_names_layouts_order_and_what_the_intervals_assume(summary: StudySummary) -> None:
    facts = dict(list_facts(summary))
    assert "replicated 16, replicated 64, replicated 256, fsdp 16" in facts["Order of the runs"]
    assert "settings and batches of a block together" in facts["Order of the runs"]
    assert "Bonferroni" in facts["Intervals"]
    assert "layouts replicated (data 1 x fsdp 1 x tensor 1), fsdp (" in facts["Where and with what"]
    assert "do not show that they went one" in facts["Order of the runs"]  # all began at once
    in_turn = dict(list_facts(dataclasses.replace(summary, one_at_a_time=True)))
    assert "Runs went one at a time" in in_turn["Order of the runs"]


def test_settings_of_other_kinds_are_not_called_layouts(tmp_path: Path) -> None:
    layout = {"name": "replicated", "axis_sizes": {"data": 1}}
    runs = {
        (name, batch, seed): (5000.0 + 10 * seed, 100.0 * batch**0.5)
        for name in ("rate_none", "group")
        for batch in (16, 64)
        for seed in (0, 1)
    }
    write_study(tmp_path, runs, start={"layout": layout})
    content = json.loads((tmp_path / "study.json").read_text())
    same = {"layout": "replicated", "updates": 1, "devices": "fixed"}
    content["settings"] = {
        "rate_none": same | {"rule": "none", "growth": "prompts"},
        "group": same | {"rule": "sqrt", "growth": "group"},
    }
    (tmp_path / "study.json").write_text(json.dumps(content))
    summary = analyse(tmp_path)
    said = " ".join(summary.single_choices[0].sentences)
    assert "At the reference batch 64 the fastest setting is" in said
    assert "The fastest batch in each setting" in said
    assert "layout" not in said
    assert not any("layout" in grid.about for grid in setting_tables.list_grids(summary))
    facts = dict(list_facts(summary))
    assert "by the rules none and sqrt; batches" in facts["Set beforehand"]
    assert "more or fewer with the batch in group" in facts["Set beforehand"]
    assert "settings ask the same prompts" in facts["Intervals"]
    assert "layouts" not in facts["Intervals"]
    assert "rates by the rules none and sqrt" in " ".join(print_plain(summary).split())
    tuned = dataclasses.replace(
        summary.answers, tuning=make_tuning({64: {0.5: 3000, 1.0: 2000, 2.0: 2500}})
    )
    facts = dict(list_facts(dataclasses.replace(summary, answers=tuned)))
    assert "none and sqrt, times the best multiple of trials" in facts["Set beforehand"]


@pytest.mark.slow
def test_a_whole_report_is_built_and_fetches_nothing(study: Path) -> None:
    source = build_report(study).read_text("utf-8")
    outline = Outline(source)
    assert len(set(outline.ids)) == len(outline.ids)
    wanted = {v[1:] for _, name, v in outline.attributes if name.endswith("href") and v[0] == "#"}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", source))
    assert wanted <= set(outline.ids)
    assert not re.search(r"@import|url\((?!#)", source)
    # Those of the questions besides come and go with what the runs hold.
    figures = set(SETTING_FIGURES) | {f"{name}_{layout}" for name in FIGURES for layout in RATES}
    assert figures <= {path.stem for path in (study / "figures").glob("*.svg")}
    assert json.loads((study / "summary.json").read_text())["training"]["setting"] == "fsdp"
