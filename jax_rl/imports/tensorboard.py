"""Scalars out of TensorBoard's event files, without TensorFlow and without TensorBoard.

A file is a sequence of records: length (uint64), its masked CRC-32C (uint32), that many bytes,
their CRC (uint32), all little-endian. The bytes are an `Event` in protocol buffer encoding, of
which only wall time, step and scalar summaries are looked at.
Source: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto, summary.proto.
"""

import struct
from collections.abc import Iterator
from math import isfinite
from pathlib import Path

from jax_rl.errors import UserError

WALL_TIME = "wall_time"
"""Column of the time of writing, in seconds since 1970."""

_MARK = "tfevents"
_POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected
_FLOAT, _DOUBLE, _INT32, _INT64 = 1, 2, 3, 9  # DataType
_CODES = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q"}

Field = tuple[int, int, bytes | int]
"""Number, wire type and value of a field."""


def is_event_file(path: Path) -> bool:
    """Whether a file is named as TensorBoard names its own."""
    return _MARK in path.name and path.is_file()


def read_scalars(path: Path) -> list[dict[str, float]]:
    """Rows of scalars, one for each step, in order of steps.

    Args:
      path: an event file, or a directory under which all are read; tags of files in a
        subdirectory get its name in front, `eval/score`.

    Raises:
      UserError: there is none, or one is no event file.
    """
    files = [path] if path.is_file() else sorted(path.rglob(f"*{_MARK}*"))
    if not files:
        raise UserError(f"{path}: no TensorBoard event file (*{_MARK}*) is there")
    rows: dict[int, dict[str, float]] = {}
    for file in files:
        inside = file.parent.relative_to(path).as_posix() if path.is_dir() else "."
        prefix = "" if inside == "." else f"{inside}/"
        for record in _read_records(file):
            try:
                wall, step, scalars = _parse_event(record)
            except (struct.error, IndexError, UnicodeDecodeError) as error:
                raise UserError(f"{file}: a record is not an event: {error}") from None
            if scalars:
                row = rows.setdefault(step, {"step": float(step), WALL_TIME: wall})
                row[WALL_TIME] = max(row[WALL_TIME], wall)
                row |= {f"{prefix}{t}": value for t, value in scalars.items() if isfinite(value)}
    return [rows[step] for step in sorted(rows)]


def _read_records(path: Path) -> Iterator[bytes]:
    """The records of a file; what a kill has cut short at its end is left out."""
    data = path.read_bytes()
    start = 0
    while start + 12 <= len(data):
        length, check = struct.unpack_from("<QI", data, start)
        if mask_crc(crc32c(data[start : start + 8])) != check:
            raise UserError(f"{path}: not a TensorBoard event file (at byte {start})")
        if start + 16 + length > len(data):
            return
        yield data[start + 12 : start + 12 + length]
        start += 16 + length


def crc32c(data: bytes) -> int:
    """CRC-32C of a few bytes."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def mask_crc(value: int) -> int:
    """The form in which records hold a checksum."""
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _parse_event(data: bytes) -> tuple[float, int, dict[str, float]]:
    wall, step = 0.0, 0
    scalars: dict[str, float] = {}
    for number, _, value in _read_fields(data):
        if number == 1 and isinstance(value, bytes):
            wall = struct.unpack("<d", value)[0]
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            for _, _, summary in _read_fields(value):
                if isinstance(summary, bytes):
                    scalars |= _parse_value(summary)
    return wall, step, scalars


def _parse_value(data: bytes) -> dict[str, float]:
    """The tag and number of one summary; nothing for images, texts and histograms."""
    tag, number = "", None
    for field, wire, value in _read_fields(data):
        if not isinstance(value, bytes):
            continue
        if field == 1:
            tag = value.decode("utf-8")
        elif field == 2 and wire == 5:
            number = float(struct.unpack("<f", value)[0])
        elif field == 8:
            number = _parse_tensor(value)
    return {} if number is None else {tag: number}


def _parse_tensor(data: bytes) -> float | None:
    """The number in a tensor of one element; None for others."""
    kind, content = 0, b""
    typed: int | None = None
    for field, wire, value in _read_fields(data):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field in (4, 5, 6) and isinstance(value, bytes):  # content, float_val, double_val
            content = value
        elif field in (7, 10) and wire == 0 and isinstance(value, int):  # int_val, int64_val
            typed = value
    code = _CODES.get(kind)
    if typed is not None and kind in (_INT32, _INT64):
        return float(typed)
    if code is None or len(content) != struct.calcsize(code):
        return None
    return float(struct.unpack(code, content)[0])


def _read_fields(data: bytes) -> Iterator[Field]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _read_varint(data, at)
            yield number, wire, value
            continue
        if wire == 2:
            length, at = _read_varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise struct.error(f"wire type {wire}")
        if at + length > len(data):
            raise struct.error("a field is longer than its record")
        yield number, wire, data[at : at + length]
        at += length


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            break
    # Negative numbers are sent as their complement to 2 ** 64.
    return (value - 2**64 if value >= 2**63 else value), at
