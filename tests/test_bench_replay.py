"""Replayed lengths: what is drawn, from which part of the run, and which runs are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_records import record
from study_records import STEP
from trainer_runs import alone, change

from jax_rl.bench.replay import PARTS, Replay, invert_counts, read_replay
from jax_rl.config import Config
from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME
from jax_rl.trainer.lengths import LENGTH_BINS, count_lengths


def make_replay(counts: np.ndarray, limit: int = 64, batch: int = 16, seed: int = 0) -> Replay:
    return Replay(batch=batch, counts=counts, limit=limit, seed=seed)


def test_drawn_lengths_have_the_histogram() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 20, LENGTH_BINS)
    counts[[0, 5, 31]] = 0
    replay = make_replay(counts[None])
    draws = replay.draw(0, prompts=2000, group=8)
    found = np.array(count_lengths(draws, 64))
    expected = 16_000 * counts / counts.sum()
    assert np.all(found[counts == 0] == 0)
    # Five standard deviations of a binomial count.
    assert np.all(np.abs(found - expected) <= 5 * np.sqrt(expected) + 1e-9)
    # A bin of 64 holds two lengths, which are drawn alike.
    odd = np.sum(draws % 2)
    assert abs(odd - 8000) < 5 * np.sqrt(4000)


def test_the_inverse_by_hand() -> None:
    counts = np.zeros(LENGTH_BINS, int)
    counts[0], counts[16], counts[24] = 1, 2, 1  # lengths 1, 3 and 4 of 4
    numbers = np.array([0.0, 0.2499, 0.25, 0.7499, 0.75, 1 - 2**-53])
    assert invert_counts(counts, numbers, 4).tolist() == [1, 1, 3, 3, 4, 4]


def test_a_number_belongs_to_a_sample_id_alone() -> None:
    counts = np.ones((1, LENGTH_BINS), int)
    whole = make_replay(counts).draw(0, prompts=12, group=4).reshape(12, 4)
    part = make_replay(counts).draw(8, prompts=4, group=4).reshape(4, 4)
    np.testing.assert_array_equal(part, whole[8:])
    np.testing.assert_array_equal(make_replay(counts).draw(0, prompts=1, group=2), whole[0, :2])
    assert len({tuple(row) for row in whole}) == 12
    other = make_replay(counts, seed=1).draw(0, prompts=12, group=4)
    assert not np.array_equal(other.reshape(12, 4), whole)


@pytest.mark.parametrize("start", [0, 2, 17])
def test_ten_iterations_in_a_row_visit_every_tenth(start: int) -> None:
    replay = make_replay(np.ones((1, LENGTH_BINS), int))
    visited = range(start, start + PARTS)
    assert sorted(map(replay.part_of, visited)) == list(range(PARTS))
    for iteration in visited:
        assert int(replay.find_progress(iteration) * PARTS) == replay.part_of(iteration)
    # Other places of the same tenth at each visit.
    again = {replay.find_progress(start + PARTS * visit) for visit in range(8)}
    assert len(again) == 8


def test_as_many_iterations_are_taken_as_fill_the_batch() -> None:
    counts = np.diag(np.arange(1, LENGTH_BINS + 1))[:8]  # iteration i: i + 1 responses in bin i
    replay = make_replay(counts, batch=16)

    def taken(progress: float, batch: int) -> list[int]:
        return np.flatnonzero(replay.count_at(progress, batch)).tolist()

    assert taken(0.0, 16) == taken(0.05, 8) == [0]
    assert taken(0.99, 16) == [7]
    assert taken(0.51, 16) == [4]  # 4.08 of 8 iterations have passed
    assert taken(0.5, 64) == [2, 3, 4, 5]
    assert taken(0.0, 48) == [0, 1, 2]
    assert taken(0.3, 1000) == list(range(8))
    assert replay.count_at(0.5, 32).tolist()[3:5] == [4, 5]


# Which runs are taken


def test_the_lengths_of_a_run_are_read(tmp_path: Path) -> None:
    free = {"model": {"remat": "full", "padded_vocab": 40}, "run": {"layout": "fsdp"}}
    run = record(tmp_path, change(Config(), **free, optimizer={"learning_rate": 0.5}))
    replay = read_replay(run, change(Config(), run={"seed": 3}), channel=alone())
    assert (replay.batch, replay.limit, replay.seed) == (STEP, 6, 3)
    assert len(replay.counts) == 6
    assert np.all(replay.draw(0, prompts=4, group=8) == 3)


@pytest.mark.parametrize(
    ("tables", "name"),
    [
        ({"model": {"mlp": 200}}, "model.mlp was 200 there and is 192 here"),
        ({"model": {"compute_dtype": "bfloat16"}}, "model.compute_dtype was 'bfloat16'"),
        ({"batch": {"group": 4}}, "batch.group was 4 there and is 8 here"),
        ({"batch": {"updates": 2}}, "batch.updates was 2"),
        ({"task": {"max_response_length": 7}}, "task.max_response_length was 7"),
        ({"task": {"max_prompt_length": 9}}, "task.max_prompt_length was 9"),
        ({"objective": {"kl_coefficient": 0.1}}, "objective.kl_coefficient was 0.1"),
        (
            {"objective": {"loss": "cispo"}, "batch": {"group": 4}, "model": {"mlp": 200}},
            "batch.group was 4",  # the first of three
        ),
    ],
    ids=str,
)
def test_a_run_of_another_experiment_is_refused(
    tmp_path: Path, tables: dict[str, Any], name: str
) -> None:
    run = record(tmp_path, change(Config(), **tables))
    with pytest.raises(UserError, match=name):
        read_replay(run, Config(), channel=alone())


def test_a_record_without_lengths_is_refused(tmp_path: Path) -> None:
    run = record(tmp_path, Config(), kept=False)
    with pytest.raises(UserError, match="no length_counts, which records of earlier versions lack"):
        read_replay(run, Config(), channel=alone())
    with pytest.raises(UserError, match=r"no record of a run is there; --replay takes"):
        read_replay(tmp_path, Config(), channel=alone())


def test_a_run_without_iterations_is_refused(tmp_path: Path) -> None:
    run = record(tmp_path, Config())
    file = run / FILE_NAME
    file.write_text(file.read_text().splitlines(keepends=True)[0])
    with pytest.raises(UserError, match="has recorded no iteration"):
        read_replay(run, Config(), channel=alone())
