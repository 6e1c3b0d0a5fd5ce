"""Several real processes that run one small script as one program of JAX on CPU."""

import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[1]
_START = """
import os, signal, subprocess, sys, time
import numpy as np
import jax
from jax_rl.errors import UserError
from jax_rl.hosts.channel import open_channel
from jax_rl.hosts.connect import connect
from jax.experimental import multihost_utils

def collective():
    "Blocks in a jitted psum over all processes for as long as one of them stays away."
    multihost_utils.process_allgather(np.ones(4))

def fail(call):
    "Prints the message as the command line does."
    try:
        call()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)

assert connect()
me = jax.process_index()
"""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How one process ended."""

    code: int
    out: str
    error: str
    after: float
    """Seconds after the first of them."""


def run_processes(count: int, script: str, *, seconds: float = 120.0) -> list[Ended]:
    """Runs a script as `count` processes that know of each other, and waits for their ends."""
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "",
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}",
        "JAX_NUM_PROCESSES": str(count),
    }
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        files, processes = [], []
        for index in range(count):
            # Files, since a pipe that nobody reads in time would block a process.
            names = [Path(directory, f"{index}{end}") for end in ("out", "error")]
            pair = [stack.enter_context(name.open("w+")) for name in names]
            command = [sys.executable, "-c", _START + script]
            environ["JAX_PROCESS_ID"] = str(index)
            process = subprocess.Popen(command, env=environ, stdout=pair[0], stderr=pair[1])
            stack.callback(_end, process)
            processes.append(process)
            files.append(pair)
        ends = _wait(processes, time.monotonic() + seconds)
        texts = [[_read(file) for file in pair] for pair in files]
    first = min(ends)
    return [
        Ended(process.returncode, *pair, after=end - first)
        for process, pair, end in zip(processes, texts, ends, strict=True)
    ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(processes: list[subprocess.Popen], limit: float) -> list[float]:
    """When each of them ended."""
    ends: dict[int, float] = {}
    while len(ends) < len(processes):
        assert time.monotonic() < limit, f"only processes {sorted(ends)} have ended"
        for index, process in enumerate(processes):
            if index not in ends and process.poll() is not None:
                ends[index] = time.monotonic()
        time.sleep(0.02)
    return [ends[index] for index in range(len(processes))]


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()


def _read(file: TextIO) -> str:
    file.seek(0)
    return file.read()
