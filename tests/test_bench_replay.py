"""Replayed lengths: what is drawn, from which part of the run, and which runs are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_records import record
from study_records import STEP
from trainer_runs import alone, change

from jax_rl.bench.replay import PARTS, Replay, read_replay, spread_counts
from jax_rl.config import Config
from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME
from jax_rl.trainer.lengths import LENGTH_BINS, count_lengths


def make_replay(lengths: Any, seed: int = 0) -> Replay:
    return Replay(lengths=np.asarray(lengths, dtype=np.int32), seed=seed)


def test_a_batch_of_the_runs_size_has_the_runs_lengths() -> None:
    """Dealt out and not drawn anew: the longest of a wave is the run's."""
    lengths = np.sort(np.random.default_rng(0).integers(1, 65, (10, 16)))
    replay = make_replay(lengths)
    for iteration in range(20):
        dealt = replay.draw(2 * iteration, prompts=2, group=8)
        assert dealt.dtype == np.int32
        place = int(replay.find_progress(iteration) * 10)
        np.testing.assert_array_equal(np.sort(dealt), lengths[place])


def test_other_sizes_have_part_or_several_of_the_iterations() -> None:
    lengths = np.arange(1, 9)[:, None] * np.ones((8, 16), int)
    replay = make_replay(lengths)
    assert len(replay.draw(0, prompts=1, group=4)) == 4
    twice = replay.draw(0, prompts=4, group=8)  # 32 rollouts: two iterations in full
    assert sorted(np.unique(twice, return_counts=True)[1]) == [16, 16]
    # More than the whole run has: all of it more than once.
    many = replay.draw(0, prompts=32, group=8)
    assert np.unique(many, return_counts=True)[1].tolist() == [32] * 8


def test_small_batches_are_samples_of_the_iteration() -> None:
    """Its longest response comes up in as many of them as chance says: 4 of 16, or a quarter."""
    lengths = [[*range(1, 16), 64]]
    replay = make_replay(lengths)
    found = [replay.draw(n, prompts=1, group=4).max() == 64 for n in range(2000)]
    # Five standard deviations of a binomial share.
    assert abs(np.mean(found) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 2000)


def test_what_is_dealt_depends_on_seed_and_first_group_alone() -> None:
    lengths = np.arange(160).reshape(10, 16) + 1
    first, again = (make_replay(lengths).draw(4, prompts=2, group=8) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = make_replay(lengths, seed=1).draw(4, prompts=2, group=8)
    assert sorted(other) == sorted(first)
    assert not np.array_equal(other, first)


# From a histogram to lengths


def spread(counts: dict[int, int], limit: int, **options: int) -> list[int]:
    histogram = np.zeros(LENGTH_BINS, int)
    for place, count in counts.items():
        histogram[place] = count
    return spread_counts(histogram, limit=limit, **options).tolist()


def test_a_histogram_gives_lengths_with_that_histogram() -> None:
    rng = np.random.default_rng(0)
    for limit in (4, 31, 32, 100, 512):
        drawn = rng.integers(1, limit + 1, 1000)
        counts = np.array(count_lengths(drawn, limit))
        found = spread_counts(counts, limit=limit)
        assert count_lengths(found, limit) == counts.tolist()
        # Bins are a 32nd of the limit wide, and lengths even over them here.
        assert abs(found.mean() - drawn.mean()) < max(1e-9, limit / 32 * 0.05)
        exact = spread_counts(counts, limit=limit, tokens=int(drawn.sum()))
        assert count_lengths(exact, limit) == counts.tolist()
        assert exact.sum() == drawn.sum()


def test_lengths_by_hand() -> None:
    # Four lengths have the bins 0, 8, 16 and 24; each is known.
    assert spread({0: 1, 16: 2, 24: 1}, 4) == [1, 3, 3, 4]
    # Bins of 64 hold two lengths each, those of 128 four: 5 to 8 in the second.
    assert spread({0: 2, 31: 4}, 64) == [1, 2, 63, 63, 64, 64]
    assert spread({1: 2}, 128) == [6, 8]


def test_the_tokens_are_met_as_far_as_the_bins_allow() -> None:
    assert spread({0: 4}, 64, tokens=4) == [1, 1, 1, 1]
    assert spread({0: 4}, 64, tokens=5) == [1, 1, 1, 2]
    assert spread({0: 4}, 64, tokens=8) == spread({0: 4}, 64, tokens=99) == [2, 2, 2, 2]
    # The longest stays as long as the decode loop, and truncated ones at the limit.
    assert spread({1: 3}, 128, steps=8, tokens=18) == [5, 5, 8]
    assert spread({31: 3}, 128, truncated=1, tokens=378) == [125, 125, 128]


def test_truncated_responses_lie_at_the_limit() -> None:
    assert spread({31: 4}, 128, truncated=2) == [125, 126, 128, 128]
    assert spread({0: 2, 31: 3}, 128, truncated=3) == [2, 4, 128, 128, 128]


def test_the_longest_is_as_long_as_the_decode_loop() -> None:
    assert spread({0: 1, 1: 2}, 128, steps=7) == [3, 5, 7]
    assert spread({0: 1, 1: 2}, 128, steps=5) == [3, 5, 5]
    # Steps that belong to no such response are not of one wave.
    assert spread({0: 1, 1: 2}, 128, steps=40) == spread({0: 1, 1: 2}, 128)


@pytest.mark.parametrize("start", [0, 2, 17])
def test_ten_iterations_in_a_row_visit_every_tenth(start: int) -> None:
    replay = make_replay(np.ones((1, 16)))
    visited = range(start, start + PARTS)
    assert sorted(map(replay.part_of, visited)) == list(range(PARTS))
    for iteration in visited:
        assert int(replay.find_progress(iteration) * PARTS) == replay.part_of(iteration)
    # Other places of the same tenth at each visit.
    again = {replay.find_progress(start + PARTS * visit) for visit in range(8)}
    assert len(again) == 8


def test_as_many_iterations_are_taken_as_fill_the_batch() -> None:
    replay = make_replay(np.arange(8)[:, None] * np.ones((8, 16), int))

    def taken(progress: float, batch: int) -> list[int]:
        return np.unique(replay.gather(progress, batch)).tolist()

    assert taken(0.0, 16) == taken(0.05, 8) == [0]
    assert taken(0.99, 16) == [7]
    assert taken(0.51, 16) == [4]  # 4.08 of 8 iterations have passed
    assert taken(0.5, 64) == [2, 3, 4, 5]
    assert taken(0.0, 48) == [0, 1, 2]
    assert taken(0.3, 1000) == list(range(8))
    assert len(replay.gather(0.5, 32)) == 32


# Which runs are taken


def test_the_lengths_of_a_run_are_read(tmp_path: Path) -> None:
    free = {"model": {"remat": "full", "padded_vocab": 40}, "run": {"layout": "fsdp"}}
    run = record(tmp_path, change(Config(), **free, optimizer={"learning_rate": 0.5}))
    replay = read_replay(run, change(Config(), run={"seed": 3}), channel=alone())
    assert (replay.lengths.shape, replay.seed) == ((6, STEP), 3)
    assert np.all(replay.lengths == 3)
    # The score is 0.25 + 0.5 x / 4,096 after x samples: at its target of 0.8 after 4.4 of 6.
    assert replay.share == pytest.approx(4.4 / 6)


def test_a_run_that_misses_its_target_has_no_share(tmp_path: Path) -> None:
    run = record(tmp_path, change(Config(), budget={"target": 1.01}))
    assert read_replay(run, Config(), channel=alone()).share is None
    above = record(tmp_path / "above", change(Config(), budget={"target": 0.1}))
    assert read_replay(above, Config(), channel=alone()).share is None


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
