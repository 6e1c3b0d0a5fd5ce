"""The page: complete, escaped, offline, and sound as HTML."""

import base64
import dataclasses
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_studies import HOSTILE, NOTHING_FINISHED, STUDIES, UNFINISHED, make_study

from jax_rl.report import page
from jax_rl.report.contents import cell_rows, make_report
from jax_rl.report.drawings import save_figures
from jax_rl.report.figures import FIGURES
from jax_rl.report.section import Drawing, Section, Table
from jax_rl.report.trust import list_facts

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Outline(HTMLParser):
    """Ids, headings, tables, references and text of a page; checks that tags are closed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.unshown: dict[str, list[str]] = {"script": [], "style": []}
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("script", "style"):
            self.unshown[self._open[-1]].append(data)
        else:
            self.text += data


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Some of the studies as pages; to save time, all with the figures of one."""
    report = make_report(STUDIES["partly"])
    drawn = save_figures(report.plots, tmp_path_factory.mktemp("figures"))
    names = ("normal", "partly", "hostile", "unfinished")
    pages = {name: page.render_page(make_report(STUDIES[name]), drawn) for name in names}
    return pages | {"nothing_finished": page.render_page(make_report(NOTHING_FINISHED), {})}


def test_page_is_sound(pages: dict[str, str]) -> None:
    outline = Outline(pages["partly"])
    repeated = [name for name, count in Counter(outline.ids).items() if count > 1]
    assert repeated == []
    assert outline.tags["h1"] == 1
    assert outline.tags["svg"] == len(FIGURES) == 6
    assert outline.tags["caption"] == outline.tags["table"] == 5
    scopes = [value for tag, name, value in outline.attributes if (tag, name) == ("th", "scope")]
    assert len(scopes) == outline.tags["th"]
    labels = [
        value for tag, name, value in outline.attributes if (tag, name) == ("svg", "aria-label")
    ]
    assert len(labels) == 6
    assert all(labels)


def test_references_inside_the_page_resolve(pages: dict[str, str]) -> None:
    outline = Outline(pages["partly"])
    wanted = {v[1:] for _, name, v in outline.attributes if name.endswith("href") and v[0] == "#"}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", pages["partly"]))
    wanted |= {v for _, name, v in outline.attributes if name == "aria-labelledby"}
    assert len(wanted) > 50
    assert wanted <= set(outline.ids)


def test_nothing_is_fetched(pages: dict[str, str]) -> None:
    for source in pages.values():
        outline = Outline(source)
        assert not outline.tags.keys() & {"img", "iframe", "object", "embed", "image"}
        for _, name, value in outline.attributes:
            if name in ("src", "srcset", "data") or name.endswith("href"):
                assert value.startswith(("#", "data:")), value
        assert not re.search(r"@import|url\((?!#)", source)
        assert "default-src 'none'" in source
        assert ("script", "src") not in {(tag, name) for tag, name, _ in outline.attributes}


def test_policy_lets_the_pages_own_script_run_and_no_other(pages: dict[str, str]) -> None:
    outline = Outline(pages["hostile"])
    *data, script = outline.unshown["script"]
    assert len(data) == 1
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = (v for _, name, v in outline.attributes if v.startswith("default-src"))
    assert re.findall(r"script-src ([^;]*)", policy) == [f"'sha256-{digest}'"]


def test_embedded_data_cannot_end_its_element() -> None:
    evil = {"a": "</script><script>alert(1)</script><!--", "b": [1, "&amp;\u2028"]}
    source = page.embed_json(evil)
    assert not set("<>&\u2028") & set(source)
    assert json.loads(source) == evil


def test_texts_from_records_are_escaped(pages: dict[str, str]) -> None:
    assert "<script>alert" not in pages["hostile"]
    assert Outline(pages["hostile"]).tags["script"] == 2
    assert HOSTILE in Outline(pages["hostile"]).text


def test_every_device_and_task_text_is_escaped() -> None:
    study = make_study(batches=(16,), seeds=(0,))
    texts = ("name", "rate_rule", "setting", "task", "device", "git_revision")
    changed = dataclasses.replace(
        study,
        **{field: f"{field}{HOSTILE}" for field in texts},
        versions={f"versions{HOSTILE}": HOSTILE},
        training=dataclasses.replace(study.training, sentences=[f"sentence{HOSTILE}"]),
    )
    source = page.render_page(make_report(changed), {})
    assert "<script>alert" not in source
    shown = Outline(source).text
    for field in (*texts, "versions", "sentence"):
        assert f"{field}{HOSTILE}" in shown


def test_verdict_comes_first_under_both_clocks(pages: dict[str, str]) -> None:
    shown = Outline(pages["normal"]).text
    order = ["Verdict by the training clock", "Verdict by the elapsed clock", "To the target."]
    order += ["Validation against samples", "Set beforehand", "Every run, in the order of running"]
    places = [shown.index(words) for words in order]
    assert places == sorted(places)
    assert "Batch 64 (×4)" in shown


def test_what_must_be_known_is_there() -> None:
    facts = " ".join(f"{term}: {words}" for term, words in list_facts(UNFINISHED))
    for words in (
        "Target score 0.8; at most 65,536 samples and 60 min a run",
        "15 runs planned, 12 finished, 3 without a record",
        "Seeds 0, 1, 2",
        "Validation score 0.600 before the first update",
        "took 21.5 s",
        "512 held-out prompts",
        "every 2,048 samples",
        "standard deviation of 0.006",
        "random order",
        "8 degrees of freedom",
        "samples 0.05, throughput 0.02, training time 0.054",
        "git revision 0123abc",
        "jax 0.10.2",
        "off by 3.0 %",
    ):
        assert words in facts, words


def test_runs_from_a_checkpoint_say_so() -> None:
    summary = dataclasses.replace(UNFINISHED, checkpoint="models/Qwen3-0.6B")
    facts = " ".join(words for _, words in list_facts(summary))
    assert "All runs started from models/Qwen3-0.6B" in facts
    assert "took 21.5 s" not in facts


def test_unfinished_study_says_what_is_missing(pages: dict[str, str]) -> None:
    words = "12 of 15 planned runs are finished, 3 missing"
    assert words in pages["unfinished"]
    assert "not finished." not in pages["normal"]
    assert "No run is finished" in pages["nothing_finished"]
    assert "<svg" not in pages["nothing_finished"]
    assert "nan" not in Outline(pages["nothing_finished"]).text.split()


def test_every_run_has_its_row() -> None:
    header, rows = cell_rows(NOTHING_FINISHED)
    assert rows[0][header.index("notes")].startswith("not finished")
    header, rows = cell_rows(STUDIES["partly"])
    assert [int(row[0]) for row in rows] == list(range(1, 16))
    by_run = {(row[1], row[2]): dict(zip(header, row, strict=True)) for row in rows}
    missed = by_run["1,024", "0"]
    assert missed["samples to target"] == "> 65,536"
    assert missed["held"] == "–"
    assert by_run["16", "2"]["held"] == "no"
    assert by_run["16", "0"]["raw"] == "12,288"  # 11,578 on the grid of 2,048


def test_formulas_have_indices_and_powers_and_no_markup_of_their_own() -> None:
    shown = page.typeset("S(B) = S_min (1 + B/B_crit)^2, n^{-1/2} <b> of curve_fit & x^-0.5.")
    assert shown == (
        "S(B) = S<sub>min</sub> (1 + B/B<sub>crit</sub>)<sup>2</sup>, n<sup>-1/2</sup>"
        " &lt;b&gt; of curve_fit &amp; x<sup>-0.5</sup>."
    )


def test_embedded_svg_keeps_its_ids_apart() -> None:
    source = (
        '<?xml version="1.0"?><!DOCTYPE svg><svg width="9pt" height="9pt" viewBox="0 0 9 9">'
        '<metadata>who</metadata><defs><style type="text/css">*{fill: red}</style>'
        '<path id="a"/></defs><use xlink:href="#a" clip-path="url(#b)"/></svg>'
    )
    assert page.embed_svg(source, "x", label='say "this"') == (
        '<svg viewBox="0 0 9 9" role="img" aria-label="say &quot;this&quot;"><defs>'
        '<path id="x-a"/></defs><use xlink:href="#x-a" clip-path="url(#x-b)"/></svg>'
    )


def test_a_section_has_its_words_table_figure_and_method(tmp_path: Path) -> None:
    drawing = Drawing(
        "rising", "It rises", "Read it so.", "A line.", lambda axes: axes.plot([1, 2], [3, 4])
    )
    rows = [["16", "1.9\n1.7–2.2"], ["64", "–"]]
    section = Section(
        "question",
        "A question",
        paragraphs=["The answer."],
        tables=[Table("answers", "Answers", "In numbers.", ["batch", "ratio"], rows)],
        drawings=[drawing],
        methods=["r = a_1 / a_0"],
    )
    report = make_report(STUDIES["one_batch"], [section])
    figures = save_figures([plot for plot in report.plots if plot.name == "rising"], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"rising.svg", "rising.png"}
    source = page.render_page(report, figures)
    outline = Outline(source)
    assert {"question", "t-answers", "figure-rising"} <= set(outline.ids)
    assert outline.tags["svg"] == 1
    assert '<td>1.9<span class="aside">1.7–2.2</span></td>' in source
    words = ["The answer.", "Answers.", "It rises", "Read it so.", "r = a1 / a0", "Set beforehand"]
    places = [outline.text.index(word) for word in words]
    assert places == sorted(places)
