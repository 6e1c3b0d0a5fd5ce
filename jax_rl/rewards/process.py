"""A worker of the pool, as the pool sees it."""

import contextlib
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Pipe
from typing import BinaryIO

_LEAST_MEMORY = 4 << 30
_COMMAND = "from jax_rl.rewards.worker import serve; serve({arguments})"


class WorkerProcess:
    """A process that runs `jax_rl.rewards.worker`, and the connection to it."""

    def __init__(self, reward: BinaryIO, *, seconds: float, start_seconds: float, processes: int):
        """Starts it, and does not wait for it.

        Args:
          reward: an open file with the pickled reward.
          seconds: the limit for one response.
          start_seconds: the limit for loading the reward.
          processes: how many share this machine's memory.
        """
        self.connection, end = Pipe()
        memory = max(_LEAST_MEMORY, _count_memory() // (2 * processes))
        arguments = (
            f"{end.fileno()}, {reward.fileno()}, seconds={seconds},"
            f" start_seconds={start_seconds}, memory={memory}"
        )
        self._process = subprocess.Popen(
            # -P: the path is this process's own, no other folder comes first.
            [sys.executable, "-P", "-c", _COMMAND.format(arguments=arguments)],
            env=_make_environment(),
            pass_fds=(end.fileno(), reward.fileno()),
            stdin=subprocess.DEVNULL,
            # What a reward prints must not stand between the lines of a program's output.
            stdout=2,
            # A group of its own: Ctrl-C goes to the trainer alone, and a kill takes what a reward
            # has started with it.
            start_new_session=True,
        )
        end.close()

    def kill(self, *, grace: float = 0.0) -> str:
        """Kills the process and all that it started; says how it ended.

        Args:
          grace: seconds for one that is about to end by itself, so that it can be said how.

        Returns:
          The name of a signal, or "exit code n".
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        self.connection.close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def count_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _count_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _make_environment() -> dict[str, str]:
    # Whatever can be imported here can be there, in the same order.
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    # The accelerators are the trainer's; a reward that imports JAX gets the CPU.
    return {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
