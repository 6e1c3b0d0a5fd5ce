"""All answers of a study on disk, from its records, as plain values."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from study_records import write_study

from jax_rl.errors import UserError
from jax_rl.study.answers import Answers, Wishes, answer
from jax_rl.study.decisions.cost import Price
from jax_rl.study.material import gather
from jax_rl.throughput import ThroughputPoint, ThroughputTable, write_throughput

RUNS = {
    (batch, seed): (samples * (1 + 0.03 * seed), rate)
    for seed in range(2)
    for batch, (samples, rate) in {64: (4000, 50.0), 256: (4200, 120.0)}.items()
}


def ask(study: Path, wishes: Wishes) -> tuple[Answers, Mapping[str, Any]]:
    material = gather(study)
    found = answer(material, [], noise=math.nan, wishes=wishes)
    return found, material.runs[material.cells[0].name].start.config


def write_table(path: Path, config: Mapping[str, Any]) -> Path:
    point = ThroughputPoint(
        layout="fsdp",
        batch=256,
        rollouts_per_second=1000.0,
        seconds={},
        iterations=9,
        mean_length=4.0,
        decode_steps=4.0,
        peak_memory_bytes=None,
        fits=True,
    )
    table = ThroughputTable(
        kind="measured",
        created="2026-01-01T00:00:00+00:00",
        config=dict(config),
        platform="tpu",
        device_kind="TPU v5p",
        device_count=8,
        process_count=1,
        versions={},
        points=(point,),
    )
    write_throughput(table, path)
    return path


def test_answers_from_records_are_plain_values(tmp_path: Path) -> None:
    write_study(tmp_path, RUNS)
    plain, config = ask(tmp_path, Wishes())
    assert plain.transfers == []
    assert [one.price for one in plain.costs] == [None, None]
    assert [(one.clock, one.fastest) for one in plain.choices] == [
        ("training", 256),
        ("elapsed", 256),
    ]
    assert plain.fits[0].samples.reason == "rates not tuned per batch"
    assert [one.batch for one in plain.score_fits] == [64, 256]
    assert plain.tuning.multiples == []
    table = write_table(tmp_path / "bench.json", config)
    found, _ = ask(tmp_path, Wishes(price=Price(3.0), throughput=(table,)))
    (moved,) = found.transfers
    assert moved.arms[0].time == pytest.approx((moved.arms[0].samples or 0) / 1000)
    assert found.costs[0].arms[0].money == pytest.approx(
        3 * (found.costs[0].arms[0].device_hours or 0)
    )
    # Everything can be written and read back.
    text = json.dumps(dataclasses.asdict(found))
    assert json.loads(text)["transfers"][0]["fastest"] == 256


def test_peaks_that_the_study_measured_are_used(tmp_path: Path) -> None:
    write_study(tmp_path, RUNS)
    assert ask(tmp_path, Wishes())[0].time_use.peaks is None
    path = tmp_path / "study.json"
    study = json.loads(path.read_text())
    study["peaks"] = {"flops": 2e11, "memory_bandwidth": 3e10}
    path.write_text(json.dumps(study))
    peaks = ask(tmp_path, Wishes())[0].time_use.peaks
    assert peaks is not None
    assert (peaks.flops, peaks.memory_bandwidth) == (2e11, 3e10)


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    write_study(tmp_path, RUNS)
    with pytest.raises(UserError, match="cannot be read"):
        ask(tmp_path, Wishes(throughput=(tmp_path / "none.json",)))
