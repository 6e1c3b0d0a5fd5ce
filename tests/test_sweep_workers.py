"""Two processes on one study: every run is made, and none twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from trainer_runs import CONFIG, change, write_toml

from jax_rl.records import read_run
from jax_rl.sweep.plan import order_cells, order_trials

ROOT = Path(__file__).resolve().parents[1]
CHANGES = {
    "validation": {"every_samples": 16},
    "optimizer": {"learning_rate": 0.02},
    "budget": {"target": 0.3, "samples": 512},
}
STUDY = change(CONFIG, **CHANGES)
"""Batches 8 and 16, seeds 0 and 1."""

# Trains nothing: writes a record with known numbers, slowly enough that the other comes by.
_WRITE_RECORDS = """
import sys, time
from pathlib import Path
import jax_rl.sweep.run as run
from jax_rl.config_file import config_to_dict, load_config
from study_records import write_run

def train(config, directory, *, label, **_):
    batch, seed = config.batch.size, config.run.seed
    print(directory.name, flush=True)
    time.sleep(0.1)
    multiple = config.optimizer.learning_rate / (0.02 * (batch / 16) ** 0.5)
    away = max(multiple, 1 / multiple)
    aside = directory.parents[1] / "aside" / str(directory.name)
    write_run(aside, batch, seed, samples=2048 * away, rate=100.0, config=config_to_dict(config))
    directory.parent.mkdir(exist_ok=True)
    (aside / "cells" / f"b{batch:05d}_s{seed}").rename(directory)

run.train = train
begun = Path(sys.argv[3])
begun.mkdir(exist_ok=True)
(begun / sys.argv[4]).touch()
while len(list(begun.iterdir())) < 2:
    time.sleep(0.01)
run.run_study(load_config(sys.argv[1]), sys.argv[2], progress=False)
"""


def start(*words: str) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.Popen(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(workers: list[subprocess.Popen[str]]) -> list[str]:
    texts = [worker.communicate(timeout=300) for worker in workers]
    for worker, (_, error) in zip(workers, texts, strict=True):
        assert worker.returncode == 0, error
    return [out for out, _ in texts]


@pytest.mark.slow
def test_two_processes_make_each_run_once(tmp_path: Path) -> None:
    study = {"study": {"trials": (0.5, 1.0, 2.0), "trial_seeds": 2, "seeds": 5}}
    config = change(STUDY, **study)
    file = write_toml(tmp_path / "study.toml", **CHANGES, **study)
    directory = tmp_path / "study"
    words = ["-c", _WRITE_RECORDS, str(file), str(directory), str(tmp_path / "begun")]
    outs = finish([start(*words, name) for name in "ab"])
    made = [out.split() for out in outs]
    assert all(made), "one of them made nothing"
    names = [trial.name for trial in order_trials(config)]
    # Whoever is first through with the trials leaves the cells to the other, or shares them.
    names += [cell.name for cell in order_cells(config)]
    assert sorted(made[0] + made[1]) == sorted(names)
    assert {path.name for path in directory.glob("trials/*")} == set(names[:12])
    assert {path.name for path in directory.glob("cells/*")} == set(names[12:])
    assert {path.name for path in (directory / "locks").iterdir()} <= {".guard"}


@pytest.mark.slow
def test_two_jobs_of_an_array_train_each_cell_once(tmp_path: Path) -> None:
    file = write_toml(tmp_path / "study.toml", **CHANGES)
    directory = tmp_path / "study"
    line = ["-m", "jax_rl.cli", "study", str(file), "--dir", str(directory), "--cell"]
    outs = finish([start(*line, f"{index}/2") for index in range(2)])
    assert all(f"jax-rl report {directory}" in out for out in outs)
    runs = {path.name: read_run(path) for path in (directory / "cells").iterdir()}
    assert set(runs) == {cell.name for cell in order_cells(STUDY)}
    for run in runs.values():
        assert len(run.starts) == 1 and run.end is not None
    assert not (directory / "aborted").exists()
