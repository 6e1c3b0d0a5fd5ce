"""Logs as other trainers write them, by hand: scores on a straight line through the target.

Every run has score 0.2 before its first sample and 0.8 after STEPS iterations, so that it meets
TARGET half-way, and takes 10 seconds an iteration at batch 64 (20 at 128).
"""

import csv
import json
import struct
from pathlib import Path

from jax_rl.imports.tensorboard import crc32c, mask_crc

STEPS = 8
EVERY = 2
TARGET = 0.5
SCORES = {step: 0.2 + 0.6 * step / STEPS for step in range(0, STEPS + 1, EVERY)}


def seconds_of(batch: int) -> float:
    """Of one iteration."""
    return 10.0 * batch / 64


def list_rows(batch: int, names: dict[str, str]) -> list[dict[str, float]]:
    """Rows of steps 0 to STEPS under other names for step, score, seconds, length and rate."""
    rows = []
    for step in range(STEPS + 1):
        row = {"step": step, "seconds": step * seconds_of(batch), "length": 100.0, "rate": 1e-6}
        if step in SCORES:
            row["score"] = SCORES[step]
        rows.append({names[name]: value for name, value in row.items() if name in names})
    return rows


def write_csv(path: Path, rows: list[dict[str, float]]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def list_verl_rows(batch: int) -> list[dict[str, float]]:
    """Six of ten seconds generate, three learn; a validation takes 5 seconds more."""
    rows = []
    for step in range(STEPS + 1):
        row: dict[str, float] = {"training/global_step": step}
        if step:
            unit = seconds_of(batch) / 10
            row |= {
                "timing_s/step": 10 * unit,
                "timing_s/gen": 6 * unit,
                "timing_s/old_log_prob": 1 * unit,
                "timing_s/update_actor": 2 * unit,
                "response_length/mean": 100.0,
                "actor/lr": 1e-6,
                "perf/throughput": 1234.5,
            }
        if step in SCORES:
            row["val-core/openai/gsm8k/reward/mean@1"] = SCORES[step]
            row["val-aux/openai/gsm8k/reward/std@8"] = 0.1
            row["timing_s/testing"] = 5.0
        rows.append(row)
    return rows


def write_verl_console(path: Path, batch: int) -> Path:
    lines = ["(TaskRunner pid=7) Using LocalLogger is deprecated"]
    for step, row in enumerate(list_verl_rows(batch)):
        values = [f"{name}:np.float64({value!r})" for name, value in row.items()]
        lines.append(f"(TaskRunner pid=7) step:{step} - " + " - ".join(values))
        lines.append("(TaskRunner pid=7) Training Progress:  10%|#  | time - left")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_trl(path: Path, batch: int) -> Path:
    history = []
    for step in range(1, STEPS + 1):
        history.append(
            {
                "step": step,
                "step_time": seconds_of(batch),
                "learning_rate": 1e-6,
                "completions/mean_length": 100.0,
                "num_tokens": 999.0 * step,
                "reward": 0.4,
                "epoch": step / STEPS,
            }
        )
        if step in SCORES:
            history.append({"step": step, "eval_reward": SCORES[step], "eval_runtime": 5.0})
    history.append({"step": STEPS, "train_runtime": 1.0, "train_loss": 0.1})
    path.write_text(json.dumps({"global_step": STEPS, "log_history": history}, indent=1))
    return path


def encode_varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def encode_field(number: int, wire: int, data: bytes) -> bytes:
    length = encode_varint(len(data)) if wire == 2 else b""
    return encode_varint(number << 3 | wire) + length + data


def encode_scalar(tag: str, value: float, *, tensor: bool = False) -> bytes:
    """A Summary.Value: a simple value, or a tensor of one float as newer writers make."""
    name = encode_field(1, 2, tag.encode())
    if not tensor:
        return name + encode_field(2, 5, struct.pack("<f", value))
    body = encode_field(1, 0, b"\x01") + encode_field(2, 2, b"")
    return name + encode_field(8, 2, body + encode_field(4, 2, struct.pack("<f", value)))


def encode_record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    ends = (struct.pack("<I", mask_crc(crc32c(part))) for part in (length, data))
    head, tail = ends
    return length + head + data + tail


def write_events(path: Path, events: list[tuple[float, int, dict[str, float]]], **options) -> Path:
    """Events of (wall time, step, scalars) after the one with the file's version."""
    records = [encode_field(1, 1, struct.pack("<d", 0.0)) + encode_field(3, 2, b"brain.Event:2")]
    for wall, step, scalars in events:
        values = b"".join(
            encode_field(1, 2, encode_scalar(tag, value, **options))
            for tag, value in scalars.items()
        )
        records.append(
            encode_field(1, 1, struct.pack("<d", wall))
            + encode_field(2, 0, encode_varint(step))
            + encode_field(5, 2, values)
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(encode_record, records)))
    return path
