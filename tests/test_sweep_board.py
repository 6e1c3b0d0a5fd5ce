"""Which run comes next: trials, then cells at the rates they chose, shared among workers."""

from pathlib import Path
from typing import Any

import pytest
from study_records import write_run
from trainer_runs import CONFIG, change

from jax_rl.config import Config
from jax_rl.config_file import config_to_dict
from jax_rl.errors import UserError
from jax_rl.study.cells import Planned
from jax_rl.study.rates.trials import Trial
from jax_rl.sweep.board import Board, Job
from jax_rl.sweep.locks import Locks
from jax_rl.sweep.part import Part
from jax_rl.sweep.plan import make_cell_config, order_cells, order_trials

STUDY = change(
    CONFIG, study={"trials": (0.5, 1.0, 2.0), "trial_seeds": 2, "trial_extensions": 1, "seeds": 2}
)
"""Batches 8 and 16: 12 trials and 4 cells."""


ALL = Part()


def open_board(directory: Path, part: Part = ALL, config: Config = STUDY) -> Board:
    locks = Locks(directory / "locks")
    return Board(config, directory, order_cells(config), part=part, locks=locks)


def run_all(board: Board, directory: Path, best: dict[int, float]) -> list[Job]:
    """Makes all jobs; samples to target are the fewest at each batch's best multiple."""
    jobs = []
    while (job := board.take()) is not None:
        jobs.append(job)
        run = job.run
        ratio = job.multiple / best[run.batch]
        samples = 2048 * max(ratio, 1 / ratio)
        write_run(directory, run.batch, run.seed, samples=samples, rate=100.0, config=record(run))
        written = directory / "cells" / Planned("", run.batch, run.seed).name
        if isinstance(run, Trial):
            (directory / "trials").mkdir(exist_ok=True)
            written.rename(directory / "trials" / run.name)
        board.give_back(job)
    return jobs


def record(run: Planned | Trial) -> dict[str, Any]:
    return config_to_dict(change(STUDY, budget={"target": 0.75}))


def test_trials_come_first_and_cells_take_what_they_chose(tmp_path: Path) -> None:
    jobs = run_all(open_board(tmp_path), tmp_path, {8: 1.0, 16: 4.0})
    trials = [job.run for job in jobs if isinstance(job.run, Trial)]
    cells = [job for job in jobs if isinstance(job.run, Planned)]
    assert [isinstance(job.run, Trial) for job in jobs] == [True] * 14 + [False] * 4
    assert trials[:12] == order_trials(STUDY)
    # The best of batch 16 was at the edge, and still is after the one extension.
    assert trials[12:] == [Trial("", 16, 4.0, seed) for seed in (1000, 1001)]
    assert [job.run for job in cells] == order_cells(STUDY)
    assert {(job.run.batch, job.multiple) for job in cells} == {(8, 1.0), (16, 4.0)}
    assert jobs[12].label == "[trial 13/14] batch 16 rate x4 seed 1000"
    assert cells[0].label.startswith("[1/4] batch ")
    assert open_board(tmp_path).take() is None  # all are finished


def test_every_arm_begins_with_the_same_multiples_in_mixed_order() -> None:
    trials = order_trials(STUDY)
    for batch in (8, 16):
        tried = sorted((t.multiple, t.seed) for t in trials if t.batch == batch)
        assert tried == [(m, seed) for m in (0.5, 1.0, 2.0) for seed in (1000, 1001)]
    assert [trial.seed for trial in trials] == [1000] * 6 + [1001] * 6
    first = [(trial.batch, trial.multiple) for trial in trials[:6]]
    assert first != sorted(first)
    assert not {t.seed for t in trials} & {cell.seed for cell in order_cells(STUDY)}


def test_a_trial_moves_the_rate_alone() -> None:
    cell = make_cell_config(STUDY, Planned("", 8, 1000))
    trial = make_cell_config(STUDY, Trial("", 8, 0.5, 1000), multiple=0.5)
    rate = cell.optimizer.learning_rate / 2
    assert trial == change(cell, optimizer={"learning_rate": rate})


def test_workers_share_all_runs_and_wait_for_the_trials_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = {8: 1.0, 16: 4.0}
    first, second = (open_board(tmp_path, Part(index, 2)) for index in (0, 1))
    made = run_all(first, tmp_path, best)
    assert {job.run for job in made} == set(order_trials(STUDY)[0::2])
    first.report()
    assert "2 cells wait for trials" in capsys.readouterr().err
    made += run_all(second, tmp_path, best)  # extensions and its cells too, as far as it can
    made += run_all(open_board(tmp_path, Part(0, 2)), tmp_path, best)
    made += run_all(open_board(tmp_path, Part(1, 2)), tmp_path, best)
    names = [job.run.name for job in made]
    assert len(names) == len(set(names)) == 14 + 4
    last = open_board(tmp_path, Part(0, 2))
    assert last.take() is None
    last.report()
    assert capsys.readouterr().err == ""


def test_what_another_worker_runs_is_left_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = change(STUDY, study={"trials": ()})
    first, second = open_board(tmp_path, config=plain), open_board(tmp_path, config=plain)
    held = first.take()
    assert held is not None
    jobs = run_all(second, tmp_path, {8: 1.0, 16: 1.0})
    assert [job.run for job in jobs] == order_cells(plain)[1:]
    second.report()
    told = capsys.readouterr().err
    assert f"{held.run.name} is being run by process" in told and "--steal" in told


@pytest.mark.parametrize("text", ["2/2", "1", "/2", "-1/2", "1/0", "a/b", "1/2/3"])
def test_a_part_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="must be i/n with i from 0 to n - 1"):
        Part.parse(text)


def test_parts_cover_everything_once() -> None:
    parts = [Part.parse(f"{index}/3") for index in range(3)]
    assert [[part.has(place) for part in parts].index(True) for place in range(6)] == [
        0,
        1,
        2,
        0,
        1,
        2,
    ]
    assert all(sum(part.has(place) for part in parts) == 1 for place in range(10))
