"""A study's cells: their order, their configurations, what a kill and a failed cell leave."""

import dataclasses
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainer_runs import CONFIG, change, drop_measured, read_lines

from jax_rl.config import Config
from jax_rl.config_file import config_to_dict
from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME, Event, RecordWriter, Validation, read_run
from jax_rl.report.build import build_report
from jax_rl.study.analyse import analyse
from jax_rl.study.cells import Planned
from jax_rl.study.rates.tuning import read_tuning
from jax_rl.sweep.plan import make_cell_config, order_cells
from jax_rl.sweep.run import run_study
from jax_rl.sweep.stop import find_limit, stop_after_tail
from jax_rl.trainer import position as position_module
from jax_rl.trainer.run import train

STUDY = change(
    CONFIG,
    validation={"every_samples": 16},
    optimizer={"learning_rate": 0.02},
    budget={"target": 0.3, "samples": 512},
    checkpoint={"every_samples": 32},
)
"""Batches 8 and 16, seeds 0 and 1."""


class Killed(BaseException):
    """Stands for a kill: nothing catches it, and what was written stays."""


@pytest.fixture(scope="module", autouse=True)
def clearings() -> Iterator[list[int]]:
    """Lists when a study clears what was compiled, which here stays: cells would compile anew."""
    made: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jax_rl.sweep.run.jax.clear_caches", lambda: made.append(1))
        yield made


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, clearings: list[int]) -> Path:
    directory = tmp_path_factory.mktemp("studies") / "sevens"
    assert run_study(STUDY, directory, progress=False) == directory
    assert len(clearings) == 4  # once for each cell
    return directory


def cells(study: Path) -> dict[str, Path]:
    return {path.name: path for path in sorted((study / "cells").iterdir())}


def test_order_is_blocks_of_seeds_with_batches_shuffled() -> None:
    wide = change(CONFIG, study={"smaller": 0, "larger": 3, "seeds": 20}, run={"seed": 5})
    order = order_cells(wide)
    assert order == order_cells(wide)
    blocks = [order[i : i + 4] for i in range(0, 80, 4)]
    assert [{cell.seed for cell in block} for block in blocks] == [{5 + i} for i in range(20)]
    assert all({cell.batch for cell in block} == {16, 32, 64, 128} for block in blocks)
    assert len({tuple(cell.batch for cell in block) for block in blocks}) > 5
    firsts = [block[0].batch for block in blocks]
    assert set(firsts) == {16, 32, 64, 128}  # none of them always goes first
    later = [dataclasses.replace(cell, seed=cell.seed + 1) for cell in order]
    assert order_cells(change(wide, run={"seed": 6})) != later


def test_a_cell_moves_the_batch_the_rate_and_what_must_fit() -> None:
    config = change(
        CONFIG, batch={"size": 64, "updates": 2, "microbatch": 16, "wave": 32}, run={"seed": 3}
    )
    quarter = make_cell_config(config, Planned("", 16, 4))
    assert quarter == change(
        config,
        batch={"size": 16, "microbatch": 8, "wave": 16},
        optimizer={"learning_rate": 0.1 * math.sqrt(1 / 4)},
        run={"seed": 4},
    )
    four = make_cell_config(config, Planned("", 256, 3))
    assert (four.batch.microbatch, four.batch.wave) == (16, 32)
    assert four.optimizer.learning_rate == pytest.approx(0.2)
    assert make_cell_config(config, Planned("", 64, 3)) == config
    whole = change(config, batch={"microbatch": 0, "wave": 0})
    assert (make_cell_config(whole, Planned("", 16, 3)).batch.microbatch) == 0
    linear = change(config, study={"rate_rule": "linear"})
    assert make_cell_config(linear, Planned("", 256, 3)).optimizer.learning_rate == pytest.approx(
        0.4
    )
    fixed = change(config, study={"rate_rule": "none"})
    assert make_cell_config(fixed, Planned("", 256, 3)).optimizer.learning_rate == 0.1


def test_every_cell_was_run_in_the_order_that_was_written_first(study: Path) -> None:
    content = json.loads((study / "study.json").read_text())
    assert content["name"] == "sevens"
    assert content["config"] == config_to_dict(STUDY)
    assert content["order"] == [[cell.batch, cell.seed] for cell in order_cells(STUDY)]
    assert list(content["settings"]) == ["replicated"]
    assert list(cells(study)) == ["b00008_s0", "b00008_s1", "b00016_s0", "b00016_s1"]
    started = {name: (path / FILE_NAME).stat().st_mtime_ns for name, path in cells(study).items()}
    names = [f"b{batch:05d}_s{seed}" for batch, seed in content["order"]]
    assert sorted(started, key=lambda name: started[name]) == names
    assert (study / "study.json").stat().st_mtime_ns < min(started.values())


def test_cells_share_grid_set_and_start_and_differ_in_batch_and_rate(study: Path) -> None:
    runs = {name: read_run(path) for name, path in cells(study).items()}
    for name, run in runs.items():
        batch, seed = int(name[1:6]), int(name[-1])
        assert (run.start.config["batch"]["size"], run.start.config["run"]["seed"]) == (batch, seed)
        rate = 0.02 * math.sqrt(batch / 16)
        assert run.start.learning_rate == pytest.approx(rate)
        assert run.iterations[-1].learning_rate == pytest.approx(rate)  # as used
        assert (run.start.rate_rule, run.start.reference_batch) == ("sqrt", 16)
        assert run.start.warmup_updates == 80 // batch
        assert [e.samples for e in run.validations] == [16 * i for i in range(len(run.validations))]
        assert run.end is not None and run.end.compiled["inside the loop"] == 0
        assert set(run.end.compiled.values()) == {0, 1}
        assert run.steady is not None and run.steady.rollouts == batch * run.steady.iterations
        assert sum(run.end.phases.values()) == pytest.approx(run.end.elapsed_seconds, rel=1e-9)
    assert len({run.validations[0].score for run in runs.values()}) == 1  # one start, one set
    shared = ["task", "model", "warm_start", "validation", "budget", "objective", "study"]
    tables = [{name: run.start.config[name] for name in shared} for run in runs.values()]
    assert all(table == tables[0] for table in tables)


def test_cells_go_on_past_their_crossing(study: Path) -> None:
    for path in cells(study).values():
        run = read_run(path)
        assert run.end is not None and run.end.reason == "target"
        scores = [e.score for e in run.validations]
        first = next(i for i, score in enumerate(scores) if score >= 0.3)
        assert len(scores) - 1 - first >= 2
        assert run.end.samples >= 1.25 * 16 * (first - 1)


def test_the_tail_rule_refuses_a_start_above_the_target() -> None:
    def score(samples: int, value: float) -> Validation:
        return Validation(samples, samples // 16, samples // 16, value, 16, 0, 3.0, 1.0, 1.0, 0.1)

    with pytest.raises(UserError, match="start score is above the target"):
        stop_after_tail([score(0, 0.6)], 0.5)
    points = [score(0, 0.1), score(100, 0.3), score(200, 0.7)]
    assert stop_after_tail(points, 0.5) is None
    assert stop_after_tail([*points, score(300, 0.8)], 0.5) is None
    assert stop_after_tail([*points, score(300, 0.8), score(400, 0.8)], 0.5) == "target"


def test_records_are_analysed_and_reported(study: Path) -> None:
    summary = analyse(study)
    assert [cell.batch for cell in summary.cells].count(8) == 2
    assert all(cell.crossing is not None for cell in summary.cells)
    for cell in summary.cells:
        assert cell.accounting_gap < 1e-9
        assert not any("compiled" in note for note in cell.notes)
    page = build_report(study)
    assert page.exists() and "<html" in page.read_text()[:200].lower()


def test_a_finished_study_runs_nothing_again(study: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in study.rglob(FILE_NAME)}
    run_study(STUDY, study, progress=False)
    assert {path: path.stat().st_mtime_ns for path in study.rglob(FILE_NAME)} == before
    assert not (study / "aborted").exists()


def kill_after(monkeypatch: pytest.MonkeyPatch, name: str, event_name: str, count: int) -> None:
    """A kill right after a cell has written so many events of one kind."""
    write = RecordWriter.write
    seen: list[Event] = []

    def write_then_die(self: RecordWriter, event: Event) -> None:
        write(self, event)
        if event.event == event_name and name in self._file.name:
            seen.append(event)
            if len(seen) == count:
                raise Killed

    monkeypatch.setattr(RecordWriter, "write", write_then_die)


@pytest.mark.parametrize(
    ("event", "count", "resumes"),
    [("start", 1, False), ("iteration", 2, False), ("iteration", 5, True), ("steady", 1, True)],
)
def test_a_killed_study_goes_on_where_it_was(
    event: str,
    count: int,
    resumes: bool,
    study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second, third = (cell.name for cell in order_cells(STUDY)[1:3])
    directory = shutil.copytree(study, tmp_path / "sevens")
    for name in (second, third):
        shutil.rmtree(directory / "cells" / name)
    with monkeypatch.context() as patch:
        kill_after(patch, second, event, count)
        with pytest.raises(Killed):
            run_study(STUDY, directory, progress=False)
    assert third not in cells(directory)  # its turn comes later
    others = [path / FILE_NAME for name, path in cells(directory).items() if name != second]
    finished = [path.read_bytes() for path in others]

    run_study(STUDY, directory, progress=False)
    assert [path.read_bytes() for path in others] == finished
    assert list(cells(directory)) == list(cells(study))
    aside = [path.name for path in directory.glob("aborted/*")]
    assert aside == ([] if resumes else [f"{second}_1"])
    killed = read_run(directory / "cells" / second)
    assert len(killed.starts) == (2 if resumes else 1)
    for name, path in cells(directory).items():
        expected, found = read_run(cells(study)[name]), read_run(path)
        assert drop_measured(found.iterations) == drop_measured(expected.iterations), name
        assert drop_measured(found.validations) == drop_measured(expected.validations), name


def test_a_cell_killed_before_its_first_event_is_run_anew(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = shutil.copytree(study, tmp_path / "sevens")
    cell = directory / "cells" / "b00016_s1"
    shutil.rmtree(cell)
    cell.mkdir()
    (cell / FILE_NAME).write_text("")
    # A study.json that was being written is no study either.
    (directory / "study.tmp").write_text('{"na')
    run_study(STUDY, directory, progress=False)
    assert read_run(cell).end is not None
    assert (directory / "aborted" / "b00016_s1_1").exists()


def test_a_start_cut_short_before_any_cell_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "study.tmp").write_text('{"na')
    monkeypatch.setattr("jax_rl.sweep.run.train", lambda *args, **kwargs: None)
    run_study(STUDY, tmp_path, progress=False)
    assert json.loads((tmp_path / "study.json").read_text())["order"]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            {"optimizer": {"learning_rate": 0.2}},
            r"optimizer\.learning_rate was 0\.02 and is now 0\.2",
        ),
        ({"study": {"seeds": 3}}, r"study\.seeds was 2 and is now 3"),
        ({"budget": {"target": 0.4}}, r"budget\.target was 0\.3 and is now 0\.4"),
    ],
)
def test_another_configuration_in_the_directory_is_refused(
    tables: dict[str, Any], message: str, study: Path
) -> None:
    with pytest.raises(UserError, match=f"{message}; choose another --dir"):
        run_study(change(STUDY, **tables), study, progress=False)


def test_a_directory_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty and holds no study"):
        run_study(STUDY, tmp_path, progress=False)


def test_a_cell_that_diverges_does_not_stop_the_study(
    study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rate_at = position_module.rate_at

    def explode(update: int, *, peak: float, warmup: int) -> float:
        small = peak < 0.02  # the rate of batch 8
        return math.inf if small and update == 2 else rate_at(update, peak=peak, warmup=warmup)

    monkeypatch.setattr(position_module, "rate_at", explode)
    directory = shutil.copytree(study, tmp_path / "sevens")
    for name in ("b00008_s0", "b00008_s1", "b00016_s1"):
        shutil.rmtree(directory / "cells" / name)
    run_study(STUDY, directory, progress=False)
    reasons = {}
    for name, path in cells(directory).items():
        end = read_run(path).end
        assert end is not None
        reasons[name] = end.reason
    assert reasons == {
        "b00008_s0": "not_finite",
        "b00008_s1": "not_finite",
        "b00016_s0": "target",
        "b00016_s1": "target",
    }
    assert capsys.readouterr().err.count("training stopped: iteration 3") == 2
    lost = [line for line in read_lines(cells(directory)["b00008_s0"]) if line["event"] == "end"]
    assert len(lost) == 1
    # It counts as finished, and as censored.
    before = (cells(directory)["b00008_s0"] / FILE_NAME).read_bytes()
    run_study(STUDY, directory, progress=False)
    assert (cells(directory)["b00008_s0"] / FILE_NAME).read_bytes() == before
    by_batch = {cell.batch: cell for cell in analyse(directory).cells}
    assert by_batch[8].crossing is None and by_batch[16].crossing is not None
    assert any("censored" in note for note in by_batch[8].notes)


def test_a_cell_that_cannot_be_made_does_not_keep_the_others_from_it(
    study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(config: Config, *args: Any, **options: Any) -> None:
        if config.batch.size == 16 and config.run.seed == 0:
            raise UserError("needs more memory than the device has")
        train(config, *args, **options)

    directory = shutil.copytree(study, tmp_path / "sevens")
    for name in ("b00016_s0", "b00016_s1"):
        shutil.rmtree(directory / "cells" / name)
    monkeypatch.setattr("jax_rl.sweep.run.train", refuse)
    with pytest.raises(UserError, match="1 of the runs could not be made: b00016_s0: needs more"):
        run_study(STUDY, directory, progress=False)
    assert "needs more memory" in capsys.readouterr().err
    assert (directory / "cells" / "b00016_s1" / FILE_NAME).exists()
    assert not list((directory / "locks").glob("b*"))


def test_a_cell_that_cannot_win_any_more_is_stopped(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = shutil.copytree(study, tmp_path / "sevens")
    content = json.loads((directory / "study.json").read_text())
    content["config"]["study"]["early_stop"] = True
    (directory / "study.json").write_text(json.dumps(content))
    shutil.rmtree(directory / "cells" / "b00008_s1")
    # Batch 16, the reference, is complete; a thousandth of its time is over at the first look.
    config = change(STUDY, study={"early_stop": True})
    monkeypatch.setattr("jax_rl.sweep.run.find_limit", divide_limit)
    run_study(config, directory, progress=False)
    run = read_run(directory / "cells" / "b00008_s1")
    assert run.end is not None and run.end.reason == "early_stop"
    assert len(run.validations) == 2
    # The reference itself goes to its end, however slow it is.
    shutil.rmtree(directory / "cells" / "b00016_s1")
    run_study(config, directory, progress=False)
    whole = read_run(directory / "cells" / "b00016_s1").end
    assert whole is not None and whole.reason == "target"
    (cell,) = (cell for cell in analyse(directory).cells if cell.name == "b00008_s1")
    assert cell.crossing is None and cell.samples == 16
    assert any("censored" in note for note in cell.notes)


def divide_limit(*args: Any, **options: Any) -> float | None:
    limit = find_limit(*args, **options)
    return None if limit is None else limit / 1000


@pytest.mark.slow
def test_trials_are_run_before_cells_and_choose_their_rate(tmp_path: Path) -> None:
    trials = {"trials": (0.5, 1.0, 2.0), "trial_seeds": 1, "trial_extensions": 0, "seeds": 1}
    directory = tmp_path / "sevens"
    run_study(change(STUDY, study=trials), directory, progress=False)
    names = sorted(path.name for path in (directory / "trials").iterdir())
    assert names == [f"b{b:05d}_x{m}_s1000" for b in (8, 16) for m in ("0.5", "1", "2")]
    tuning = read_tuning(directory, json.loads((directory / "study.json").read_text()))
    for arm in tuning.arms:
        assert [rate.multiple for rate in arm.rates] == [0.5, 1.0, 2.0]
        assert arm.multiple is not None
        start = read_run(directory / "cells" / f"b{arm.batch:05d}_s0").start
        ruled = 0.02 * math.sqrt(arm.batch / 16)
        assert start.learning_rate == pytest.approx(ruled * arm.multiple)
        assert arm.learning_rate == start.learning_rate
        first = read_run(directory / "trials" / f"b{arm.batch:05d}_x0.5_s1000")
        assert first.start.learning_rate == pytest.approx(ruled / 2)
        assert first.steady is None
    last = max(read_run(path).start.time for path in (directory / "trials").iterdir())
    assert last < min(read_run(path).start.time for path in cells(directory).values())
