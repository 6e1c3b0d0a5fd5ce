"""Reading logs: event files byte by byte, and text formats."""

import struct

import numpy as np
import pytest
from other_logs import encode_field, encode_record, write_csv, write_events, write_jsonl

from jax_rl.errors import UserError
from jax_rl.imports.columns import choose_columns
from jax_rl.imports.runs import LoggedRun
from jax_rl.imports.series import read_series
from jax_rl.imports.tables import read_rows
from jax_rl.imports.tensorboard import crc32c, mask_crc, read_scalars

COLUMNS = {name: [name] for name in ("step", "samples", "score")}


def test_checksum_is_the_published_one() -> None:
    # RFC 3720, appendix B.4: 32 bytes of zeros, of ones, and ascending.
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"123456789") == 0xE3069283
    assert mask_crc(0) == 0xA282EAD8


@pytest.mark.parametrize("tensor", [False, True])
def test_scalars_come_back(tensor, tmp_path) -> None:
    events = [(5.0, 1, {"a": 0.5}), (6.0, 300, {"a": 0.25, "b/c": -2.0}), (7.0, 300, {"a": 1.0})]
    path = write_events(tmp_path / "events.out.tfevents.9", events, tensor=tensor)
    assert read_scalars(path) == [
        {"step": 1.0, "wall_time": 5.0, "a": 0.5},
        {"step": 300.0, "wall_time": 7.0, "a": 1.0, "b/c": -2.0},
    ]


def test_files_in_subdirectories_keep_their_name(tmp_path) -> None:
    write_events(tmp_path / "events.out.tfevents.1", [(1.0, 1, {"loss": 1.0})])
    write_events(tmp_path / "eval" / "events.out.tfevents.2", [(2.0, 1, {"score": 0.5})])
    assert read_scalars(tmp_path) == [
        {"step": 1.0, "wall_time": 2.0, "loss": 1.0, "eval/score": 0.5}
    ]


def test_file_cut_short_by_a_kill_keeps_its_whole_records(tmp_path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    write_events(path, [(1.0, 1, {"a": 1.0}), (2.0, 2, {"a": 2.0})])
    path.write_bytes(path.read_bytes()[:-3])
    assert [row["a"] for row in read_scalars(path)] == [1.0]


def test_other_files_are_no_event_files(tmp_path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(b"step,score\n1,0.5\n2,0.6\n3,0.7\n")
    with pytest.raises(UserError, match=r"not a TensorBoard event file \(at byte 0\)"):
        read_scalars(path)
    path.write_bytes(encode_record(encode_field(1, 2, b"xx")[:-1]))
    with pytest.raises(UserError, match="a record is not an event"):
        read_scalars(path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="no TensorBoard event file"):
        read_scalars(empty)


def test_summaries_without_a_number_are_left_out(tmp_path) -> None:
    vector = encode_field(1, 0, b"\x01") + encode_field(4, 2, struct.pack("<2f", 1.0, 2.0))
    value = encode_field(1, 2, b"histogram") + encode_field(8, 2, vector)
    event = encode_field(2, 0, b"\x01") + encode_field(5, 2, encode_field(1, 2, value))
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(encode_record(event))
    assert read_scalars(path) == []


def test_only_numbers_are_kept(tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("step,score,name,empty\n1,0.5,x,\n2,NaN,y,\n3,1e-1,z,\n")
    rows, found = read_rows(path)
    assert found == "csv"
    assert rows == [{"step": 1.0, "score": 0.5}, {"step": 2.0}, {"step": 3.0, "score": 0.1}]


def test_line_of_a_real_console_is_read(tmp_path) -> None:
    # As verl prints it, shortened: a prefix, numbers as NumPy shows them, a progress bar after.
    path = tmp_path / "run.log"
    path.write_text(
        "\x1b[36m(TaskRunner pid=421)\x1b[0m step:80 - actor/lr:np.float64(1e-06) - "
        "val-core/openai/gsm8k/reward/mean@1:np.float64(0.4943138741470811) - "
        "training/global_step:80 - timing_s/step:55.13615158479661 - "
        "critic/advantages/mean:5.8286926396533545e-09\n"
        "Training Progress:  18%|#8  | 80/435 [1:10:00<5:10:00, 52.9s/it]\n"
    )
    rows, found = read_rows(path)
    assert found == "verl"
    assert rows == [
        {
            "step": 80.0,
            "actor/lr": 1e-6,
            "val-core/openai/gsm8k/reward/mean@1": 0.4943138741470811,
            "training/global_step": 80.0,
            "timing_s/step": 55.13615158479661,
            "critic/advantages/mean": 5.8286926396533545e-09,
        }
    ]


def test_line_cut_short_at_the_end_is_left_out(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 1, "a": {"b": 2}}\n{"step": 2, "a"')
    assert read_rows(path)[0] == [{"step": 1.0, "a/b": 2.0}]
    path.write_text('{"step": 1}\n{"st\n{"step": 2}\n')
    with pytest.raises(UserError, match="not a log that can be read"):
        read_rows(path)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["step", "timing_s/step"], "verl"),
        (["step", "eval_reward"], "trl"),
        (["_step", "x"], "wandb"),
        (["step", "rewards/train/mean"], "tunix"),
        (["step", "x"], "csv"),
    ],
)
def test_trainer_is_recognised_by_its_columns(names, found, tmp_path) -> None:
    path = write_csv(tmp_path / "a.csv", [dict.fromkeys(names, 1.0)])
    assert read_rows(path)[1] == found
    assert read_rows(path, format="jsonl")[1] == "jsonl"


def test_wrong_files_and_formats(tmp_path) -> None:
    with pytest.raises(UserError, match="no such log"):
        read_rows(tmp_path / "a.csv")
    path = write_jsonl(tmp_path / "a.jsonl", [{"name": "x"}])
    with pytest.raises(UserError, match="no numbers are in it"):
        read_rows(path)
    with pytest.raises(UserError, match="format 'cvs' is not known; did you mean 'csv'"):
        read_rows(path, format="cvs")
    with pytest.raises(UserError, match="so leave run= out"):
        read_rows(write_csv(tmp_path / "b.csv", [{"step": 1.0}]), run="x")


def test_sum_of_columns_takes_those_that_are_there() -> None:
    names = ["step", "score", "timing_s/step", "timing_s/ref", "timing_s/update_actor"]
    chosen = choose_columns(names, format="verl", given={"score": "score"}, where="x")
    assert chosen["learn"] == ["timing_s/ref", "timing_s/update_actor"]
    given = {"score": "score", "learn": "timing_s/ref+timing_s/gen"}
    with pytest.raises(UserError, match="no column 'timing_s/gen' for learn"):
        choose_columns(names, format="verl", given=given, where="x")


def read(rows, clock):
    run = LoggedRun(None, 10, devices=1)
    return read_series(rows, COLUMNS | {clock: [clock]}, run)


def test_clock_since_the_start_keeps_the_first_iteration() -> None:
    series = read([{"step": 2.0, "seconds": 8.0}, {"step": 4.0, "seconds": 10.0}], "seconds")
    assert [p.elapsed for p in series.points] == [8.0, 10.0]
    assert [p.samples for p in series.points] == [20, 40]


def test_clock_of_the_world_begins_with_the_first_row() -> None:
    rows = [{"step": 0.0, "timestamp": 1e9}, {"step": 4.0, "timestamp": 1e9 + 8}]
    series = read([rows[0], {"step": 1.0, "score": 0.5}, rows[1]], "timestamp")
    assert [p.elapsed for p in series.points] == [0.0, 2.0, 8.0]
    assert any("begins with the first row" in note for note in series.notes)
    with pytest.raises(UserError, match="timestamp goes backwards at step 4"):
        read([rows[0] | {"timestamp": 2e9}, rows[1]], "timestamp")


def test_seconds_of_iterations_add_up_over_those_not_logged() -> None:
    rows = [{"step": 2.0, "step_seconds": 3.0}, {"step": 4.0}, {"step": 5.0, "step_seconds": 1.0}]
    series = read(rows, "step_seconds")
    # 2 x 3, then 2 x 1 (as the next that is known), then 1.
    np.testing.assert_allclose([p.elapsed for p in series.points], [6.0, 8.0, 9.0])


@pytest.mark.parametrize("whole", [10.0, 15.0])
def test_validation_inside_an_iteration_is_found_by_its_phases(whole) -> None:
    # Each iteration takes 10 seconds, 9 of them known; validating takes 5, logged in it or not.
    rows = [
        {"step": 1.0, "step_seconds": 10.0, "generate": 9.0},
        {"step": 2.0, "step_seconds": whole, "generate": 9.0, "validate": 5.0, "score": 0.5},
        {"step": 3.0, "step_seconds": 10.0, "generate": 9.0},
    ]
    columns = {name: [name] for name in ("step", "step_seconds", "generate", "validate", "score")}
    series = read_series(rows, columns, LoggedRun(None, 10, devices=1))
    # When the policy was ready: 10, 20, and 35 after 5 of validation.
    np.testing.assert_allclose([p.elapsed for p in series.points], [10.0, 20.0, 35.0])
    np.testing.assert_allclose([p.training for p in series.points], [10.0, 20.0, 30.0])
    assert any("hold those of its validation" in note for note in series.notes) == (whole > 10)


def test_seconds_of_the_whole_run_are_spread() -> None:
    rows = [{"step": 1.0}, {"step": 4.0, "score": 0.5}, {"total_seconds": 8.0}]
    series = read(rows, "total_seconds")
    assert [p.elapsed for p in series.points] == [2.0, 8.0]
    assert any("spread evenly" in note for note in series.notes)


def test_samples_make_the_steps() -> None:
    series = read([{"samples": 30.0, "seconds": 1.0}], "seconds")
    assert (series.points[0].step, series.points[0].samples) == (3.0, 30)
    with pytest.raises(UserError, match="no row has a step or samples"):
        read([{"seconds": 1.0}], "seconds")
