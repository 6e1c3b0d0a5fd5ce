"""The thread behind a pool: hands responses out to processes and takes outcomes in."""

import collections
import dataclasses
import math
import selectors
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Pipe

from jax_rl.errors import UserError
from jax_rl.rewards.check import Outcome
from jax_rl.rewards.process import WorkerProcess

_START_SECONDS = 120.0
_CHUNK = 16
_GRACE = 0.5


class Job:
    """Outcomes of one submission, filled in by the dispatcher."""

    def __init__(self, rows: int):
        self.outcomes = [Outcome()] * rows
        self.left = rows
        self.error: Exception | None = None
        self.done = threading.Event()
        if not rows:
            self.done.set()

    def fill(self, row: int, outcome: Outcome) -> None:
        self.outcomes[row] = outcome
        self.left -= 1
        if not self.left:
            self.done.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self.done.set()


@dataclasses.dataclass(frozen=True)
class Item:
    """One response on its way."""

    job: Job
    row: int
    payload: bytes


@dataclasses.dataclass(eq=False)
class _Worker:
    """A process and what it is at."""

    process: WorkerProcess
    deadline: float
    """When it has to have sent its next message, on the monotonic clock; inf: it is idle."""
    loaded: bool = False
    """Whether it has the reward."""
    items: collections.deque[Item] = dataclasses.field(default_factory=collections.deque)
    """Sent and not scored yet; it is at the first."""


class Dispatcher:
    """The thread that hands responses out, takes outcomes in, and replaces what is late or dead."""

    def __init__(self, reward: bytes, *, name: str, seconds: float, count: int):
        # A file and not a message: a worker that does not read cannot hold this thread up.
        self._reward = tempfile.TemporaryFile()  # noqa: SIM115  (`_run` closes it)
        self._reward.write(reward)
        self._reward.flush()
        self._name = name
        self._seconds = seconds
        self._count = count
        self._queue: collections.deque[Item] = collections.deque()
        self._jobs: set[Job] = set()
        self._error: Exception | None = None
        # Reentrant: a pool may be collected, and so stopped, wherever this holds it.
        self._lock = threading.RLock()
        self._stopped = False
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._run, name="reward pool", daemon=True)
        self._thread.start()

    def add(self, job: Job, items: Sequence[Item]) -> None:
        with self._lock:
            if self._error is not None:
                job.fail(self._error)
                return
            if not job.done.is_set():
                self._jobs.add(job)
            self._queue.extend(items)
            self._wake.send_bytes(b"")

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._error is None:
                self._wake.send_bytes(b"")
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        error: Exception = RuntimeError(f"the pool that scores task {self._name!r} is closed")
        try:
            self._selector.register(self._woken, selectors.EVENT_READ)
            for _ in range(self._count):
                self._start_worker()
            while not self._stopped:
                self._take_turn()
        except Exception as raised:
            error = raised
        finally:
            for worker in self._workers:
                worker.process.kill()
            self._selector.close()
            self._reward.close()
            with self._lock:
                self._error = error
                self._woken.close()
                self._wake.close()
                for job in self._jobs:
                    if not job.done.is_set():
                        job.fail(error)

    def _take_turn(self) -> None:
        for worker in list(self._workers):
            if worker.loaded and not worker.items:
                self._hand_out(worker)
        patience = min(worker.deadline for worker in self._workers) - time.monotonic()
        timeout = None if patience == math.inf else max(0.0, patience)
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self._woken.recv_bytes()
            else:
                self._take_in(key.data)
        now = time.monotonic()
        for worker in list(self._workers):
            # What it has sent counts, even where this thread comes late to it.
            if worker.deadline <= now and not worker.process.connection.poll():
                self._replace(worker, late=True)

    def _hand_out(self, worker: _Worker) -> None:
        """Sends an idle worker some responses: fewer towards the end, so that all end together."""
        size = max(1, min(_CHUNK, len(self._queue) // (2 * self._count)))
        items: list[Item] = []
        while self._queue and len(items) < size:
            items.append(self._queue.popleft())
        if not items:
            return
        try:
            worker.process.connection.send([item.payload for item in items])
        except OSError:
            self._queue.extendleft(reversed(items))
            self._replace(worker)
            return
        worker.items.extend(items)
        worker.deadline = time.monotonic() + self._seconds

    def _take_in(self, worker: _Worker) -> None:
        try:
            message = worker.process.connection.recv()
        except (EOFError, OSError):
            self._replace(worker)
            return
        if not worker.loaded:
            if message:
                raise UserError(f"task {self._name!r}: no process can load the reward: {message}")
            worker.loaded, worker.deadline = True, math.inf
            return
        self._fill(worker.items.popleft(), message)
        worker.deadline = time.monotonic() + self._seconds if worker.items else math.inf

    def _replace(self, worker: _Worker, *, late: bool = False) -> None:
        """Kills a worker; the response that it was at has failed, those behind it have not."""
        self._workers.remove(worker)
        self._selector.unregister(worker.process.connection)
        end = worker.process.kill(grace=0.0 if late else _GRACE)
        if not worker.loaded:
            cause = f"took longer than {_START_SECONDS:g} s" if late else f"ended with {end}"
            raise UserError(f"task {self._name!r}: the process that loads the reward {cause}")
        if worker.items:
            failure = f"the process that scored it ended with {end}"
            if late or end == "SIGALRM":
                failure = f"timeout: it took longer than reward.seconds = {self._seconds:g}"
            timed_out = failure.startswith("timeout")
            self._fill(worker.items.popleft(), Outcome(failure=failure, timed_out=timed_out))
        self._queue.extendleft(reversed(worker.items))
        self._start_worker()

    def _fill(self, item: Item, outcome: Outcome) -> None:
        item.job.fill(item.row, outcome)
        if not item.job.left:
            with self._lock:
                self._jobs.discard(item.job)

    def _start_worker(self) -> None:
        process = WorkerProcess(
            self._reward, seconds=self._seconds, start_seconds=_START_SECONDS, processes=self._count
        )
        worker = _Worker(process, deadline=time.monotonic() + _START_SECONDS)
        self._workers.append(worker)
        self._selector.register(process.connection, selectors.EVENT_READ, worker)
