"""A lock per run of a study, so that two workers never run one twice.

A lock is a file that says who holds it. What a dead process of this host has left is taken over;
what another host holds is respected, as nobody here can tell whether it still works.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Holder:
    """The process that holds a lock."""

    host: str
    pid: int
    begun: str  # of the process, as its system tells it; empty where it does not
    time: float  # of taking the lock, seconds since the epoch

    def describe(self) -> str:
        """`process 7 on host, since ...`."""
        since = datetime.datetime.fromtimestamp(self.time, datetime.UTC)
        return f"process {self.pid} on {self.host}, since {since:%Y-%m-%d %H:%M:%S} UTC"


class Locks:
    """The locks in one folder, as one process sees them."""

    def __init__(self, folder: Path, *, steal: bool = False):
        """Takes no lock yet.

        Args:
          folder: of the locks; made when the first is taken.
          steal: also take those that another host held before now.
        """
        self._folder, self._steal = folder, steal
        self._host = socket.gethostname()
        self._opened = datetime.datetime.now(datetime.UTC).timestamp()

    def take(self, name: str) -> Holder | None:
        """Takes a lock.

        Returns:
          None if this process has it now, else who has it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / name
        if self._create(path):
            return None
        # One at a time: of two that find the same dead holder, the second finds the first.
        with self._guard():
            holder = _read(path)
            if holder is not None:
                if not self._may_take(holder):
                    return holder
                path.unlink()
            if self._create(path):
                return None
        return _read(path) or self.take(name)

    def release(self, name: str) -> None:
        """Gives a lock back, unless it has been stolen meanwhile."""
        path = self._folder / name
        holder = _read(path)
        if holder is not None and (holder.host, holder.pid) == (self._host, os.getpid()):
            path.unlink()

    def _create(self, path: Path) -> bool:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(self._describe_self())))
        return True

    def _describe_self(self) -> Holder:
        now = datetime.datetime.now(datetime.UTC).timestamp()
        return Holder(self._host, os.getpid(), _read_begin(os.getpid()), now)

    def _may_take(self, holder: Holder) -> bool:
        if holder.host == self._host:
            return not _is_alive(holder)
        return self._steal and holder.time < self._opened

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        with (self._folder / ".guard").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _read(path: Path) -> Holder | None:
    """The holder of a lock; None if it has been given back."""
    try:
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        # Taken, and not yet written; or cut off by a kill there, which only stealing ends.
        return Holder("an unknown host", 0, "", path.stat().st_mtime)


def _is_alive(holder: Holder) -> bool:
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # Another process may have got the number of one that has ended.
    return holder.begun == _read_begin(holder.pid)


def _read_begin(pid: int) -> str:
    """When a process began, in the ticks of its system; empty where that is not told."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name of the program, in brackets, may hold anything.
    return text.rpartition(")")[2].split()[19]
