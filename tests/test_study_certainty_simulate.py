"""Simulated studies: what is drawn is what was asked for, and the analysis is right about it."""

import dataclasses
import json
import math
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from jax_rl.study.certainty.coverage import judge_study, measure_coverage
from jax_rl.study.certainty.simulate import SCENARIOS, Scenario, simulate_study

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def quiet(scenario: Scenario) -> Scenario:
    """Without any noise but rounding of scores."""
    return dataclasses.replace(
        scenario,
        residual_sd=tuple(1e-9 for _ in scenario.batches),
        seed_sd=0.0,
        rate_sd=0.0,
        prompts=10**9,
    )


def test_runs_cross_where_they_should():
    scenario = quiet(BY_NAME["plain"])
    cells, truth = simulate_study(scenario, np.random.default_rng(0), seeds=2)
    assert [c.batch for c in cells] == [b for b in scenario.batches for _ in range(2)]
    for cell in cells:
        i = scenario.batches.index(cell.batch)
        assert truth[cell.name] == pytest.approx(scenario.samples[i], rel=1e-6)
        # The chord of a concave curve lies under it by a little.
        assert cell.crossing.samples == pytest.approx(scenario.samples[i], rel=2e-3)
        assert cell.rollouts_per_second == pytest.approx(scenario.rates[i])
        assert cell.samples >= 1.25 * cell.crossing.samples
        assert cell.samples < 1.25 * cell.crossing.samples + scenario.step
    outcome = judge_study(cells, truth, scenario)
    assert (outcome.wrong, outcome.undecided, outcome.verdicts) == (0, 0, 4)
    assert outcome.best_kept


def test_budget_censors():
    scenario = BY_NAME["censored"]
    cells, _ = simulate_study(quiet(scenario), np.random.default_rng(0), seeds=1)
    assert all(cell.samples <= scenario.budget for cell in cells)
    short = dataclasses.replace(quiet(scenario), budget=24_576)
    cells, truth = simulate_study(short, np.random.default_rng(0), seeds=2)
    assert {c.batch: c.crossing is None for c in cells} == {
        16: False,
        32: False,
        64: False,
        128: True,
        256: True,
    }
    outcome = judge_study(cells, truth, short)
    # Less than the reference by their bounds: neither shown slower nor ever faster.
    assert outcome.wrong == 0
    assert len(outcome.one_sided) == 2
    assert set(outcome.errors) == {16, 32, 64}


def test_a_wrong_verdict_is_counted():
    scenario = BY_NAME["plain"]
    cells, truth = simulate_study(scenario, np.random.default_rng(1), seeds=3)
    # The truth turned round: the largest batch is said to be the slowest.
    turned = dataclasses.replace(scenario, rates=scenario.rates[::-1])
    outcome = judge_study(cells, truth, turned)
    assert outcome.wrong == 4
    assert not any(outcome.pooled.values())
    assert outcome.together is False
    assert outcome.best_kept is False
    equal = dataclasses.replace(scenario, rates=tuple(n / 20 for n in scenario.samples))
    assert judge_study(cells, truth, equal).wrong == 4


def test_small_simulation():
    """Sixty studies of three seeds; the whole of it is `scripts/coverage.py`."""
    found = measure_coverage(BY_NAME["plain"], seeds=3, studies=60)
    # Four standard errors of a share of 0.95 over 60 studies are 0.11.
    assert found.pooled > 0.84
    assert found.together > 0.84
    assert found.any_wrong <= 0.05
    assert found.best_left_out < 0.16
    assert all(abs(bias) < 0.02 for bias in found.bias.values())
    again = measure_coverage(BY_NAME["plain"], seeds=3, studies=60)
    assert again == found


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_coverage_bias_and_errors(seeds):
    """500 studies of each scenario: the standard error of a share of 0.95 is 0.01."""
    found = {
        name: measure_coverage(scenario, seeds=seeds, studies=500)
        for name, scenario in BY_NAME.items()
    }
    for name in ("plain", "equal", "censored"):
        assert 0.93 <= found[name].pooled <= 0.97
        assert all(abs(bias) < 0.01 for bias in found[name].bias.values())
    for name in ("plain", "equal"):
        assert 0.92 <= found[name].together <= 0.98
        assert found[name].best_left_out <= 0.08
    assert found["equal"].any_wrong <= 0.08
    assert found["plain"].any_wrong == 0
    assert found["censored"].one_sided >= 0.92
    assert 0.92 <= found["unequal"].paired <= 0.98
    assert not math.isnan(found["coarse"].undecided)


def test_script_prints_a_line_per_scenario_and_number_of_seeds(monkeypatch, capsys, tmp_path):
    path = Path(__file__).parent.parent / "scripts" / "coverage.py"
    arguments = ["--studies", "2", "--seeds", "3", "4", "--scenarios", "plain", "censored"]
    numbers = tmp_path / "coverage.jsonl"
    monkeypatch.setattr(sys, "argv", [str(path), *arguments, "--json", str(numbers)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == 0
    printed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:5]]
    assert printed == [["plain", "3"], ["plain", "4"], ["censored", "3"], ["censored", "4"]]
    found = [json.loads(line) for line in numbers.read_text().splitlines()]
    assert [(one["scenario"], one["seeds"], one["studies"]) for one in found] == [
        ("plain", 3, 2),
        ("plain", 4, 2),
        ("censored", 3, 2),
        ("censored", 4, 2),
    ]
