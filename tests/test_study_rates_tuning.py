"""Trials and what they choose: the grid, its edges, censored trials, records on disk."""

import dataclasses
import json
import math

import pytest
from study_records import BUDGET, build_cell, make_config, write_run, write_study

from jax_rl.records import read_run
from jax_rl.study.material import STUDY_FILE
from jax_rl.study.rates.trials import Trial, TrialPlan, TrialResult, plan_trials, read_trial
from jax_rl.study.rates.tuning import choose_rate, list_trials, read_tuning, tune_arm

PLAN = TrialPlan(multiples=(0.5, 1.0, 2.0), seeds=(1000, 1001), extensions=2)


def result(crossing, *, samples=4000, score=0.8):
    return TrialResult(
        learning_rate=1e-3,
        crossing=crossing,
        samples=samples,
        final_score=score,
        training_seconds=10.0,
        elapsed_seconds=20.0,
    )


def make_results(by_multiple, batch=64):
    """Results of both seeds: {multiple: (crossing, crossing)}."""
    return {
        Trial("", batch, multiple, seed): result(crossing)
        for multiple, pair in by_multiple.items()
        for seed, crossing in zip(PLAN.seeds, pair, strict=True)
    }


def test_a_trial_is_named_after_what_it_tries():
    assert Trial("", 64, 0.5, 1000).name == "b00064_x0.5_s1000"
    assert Trial("fsdp", 64, 1.0, 1001).name == "fsdp_b00064_x1_s1001"


def test_no_compared_run_uses_a_seed_of_a_trial():
    config = {"run": {"seed": 5}, "study": {"seeds": 3, "trials": [0.5, 1, 2], "trial_seeds": 2}}
    assert plan_trials(config).seeds == (1005, 1006)
    config["study"]["seeds"] = 4000
    assert plan_trials(config).seeds == (4005, 4006)
    assert plan_trials({"study": {"seeds": 3}}).multiples == ()


def test_the_smallest_geometric_mean_of_samples_is_chosen():
    # Geometric means 2000, 1000, 1200; by arithmetic means (2050, 1450, 1200) it would be x2.
    results = make_results({0.5: (1600, 2500), 1.0: (400, 2500), 2.0: (1200, 1200)})
    tuning = tune_arm("", 64, PLAN, results)
    assert [rate.samples_to_target for rate in tuning.rates] == pytest.approx([2000, 1000, 1200])
    assert (tuning.multiple, tuning.on_edge, tuning.by_score) == (1.0, False, False)
    assert (tuning.missing, tuning.extensions) == (0, 0)
    assert (tuning.samples, tuning.training_seconds, tuning.elapsed_seconds) == (24_000, 60, 120)


def test_a_multiple_with_a_censored_trial_has_a_bound_and_is_not_chosen():
    results = make_results({0.5: (None, None), 1.0: (2000, 2000), 2.0: (100, None)})
    tuning = tune_arm("", 64, PLAN, results)
    low, middle, high = tuning.rates
    assert (low.crossed, low.samples_to_target) == (0, None)
    assert low.samples_at_least == pytest.approx(4000)
    assert (middle.crossed, middle.samples_at_least) == (2, None)
    assert (high.crossed, high.samples_to_target) == (1, None)
    assert high.samples_at_least == pytest.approx(math.sqrt(100 * 4000))
    assert tuning.multiple == 1.0 and not tuning.by_score


def test_where_no_multiple_crossed_the_score_chooses():
    results = make_results({0.5: (None, None), 1.0: (None, 900), 2.0: (None, None)})
    scores = {0.5: 0.2, 1.0: 0.4, 2.0: 0.3}
    results = {
        trial: dataclasses.replace(one, final_score=scores[trial.multiple])
        for trial, one in results.items()
    }
    tuning = tune_arm("", 64, PLAN, results)
    assert (tuning.multiple, tuning.by_score) == (1.0, True)


def test_of_equals_the_one_nearest_to_the_rule_is_chosen():
    results = make_results({0.5: (900, 900), 1.0: (900, 900), 2.0: (900, 900)})
    assert choose_rate(tune_arm("", 64, PLAN, results).rates).multiple == 1.0


def test_a_best_rate_at_the_edge_extends_the_grid_so_often():
    seen = {0.5: (3000, 3000), 1.0: (2000, 2000), 2.0: (1000, 1000)}
    results = make_results(seen)
    trials = list_trials("", 64, PLAN, results)
    assert [trial.multiple for trial in trials[-2:]] == [4.0, 4.0]
    waiting = tune_arm("", 64, PLAN, results)
    assert (waiting.missing, waiting.multiple, waiting.extensions) == (2, None, 1)

    inside = tune_arm("", 64, PLAN, make_results(seen | {4.0: (1500, 1500)}))
    assert (inside.multiple, inside.on_edge, inside.extensions) == (2.0, False, 1)

    further = make_results(seen | {4.0: (900, 900), 8.0: (800, 800)})
    assert len(list_trials("", 64, PLAN, further)) == 10  # no third extension
    edge = tune_arm("", 64, PLAN, further)
    assert (edge.multiple, edge.on_edge, edge.extensions) == (8.0, True, 2)


def test_the_grid_is_extended_downwards_too():
    results = make_results({0.5: (1000, 1000), 1.0: (2000, 2000), 2.0: (3000, 3000)})
    trials = list_trials("", 64, PLAN, results)
    assert [trial.multiple for trial in trials[:2]] == [0.25, 0.25]
    none = dataclasses.replace(PLAN, extensions=0)
    edge = tune_arm("", 64, none, results)
    assert (edge.multiple, edge.on_edge, edge.missing) == (0.5, True, 0)


def test_nothing_is_extended_before_all_of_it_is_finished():
    results = make_results({0.5: (3000, 3000), 1.0: (2000, 2000), 2.0: (1000, 1000)})
    del results[Trial("", 64, 0.5, 1001)]
    assert len(list_trials("", 64, PLAN, results)) == 6
    tuning = tune_arm("", 64, PLAN, results)
    assert (tuning.missing, tuning.multiple) == (1, None)
    assert [rate.multiple for rate in tuning.rates] == [1.0, 2.0]


def write_trials(study, batch, crossings, *, seed=1000):
    """Trials on disk: {multiple: samples to target}."""
    for multiple, samples in crossings.items():
        rate = {"learning_rate": 1e-3 * multiple}
        write_run(study, batch, seed, samples=samples, rate=100.0, start=rate)
        (study / "trials").mkdir(exist_ok=True)
        written = study / "cells" / f"b{batch:05d}_s{seed}"
        written.rename(study / "trials" / Trial("", batch, multiple, seed).name)


def test_tuning_is_read_from_the_records_of_trials(tmp_path):
    config = make_config()
    config["study"] |= {"trials": (0.5, 1.0, 2.0), "trial_seeds": 1, "trial_extensions": 1}
    write_study(tmp_path, {(64, 0): (4000, 100.0), (256, 0): (4000, 200.0)}, config=config)
    write_trials(tmp_path, 64, {0.5: 6000, 1.0: 4096, 2.0: 5000})
    write_trials(tmp_path, 256, {0.5: 3 * BUDGET, 1.0: 8000, 2.0: 6000})
    study = json.loads((tmp_path / STUDY_FILE).read_text())

    waiting = read_tuning(tmp_path, study)
    assert [(arm.setting, arm.batch) for arm in waiting.arms] == [
        ("replicated", 64),
        ("replicated", 256),
    ]
    first, second = waiting.arms
    assert (first.multiple, first.learning_rate, first.missing) == (1.0, 1e-3, 0)
    assert [round(r.samples_to_target) for r in first.rates] == [6000, 4096, 5000]
    assert second.rates[0].samples_at_least == pytest.approx(BUDGET)  # it ended there
    assert (second.missing, second.multiple, second.extensions) == (1, None, 1)

    write_trials(tmp_path, 256, {4.0: 7000})
    cells = [build_cell(64, 0, samples=30_000, rate=100.0, elapsed_rate=10.0)]
    tuning = read_tuning(tmp_path, study, cells)
    assert (tuning.arms[1].multiple, tuning.arms[1].on_edge) == (2.0, False)
    assert (waiting.trials, tuning.trials) == (6, 7)
    assert (tuning.multiples, tuning.seeds) == ([0.5, 1.0, 2.0], [1000])
    assert tuning.samples == sum(arm.samples for arm in tuning.arms) > BUDGET
    assert tuning.samples_share == pytest.approx(tuning.samples / (tuning.samples + 30_000))
    elapsed = tuning.elapsed_seconds
    assert tuning.seconds_share == pytest.approx(elapsed / (elapsed + 3000))


def test_a_study_without_trials_says_so(tmp_path):
    write_study(tmp_path, {(64, 0): (4000, 100.0), (256, 0): (4000, 200.0)})
    tuning = read_tuning(tmp_path, json.loads((tmp_path / STUDY_FILE).read_text()))
    assert (tuning.multiples, tuning.arms, tuning.trials, tuning.samples) == ([], [], 0, 0)
    assert tuning.samples_share is None


def test_a_trial_counts_before_the_others_of_its_multiple_are_finished(tmp_path):
    config = make_config()
    config["study"] |= {"trials": (0.5, 1.0, 2.0), "trial_seeds": 2, "trial_extensions": 0}
    write_study(tmp_path, {(64, 0): (4000, 100.0)}, config=config)
    write_trials(tmp_path, 64, {0.5: 6000, 1.0: 4096, 2.0: 5000})
    write_trials(tmp_path, 64, {0.5: 6000}, seed=1001)
    tuning = read_tuning(tmp_path, json.loads((tmp_path / STUDY_FILE).read_text()))
    assert [rate.multiple for rate in tuning.arms[0].rates] == [0.5]
    assert (tuning.trials, tuning.arms[0].missing) == (4, 2)


def test_a_trial_that_diverged_never_wins_by_its_score():
    # Rewards below 0: a score of 0 for the one that diverged would be the best.
    results = make_results({0.5: (None, None), 1.0: (None, None), 2.0: (None, None)})
    scores = {0.5: -0.5, 1.0: -0.4, 2.0: None}
    results = {
        trial: dataclasses.replace(one, final_score=scores[trial.multiple])
        for trial, one in results.items()
    }
    tuning = tune_arm("", 64, PLAN, results)
    assert (tuning.multiple, tuning.by_score) == (1.0, True)
    assert tuning.rates[-1].final_score is None
    json.dumps(dataclasses.asdict(tuning), allow_nan=False)


def test_the_record_of_a_trial_that_diverged_has_no_score(tmp_path):
    write_run(tmp_path, 64, 1000, samples=3 * BUDGET, rate=100.0)
    path = tmp_path / "cells" / "b00064_s1000"
    assert read_trial(read_run(path)).final_score == pytest.approx(0.25 + 0.5 / 3)
    record = path / "records.jsonl"
    record.write_text(record.read_text().replace('"sample_budget"', '"not_finite"'))
    assert read_trial(read_run(path)).final_score is None
