"""Tables of throughput: what is written is what is read."""

import json
from pathlib import Path

import pytest

from jax_rl.config import Config
from jax_rl.config_file import config_to_dict
from jax_rl.errors import UserError
from jax_rl.throughput import (
    ThroughputPoint,
    ThroughputTable,
    read_throughput,
    write_throughput,
)

POINT = ThroughputPoint(
    layout="fsdp",
    batch=16,
    rollouts_per_second=32.5,
    seconds={"generate": 0.3, "learn": 0.2},
    iterations=7,
    mean_length=3.25,
    decode_steps=4.0,
    peak_memory_bytes=2**30,
    fits=True,
    notes=("one", "two"),
    by_progress=(40.0, 30.0),
)
TABLE = ThroughputTable(
    kind="measured",
    created="2026-01-01T00:00:00+00:00",
    config=config_to_dict(Config()),
    platform="cpu",
    device_kind="cpu",
    device_count=8,
    process_count=1,
    versions={"jax": "0.10.2"},
    points=(POINT,),
    replayed="runs/first",
    replayed_share=0.8,
    notes=("a note",),
)


def test_a_table_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "bench.json"
    write_throughput(TABLE, file)
    assert read_throughput(file) == TABLE
    assert [path.name for path in file.parent.iterdir()] == ["bench.json"]
    assert json.loads(file.read_text())["format"] == 1


def test_a_field_that_was_added_later_has_its_default(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    write_throughput(TABLE, file)
    data = json.loads(file.read_text())
    del data["points"][0]["by_progress"]
    del data["replayed_share"]
    file.write_text(json.dumps(data))
    table = read_throughput(file)
    assert table.replayed_share is None
    (point,) = table.points
    assert point.by_progress == ()
    assert point.notes == ("one", "two")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a throughput table of format 1"),
        ('{"format": 2}', "not a throughput table of format 1"),
        ('{"format": 1, "points": [{}]}', "not a throughput table of this version"),
        ('{"format": 1, "points": []}', "not a throughput table of this version"),
        ('{"format": 1}', "not a throughput table of this version"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bench.json"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        read_throughput(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_throughput(tmp_path / "bench.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_throughput(TABLE, tmp_path / "file" / "bench.json")
