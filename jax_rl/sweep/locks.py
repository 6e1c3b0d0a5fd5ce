"""A lock per run of a study, so that two workers never run one twice.

A lock is a file that says who holds it, and that its holder touches while it works. What a dead
process of this machine has left is taken over, and so is what has not been touched for ten
minutes by the clock of the file system; anything younger of another machine is respected.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import json
import math
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

BEAT = 30.0
"""Seconds between touches of a lock that is held."""

SILENCE = 600.0
"""Seconds without a touch after which a holder elsewhere is taken to be dead."""


@dataclasses.dataclass(frozen=True)
class Holder:
    """The process that holds a lock."""

    host: str
    machine: str  # its boot, and its space of process numbers: a container has its own
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
          steal: also take those that others hold now, and no other.
        """
        self._folder = folder
        self._host, self._machine = socket.gethostname(), _name_machine()
        names = [path.name for path in folder.iterdir()] if steal and folder.is_dir() else []
        self._old = {name: _read(folder / name) for name in names}
        self._beats: dict[str, threading.Event] = {}

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
        with self._guard() as now:
            holder = _read(path)
            if holder is not None:
                if not self._may_take(holder, path, now):
                    return holder
                path.unlink(missing_ok=True)
            if self._create(path):
                return None
        return _read(path) or self.take(name)

    def release(self, name: str) -> None:
        """Gives a lock back, unless it has been stolen meanwhile."""
        path = self._folder / name
        if name in self._beats:
            self._beats.pop(name).set()
        holder = _read(path)
        if holder is not None and (holder.machine, holder.pid) == (self._machine, os.getpid()):
            path.unlink(missing_ok=True)

    def _create(self, path: Path) -> bool:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(self._describe_self())))
        self._beats[path.name] = threading.Event()
        threading.Thread(target=_beat, args=(path, self._beats[path.name]), daemon=True).start()
        return True

    def _describe_self(self) -> Holder:
        now = datetime.datetime.now(datetime.UTC).timestamp()
        return Holder(self._host, self._machine, os.getpid(), _read_begin(os.getpid()), now)

    def _may_take(self, holder: Holder, path: Path, now: float) -> bool:
        if holder.machine == self._machine:
            return not _is_alive(holder)
        return now - _read_touch(path) > SILENCE or holder == self._old.get(path.name)

    @contextlib.contextmanager
    def _guard(self) -> Iterator[float]:
        """Keeps others out; gives the time by the file system's own clock."""
        path = self._folder / ".guard"
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.utime(path)
            yield path.stat().st_mtime


def _read(path: Path) -> Holder | None:
    """The holder of a lock; None if it has been given back."""
    try:
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        # Taken, and not yet written; or cut off by a kill there, which only stealing ends.
        return Holder("an unknown host", "", 0, "", _read_touch(path))


def _read_touch(path: Path) -> float:
    """When a lock was last touched; now, by being endless, for one that was just given back."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _beat(path: Path, over: threading.Event) -> None:
    """Touches a lock until it is given back, or is gone."""
    while not over.wait(BEAT):
        try:
            os.utime(path)
        except FileNotFoundError:
            return


def _name_machine() -> str:
    parts = []
    for place in ("/proc/sys/kernel/random/boot_id", "/etc/machine-id"):
        with contextlib.suppress(OSError):
            parts.append(Path(place).read_text(encoding="utf-8").strip())
    with contextlib.suppress(OSError):
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return ":".join(parts) or socket.gethostname()


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
