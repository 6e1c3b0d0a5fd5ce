"""Workers side by side: jobs go in, answers come out, and a crash costs one job."""

import dataclasses
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from jax_rl.errors import UserError
from jax_rl.plan.target import HERE, Target

COMMAND = (sys.executable, "-m", "jax_rl.plan.worker")
LIMIT = 3600.0
"""Seconds for one program; a compiler that takes longer is taken to hang."""
_TAIL = 2000
"""Characters of a dead worker's last words that are told."""

Answer = dict[str, Any]


class Worker:
    """One process that compiles for one target."""

    def __init__(self, target: Target, *, command: Sequence[str] = COMMAND):
        from jax_rl.plan.topology import make_environment

        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_find_package(make_environment(target, os.environ)),
        )
        self._opening = {"target": dataclasses.asdict(target)}

    def open(self, *, measure: str = "") -> Answer:
        """The target's devices, and their measured peaks for a dtype that is named."""
        return self.ask({**self._opening, "measure": measure}, limit=LIMIT)

    def describe(self, target: Target, *, dtype: str) -> Answer:
        """The target's devices, and for those that are here measured peaks for this dtype.

        Raises:
          UserError: there are no such devices, or their compiler cannot be loaded.
        """
        answer = self.open(measure=dtype if target.platform == HERE else "")
        trouble = answer.get("refused") or answer.get("failed")
        if trouble:
            raise UserError(f"target {target.name}: {trouble}")
        return answer

    def ask(self, job: dict[str, Any], *, limit: float) -> Answer:
        """The answer to one job; `failed` if the process ended or was killed at the limit."""
        timer = threading.Timer(limit, self._process.kill)
        timer.start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = b""
        finally:
            late = not timer.is_alive()
            timer.cancel()
        if line.endswith(b"\n"):
            answer: Answer = json.loads(line)
            return answer
        return {"failed": self._explain_end(late, limit)}

    @property
    def alive(self) -> bool:
        """Whether it can be asked more."""
        return self._process.poll() is None

    def close(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _explain_end(self, late: bool, limit: float) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        tail = self._errors.read().decode(errors="replace").strip()[-_TAIL:]
        what = f"did not answer within {limit:g} s" if late else f"ended with code {code}"
        return f"the compiling process {what}; its last words: {tail or '(none)'}"


def run_jobs(
    target: Target,
    jobs: Sequence[dict[str, Any]],
    *,
    workers: int,
    opened: Worker | None = None,
    limit: float = LIMIT,
    report: Callable[[int, Answer], None] = lambda number, answer: None,
    command: Sequence[str] = COMMAND,
) -> list[Answer]:
    """Answers of all jobs, in their order.

    Args:
      target: what they compile for.
      jobs: lines for `jax_rl.plan.worker`.
      workers: processes side by side, at most.
      opened: one of them, if it is there already.
      limit: seconds for one job.
      report: told of each answer as it comes, with the job's place.
      command: starts a worker.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(jobs)):
        waiting.put(number)
    answers: list[Answer] = [{"failed": "not compiled"}] * len(jobs)
    running: list[Worker] = []
    stopped = threading.Event()

    def start() -> Worker:
        worker = Worker(target, command=command)
        running.append(worker)
        return worker

    def work(worker: Worker | None) -> None:
        while not stopped.is_set():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            if worker is None or not worker.alive:
                worker = start()
                answer = worker.open()
            else:
                answer = {}
            if not answer.keys() & {"refused", "failed"}:
                answer = worker.ask(jobs[number], limit=limit)
            answers[number] = answer
            report(number, answer)

    count = min(workers, len(jobs))
    threads = [
        threading.Thread(target=work, args=(None if number else opened,), daemon=True)
        for number in range(count)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stopped.set()
        for worker in running:
            worker.close()
    return answers


def _find_package(environment: dict[str, str]) -> dict[str, str]:
    """The same package is found there, also when it is not installed but stands in a checkout."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}
