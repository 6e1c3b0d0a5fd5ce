"""Scoring a run, a configuration and a checkpoint directory."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_models import write_model
from trainer_runs import CONFIG, change, run, write_toml

from jax_rl.config import Config, ModelConfig, TaskConfig
from jax_rl.errors import UserError
from jax_rl.evaluation.evaluate import Evaluation, evaluate
from jax_rl.records import read_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "run"
    run(directory, checkpoint={"at_end": True})
    return directory


def read_rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_run_is_scored_as_its_last_validation(trained: Path) -> None:
    last = read_run(trained).validations[-1]
    result = evaluate(trained)
    assert result.score.value == pytest.approx(last.score, abs=1e-6)
    assert result.mean_length == last.mean_length
    assert (result.prompts, result.responses_per_prompt) == (16, 1)
    assert (result.failed_rewards, result.left_out) == (0, 0)


def test_a_configuration_is_scored_at_its_start(trained: Path, tmp_path: Path) -> None:
    start = read_run(trained).validations[0]
    untrained = evaluate(write_toml(tmp_path / "sevens.toml"))
    assert untrained.score.value == pytest.approx(start.score, abs=1e-6)
    assert evaluate(CONFIG) == untrained
    assert evaluate(CONFIG, run=trained) == evaluate(trained)
    assert evaluate(trained).score.value > start.score + 0.2


def test_the_block_that_is_printed_is_the_result(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = evaluate(trained, samples_per_prompt=4, temperature=1.0, correct_from=0.4)
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split()[0] for line in lines[:-1]]
    assert shown == ["score", "accuracy", "pass@1", "pass@2", "pass@4", "majority@4"]
    estimates = [result.score, result.accuracy, *result.pass_at.values(), result.majority]
    for line, estimate in zip(lines, estimates, strict=False):
        numbers = [float(n) for n in re.findall(r" \(?(-?\d+\.\d{4})", line)]
        assert numbers == pytest.approx([estimate.value, estimate.low, estimate.high], abs=5e-5)
    assert lines[-1].startswith(f"16 prompts x 4, mean length {result.mean_length:.1f} tokens,")
    assert f"{result.truncated:.1%} truncated, 0 failed rewards" in lines[-1]


def test_scores_are_those_of_the_rows_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "new" / "rows.jsonl"
    result = evaluate(CONFIG, samples_per_prompt=8, temperature=1.0, correct_from=0.2, output=file)
    rows = read_rows(file)
    assert len(rows) == 16
    responses = [one for row in rows for one in row["responses"]]
    assert all(len(row["responses"]) == 8 for row in rows)
    assert [one["reward"] for one in responses] == pytest.approx(
        [0.2 * one["text"].count("7") for one in responses]
    )
    right = np.array([["7" in one["text"] for one in row["responses"]] for row in rows])
    assert [one["correct"] for one in responses] == right.ravel().tolist()
    assert 0 < right.sum() < right.size
    assert result.accuracy.value == pytest.approx(right.mean())
    assert result.pass_at[1].value == pytest.approx(right.mean())
    assert result.pass_at[8].value == pytest.approx(right.any(axis=1).mean())
    assert list(result.pass_at) == [1, 2, 4, 8]
    assert result.score.value == pytest.approx(np.mean([one["reward"] for one in responses]))
    assert result.mean_length == np.mean([one["tokens"] for one in responses])
    assert result.truncated == np.mean([not one["ended"] for one in responses])


@pytest.mark.parametrize("devices", [1, 8])
def test_each_response_belongs_to_its_prompt_over_any_waves(tmp_path: Path, devices: int) -> None:
    def read(wave: int, seed: int = 0) -> dict[str, str]:
        file = tmp_path / f"{wave}_{seed}.jsonl"
        validation = {"wave": wave, "seed": seed}
        evaluate(change(CONFIG, validation=validation, run={"devices": devices}), output=file)
        return {row["prompt"]: row["responses"][0]["text"] for row in read_rows(file)}

    whole = read(0)
    assert len(set(whole.values())) > 1
    assert whole == read(8)
    # Another order of other prompts: what both sets have is answered alike.
    other = read(0, seed=1)
    shared = whole.keys() & other.keys()
    assert shared
    assert list(whole) != list(other)
    assert all(whole[prompt] == other[prompt] for prompt in shared)


def test_prompts_that_fill_the_shards_up_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    config = change(CONFIG, run={"devices": 8})
    result = evaluate(config, prompts=13, samples_per_prompt=4, temperature=1.0, output=file)
    assert result.prompts == len({row["prompt"] for row in read_rows(file)}) == 13
    responses = [one for row in read_rows(file) for one in row["responses"]]
    expected = [0.2 * one["text"].count("7") for one in responses]
    assert len(expected) == 52
    assert max(expected) > 0
    assert [one["reward"] for one in responses] == pytest.approx(expected)
    assert result.score.value == pytest.approx(np.mean(expected))


def test_a_failed_reward_leaves_its_prompt_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = change(CONFIG, task={"name": "trainer_runs:SometimesBroken"})
    file = tmp_path / "rows.jsonl"
    result = evaluate(config, samples_per_prompt=4, temperature=1.0, output=file)
    rows = read_rows(file)
    failed = [one for row in rows for one in row["responses"] if one["reward"] is None]
    assert failed
    assert all(one["text"][0] in "01234" and one["correct"] is None for one in failed)
    whole = [row for row in rows if all(one["reward"] is not None for one in row["responses"])]
    assert 0 < len(whole) < 16
    assert (result.failed_rewards, result.left_out) == (len(failed), 16 - len(whole))
    rewards = [one["reward"] for row in whole for one in row["responses"]]
    assert result.score.value == pytest.approx(np.mean(rewards))
    shown = capsys.readouterr().out
    assert f"{16 - len(whole)} prompts with a failed reward are left out" in shown


def test_a_reward_that_always_fails_is_an_error() -> None:
    with pytest.raises(UserError, match="the reward failed on all 16 responses"):
        evaluate(change(CONFIG, task={"name": "trainer_runs:Broken"}))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({}, ""),
        ({"validation": {"prompts": 20}}, "only the first 16 prompts were held out of training"),
        ({"validation": {"seed": 9}}, "not the set that was held out of training"),
        ({"task": {"difficulty": 3}}, "not the set that was held out of training"),
        ({"task": {"max_response_length": 3}}, ""),
    ],
)
def test_prompts_that_training_may_have_met_are_said(
    changes: dict[str, Any], part: str, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(change(CONFIG, **changes), run=trained)
    said = capsys.readouterr().out
    assert part in said
    assert ("held out of training" in said) == bool(part)


def test_settings_that_do_not_fit_are_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"samples_per_prompt = 4 must be 1 at .*temperature = 0"):
        evaluate(trained, samples_per_prompt=4)
    with pytest.raises(UserError, match=r"samples_per_prompt = 0 must be above 0"):
        evaluate(trained, samples_per_prompt=0)
    with pytest.raises(UserError, match=r"prompts = 0 asks for all rows of task.validation"):
        evaluate(trained, prompts=0)
    with pytest.raises(UserError, match=r"output = .*cannot be written"):
        evaluate(trained, output=tmp_path)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A checkpoint directory, and GSM8K rows to ask it."""
    directory = tmp_path_factory.mktemp("questions")
    write_model(directory / "model")
    for name, numbers in (("train", range(4)), ("test", [*range(10, 15), 10])):
        lines = [{"question": f"{n}?", "answer": f"so\n#### {n}"} for n in numbers]
        (directory / name).with_suffix(".jsonl").write_text("\n".join(map(json.dumps, lines)))
    task = TaskConfig(
        name="gsm8k",
        train=str(directory / "train.jsonl"),
        validation=str(directory / "test.jsonl"),
        template="{question}",
        max_prompt_length=28,
        max_response_length=4,
    )
    model = ModelConfig(checkpoint=str(directory / "model"))
    return dataclasses.replace(CONFIG, task=task, model=model)


def test_a_checkpoint_directory_is_asked_all_rows(
    questions: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    result = evaluate(questions, prompts=0, output=file)
    assert isinstance(result, Evaluation)
    rows = read_rows(file)
    assert sorted(row["prompt"] for row in rows) == [f"{n}?" for n in range(10, 15)]
    assert {row["answer"] for row in rows} == {str(n) for n in range(10, 15)}
    assert all(row["place"].partition("test.jsonl")[1] for row in rows)
    assert "task.validation: rows left out" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"validation.prompts = 6: .*has 5 different prompts"):
        evaluate(questions, prompts=6)


def test_all_rows_are_those_that_are_short_enough(questions: Config, tmp_path: Path) -> None:
    long = Path(questions.task.validation).read_text() + '\n{"question": "' + "9" * 30
    (tmp_path / "long.jsonl").write_text(long + '", "answer": "#### 9"}')
    task = {"validation": str(tmp_path / "long.jsonl"), "long_prompts": "drop"}
    assert evaluate(change(questions, task=task), prompts=0).prompts == 5


def test_a_run_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "run", budget={"samples": 32})
    with pytest.raises(UserError, match="no complete checkpoint is there"):
        evaluate(tmp_path / "run")
