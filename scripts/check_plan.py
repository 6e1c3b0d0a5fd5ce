#!/usr/bin/env python3
"""Holds what `jax-rl plan --target here` says against what `jax-rl bench` measures here.

    python scripts/check_plan.py --dir runs/check_plan

Two experiments: the built-in one, for the shape of throughput against batch, and one with a larger
policy whose update takes gigabytes, for the peak of memory. On a CPU the measured peak is that of
the whole process, compiler included, so what is compared is how much the peak grows from one batch
to the next. The plan's decode loops run as long as the measured ones did in the median.
"""

import argparse
import dataclasses
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from jax_rl.throughput import ThroughputPoint, read_throughput

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A configuration that comes with jax_rl, changed, and the batches to compare."""

    name: str
    config: str
    batches: tuple[int, ...]
    seconds: float  # of bench, per batch
    changes: tuple[str, ...] = ()


BUILT_IN = Experiment("built_in", "arithmetic", (8, 32, 128, 512, 2048), seconds=10)
LARGER = Experiment(
    "larger",
    "arithmetic",
    (256, 512, 1024),
    seconds=2,
    changes=(
        *("--model.layers", "4", "--model.embed", "256", "--model.mlp", "1024"),
        *("--model.heads", "8", "--model.kv_heads", "8", "--model.head_dim", "32"),
        *("--task.max_response_length", "48", "--warm_start.updates", "1"),
        # The whole batch at once, and everything kept for the backward pass.
        *("--batch.microbatch", "0", "--model.remat", "none"),
    ),
)


def main() -> int:
    """Measures, plans and compares both experiments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path("runs/check_plan"))
    options = parser.parse_args()
    built_in = predict_and_measure(BUILT_IN, options.dir)
    larger = predict_and_measure(LARGER, options.dir)
    print_throughput(*built_in)
    print_memory(*larger)
    return 0


def predict_and_measure(
    experiment: Experiment, directory: Path
) -> tuple[Sequence[ThroughputPoint], Sequence[ThroughputPoint]]:
    """The plan's points and the bench's, for the same batches."""
    words = [experiment.config, *experiment.changes]
    words += ["--batches", ",".join(map(str, experiment.batches))]
    bench, plan = (directory / f"{experiment.name}_{tool}" for tool in ("bench", "plan"))
    run_command(["bench", *words, "--seconds", experiment.seconds, "--dir", bench])
    measured = read_throughput(bench / "bench.json").points
    steps = round(statistics.median(point.decode_steps for point in measured))
    run_command(["plan", *words, "--every_batch", "--response_length", steps, "--output", plan])
    return read_throughput(plan / "plan.json").points, measured


def run_command(words: Sequence[object]) -> None:
    """`jax-rl WORDS` in a process of its own, so that its peak of memory is its own."""
    subprocess.run([sys.executable, "-m", "jax_rl.cli", *map(str, words)], check=True)


def print_throughput(
    predicted: Sequence[ThroughputPoint], measured: Sequence[ThroughputPoint]
) -> None:
    """Rollouts per second, and how they grow from the smallest batch on."""
    print("\nThroughput, rollouts/s; x is the multiple of the smallest batch's")
    print_line("batch", "at most", "measured", "measured/most", "at most x", "measured x")
    for bound, real in zip(predicted, measured, strict=True):
        most, seen = bound.rollouts_per_second, real.rollouts_per_second
        print_line(
            f"{bound.batch:,}",
            f"{most:,.0f}",
            f"{seen:,.0f}",
            f"{seen / most:.2f}",
            f"{most / predicted[0].rollouts_per_second:.2f}",
            f"{seen / measured[0].rollouts_per_second:.2f}",
        )


def print_memory(predicted: Sequence[ThroughputPoint], measured: Sequence[ThroughputPoint]) -> None:
    """The peaks, and how much they grow from each batch to the next."""
    print("\nPeak of memory, GiB; growth is over the batch before")
    print_line("batch", "planned", "measured", "growth", "measured", "planned/meas.")
    before: tuple[float, float] | None = None
    for plan, real in zip(predicted, measured, strict=True):
        peaks = (plan.peak_memory_bytes or 0) / GIB, (real.peak_memory_bytes or 0) / GIB
        words = [f"{plan.batch:,}", *(f"{peak:.2f}" for peak in peaks)]
        if before is not None:
            grown, really = peaks[0] - before[0], peaks[1] - before[1]
            words += [f"{grown:.2f}", f"{really:.2f}", f"{grown / really:.2f}"]
        print_line(*words)
        before = peaks


def print_line(*words: str) -> None:
    """Right-aligned columns."""
    print("".join(f"{word:>15}" for word in words))


if __name__ == "__main__":
    sys.exit(main())
