"""What a process of the pool runs: it scores what it is sent, one response after the other."""

import contextlib
import os
import pickle
import resource
import signal
import sys
from multiprocessing.connection import Connection

from jax_rl.rewards.check import Outcome, shorten, try_reward

READY = ""
"""First message of a worker that has loaded the reward; any other text says why it has not."""
_GRACE = 2.0


def serve(
    descriptor: int, reward: int, *, seconds: float, start_seconds: float, memory: int
) -> None:
    """Scores until the pool closes its end of the connection; never returns.

    Messages in: lists of pickled (problem, response). Messages out: `READY` or a text, once; then
    one `Outcome` for each response, in order.

    Args:
      descriptor: of this end of the connection.
      reward: descriptor of a file with the pickled reward, which all workers read.
      seconds: the limit for one response.
      start_seconds: the limit for loading the reward.
      memory: bytes of private memory, beyond which an allocation raises MemoryError.
    """
    connection = Connection(descriptor)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _limit_memory(memory)
        # The pool kills a worker that is late. Should the pool be gone by then, the kernel does,
        # whatever the process is busy with: an alarm nobody handles ends it.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, start_seconds + _GRACE)
        _serve(connection, reward, seconds)
    # Not sys.exit: threads that a reward has started must not keep the process.
    os._exit(0)


def _serve(connection: Connection, file: int, seconds: float) -> None:
    try:
        reward = pickle.loads(os.pread(file, os.fstat(file).st_size, 0))
    except (Exception, SystemExit) as error:
        connection.send(shorten(f"{type(error).__name__}: {error}", 2000))
        return
    connection.send(READY)
    while True:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for row in connection.recv():
            signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE)
            try:
                problem, response = pickle.loads(row)
            except (Exception, SystemExit) as error:
                outcome = Outcome(failure=f"cannot be read: {type(error).__name__}: {error}")
            else:
                outcome = try_reward(reward, problem, response)
            connection.send(outcome)


def _limit_memory(memory: int) -> None:
    # A segmentation fault should not fill the disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    # Not RLIMIT_AS: allocators and thread pools reserve address space that they never use.
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = memory if most == resource.RLIM_INFINITY else min(memory, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    # If memory runs out all the same, this process goes before the trainer.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
