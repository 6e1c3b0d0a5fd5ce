"""A run that measures the noise of its gradients, and the probe of its checkpoint."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from trainer_runs import CONFIG, change, run

from jax_rl.cli import main
from jax_rl.config_checks import validate
from jax_rl.errors import UserError
from jax_rl.evaluation import probe as module
from jax_rl.evaluation.probe import probe
from jax_rl.records import read_run
from jax_rl.study.noise.scale import measure_noise
from jax_rl.study.noise.split import read_split
from jax_rl.trainer.run import train
from jax_rl.trainer.setup import prepare_run

GROUP, SAMPLES = 8, 4096
TABLES = {
    "batch": {"size": 32, "microbatch": GROUP, "wave": 16},
    "objective": {"kl_coefficient": 0.05},
    "optimizer": {"learning_rate": 0.0},  # so that run and probe look at the same weights
    "validation": {"every_samples": SAMPLES},
    "budget": {"samples": SAMPLES},
    "checkpoint": {"at_end": True},
    "measure": {"noise_scale": True},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("probe") / "run"
    run(directory, **TABLES)
    return directory


def test_a_run_records_the_norms_of_every_iteration(trained: Path) -> None:
    iterations = read_run(trained).iterations
    assert len(iterations) == SAMPLES // 32
    for iteration in iterations:
        assert (iteration.noise_units, iteration.noise_unit_groups) == (4, 1)
        assert iteration.minibatch_norm_squared == pytest.approx(iteration.grad_norm**2, rel=1e-5)
        assert iteration.unit_norm_squared is not None
        assert iteration.unit_norm_squared >= iteration.grad_norm**2
    assert sum(e.unit_norm_squared > 2 * e.grad_norm**2 > 0 for e in iterations) > 50


@pytest.mark.slow
def test_run_and_probe_tell_the_same_of_the_same_weights(trained: Path, tmp_path: Path) -> None:
    # Two estimates that share neither prompts, nor responses, nor formulas.
    run_says = measure_noise(read_run(trained).iterations, group=GROUP, crossing=None)
    probe_says = probe(trained, prompts=256, output=tmp_path / "probe.json")
    total = probe_says.within.estimate + probe_says.between.estimate
    assert run_says.noise == pytest.approx(total, rel=0.2)
    assert run_says.signal_low < probe_says.signal.estimate < run_says.signal_high
    assert probe_says.signal.low < run_says.signal < probe_says.signal.high
    assert probe_says.rollouts.low < run_says.rollouts < probe_says.rollouts.high


def test_units_of_which_there_is_one_are_refused_but_not_in_a_study(tmp_path: Path) -> None:
    config = change(CONFIG, measure={"noise_scale": True})
    with pytest.raises(UserError, match=r"needs two independent gradients.*microbatch to .*8"):
        train(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    assert not prepare_run(config).learner.measure_noise
    with pytest.raises(UserError, match=r"needs two independent gradients"):
        validate(config, study=True)  # not one batch of it could be measured
    validate(change(config, batch={"microbatch": 8}), study=True)


def test_advantages_across_groups_are_refused_before_any_work() -> None:
    config = change(CONFIG, **{**TABLES, "objective": {"advantage": "reinforce"}})
    with pytest.raises(UserError, match=r"objective\.advantage = 'reinforce'.*other groups"):
        prepare_run(config)


def test_the_probe_takes_two_groups_of_each_prompt_that_would_come_next(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = {}

    def look(weights, rollouts, *rest):
        taken["tokens"] = np.asarray(rollouts.tokens)
        taken["pairs"] = original(weights, rollouts, *rest)
        return taken["pairs"]

    original = module.measure_pairs
    monkeypatch.setattr(module, "measure_pairs", look)
    split = probe(trained, prompts=8)
    said = capsys.readouterr().out
    assert (split.prompts, split.group, split.samples, split.batch) == (8, GROUP, SAMPLES, 32)
    groups = taken["tokens"].reshape(8, 2, GROUP, -1)
    setup = prepare_run(change(CONFIG, **TABLES))
    prompts, _ = setup.encode(setup.training(0)[SAMPLES // 8 : SAMPLES // 8 + 8])
    for one, prompt in zip(groups, prompts, strict=True):
        assert np.all(one[..., :4][..., -3:] == prompt[-3:])
        assert not np.array_equal(one[0], one[1])
    assert read_split(trained / "probe.json") == split
    assert f"written to {trained / 'probe.json'}" in said
    assert f"noise within       {split.within.estimate:.3g} [" in said
    assert split.within.estimate > 0
    # The mean over all groups is what is left of them when noise has cancelled.
    pairs = taken["pairs"]
    everything = np.mean([np.asarray(pairs.first_mean), np.asarray(pairs.second_mean)])
    assert everything == pytest.approx(float(pairs.mean), rel=1e-4)


def test_the_command_says_and_writes_the_same_again(trained: Path, tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        assert main(["probe", str(trained), "--prompts", "8", "--output", str(file)]) == 0
    first, second = (json.loads(file.read_text()) for file in files)
    assert first == second
    assert first["samples"] == SAMPLES
    other = probe(trained, prompts=8, seed=3, output=tmp_path / "c.json")
    assert other.within.estimate != pytest.approx(first["within"]["estimate"], rel=1e-3)
    assert math.isfinite(first["within"]["estimate"])


@pytest.mark.slow
def test_another_layout(trained: Path, tmp_path: Path) -> None:
    own, spread = (
        dataclasses.asdict(probe(trained, prompts=8, output=tmp_path / "probe.json", **changes))
        for changes in ({}, {"layout": "fsdp", "devices": 8})
    )
    for part in ("signal", "within", "between"):
        assert spread[part]["estimate"] == pytest.approx(own[part]["estimate"], rel=1e-3)


def test_what_cannot_be_probed_is_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"3 prompts are too few"):
        probe(trained, prompts=3)
    with pytest.raises(UserError, match=r"is not the directory of a run"):
        probe(tmp_path)
    with pytest.raises(UserError, match="tiny is no directory"):
        probe("tiny")
    with pytest.raises(UserError, match=r"run\.devices = 64"):
        probe(trained, devices=64)
