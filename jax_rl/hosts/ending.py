"""How one of several processes ends when not all end well: at once, and with its own message.

JAX's own way out waits for processes that are no longer there, and then aborts with a stack trace.
"""

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

_FLUSH_SECONDS = 1.0


def end_process(message: str, code: int) -> NoReturn:
    """Prints a message and ends this process, whatever its other threads are in.

    Args:
      message: what stands behind `error: ` on standard error.
      code: exit code.
    """
    say(f"error: {message}")
    exit_now(code)


def exit_now(code: int) -> NoReturn:
    """Ends this process without the shutdown of JAX; what was printed is flushed."""
    # In a thread: a full pipe, or a lock that another thread holds, must not keep it alive.
    flush = threading.Thread(target=_flush, daemon=True)
    with contextlib.suppress(RuntimeError):  # no new threads while the interpreter shuts down
        flush.start()
        flush.join(_FLUSH_SECONDS)
    os._exit(code)


def say(line: str) -> None:
    """Writes a line to standard error, past Python's buffers."""
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode(errors="replace"))


def skip_shutdown(code: int) -> Callable[[], None]:
    """From here on this process exits with `code` and without the shutdown of JAX.

    Returns:
      a function that takes it back.
    """

    # Handlers run last in, first out, so this one comes before that of JAX.
    def leave() -> None:
        exit_now(code)

    atexit.register(leave)
    return lambda: atexit.unregister(leave)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
