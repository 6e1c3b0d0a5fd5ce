"""A run that started from a checkpoint directory goes back into one."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from evaluation_models import write_model
from safetensors.numpy import load_file
from trainer_runs import CONFIG, change, run

from jax_rl.config import ModelConfig
from jax_rl.errors import UserError
from jax_rl.evaluation.evaluate import evaluate
from jax_rl.evaluation.export import export
from jax_rl.trainer.run import train


def test_an_exported_run_is_the_policy_that_was_trained(tmp_path: Path) -> None:
    origin = tmp_path / "model"
    write_model(origin)
    config = dataclasses.replace(
        change(
            CONFIG,
            task={"name": "evaluation_models:HighLetters"},
            text={"chat": "never"},
            budget={"samples": 32},
            checkpoint={"at_end": True},
        ),
        model=ModelConfig(checkpoint=str(origin)),
    )
    train(config, tmp_path / "run", progress=False)
    files = export(tmp_path / "run", tmp_path / "out", dtype="float32")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in files}
    before, after = (load_file(place / "model.safetensors") for place in (origin, tmp_path / "out"))
    assert before.keys() == after.keys()
    moved = {name: float(np.abs(after[name] - before[name]).max()) for name in before}
    assert min(moved.values()) > 0
    # Other devices, and neither task nor data: what was learnt is all that is needed.
    record = (tmp_path / "run" / "records.jsonl").read_text()
    moved_run = tmp_path / "moved"
    shutil.copytree(tmp_path / "run", moved_run)
    changed = record.replace("evaluation_models:HighLetters", "gone:Task")
    (moved_run / "records.jsonl").write_text(changed)
    export(moved_run, tmp_path / "again", dtype="float32", layout="fsdp")
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert all(np.array_equal(again[name], after[name]) for name in after)
    exported = dataclasses.replace(config, model=ModelConfig(checkpoint=str(tmp_path / "out")))
    rows = [tmp_path / f"{name}.jsonl" for name in ("run", "exported", "origin")]
    evaluate(tmp_path / "run", output=rows[0])
    evaluate(exported, output=rows[1])
    evaluate(config, output=rows[2])
    texts = [
        [json.loads(line)["responses"] for line in file.read_text().splitlines()] for file in rows
    ]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_a_run_from_random_weights_has_no_such_directory(tmp_path: Path) -> None:
    run(tmp_path / "run", checkpoint={"at_end": True}, budget={"samples": 32})
    with pytest.raises(UserError, match="only a run that started from a checkpoint directory"):
        export(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()
