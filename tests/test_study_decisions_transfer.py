"""A study's samples with another machine's throughput: times, intervals, bounds, refusals."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import pytest
from study_records import build_cell
from trainer_runs import change

from jax_rl.config import Config
from jax_rl.config_file import config_to_dict
from jax_rl.errors import UserError
from jax_rl.study.batches import StudyFit, compare_arms, fit_study, summarise_arm
from jax_rl.study.decisions.transfer import Transfer, find_throughput, transfer_study
from jax_rl.study.summary import Arm, BatchResult, Cell
from jax_rl.throughput import ThroughputPoint, ThroughputTable

CONFIG = Config()
WIGGLE = (-0.05, 0.08, -0.03)
# Samples to target and rollouts per second here: 100, 50 and 60 s.
STUDY = {16: (4000, 40.0), 64: (4000, 80.0), 256: (6000, 100.0)}


def point(batch: int, rate: float, layout: str = "fsdp", **changes: Any) -> ThroughputPoint:
    made = ThroughputPoint(
        layout=layout,
        batch=batch,
        rollouts_per_second=rate,
        seconds={},
        iterations=10,
        mean_length=4.0,
        decode_steps=5.0,
        peak_memory_bytes=None,
        fits=True,
    )
    return dataclasses.replace(made, **changes)


def table(*points: ThroughputPoint, **changes: Any) -> ThroughputTable:
    made = ThroughputTable(
        kind="measured",
        created="2026-01-01T00:00:00+00:00",
        config=config_to_dict(CONFIG),
        platform="tpu",
        device_kind="TPU v5p",
        device_count=8,
        process_count=1,
        versions={},
        points=points,
    )
    return dataclasses.replace(made, **changes)


THERE = table(point(16, 100.0), point(64, 400.0), point(256, 3000.0))


def build(*, censored: tuple[int, ...] = (), noise: float = 1.0) -> list[Cell]:
    return [
        build_cell(
            batch,
            seed,
            samples=samples * math.exp(noise * WIGGLE[(seed + place) % 3]),
            rate=rate,
            crossed=batch not in censored or seed > 0,
        )
        for seed in range(3)
        for place, (batch, (samples, rate)) in enumerate(STUDY.items())
    ]


def prepare(cells: list[Cell]) -> tuple[StudyFit, list[BatchResult]]:
    fit = fit_study(cells, settings=("replicated",))
    base = Arm("replicated", 64)
    return fit, [
        summarise_arm(fit, arm, reference=base, updates_per_iteration=1) for arm in fit.censored
    ]


def move(
    other: ThroughputTable, cells: list[Cell] | None = None, tables: Mapping[str, Any] | None = None
) -> list[Transfer]:
    fit, results = prepare(build() if cells is None else cells)
    config = config_to_dict(change(CONFIG, **(tables or {})))
    return transfer_study(
        fit,
        results,
        other,
        source="bench.json",
        setting="replicated",
        reference=64,
        configs=dict.fromkeys(fit.censored, config),
    )


def test_times_are_samples_over_the_throughput_there() -> None:
    (found,) = move(THERE)
    assert [arm.batch for arm in found.arms] == [16, 64, 256]
    assert [arm.time for arm in found.arms] == pytest.approx([40, 10, 2])
    assert [arm.own_time for arm in found.arms] == pytest.approx([100, 50, 60])
    assert all(arm.time_at_least is None for arm in found.arms)
    assert (found.kind, found.hardware, found.layout) == ("measured", "8 x TPU v5p (tpu)", "fsdp")
    # Here 64 was the fastest, there it is 256.
    assert (found.fastest, found.undistinguished) == (256, [256])
    assert "batch 256 would reach the target first" in found.sentences[0]
    assert "5.0× sooner than the reference (64): throughput ×7.5 there" in found.sentences[0]
    assert "intervals are those of the samples alone" in found.sentences[-1]


def test_intervals_are_those_of_the_samples() -> None:
    (found,) = move(THERE)
    fit, _ = prepare(build())
    samples = compare_arms(fit, Arm("replicated", 256), against=Arm("replicated", 64)).samples
    ratio = found.arms[2].against_reference
    assert ratio is not None
    for mine, theirs in zip(
        (ratio.estimate, ratio.low, ratio.high),
        (samples.estimate, samples.low, samples.high),
        strict=True,
    ):
        assert theirs is not None
        assert mine == pytest.approx(theirs * 400 / 3000)
    assert found.arms[1].against_reference is None


def test_batches_within_the_spread_of_the_samples_are_not_told_apart() -> None:
    (found,) = move(table(point(16, 410.0), point(64, 400.0), point(256, 100.0)))
    assert (found.fastest, found.undistinguished) == (16, [16, 64])
    assert "Batch 64 cannot be told from it" in found.sentences[1]


def test_rates_by_progress_are_summed_over_the_way_to_the_target() -> None:
    slow = point(16, 0.0, by_progress=(100.0,) * 5 + (50.0,) * 5)
    # Ten tenths: half of the samples at 100/s, half at 50/s.
    assert find_throughput(slow, None) == pytest.approx(1 / (0.5 / 100 + 0.5 / 50))
    # Up to 0.5 of the run's samples the target has been met: the slow half plays no part.
    assert find_throughput(slow, 0.5) == pytest.approx(100)
    # Up to 0.75: two thirds of the way at 100/s, one third at 50/s; 0.75 cuts a tenth in two.
    assert find_throughput(slow, 0.75) == pytest.approx(1 / (2 / 3 / 100 + 1 / 3 / 50))
    assert find_throughput(point(16, 70.0), 0.75) == 70.0


def test_a_replayed_table_gives_the_times_of_its_tenths() -> None:
    rates = (100.0,) * 5 + (50.0,) * 5
    there = table(point(16, 66.7, by_progress=rates), replayed="runs/first", replayed_share=0.75)
    (found,) = move(there)
    (arm,) = found.arms
    assert arm.time == pytest.approx(4000 * (2 / 3 / 100 + 1 / 3 / 50))
    assert found.progress_share == 0.75
    assert "the first 75% of its samples" in found.notes[0]
    assert found.missing == ["batch 64: not in the table", "batch 256: not in the table"]


def test_a_plan_gives_bounds_and_no_verdict() -> None:
    (found,) = move(dataclasses.replace(THERE, kind="predicted", notes=("rooflines",)))
    assert [arm.time for arm in found.arms] == [None] * 3
    assert [arm.time_at_least for arm in found.arms] == pytest.approx([40, 10, 2])
    assert all(arm.against_reference is None for arm in found.arms)
    assert (found.fastest, found.undistinguished) == (None, [])
    words = " ".join(found.sentences)
    assert words.startswith("Predicted for 8 x TPU v5p (tpu)")
    assert "at least 40 s for batch 16, 10 s for batch 64 and 2 s for batch 256" in words
    for word in ("faster", "slower", "sooner", "later", "first"):
        assert word not in words
    assert found.notes == ["rooflines"]


def test_a_censored_batch_has_a_bound() -> None:
    (found,) = move(THERE, build(censored=(256,), noise=0.0))
    last = found.arms[2]
    assert (last.samples, last.time) == (None, None)
    assert last.time_at_least == pytest.approx(2)
    assert last.against_reference is not None
    assert last.against_reference.bound == "at least"
    assert found.fastest == 64  # a batch with a censored run is never named
    assert 256 in found.undistinguished


def test_a_point_that_does_not_fit_is_left_out() -> None:
    misfit = point(64, 0.0, fits=False, notes=("needs too much",))
    (found,) = move(table(point(16, 100.0), misfit, point(256, 50.0)))
    assert [arm.batch for arm in found.arms] == [16, 256]
    assert found.missing == ["batch 64: no throughput in the table (needs too much)"]
    assert all(arm.against_reference is None for arm in found.arms)


def test_every_layout_of_the_table_has_its_own_answer() -> None:
    found = move(table(point(16, 100.0), point(16, 50.0, layout="tensor")))
    assert [(one.layout, one.arms[0].time) for one in found] == [
        ("fsdp", pytest.approx(40)),
        ("tensor", pytest.approx(80)),
    ]


@pytest.mark.parametrize(
    ("tables", "name"),
    [
        ({"model": {"mlp": 64}}, "model.mlp was 64 in the study and is 192 in the table"),
        ({"model": {"compute_dtype": "bfloat16"}}, "model.compute_dtype was 'bfloat16'"),
        ({"batch": {"group": 4}}, "batch.group was 4"),
        ({"batch": {"updates": 2}}, "batch.updates was 2"),
        ({"task": {"max_response_length": 7}}, "task.max_response_length was 7"),
        ({"objective": {"kl_coefficient": 0.1}}, "objective.kl_coefficient was 0.1"),
        ({"sampler": {"temperature": 0.5}}, "sampler.temperature was 0.5"),
        ({"objective": {"loss": "cispo"}, "batch": {"group": 4}}, "batch.group was 4"),
    ],
    ids=str,
)
def test_a_table_of_another_experiment_is_refused(tables: dict[str, Any], name: str) -> None:
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        move(THERE, tables=tables)


def test_how_the_work_lies_on_the_devices_may_differ() -> None:
    tables = {
        "batch": {"size": 64, "microbatch": 8, "wave": 16},
        "model": {"remat": "full"},
        "run": {"layout": "fsdp"},
    }
    assert move(THERE, tables=tables)[0].fastest == 256


def test_a_table_without_a_batch_of_the_study_is_refused() -> None:
    with pytest.raises(UserError, match=r"none of its batches \(32\) is one of the study's"):
        move(table(point(32, 100.0)))


def test_a_batch_that_shares_no_seed_is_not_named() -> None:
    cells = [
        build_cell(batch, seed, samples=samples, rate=1.0)
        for batch, samples, seeds in ((16, 4000, (0, 1)), (64, 4000, (0, 1)), (256, 40, (2, 3)))
        for seed in seeds
    ]
    (found,) = move(table(point(16, 100.0), point(64, 400.0), point(256, 400.0)), cells)
    assert found.fastest == 64
    assert 256 in found.undistinguished
    assert "No shared seed connects batch 256 with it." in found.sentences
