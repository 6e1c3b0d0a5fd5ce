"""What a run measures, which devices compare, and which arms shared seeds connect."""

import dataclasses
import math

import pytest
from study_records import build_cell

from jax_rl.study.batches import (
    count_devices,
    fit_study,
    measure_cell,
    name_kind,
    summarise_arm,
)
from jax_rl.study.summary import Arm, Cell

ALONE = ("replicated",)


def cut(cell: Cell, samples: list[int], training: list[float], elapsed: list[float]) -> Cell:
    return dataclasses.replace(
        cell,
        curve_samples=samples,
        curve_training_seconds=training,
        curve_elapsed_seconds=elapsed,
    )


def test_a_censored_run_is_known_up_to_its_last_score() -> None:
    """Its time ended at 2,500 samples; what it scored after 2,048 nobody knows."""
    missed = cut(
        build_cell(64, 0, samples=2500, rate=100.0, crossed=False),
        [0, 1024, 2048],
        [0.0, 10.0, 20.0],
        [5.0, 17.0, 29.0],
    )
    assert measure_cell(missed) == {
        "samples": 2048.0,
        "throughput": pytest.approx(102.4),
        "training_time": 20.0,
        "elapsed_time": 29.0,
    }
    fit = fit_study([missed], settings=ALONE)
    result = summarise_arm(
        fit, Arm("replicated", 64), reference=Arm("replicated", 64), updates_per_iteration=1
    )
    assert result.samples_at_least == pytest.approx(2048)
    assert result.elapsed_time_at_least == pytest.approx(29)


def test_a_censored_run_without_scores_is_taken_whole() -> None:
    missed = build_cell(64, 0, samples=2500, rate=100.0, crossed=False)
    start_alone = cut(missed, [0], [0.0], [5.0])
    for cell in (missed, start_alone):
        assert measure_cell(cell)["samples"] == 2500.0
        assert measure_cell(cell)["training_time"] == pytest.approx(25)


def test_a_run_that_crossed_is_known_at_its_crossing() -> None:
    crossed = cut(build_cell(64, 0, samples=1500, rate=100.0), [0, 2048], [0, 20], [0, 40])
    assert measure_cell(crossed)["samples"] == 1500.0


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        ("8 x NVIDIA H200 (cuda)", "NVIDIA H200 (cuda)"),
        ("32 x TPU v5p (tpu), 4 processes", "TPU v5p (tpu)"),
        ("unknown number of A100 (gpu)", "A100 (gpu)"),
        ("simulated", "simulated"),
    ],
)
def test_the_kind_is_without_count_and_processes(device: str, kind: str) -> None:
    assert name_kind(device) == kind


def test_devices_that_grow_over_processes_are_compared() -> None:
    cells = [
        build_cell(64, 0, samples=1000, rate=10.0, device="8 x TPU v5p (tpu), 2 processes"),
        build_cell(128, 0, samples=1000, rate=20.0, device="16 x TPU v5p (tpu), 4 processes"),
    ]
    grown = fit_study(cells, settings=ALONE, devices_grow=True)
    assert grown.list_obstacles(*grown.complete) == []
    fixed = fit_study(cells, settings=ALONE)
    assert len(fixed.list_obstacles(*fixed.complete)) == 1
    assert fixed.by_kind.list_obstacles(*fixed.complete) == []


def test_arms_are_connected_through_others() -> None:
    def fit(*pairs: tuple[int, int]):
        return fit_study(
            [build_cell(batch, seed, samples=1000, rate=10.0) for batch, seed in pairs],
            settings=ALONE,
        )

    def connect(found, reference: int) -> list[int]:
        arms = found.connect(found.complete, reference=Arm("replicated", reference))
        return [arm.batch for arm in arms]

    chain = fit((16, 0), (64, 0), (64, 1), (256, 1), (1024, 2))
    assert connect(chain, 16) == [16, 64, 256]
    assert connect(chain, 1024) == [1024]
    assert connect(chain, 4096) == [16, 64, 256]  # the largest part
    assert fit().connect([], reference=Arm("replicated", 16)) == []


def test_devices_of_runs_are_their_geometric_mean() -> None:
    cells = [
        dataclasses.replace(build_cell(64, seed, samples=1000, rate=1.0), device_count=count)
        for seed, count in enumerate((2, 8))
    ]
    assert count_devices(cells) == pytest.approx(4)
    assert count_devices(cells[:1]) == 2
    assert count_devices([*cells, dataclasses.replace(cells[0], device_count=0)]) == 0
    assert count_devices([]) == 0
    assert not math.isnan(count_devices([]))
