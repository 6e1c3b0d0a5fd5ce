"""Which studies have seconds to compare, by the machines of their runs."""

from pathlib import Path

import pytest
from study_records import write_run, write_study

from jax_rl.study.material import Material, gather

RUNS = {(16, 0): (4000, 500.0), (64, 0): (4000, 1000.0)}


def cpu(model: str, count: int = 1) -> dict:
    return {"host": {"cores": 2, "cpu": model}, "device_count": count}


def gpu(kind: str, count: int = 1) -> dict:
    return {"platform": "gpu", "device_kind": kind, "device_count": count}


def read(directory: Path, *starts: dict) -> Material:
    """A study whose batches ran on these machines, in turn."""
    runs = dict(zip([*RUNS, (256, 0), (1024, 0)], [(4000, 500.0)] * len(starts), strict=False))
    write_study(directory, runs)
    for (batch, seed), start in zip(runs, starts, strict=True):
        (directory / "cells" / f"b{batch:05d}_s{seed}" / "records.jsonl").unlink()
        write_run(directory, batch, seed, samples=4000, rate=500.0, start=start)
    return gather(directory)


@pytest.mark.parametrize("count", [1, 2])
def test_two_models_of_cpu_are_two_kinds_whatever_their_number(tmp_path, count) -> None:
    """Every CPU calls itself `cpu`: the names of the devices differ by their number alone."""
    found = read(tmp_path, cpu("Xeon"), cpu("EPYC", count))
    assert found.fit.list_obstacles(*found.fit.censored)
    assert any("EPYC" in reason for reason in found.fit.incomparable)


def test_two_models_of_cpu_are_seen_beside_an_accelerator(tmp_path) -> None:
    found = read(tmp_path, cpu("Xeon"), cpu("EPYC"), gpu("H100"))
    assert any("EPYC" in reason for reason in found.fit.incomparable)


def test_what_the_names_of_devices_tell_is_told_arm_by_arm(tmp_path) -> None:
    found = read(tmp_path, gpu("A100"), gpu("H100"), gpu("H100"))
    assert found.fit.incomparable == ()
    small, *large = found.fit.complete
    assert found.fit.list_obstacles(small, large[0])
    assert found.fit.list_obstacles(*large) == []


def test_one_kind_in_two_numbers_is_one_kind(tmp_path) -> None:
    found = read(tmp_path, gpu("H100", 1), gpu("H100", 2))
    assert found.fit.incomparable == ()
    assert found.fit.by_kind.list_obstacles(*found.fit.complete) == []
