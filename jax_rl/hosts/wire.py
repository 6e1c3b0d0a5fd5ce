"""Values and messages as bytes: JSON, and behind it arrays as they lie in memory; never pickle."""

import asyncio
import contextlib
import json
import math
import struct
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

_VALUE = struct.Struct(">Q")  # bytes of the JSON
_FRAME = struct.Struct(">IQ")  # bytes of the head, bytes of the body
_HEAD_LIMIT = 1 << 20
_CHUNK = 1 << 18


def encode(value: Any) -> bytes:
    """A JSON-like value, in which arrays of numbers may stand, as bytes.

    Args:
      value: None, bool, int, float, str, NumPy numbers and arrays, and lists, tuples (which become
        lists) and dicts with string keys of these.

    Raises:
      TypeError: anything else is in it.
    """
    arrays: list[np.ndarray] = []
    text = json.dumps(_pack(value, arrays, "value"))
    head = json.dumps(
        {"value": text, "arrays": [[array.dtype.name, array.shape] for array in arrays]}
    ).encode()
    return b"".join([_VALUE.pack(len(head)), head, *(array.tobytes() for array in arrays)])


def decode(data: bytes) -> Any:
    """The value that `encode` was given; its arrays are new and writable."""
    (length,) = _VALUE.unpack_from(data)
    start = _VALUE.size + length
    head = json.loads(data[_VALUE.size : start])
    arrays = []
    for name, shape in head["arrays"]:
        dtype, count = np.dtype(name), math.prod(shape)
        flat = np.frombuffer(data[start : start + count * dtype.itemsize], dtype)
        arrays.append(flat.reshape(shape).copy())
        start += count * dtype.itemsize
    return _unpack(json.loads(head["value"]), arrays)


def make_frame(body: bytes = b"", **head: Any) -> bytes:
    """A message: fields, and bytes behind them."""
    packed = json.dumps(head).encode()
    return _FRAME.pack(len(packed), len(body)) + packed + body


class Outbox:
    """Sends messages one after another, in pieces, so that a large one is copied only once."""

    def __init__(self, writer: asyncio.StreamWriter):
        self._writer = writer
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._work())

    def send(self, frame: bytes) -> None:
        """Puts a message behind those that are on their way."""
        self._frames.put_nowait(frame)

    async def close(self, seconds: float) -> None:
        """Closes the connection after what was sent, or after so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._frames.join(), seconds)
        self._task.cancel()
        self._writer.close()

    async def _work(self) -> None:
        with contextlib.suppress(OSError):  # a lost connection is seen where it is read
            while True:
                frame = memoryview(await self._frames.get())
                for start in range(0, len(frame), _CHUNK):
                    self._writer.write(frame[start : start + _CHUNK])
                    await self._writer.drain()
                self._frames.task_done()


async def read_frame(
    reader: asyncio.StreamReader,
    *,
    body_limit: int | None = None,
    note: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Any], bytes]:
    """The next message.

    Args:
      reader: where it comes from.
      body_limit: the most bytes that are accepted behind the fields; no limit if None.
      note: called for each piece of it; a long message is a sign of life too.

    Raises:
      asyncio.IncompleteReadError: the connection was closed.
      ValueError: not a message.
    """
    head, body = _FRAME.unpack(await reader.readexactly(_FRAME.size))
    if head > _HEAD_LIMIT or (body_limit is not None and body > body_limit):
        raise ValueError(f"a message of {head} + {body} bytes")
    fields = json.loads(await reader.readexactly(head))
    if not isinstance(fields, dict):
        raise ValueError("a message without fields")
    pieces = []
    for start in range(0, body, _CHUNK):
        pieces.append(await reader.readexactly(min(_CHUNK, body - start)))
        note()
    return fields, b"".join(pieces)


def _pack(value: Any, arrays: list[np.ndarray], where: str) -> Any:
    """Dicts become {"dict": ...}, so that {"array": i} cannot be mistaken for one."""
    if isinstance(value, np.generic):
        value = value.item() if value.dtype.kind in "biuf" else np.asarray(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray) and _is_number(value.dtype):
        arrays.append(value.astype(value.dtype.newbyteorder("="), order="C", copy=False))
        return {"array": len(arrays) - 1}
    if isinstance(value, list | tuple):
        return [_pack(item, arrays, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}; keys that are sent are strings")
        return {"dict": {k: _pack(item, arrays, f"{where}[{k!r}]") for k, item in value.items()}}
    raise TypeError(
        f"{where} is a {_name_type(value)}, which cannot be sent to other processes; numbers,"
        " strings, None, NumPy arrays of numbers, and lists and dicts of these can"
    )


def _unpack(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, arrays) for item in value]
    if isinstance(value, dict) and "array" in value:
        return arrays[value["array"]]
    if isinstance(value, dict):
        return {key: _unpack(item, arrays) for key, item in value["dict"].items()}
    return value


def _is_number(dtype: np.dtype) -> bool:
    # JAX knows bfloat16 and its like, whose kind is that of raw bytes for NumPy.
    return dtype == np.bool_ or jax.dtypes.issubdtype(dtype, np.number)


def _name_type(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"NumPy array of {value.dtype}"
    return f"{type(value).__module__}.{type(value).__qualname__}"
