"""Locks: who holds one, what a dead process leaves, what another host is left."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jax_rl.sweep import locks as module
from jax_rl.sweep.locks import Holder, Locks

ROOT = Path(__file__).resolve().parents[1]


def write(folder: Path, **changes) -> Holder:
    """A lock as another process would have left it."""
    host, machine = module.socket.gethostname(), module._name_machine()
    own = Holder(host, machine, os.getpid(), module._read_begin(os.getpid()), 1.0)
    holder = dataclasses.replace(own, **changes)
    folder.mkdir(exist_ok=True)
    (folder / "a").write_text(json.dumps(dataclasses.asdict(holder)))
    return holder


def end_process() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_lock_is_taken_once_until_it_is_given_back(tmp_path):
    first, second = Locks(tmp_path / "locks"), Locks(tmp_path / "locks")
    assert first.take("a") is None
    holder = second.take("a")
    assert holder is not None
    assert holder.pid == os.getpid()
    assert f"process {os.getpid()} on " in holder.describe()
    assert second.take("b") is None
    first.release("a")
    assert second.take("a") is None


def test_what_a_dead_process_has_left_is_taken_over(tmp_path):
    write(tmp_path / "locks", pid=end_process())
    locks = Locks(tmp_path / "locks")
    assert locks.take("a") is None
    assert json.loads((tmp_path / "locks" / "a").read_text())["pid"] == os.getpid()
    assert Locks(tmp_path / "locks").take("a") is not None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell")
def test_a_number_that_another_process_has_got_is_no_holder(tmp_path):
    write(tmp_path / "locks", begun="1")
    assert Locks(tmp_path / "locks").take("a") is None


def test_another_host_is_respected_unless_stolen_from(tmp_path):
    holder = write(tmp_path / "locks", machine="another", pid=end_process())
    assert Locks(tmp_path / "locks").take("a") == holder
    thief = Locks(tmp_path / "locks", steal=True)
    assert thief.take("a") is None
    # What is taken while a thief works is not stolen.
    write(tmp_path / "locks", machine="another", time=2.0)
    assert thief.take("a") is not None


def test_what_has_not_been_touched_for_ten_minutes_is_taken_over(tmp_path, monkeypatch):
    write(tmp_path / "locks", machine="another")
    path = tmp_path / "locks" / "a"
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 500))
    assert Locks(tmp_path / "locks").take("a") is not None
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 200))
    monkeypatch.setattr(module, "BEAT", 0.05)
    holder = Locks(tmp_path / "locks")
    assert holder.take("a") is None
    # A holder that works touches its lock.
    os.utime(path, (1.0, 1.0))
    for _ in range(100):
        if path.stat().st_mtime > 1.0:
            break
        time.sleep(0.05)
    assert path.stat().st_mtime > 1.0
    holder.release("a")
    assert not path.exists()


def test_a_container_with_its_own_process_numbers_is_another_machine(tmp_path):
    """Its host may have the same name, and its processes numbers that mean nothing here."""
    holder = write(tmp_path / "locks", machine="same host, other numbers", pid=end_process())
    assert Locks(tmp_path / "locks").take("a") == holder


def test_a_live_process_of_this_host_is_never_stolen_from(tmp_path):
    assert Locks(tmp_path / "locks").take("a") is None
    assert Locks(tmp_path / "locks", steal=True).take("a") is not None


def test_a_lock_that_was_stolen_is_not_given_back(tmp_path):
    locks = Locks(tmp_path / "locks")
    assert locks.take("a") is None
    holder = write(tmp_path / "locks", host="thief", machine="another")
    locks.release("a")
    assert Locks(tmp_path / "locks").take("a") == holder


def test_a_lock_cut_off_by_a_kill_is_respected_unless_stolen(tmp_path):
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "a").write_text("")
    holder = Locks(tmp_path / "locks").take("a")
    assert holder is not None and "unknown host" in holder.describe()
    assert Locks(tmp_path / "locks", steal=True).take("a") is None


_TAKE_ALL = """
import sys, time
from pathlib import Path
from jax_rl.sweep.locks import Locks
folder, start = Path(sys.argv[1]), float(sys.argv[2])
locks = Locks(folder)
time.sleep(max(0.0, start - time.time()))
print(" ".join(n for n in map(str, range(200)) if locks.take(n) is None))
time.sleep(1.0)  # alive while the other still looks
"""


def test_of_several_processes_one_takes_each_stale_lock(tmp_path):
    folder = tmp_path / "locks"
    write(folder, pid=end_process())
    stale = (folder / "a").read_text()
    for number in range(0, 200, 2):  # every other one is stale, the others are free
        (folder / str(number)).write_text(stale)
    start = str(module.datetime.datetime.now().timestamp() + 1.0)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _TAKE_ALL, str(folder), start],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    taken = [name for worker in workers for name in worker.communicate(timeout=60)[0].split()]
    assert sorted(taken, key=int) == [str(number) for number in range(200)]
