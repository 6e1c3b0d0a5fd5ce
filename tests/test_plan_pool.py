"""Workers that crash, hang or answer; they are small scripts in the place of the real one."""

import sys
from typing import Any

import pytest

from jax_rl.errors import UserError
from jax_rl.plan.pool import Worker, run_jobs
from jax_rl.plan.target import Target

HERE = Target("here")
SCRIPT = """
import json, os, sys, time
for line in sys.stdin:
    job = json.loads(line)
    if job.get("do") == "crash":
        sys.stderr.write("the compiler is out of its mind")
        sys.stderr.flush()
        os.abort()
    if job.get("do") == "hang":
        time.sleep(60)
    print(json.dumps({"refused": "no such chip"} if job.get("do") == "refuse" else
                     {"count": 1, "pid": os.getpid(), **job}), flush=True)
"""


def command(script: str = SCRIPT) -> tuple[str, ...]:
    return sys.executable, "-c", script


def ask(jobs: list[dict[str, Any]], *, workers: int = 1, limit: float = 60.0) -> list[Any]:
    return run_jobs(HERE, jobs, workers=workers, limit=limit, command=command())


def test_answers_come_in_the_order_of_the_jobs() -> None:
    answers = ask([{"number": i} for i in range(6)], workers=2)
    assert [answer["number"] for answer in answers] == list(range(6))
    assert 1 <= len({answer["pid"] for answer in answers}) <= 2


def test_a_crash_costs_one_job_and_its_last_words_are_told() -> None:
    before, crashed, after = ask([{"number": 0}, {"do": "crash"}, {"number": 2}])
    assert "ended with code -6" in crashed["failed"]
    assert "the compiler is out of its mind" in crashed["failed"]
    assert after["number"] == 2
    assert after["pid"] != before["pid"]


def test_a_compiler_that_hangs_is_killed() -> None:
    hung, after = ask([{"do": "hang"}, {"number": 1}], limit=0.5)
    assert "did not answer within 0.5 s" in hung["failed"]
    assert after["number"] == 1


def test_an_opened_worker_is_used() -> None:
    with Worker(HERE, command=command()) as worker:
        pid = worker.open()["pid"]
        jobs = [{"number": 0}, {"number": 1}]
        answers = run_jobs(HERE, jobs, workers=1, opened=worker, command=command())
    assert {answer["pid"] for answer in answers} == {pid}


def test_each_answer_is_reported_with_its_place() -> None:
    seen: dict[int, Any] = {}
    run_jobs(HERE, [{"number": 7}], workers=4, report=seen.__setitem__, command=command())
    assert seen[0]["number"] == 7


def test_a_target_that_cannot_be_opened_says_why() -> None:
    dead = command("import sys; sys.exit('no library')")
    with Worker(HERE, command=dead) as worker, pytest.raises(UserError) as caught:
        worker.describe(HERE, dtype="float32")
    assert "target here" in str(caught.value)
    assert "no library" in str(caught.value)


def test_a_worker_that_cannot_open_the_target_fails_its_jobs() -> None:
    script = 'import sys\nfor line in sys.stdin: print(\'{"refused": "no such chip"}\', flush=True)'
    (answer,) = run_jobs(HERE, [{"number": 0}], workers=1, command=command(script))
    assert answer == {"refused": "no such chip"}
