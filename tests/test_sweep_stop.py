"""When a run that cannot win any more is stopped, worked by hand."""

import pytest
from study_records import write_study
from trainer_runs import alone

from jax_rl.records import Validation
from jax_rl.study.cells import Planned
from jax_rl.study.comparable import name_machine
from jax_rl.sweep.stop import find_limit, limit_seconds, stop_without_chance


def score(samples: int, value: float, seconds: float) -> Validation:
    return Validation(
        samples=samples,
        iteration=samples // 16,
        update=samples // 16,
        score=value,
        rollouts=16,
        failed_rewards=0,
        mean_length=3.0,
        elapsed_seconds=2 * seconds,
        training_seconds=seconds,
        seconds=0.1,
    )


def test_limit_is_a_multiple_of_the_best_complete_arms_slowest_run():
    # Geometric means 20, 18 and less than both, but that one is not complete.
    times = {("", 8): [10, 40], ("", 16): [12, 27], ("", 32): [5], ("", 64): [4, None]}
    assert limit_seconds(times, runs=2, factor=2.0) == 54
    assert limit_seconds(times, runs=2, factor=1.0) == 27
    assert limit_seconds({("", 64): [4, None], ("", 8): [3]}, runs=2, factor=2.0) is None
    assert limit_seconds({}, runs=2, factor=2.0) is None


def test_a_run_below_the_target_ends_past_the_limit():
    stop = stop_without_chance(30.0, channel=alone())
    early = [score(0, 0.1, 0), score(100, 0.2, 20), score(200, 0.3, 29)]
    assert stop([], 0.5) is None
    assert stop([score(0, 0.1, 31)], 0.5) is None  # nothing generated yet
    assert stop(early, 0.5) is None
    assert stop([*early, score(300, 0.4, 31)], 0.5) == "early_stop"


def test_a_run_that_has_crossed_gets_its_tail():
    stop = stop_without_chance(30.0, channel=alone())
    crossed = [score(0, 0.1, 0), score(100, 0.3, 20), score(200, 0.7, 40)]
    assert stop(crossed, 0.5) is None
    tail = [*crossed, score(300, 0.8, 60), score(400, 0.8, 80)]
    assert stop(tail, 0.5) == "target"


def test_limit_is_read_from_the_cells_of_one_kind_of_device(tmp_path):
    runs = {(64, 0): (4096, 100.0), (64, 1): (4096, 80.0), (256, 0): (8192, 100.0)}
    write_study(tmp_path, runs)
    order = [Planned("", batch, seed) for batch in (64, 256) for seed in (0, 1)]

    def find(machine):
        return find_limit(tmp_path, order, machine=machine, factor=2.0)

    assert find(name_machine("cpu", "cpu", {"cores": 2})) == pytest.approx(2 * 4096 / 80)
    assert find(name_machine("cpu", "cpu", {"cpu": "EPYC", "cores": 64})) is None
