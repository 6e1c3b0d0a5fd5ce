"""A profiler trace of a running job, asked for by a file in its directory."""

from pathlib import Path

import jax

from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME

_REQUEST = "trace_request"
FOLDER = "traces"


def request_trace(run: Path, *, iterations: int) -> Path:
    """Asks the job that writes to `run` for a trace of its next iterations.

    Returns:
      the folder that the trace will be in.

    Raises:
      UserError: no run is there, or fewer than one iteration is asked for.
    """
    if iterations < 1:
        raise UserError(f"iterations = {iterations}: a trace has at least 1")
    if not (run / FILE_NAME).is_file():
        raise UserError(f"{run}: no record of a run is there")
    aside = run / f"{_REQUEST}.tmp"
    aside.write_text(f"{iterations}\n", encoding="utf-8")
    aside.replace(run / _REQUEST)
    return run / FOLDER


def take_request(run: Path) -> int:
    """Iterations that a trace was asked for since the last call; 0: none was."""
    file = run / _REQUEST
    if not file.exists():
        return 0
    text = file.read_text(encoding="utf-8").strip()
    file.unlink()
    return int(text) if text.isdigit() else 0


class Tracer:
    """Starts and ends traces between iterations."""

    def __init__(self, run: Path):
        """Traces go to a folder of the run, one for each."""
        self._run, self._left, self._running = run, 0, False

    def begin(self, iterations: int, *, samples: int) -> str | None:
        """Starts a trace; its path inside the run's directory, or None if one is running."""
        if self._running:
            return None
        path = f"{FOLDER}/{samples}"
        # Two processes of one host would write one file.
        own = f"{path}/process_{jax.process_index()}" if jax.process_count() > 1 else path
        try:
            jax.profiler.start_trace(str(self._run / own))
        except RuntimeError:  # somebody else is tracing this process
            return None
        self._left, self._running = iterations, True
        return path

    def advance(self) -> bool:
        """Counts an iteration; whether the trace ends with it, and `end` is due."""
        if not self._left:
            return False
        self._left -= 1
        return self._left == 0

    def end(self) -> None:
        """Writes the trace, if one is running."""
        if self._running:
            self._left, self._running = 0, False
            jax.profiler.stop_trace()
