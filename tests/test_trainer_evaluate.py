"""Reading and scoring what a policy says, from a run and from a configuration."""

import math
from pathlib import Path

import pytest
from trainer_runs import run, write_toml

from jax_rl.errors import UserError
from jax_rl.records import read_run
from jax_rl.trainer.evaluate import evaluate, sample


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "run"
    run(directory, checkpoint={"at_end": True})
    return directory


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toml(tmp_path_factory.mktemp("configs") / "sevens.toml")


def test_a_run_is_scored_as_its_last_validation(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = read_run(trained).validations[-1]
    result = evaluate(trained)
    assert result.score == pytest.approx(last.score, abs=1e-6)
    assert result.mean_length == last.mean_length
    assert (result.prompts, result.responses, result.failed_rewards) == (16, 16, 0)
    assert f"score {result.score:.4f}" in capsys.readouterr().out


def test_a_configuration_is_scored_at_its_start(trained: Path, config_file: Path) -> None:
    start = read_run(trained).validations[0]
    assert evaluate(config_file).score == pytest.approx(start.score, abs=1e-6)
    assert evaluate(trained).score > start.score + 0.2


def test_several_responses_per_prompt(trained: Path, config_file: Path) -> None:
    result = evaluate(config_file, samples_per_prompt=4, temperature=1.0)
    assert (result.prompts, result.responses) == (16, 64)
    # An untrained policy says each of 32 tokens alike: at most 0.8 / 32 on average.
    assert 0 < result.score < 0.1
    assert 0 < result.standard_error < 0.05
    assert evaluate(config_file, samples_per_prompt=4, temperature=1.0) == result
    with pytest.raises(UserError, match=r"samples_per_prompt = 4 must be 1 at .*temperature = 0"):
        evaluate(trained, samples_per_prompt=4)


def test_a_larger_set_says_what_was_not_held_out(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(trained, prompts=20).prompts == 20
    assert "only the first 16 prompts were held out of training" in capsys.readouterr().out


def test_samples_are_shown_with_their_rewards(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = sample(trained, prompts=16)
    shown = capsys.readouterr().out.splitlines()
    assert len(found) == len(shown) == 16
    for one, line in zip(found, shown, strict=True):
        assert one.reward == pytest.approx(0.2 * one.response.count("7"))
        assert line.startswith(f"{one.prompt}{one.response}  reward {one.reward:g}")
        assert ("cut at the length limit" in line) == (not one.ended)
        assert one.tokens == len(one.response) + one.ended


def test_prompts_of_ones_own(trained: Path) -> None:
    texts = [f"{number}=" for number in range(10, 26)]
    assert [one.prompt for one in sample(trained, prompt_texts=texts)] == texts
    with pytest.raises(UserError, match="'1234' is not a prompt of sevens"):
        sample(trained, prompt_texts=("12=", "1234"))
    with pytest.raises(UserError, match="character 'x'"):
        sample(trained, prompt_texts=("x2=",))


def test_each_response_belongs_to_its_prompt(config_file: Path) -> None:
    texts = [f"{number}=" for number in range(10, 26)]
    one = sample(config_file, prompt_texts=texts, temperature=0.0)
    other = sample(config_file, prompt_texts=texts[3:] + texts[:3], temperature=0.0)
    assert one[3:] + one[:3] == other
    assert len({said.response for said in one}) > 1


def test_seed_and_temperature_of_samples(config_file: Path) -> None:
    def say(seed: int, temperature: float | None) -> list[str]:
        return [
            one.response
            for one in sample(config_file, prompts=16, seed=seed, temperature=temperature)
        ]

    assert say(0, None) == say(0, 1.0)  # the configuration's
    assert say(0, None) != say(1, None)
    assert say(0, 0.0) == say(1, 0.0)  # greedy has no seed
    assert say(0, 0.0) != say(0, 1.0)


def test_a_failed_reward_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_toml(tmp_path / "c.toml", task={"name": "trainer_runs:SometimesBroken"})
    found = sample(file, prompts=16)
    assert [one.reward is None for one in found] == [
        one.response[:1] in set("01234") for one in found
    ]
    assert "reward failed" in capsys.readouterr().out
    result = evaluate(file, samples_per_prompt=4, temperature=1.0)
    assert 0 < result.failed_rewards < 64
    assert not math.isnan(result.score)


def test_what_is_neither_run_nor_configuration_is_refused(tmp_path: Path, trained: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere: neither the directory of a run"):
        evaluate(tmp_path / "nowhere")
    (tmp_path / "cells" / "b00016_s0").mkdir(parents=True)
    with pytest.raises(UserError, match="holds its runs under cells/: b00016_s0"):
        sample(tmp_path)


def test_a_run_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "run", budget={"samples": 32})
    with pytest.raises(UserError, match="no complete checkpoint is there"):
        evaluate(tmp_path / "run")
