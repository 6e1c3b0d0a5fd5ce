"""A study of several layouts: the fastest pair, and that no layout moves a sample."""

import json
import math

import pytest
from study_records import BUDGET, build_cell, make_config, write_run, write_study

from jax_rl.errors import UserError
from jax_rl.study.analyse import analyse, write_summary
from jax_rl.study.batches import fit_study
from jax_rl.study.layouts import compare_layouts, describe_layout_samples
from jax_rl.study.names import Names
from jax_rl.study.summary import Arm, Interval
from jax_rl.study.verdict import decide
from jax_rl.study.words import RateContext

LAYOUTS = ("replicated", "fsdp")
# Samples to target by batch; 64 is the reference. Rollouts per second by layout and batch.
SAMPLES = {16: 5000.0, 64: 5000.0, 256: 6000.0}
RATES = {
    "replicated": {16: 200.0, 64: 500.0, 256: 600.0},
    "fsdp": {16: 100.0, 64: 400.0, 256: 900.0},
}
# A Latin square: no row or column has a mean, so that it changes no effect.
SQUARE = ((0.01, -0.01, 0.0), (0.0, 0.01, -0.01), (-0.01, 0.0, 0.01))


def make_runs(*, moved=None, rates=RATES, seeds=3, noise=1.0):
    """Runs of all layouts; `moved` multiplies the samples of an arm."""
    return {
        (layout, batch, seed): (
            SAMPLES[batch]
            * (moved or {}).get((layout, batch), 1.0)
            * math.exp(noise * SQUARE[(i + j) % 3][seed]),
            rates[layout][batch],
        )
        for seed in range(seeds)
        for j, layout in enumerate(rates)
        for i, batch in enumerate(SAMPLES)
    }


def test_the_fastest_pair_by_hand(tmp_path):
    write_study(tmp_path, make_runs())
    summary = analyse(tmp_path)
    # Times: replicated 25, 10, 10 s; fsdp 50, 12.5, 6.67 s.
    assert [(r.setting, r.batch) for r in summary.batches] == [
        (layout, batch) for layout in LAYOUTS for batch in SAMPLES
    ]
    verdict = summary.training
    assert (verdict.setting, verdict.fastest) == ("fsdp", 256)
    assert verdict.arms == [Arm("fsdp", 256)]
    assert verdict.undistinguished == [256]
    # 900 / 500 = 1.8 and 6,000 / 5,000 = 1.2, so 1.5 sooner.
    assert verdict.sentences[0] == (
        "fsdp 256 reaches the target 1.5× sooner than replicated 64: throughput ×1.8, samples"
        " ×1.2 (under sqrt from rate 0.001 at 64)."
    )
    assert verdict.sentences[1].startswith(
        "95 % interval of the time of fsdp 256 over that of replicated 64: "
    )
    ratios = {(c.setting, c.batch): c.training_time.estimate for c in verdict.against_fastest}
    assert ratios == pytest.approx(
        {
            ("replicated", 16): 25 * 0.15,
            ("replicated", 64): 1.5,
            ("replicated", 256): 1.5,
            ("fsdp", 16): 7.5,
            ("fsdp", 64): 1.875,
        }
    )
    assert {c.against_setting for c in verdict.against_fastest} == {"fsdp"}
    by_arm = {(r.setting, r.batch): r for r in summary.batches}
    assert by_arm["fsdp", 256].throughput == pytest.approx(900)
    across = by_arm["fsdp", 256].against_setting
    assert (across.against_setting, across.against) == ("replicated", 256)
    assert across.throughput.estimate == pytest.approx(1.5)
    assert by_arm["replicated", 256].against_setting is None
    # Inside a layout the batches are compared as in a study of it alone.
    assert by_arm["fsdp", 256].against_reference.against_setting == "fsdp"
    assert by_arm["fsdp", 256].against_reference.throughput.estimate == pytest.approx(2.25)
    assert by_arm["fsdp", 64].against_smaller.against == 16
    # 3 batches x 3 seeds in one layout: 2 x 2.
    assert summary.degrees_of_freedom == 4


def test_the_two_single_choices_stand_beside_it(tmp_path):
    write_study(tmp_path, make_runs())
    summary = analyse(tmp_path)
    training = summary.single_choices[0]
    assert (training.clock, training.setting, training.settings) == (
        "training",
        "replicated",
        ["replicated"],
    )
    assert training.batch in (64, 256)  # 10 s each
    assert training.sentences[0] == "At the reference batch 64 the fastest layout is replicated."
    assert "fsdp 256." in training.sentences[1]
    assert training.sentences[2].startswith(
        "Against the reference replicated 64: the layout alone (replicated 64) stays;"
    )
    assert training.sentences[2].endswith("both (fsdp 256) 1.5× sooner.")
    fsdp = summary.settings[1]
    assert (fsdp.setting, fsdp.training.fastest, fsdp.device) == ("fsdp", 256, "1 x cpu (cpu)")
    # 900 / 400 = 2.25 over 1.2 is 1.875.
    assert fsdp.training.sentences[0] == (
        "×4 batch (256) reaches the target 1.9× sooner: throughput ×2.25, samples ×1.20"
        " (under sqrt from rate 0.001 at 64)."
    )
    assert fsdp.axis_sizes == {"data": 1, "fsdp": 1, "tensor": 1}


def test_equal_layouts_are_not_told_apart(tmp_path):
    write_study(tmp_path, make_runs(rates={"a": RATES["fsdp"], "b": RATES["fsdp"]}))
    summary = analyse(tmp_path)
    assert set(summary.training.arms) == {Arm("a", 256), Arm("b", 256)}
    assert any("cannot be told from the fastest" in s for s in summary.training.sentences)
    assert not any(ratio.differs for ratio in summary.layout_ratios)
    # Each batch has the log ratios 0.02, -0.01, -0.01 in some order: squares 0.0018 over 8 give the
    # standard deviation 0.015, an error of 0.005 for nine, and 2.306 times it is 0.0115.
    assert summary.layout_samples == [
        "Samples to target in b are ×1.00 those in a (95 % interval 0.989 to 1.01; 9 pairs of runs"
        " of one batch and seed): no dependence on the layout that these could show."
    ]
    assert summary.single_choices[0].sentences[0].endswith("cannot be told from it.")


def test_a_layout_that_changes_the_samples_is_called_out(tmp_path):
    write_study(tmp_path, make_runs(moved={("fsdp", b): 1.2 for b in SAMPLES}))
    summary = analyse(tmp_path)
    whole, *single = summary.layout_ratios
    assert (whole.setting, whole.against, whole.batch, whole.pairs) == (
        "fsdp",
        "replicated",
        None,
        9,
    )
    assert whole.differs
    assert whole.samples.estimate == pytest.approx(1.2)
    assert [ratio.batch for ratio in single] == [16, 64, 256]
    [said] = [s for s in summary.layout_samples if "over all batches" in s]
    assert said.startswith(
        "Samples to target depend on the layout: over all batches, fsdp needs ×1.20 of the samples"
        " of replicated (95 % interval 1.19 to 1.21"
    )
    assert said in summary.notes
    assert not any("no dependence" in s for s in summary.layout_samples)


def test_one_batch_at_which_a_layout_changes_the_samples_is_named(tmp_path):
    write_study(tmp_path, make_runs(moved={("fsdp", 256): 1.3}))
    ratios = analyse(tmp_path).layout_ratios
    assert [ratio.batch for ratio in ratios if ratio.differs] == [256]


def test_paired_interval_by_hand():
    # Log ratios 0.3, 0.1 at 64 and -0.1, 0.1 at 256: means 0.2 and 0; squares 4 x 0.01 over
    # 2 degrees of freedom give the variance 0.02; a mean of two has the error 0.1.
    logs = {64: (0.3, 0.1), 256: (-0.1, 0.1)}
    cells = [
        build_cell(
            batch,
            seed,
            # What a seed does to both layouts cancels.
            samples=5000 * (1 + seed) * (math.exp(logs[batch][seed]) if layout == "fsdp" else 1),
            rate=100.0,
            layout=layout,
        )
        for layout in LAYOUTS
        for batch in logs
        for seed in (0, 1)
    ]
    whole, first, second = compare_layouts(cells, LAYOUTS)
    t_2, t_3 = 4.302653, 3.182446
    assert first.samples.estimate == pytest.approx(math.exp(0.2))
    assert first.samples.low == pytest.approx(math.exp(0.2 - 0.1 * t_2), rel=1e-6)
    assert second.samples.high == pytest.approx(math.exp(0.1 * t_2), rel=1e-6)
    # All four: mean 0.1, squares 0.04 + 0 + 0.04 + 0 over 3.
    error = math.sqrt(0.08 / 3 / 4)
    assert whole.samples.low == pytest.approx(math.exp(0.1 - t_3 * error), rel=1e-6)
    assert (whole.pairs, first.pairs) == (4, 2)


def test_a_censored_run_leaves_a_one_sided_ratio_and_is_never_the_fastest(tmp_path):
    runs = make_runs() | {("fsdp", 256, 1): (2.0 * BUDGET, 900.0)}
    write_study(tmp_path, runs)
    summary = analyse(tmp_path)
    assert (summary.training.setting, summary.training.fastest) != ("fsdp", 256)
    worst = summary.batches[-1]
    assert (worst.setting, worst.censored, worst.samples_to_target) == ("fsdp", 1, None)
    ratio = summary.layout_ratios[-1]
    assert (ratio.batch, ratio.samples.bound, ratio.samples.high) == (256, "at least", None)
    # sqrt[3] of 16,384 / (6,000 exp(noise)) and the two unmoved pairs.
    noise = SQUARE[2][1]
    pairs = [math.exp(SQUARE[0][s] - SQUARE[2][s]) for s in (0, 2)]
    expected = math.prod([BUDGET / (6000 * math.exp(noise)), *pairs]) ** (1 / 3)
    assert ratio.samples.estimate == pytest.approx(expected, rel=1e-6)
    assert summary.layout_ratios[0].pairs == 6  # without batch 256
    censored = [s for s in summary.training.sentences if "cannot be named the fastest" in s]
    assert "1 of 3 runs of fsdp 256 censored" in censored[0]


def test_both_sides_censored_have_no_ratio(tmp_path):
    runs = make_runs(seeds=2)
    runs |= {(layout, 256, 0): (2.0 * BUDGET, 600.0) for layout in LAYOUTS}
    write_study(tmp_path, runs)
    assert analyse(tmp_path).layout_ratios[-1].samples == Interval(None, None, None)


def test_one_seed_and_one_batch_tell_nothing_of_the_samples():
    cells = [build_cell(64, 0, samples=5000, rate=1.0, layout=name) for name in LAYOUTS]
    assert describe_layout_samples(compare_layouts(cells, LAYOUTS)) == [
        "Whether samples to target in fsdp differ from those in replicated cannot be told: 1 pair"
        " of runs of one batch and seed reached the target."
    ]


def test_layouts_on_different_devices_are_compared_by_samples_alone(tmp_path):
    runs = make_runs()
    write_study(tmp_path, runs)
    for (layout, batch, seed), (samples, rate) in runs.items():
        if layout == "fsdp":
            path = tmp_path / "cells" / f"fsdp_b{batch:05d}_s{seed}" / "records.jsonl"
            path.unlink()
            write_run(
                tmp_path,
                batch,
                seed,
                layout=layout,
                samples=samples,
                rate=rate,
                start={"device_count": 8},
            )
    summary = analyse(tmp_path)
    assert summary.training.fastest is None
    assert summary.training.sentences == [
        "The runs were on different devices (1 x cpu (cpu); 8 x cpu (cpu)), so their throughput"
        " and times are not compared and there is no verdict; only samples to target are compared."
    ]
    across = summary.batches[-1].against_setting
    assert across.throughput == across.training_time == Interval(None, None, None)
    assert across.samples.estimate == pytest.approx(1.0)
    assert summary.single_choices[0].setting is None
    # Inside a layout the devices are the same.
    assert [layout.training.fastest for layout in summary.settings][1] == 256
    assert len(summary.layout_samples) == 1


def test_reference_layout_without_a_finished_run_is_said():
    cells = [
        build_cell(b, s, samples=5000, rate=b, layout="fsdp") for b in (64, 256) for s in (0, 1)
    ]
    fit = fit_study(cells, settings=LAYOUTS)
    context = RateContext("sqrt", 1e-3, 64)
    verdict = decide(fit, [], names=Names(LAYOUTS), clock="training", context=context)
    assert verdict.sentences == ["No run has finished, so there is no verdict."]


def test_a_layout_that_has_not_started_is_missing_and_not_in_the_way(tmp_path):
    write_study(tmp_path, {k: v for k, v in make_runs().items() if k[0] == "fsdp"})
    path = tmp_path / "study.json"
    study = json.loads(path.read_text())
    study["layouts"] = list(LAYOUTS)
    study["order"] += [["replicated", 64, 0]]
    path.write_text(json.dumps(study))
    summary = analyse(tmp_path)
    assert [one.setting for one in summary.settings] == list(LAYOUTS)
    assert summary.training.fastest == 256
    assert (
        "the reference batch replicated 64 has no finished run to compare with"
        in (summary.training.sentences[0])
    )
    notes = " | ".join(summary.notes)
    assert "1 of 10 (replicated_b00064_s0) planned runs have not started" in notes
    assert "the reference batch replicated 64 has no finished run" in notes
    assert summary.settings[0].training.sentences == [
        "No run has finished, so there is no verdict."
    ]


def test_all_of_it_is_in_the_summary_file(tmp_path):
    write_study(tmp_path, make_runs())
    summary = analyse(tmp_path)
    read = json.loads(write_summary(summary, tmp_path).read_text())
    assert read["training"]["arms"] == [{"setting": "fsdp", "batch": 256}]
    assert read["settings"][1]["training"]["fastest"] == 256
    assert read["single_choices"][0]["setting"] == "replicated"
    assert read["layout_ratios"][0]["differs"] is False
    assert read["layout_samples"] == summary.layout_samples
    assert {cell["layout"] for cell in read["cells"]} == set(LAYOUTS)


def test_a_study_without_layouts_is_one_of_its_only_layout(tmp_path):
    runs = {(b, s): v for (layout, b, s), v in make_runs().items() if layout == "fsdp"}
    config = make_config()
    del config["study"]["layouts"]  # as it was before there were any
    write_study(tmp_path, runs, config=config)
    summary = analyse(tmp_path)
    assert summary.cells[0].name == "b00016_s0"
    [setting] = summary.settings
    assert (setting.setting, summary.setting) == ("replicated", "replicated")
    assert (setting.training, setting.elapsed) == (summary.training, summary.elapsed)
    assert summary.single_choices == summary.layout_ratios == summary.layout_samples == []


def test_a_run_in_another_layout_than_planned_is_refused(tmp_path):
    write_study(tmp_path, make_runs())
    path = tmp_path / "cells" / "fsdp_b00064_s0" / "records.jsonl"
    path.write_text(path.read_text().replace('"name": "fsdp"', '"name": "tensor"'))
    with pytest.raises(UserError, match=r"fsdp_b00064_s0: ran in the layout 'tensor'"):
        analyse(tmp_path)


def test_rows_of_the_embedding_belong_to_the_layout(tmp_path):
    write_study(tmp_path, make_runs())
    path = tmp_path / "cells" / "fsdp_b00064_s0" / "records.jsonl"
    text = path.read_text()
    assert text.count('"padded_vocab": 0') == 1
    path.write_text(text.replace('"padded_vocab": 0', '"padded_vocab": 40'))
    assert analyse(tmp_path).training.fastest == 256


def test_a_layout_file_that_was_edited_between_runs_is_refused(tmp_path):
    write_study(tmp_path, make_runs())
    path = tmp_path / "cells" / "fsdp_b00064_s2" / "records.jsonl"
    edited = path.read_text().replace('"name": "fsdp"', '"name": "fsdp", "mesh": {"fsdp": 4}')
    path.write_text(edited)
    with pytest.raises(UserError, match=r"the layout 'fsdp' had mesh = .*two layouts of one name"):
        analyse(tmp_path)


def test_layouts_that_repeat_the_same_runs_do_not_narrow_intervals():
    runs = {
        (batch, seed): SAMPLES[batch] * math.exp(SQUARE[i][seed])
        for i, batch in enumerate(SAMPLES)
        for seed in range(3)
    }

    def fit(layouts):
        cells = [
            build_cell(batch, seed, samples=samples, rate=100.0, layout=layout)
            for layout in layouts
            for (batch, seed), samples in runs.items()
        ]
        return fit_study(cells, settings=layouts)

    alone, repeated = fit(("fsdp",)), fit(("fsdp", "replicated", "tensor"))
    assert alone.degrees_of_freedom == repeated.degrees_of_freedom == 4
    for measure in ("samples", "training_time"):
        assert repeated.fits[measure].residual_sd == pytest.approx(alone.fits[measure].residual_sd)


def test_a_setting_with_fewer_arms_counts_for_less():
    # Degrees of freedom 4, 4 and 2, two batches of three seeds there: if the three variances
    # move together their mean has (4 + 4 + 2)^2 / (2 + 2 + 1.414)^2 = 3.4.
    def build(layout, batches):
        scale = {"fsdp": 1.0, "replicated": 2.0, "tensor": 3.0}[layout]
        return [
            build_cell(
                batch,
                seed,
                samples=SAMPLES[batch] * math.exp(scale * SQUARE[i][seed]),
                rate=100.0,
                layout=layout,
            )
            for i, batch in enumerate(batches)
            for seed in range(3)
        ]

    batches = list(SAMPLES)
    cells = {
        "fsdp": build("fsdp", batches),
        "replicated": build("replicated", batches),
        "tensor": build("tensor", batches[:2]),
    }
    together = fit_study([c for own in cells.values() for c in own], settings=tuple(cells))
    alone = [fit_study(own, settings=(name,)).fits["samples"] for name, own in cells.items()]
    assert [one.degrees_of_freedom for one in alone] == [4, 4, 2]
    assert together.degrees_of_freedom == 3
    assert together.fits["samples"].residual_sd ** 2 == pytest.approx(
        sum(share * one.residual_sd**2 for share, one in zip((0.4, 0.4, 0.2), alone, strict=True))
    )
