"""RL on a model, a tokenizer and a data set in the formats that people bring, end to end."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import checkpoints
import family_checks
import jax
import numpy as np
import pytest
import small_qwen3
from programs import ONE
from trainer_runs import drop_measured

import jax_rl
from jax_rl.config import Config
from jax_rl.model.huggingface.load import load_weights
from jax_rl.records import RunRecord, read_run
from jax_rl.trainer.checkpoints import Checkpoints, restore_weights
from jax_rl.trainer.programs import abstract_state
from jax_rl.trainer.setup import RunSetup, prepare_run

ITERATION = 64  # rollouts


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The checkpoint directory and the rows."""
    folder = tmp_path_factory.mktemp("files")
    return {
        "model": small_qwen3.write_model(folder / "model"),
        "rows": small_qwen3.write_rows(folder / "rows.jsonl"),
    }


def configure(folder: Path, files: dict[str, Path], iterations: int, **text: str) -> Config:
    """The experiment, by way of a file."""
    samples = iterations * ITERATION
    file = folder / f"{iterations}.toml"
    return jax_rl.load_config(
        small_qwen3.write_config(
            file, model=files["model"], rows=files["rows"], samples=samples, **text
        )
    )


def read_state(directory: Path, setup: RunSetup) -> dict[str, np.ndarray]:
    """Weights and optimizer of a run's newest checkpoint, by name."""
    with jax.set_mesh(setup.mesh):
        checkpoints_of_run = Checkpoints(directory, setup.config.checkpoint)
        state, _ = checkpoints_of_run.restore(abstract_state(setup), vocab=setup.config.model.vocab)
        checkpoints_of_run.close()
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(state))
    return {jax.tree_util.keystr(name): leaf for name, leaf in leaves}


def check_export(directory: Path, export: Path, config: Config) -> None:
    """transformers loads the export, and its logits are those of the run's own weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = checkpoints.transformers.AutoModelForCausalLM.from_pretrained(
            export, attn_implementation="eager", dtype=checkpoints.torch.float32
        )
        tokenizer = checkpoints.transformers.AutoTokenizer.from_pretrained(export)
    setup = prepare_run(config)
    (tokens,), (length,) = setup.encode(setup.validation[:1])
    ids = tokens[len(tokens) - length :].tolist()
    turns = [{"role": "user", "content": setup.validation[0].prompt}]
    rendered = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    assert rendered == ids
    with checkpoints.torch.no_grad():
        theirs = model(checkpoints.torch.tensor([ids])).logits[0].numpy()
    with ONE.entered() as layout:
        rows = ONE.put_rows((np.array([ids], np.int32), np.zeros(1, np.int32)))
        trained = restore_weights(directory, abstract_state(setup), vocab=setup.config.model.vocab)
        started = load_weights(
            Path(config.model.checkpoint), config=setup.config.model, layout=layout
        )
        ours, before = (
            np.asarray(family_checks._compute_logits(w, *rows, setup.config.model, layout))[0]
            for w in (trained, started)
        )
    assert np.abs(ours - theirs).max() <= 1e-4
    assert np.abs(before - theirs).max() > 1e-2  # training moved them


def check_whole(record: RunRecord) -> None:
    """What holds of every such run that came to its end."""
    assert record.end is not None
    assert record.end.compiled.pop("inside the loop") == 0
    assert set(record.end.compiled.values()) == {1}
    for event in record.iterations:
        assert np.isfinite([event.loss, event.grad_norm, event.update_norm]).all()
        assert event.mismatch_max <= 1e-5
        assert event.failed_rewards == 0


def test_a_short_run_from_files_to_files(files: dict[str, Path], tmp_path: Path) -> None:
    config = configure(tmp_path, files, 2)
    record = jax_rl.train(config, tmp_path / "run", progress=False)
    check_whole(record)
    assert [event.samples for event in record.validations] == [0, 64, 128]
    jax_rl.export(tmp_path / "run", tmp_path / "export", dtype="float32")
    check_export(tmp_path / "run", tmp_path / "export", config)


@pytest.mark.slow
def test_reward_rises_and_the_export_scores_the_same(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path, files, 20)
    record = jax_rl.train(config, tmp_path / "run", progress=False)
    check_whole(record)
    scores = [event.score for event in record.validations]
    rewards = [event.reward for event in record.iterations]
    print("validation", *(f"{score:.2f}" for score in scores))
    print("training  ", *(f"{reward:.2f}" for reward in rewards))
    # Sixteen prompts with rewards from 0 to 1: the standard error of a score is below 0.125.
    assert scores[0] < 0.4
    assert np.mean(scores[-4:]) > scores[0] + 0.3
    assert np.mean(rewards[-4:]) > rewards[0] + 0.3

    export = tmp_path / "export"
    jax_rl.export(tmp_path / "run", export, dtype="float32")
    check_export(tmp_path / "run", export, config)
    model = dataclasses.replace(config.model, checkpoint=str(export))
    result = jax_rl.evaluate(dataclasses.replace(config, model=model))
    assert result.score.value == pytest.approx(scores[-1], abs=1e-6)
    assert result.prompts == 16
    result = jax_rl.evaluate(tmp_path / "run")
    assert result.score.value == pytest.approx(scores[-1], abs=1e-6)


@pytest.mark.slow
def test_three_and_two_iterations_are_five(files: dict[str, Path], tmp_path: Path) -> None:
    # 32 training rows, of which an iteration asks 8: the second epoch begins after the stop.
    text: dict[str, Any] = {"objective": "kl_coefficient = 0.01"}
    whole = configure(tmp_path, files, 5, **text)
    record = jax_rl.train(whole, tmp_path / "whole", progress=False)
    first = configure(tmp_path, files, 3, **text)
    jax_rl.train(first, tmp_path / "parts", progress=False)
    resumed = jax_rl.train(whole, tmp_path / "parts", resume=True, progress=False)
    assert [start.resumed_at_samples for start in resumed.starts] == [None, 3 * ITERATION]
    # Rewards and lengths are those of the same prompts in the same order.
    assert drop_measured(resumed.iterations) == drop_measured(record.iterations)
    assert drop_measured(resumed.validations) == drop_measured(record.validations)
    setup = prepare_run(whole)
    one, other = (read_state(tmp_path / name, setup) for name in ("whole", "parts"))
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    assert read_run(tmp_path / "whole").end is not None


@pytest.mark.slow
def test_a_study_of_a_checkpoint_has_a_report(files: dict[str, Path], tmp_path: Path) -> None:
    config = configure(
        tmp_path,
        files,
        1,
        study="factor = 2\nsmaller = 1\nlarger = 0\nseeds = 1\nsteady_seconds = 0.01",
    )
    study = jax_rl.run_study(config, tmp_path / "study", progress=False)
    jax_rl.build_report(study)
    assert (study / "report.html").is_file()
    # Continued with what its file says, and not what the checkpoint adds to it.
    assert jax_rl.run_study(config, tmp_path / "study", progress=False) == study
