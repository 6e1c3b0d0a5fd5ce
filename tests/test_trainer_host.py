"""What a run says: of its machine, and while it goes on."""

import dataclasses
import io
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from test_records import validate
from trainer_runs import run

from jax_rl import __version__
from jax_rl.records import Iteration
from jax_rl.trainer import host
from jax_rl.trainer.host import (
    count_compiles,
    describe_host,
    describe_revision,
    describe_versions,
    peak_memory_bytes,
)
from jax_rl.trainer.progress import ProgressLine


def test_compiles_are_counted_inside_the_block_alone() -> None:
    @jax.jit
    def double(values: jax.Array) -> jax.Array:
        return 2 * values

    three, four = jnp.ones(3), jnp.ones(4)
    double(three)
    with count_compiles() as outer:
        double(three)
        assert outer() == 0
        with count_compiles() as inner:
            double(four)
            assert (inner(), outer()) == (1, 1)
        jax.jit(lambda values: values + 1)(three)
        assert (inner(), outer()) == (1, 2)
    jax.jit(lambda values: values + 2)(three)
    assert outer() == 2


def test_the_host_is_described() -> None:
    described = describe_host()
    assert described["cores"] == len(os.sched_getaffinity(0))
    assert described["memory_bytes"] > 2**28
    assert described["cpu"]
    assert described["load_average"] >= 0
    assert 2**20 < peak_memory_bytes(jax.devices()[0]) < described["memory_bytes"]
    versions = describe_versions()
    assert versions["jax"] == jax.__version__
    assert versions["jax_rl"] in ("", __version__)  # not installed: run from the checkout


def test_the_revision_says_when_the_tree_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "__file__", str(tmp_path / "jax_rl" / "trainer" / "host.py"))
    assert describe_revision() == ""  # no checkout

    def git(*arguments: str) -> None:
        named = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *named, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    assert describe_revision() == ""  # no commit
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "first")
    clean = describe_revision()
    assert len(clean) == 12
    (tmp_path / "file").write_text("2")
    assert describe_revision() == f"{clean}-dirty"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def iteration(tmp_path_factory: pytest.TempPathFactory) -> Iteration:
    """Round numbers: 32 samples and 80 tokens in 2 s of training, after 5 s of compiling."""
    record = run(tmp_path_factory.mktemp("runs") / "run", budget={"samples": 32})
    phases = {"generate": 1.0, "reward": 0.2, "learn": 0.7, "sync": 0.1}
    return dataclasses.replace(
        record.iterations[-1],
        samples=32,
        tokens=80,
        training_seconds=2.0,
        elapsed_seconds=7.0,
        phases={**phases, "compile": 5.0, "validate": 0.0, "checkpoint": 0.0, "other": 0.0},
    )


SHOWN = "16 samples/s  40 tokens/s  generate 50% reward 10% learn 35% sync 5%"


def test_a_file_gets_a_line_per_validation(iteration: Iteration) -> None:
    stream = io.StringIO()
    line = ProgressLine("cell", sample_budget=96, enabled=True, stream=stream)
    line.announce("16 rollouts")
    line.show_validation(validate(0, 0.125))
    line.show_iteration(iteration)
    line.show_validation(validate(32, 0.5))
    line.finish("ended")
    assert stream.getvalue().splitlines() == [
        "cell  16 rollouts",
        "cell  score 0.125  0 samples",
        f"cell  score 0.500  32 samples  {SHOWN}  budget ends in 0:04",
        "cell  ended",
    ]


def test_rates_of_a_resumed_run_are_not_of_this_process_alone(iteration: Iteration) -> None:
    stream = io.StringIO()
    line = ProgressLine("cell", sample_budget=64 + 16 * 3720, enabled=True, stream=stream)
    # The 32 samples before this process took 2 s as well.
    line.show_iteration(dataclasses.replace(iteration, samples=64, training_seconds=4.0))
    line.show_validation(validate(64, 0.5))
    assert stream.getvalue() == (
        f"cell  score 0.500  64 samples  {SHOWN}  budget ends in 1:02:00\n"
    )


def test_a_terminal_gets_one_line_in_place(iteration: Iteration) -> None:
    stream = Terminal()
    line = ProgressLine("cell", sample_budget=96, enabled=True, stream=stream)
    line.show_validation(validate(0, 0.125))
    assert stream.getvalue() == "\rcell  score 0.125  0 samples"
    line.show_iteration(iteration)  # too soon after the line before to be drawn
    line.show_validation(validate(32, 0.5))
    line.finish("ended")
    *_, drawn, last = stream.getvalue().split("\r")
    assert "32 samples" in drawn and not drawn.endswith("\n")
    assert last == "cell  ended".ljust(len(drawn)) + "\n"  # nothing of the longer line is left


def test_a_line_that_is_not_wanted_is_silent(iteration: Iteration) -> None:
    stream = Terminal()
    line = ProgressLine("cell", sample_budget=96, enabled=False, stream=stream)
    line.announce("16 rollouts")
    line.show_iteration(iteration)
    line.show_validation(validate(32, 0.5))
    line.finish("ended")
    assert stream.getvalue() == ""


def test_freed_memory_is_not_mapped_anew() -> None:
    # In a process of its own: the option cannot be taken back.
    code = """
import resource
from jax_rl.trainer.host import keep_freed_memory

def count_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        bytearray(b"x") * (1 << 23)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

fresh = count_faults()
assert keep_freed_memory()
count_faults()
print(fresh, count_faults())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    fresh, kept = map(int, done.stdout.split())
    assert kept < fresh / 10
