"""A stop changes nothing, and a kill at any moment loses no complete checkpoint."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from trainer_runs import CONFIG, VARIED, change, drop_measured, read_lines, run

from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME, Event, RecordWriter, read_run
from jax_rl.trainer.checkpoints import FOLDER, Checkpoints, restore_weights
from jax_rl.trainer.programs import abstract_state
from jax_rl.trainer.setup import prepare_run

SAVES: dict[str, Any] = {"every_samples": 32, "at_end": True}


def read_state(directory: Path, devices: int = 1) -> dict[str, np.ndarray]:
    """The newest complete state of a run, by name."""
    config = change(CONFIG, run={"devices": devices})
    setup = prepare_run(config)
    with jax.set_mesh(setup.mesh):
        checkpoints = Checkpoints(directory, config.checkpoint)
        state, _ = checkpoints.restore(abstract_state(setup), vocab=setup.config.model.vocab)
        checkpoints.close()
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(state))
    return {jax.tree_util.keystr(name): leaf for name, leaf in leaves}


def assert_same_state(one: Path, other: Path, devices: int = 1) -> None:
    first, second = read_state(one, devices), read_state(other, devices)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def assert_same_record(one: Path, other: Path) -> None:
    first, second = read_run(one), read_run(other)
    assert drop_measured(first.iterations) == drop_measured(second.iterations)
    assert drop_measured(first.validations) == drop_measured(second.validations)
    assert first.end is not None and second.end is not None
    assert drop_measured([first.end]) == drop_measured([second.end])


@pytest.fixture(scope="module", params=[1, 8], ids=["1 device", "8 devices"])
def devices(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture(scope="module")
def whole(devices: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six iterations without a stop, saved at 32, 64 and 96 samples."""
    directory = tmp_path_factory.mktemp("runs") / "whole"
    run(directory, run={"devices": devices}, checkpoint=SAVES)
    return directory


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What a kill after each event of the same run on one device leaves on disk."""
    folder = tmp_path_factory.mktemp("snapshots")
    copies: list[Path] = []
    write = RecordWriter.write

    def write_and_copy(self: RecordWriter, event: Event) -> None:
        write(self, event)
        copies.append(folder / f"{len(copies):02d}_{event.event}")
        shutil.copytree(folder / "run", copies[-1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordWriter, "write", write_and_copy)
        run(folder / "run", checkpoint=SAVES)
    return copies


def resume(directory: Path, *, devices: int = 1, **tables: dict[str, Any]) -> None:
    run(directory, resume=True, run={"devices": devices}, checkpoint=SAVES, **tables)


def test_four_and_two_iterations_are_six(whole: Path, devices: int, tmp_path: Path) -> None:
    run(tmp_path, run={"devices": devices}, checkpoint=SAVES, budget={"samples": 64})
    stopped = read_run(tmp_path)
    assert stopped.end is not None and stopped.end.samples == 64
    resume(tmp_path, devices=devices)
    assert_same_state(tmp_path, whole, devices)
    assert_same_record(tmp_path, whole)
    record = read_run(tmp_path)
    assert [start.resumed_at_samples for start in record.starts] == [None, 64]
    assert [e.samples for e in record.validations] == [0, 32, 64, 96]  # 64 only once


def test_clocks_go_on_across_a_stop(tmp_path: Path) -> None:
    run(tmp_path, checkpoint=SAVES, budget={"samples": 64})
    stopped = read_run(tmp_path)
    resume(tmp_path)
    record = read_run(tmp_path)
    assert stopped.end is not None and record.end is not None
    elapsed = [e.elapsed_seconds for e in record.iterations]
    assert elapsed == sorted(elapsed)
    # Only what came after the checkpoint's own state was taken is not in it.
    assert record.end.training_seconds > record.iterations[3].training_seconds
    assert elapsed[4] > stopped.iterations[-1].elapsed_seconds
    assert sum(record.end.phases.values()) == pytest.approx(record.end.elapsed_seconds, rel=1e-9)
    assert record.end.phases["learn"] > stopped.end.phases["learn"]


def test_every_snapshot_of_a_run_can_be_read(snapshots: list[Path]) -> None:
    names = [path.name.split("_", 1)[1] for path in snapshots]
    assert names.count("checkpoint") == 3 and names[-1] == "end"
    for number, path in enumerate(snapshots, 1):
        assert len(read_lines(path)) == number
        assert read_run(path).end is None or path.name.endswith("end")


@pytest.mark.parametrize("torn", [False, True], ids=["whole lines", "torn line"])
def test_a_kill_ahead_of_the_checkpoint_is_made_up_for(
    torn: bool, snapshots: list[Path], tmp_path: Path
) -> None:
    # Killed after iteration 5: the newest checkpoint is of iteration 4.
    fifth = [path for path in snapshots if path.name.endswith("_iteration")][4]
    directory = shutil.copytree(fifth, tmp_path / "run")
    assert [e.samples for e in read_run(directory).iterations][-1] == 80
    if torn:
        record = directory / FILE_NAME
        record.write_bytes(record.read_bytes()[:-200])
    resume(directory)
    assert read_run(directory).starts[1].resumed_at_samples == 64
    assert_same_state(directory, snapshots[-1])
    assert_same_record(directory, snapshots[-1])


def test_a_kill_during_a_save_leaves_the_checkpoint_before(
    snapshots: list[Path], tmp_path: Path
) -> None:
    directory = shutil.copytree(snapshots[-1], tmp_path / "run")
    folder = directory / FOLDER
    # An unfinished save has another name until it is complete.
    (folder / "96").rename(folder / "96.orbax-checkpoint-tmp")
    for file in sorted((folder / "96.orbax-checkpoint-tmp").rglob("*"))[::2]:
        if file.is_file():
            file.unlink()
    resume(directory)
    assert read_run(directory).starts[-1].resumed_at_samples == 64
    assert_same_state(directory, snapshots[-1])


def test_the_newest_checkpoints_are_kept(whole: Path) -> None:
    assert sorted(path.name for path in (whole / FOLDER).iterdir()) == ["64", "96"]
    assert [e.path for e in read_run(whole).checkpoints] == [
        "checkpoints/32",
        "checkpoints/64",
        "checkpoints/96",
    ]


def test_a_finished_run_resumed_ends_again(snapshots: list[Path], tmp_path: Path) -> None:
    directory = shutil.copytree(snapshots[-1], tmp_path / "run")
    resume(directory)
    assert_same_record(directory, snapshots[-1])
    assert_same_state(directory, snapshots[-1])


def test_a_target_that_was_reached_stays_reached(tmp_path: Path) -> None:
    run(tmp_path, checkpoint=SAVES, budget={"target": 0.3})
    reached = read_run(tmp_path)
    assert reached.end is not None and reached.end.reason == "target"
    resume(tmp_path, budget={"target": 0.3})
    again = read_run(tmp_path)
    assert again.end is not None and again.end.reason == "target"
    assert again.end.samples == reached.end.samples < 96


def test_a_minute_is_a_reason_to_save(tmp_path: Path) -> None:
    run(tmp_path, checkpoint={"every_minutes": 1e-9, "keep": 1}, budget={"samples": 32})
    assert [e.samples for e in read_run(tmp_path).checkpoints] == [16, 32]
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["32"]


def test_the_reference_of_a_kl_term_is_not_the_resumed_policy(tmp_path: Path) -> None:
    tables: dict[str, Any] = {**VARIED, "checkpoint": SAVES}
    run(tmp_path / "whole", **tables)
    run(tmp_path / "run", **{**tables, "budget": {"samples": 32}})
    run(tmp_path / "run", resume=True, **tables)
    assert_same_record(tmp_path / "run", tmp_path / "whole")
    assert_same_state(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"run": {"seed": 1}}, r"run\.seed was 0 and is now 1; a resumed run may only change"),
        ({"optimizer": {"b2": 0.9}}, r"optimizer\.b2 was 0\.99 and is now 0\.9"),
        ({"batch": {"size": 32}}, r"batch\.size was 16 and is now 32"),
        ({"model": {"mlp": 64}}, r"model\.mlp was 32 and is now 64"),
    ],
)
def test_a_resume_with_another_configuration_is_refused(
    tables: dict[str, dict[str, Any]], message: str, snapshots: list[Path]
) -> None:
    before = read_lines(snapshots[-1])
    with pytest.raises(UserError, match=message):
        run(snapshots[-1], resume=True, **tables)
    assert read_lines(snapshots[-1]) == before


def test_there_must_be_something_to_resume(snapshots: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no run to resume; leave --resume out"):
        resume(tmp_path / "nothing")
    early = shutil.copytree(snapshots[9], tmp_path / "early")  # before the first checkpoint
    with pytest.raises(UserError, match="no complete checkpoint"):
        resume(early)


def test_a_checkpoint_of_another_model_is_refused(snapshots: list[Path]) -> None:
    setup = prepare_run(change(CONFIG, model={"tied_head": False}))
    with jax.set_mesh(setup.mesh), pytest.raises(UserError, match="does not fit this config"):
        restore_weights(snapshots[-1], abstract_state(setup), vocab=setup.config.model.vocab)


_ENDLESS = """
import sys
from pathlib import Path
import conftest
from trainer_runs import run
run(Path(sys.argv[1]), checkpoint={"every_samples": 16}, budget={"samples": 32 * 10**6})
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.037, 0.111])
def test_a_killed_process_leaves_what_can_be_resumed(delay: float, tmp_path: Path) -> None:
    here = Path(__file__).parent
    process = subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, str(tmp_path / "run")],
        env=os.environ | {"PYTHONPATH": f"{here}:{here.parent}", "XLA_FLAGS": ""},
    )
    try:
        end = time.monotonic() + 300
        record = tmp_path / "run" / FILE_NAME
        while not (record.exists() and record.read_text().count('"event": "checkpoint"') >= 2):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        time.sleep(delay)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    killed = read_run(tmp_path / "run")
    assert killed.end is None and len(killed.checkpoints) >= 2
    saved = killed.checkpoints[-1].samples
    final = -(-(saved + 32) // 32) * 32
    run(tmp_path / "run", resume=True, checkpoint=SAVES, budget={"samples": final})
    resumed = read_run(tmp_path / "run")
    assert resumed.starts[1].resumed_at_samples in (saved, saved + 16)  # saved, not yet recorded
    run(tmp_path / "same", checkpoint=SAVES, budget={"samples": final})
    assert_same_record(tmp_path / "run", tmp_path / "same")
    assert_same_state(tmp_path / "run", tmp_path / "same")
