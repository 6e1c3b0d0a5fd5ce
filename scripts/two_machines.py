#!/usr/bin/env python3
"""Predicts one machine's times to target from another's study, and then measures them.

    scripts/two_machines.py --dir runs/two_machines

The two machines are this one with one core and with two. A small study is run with the first; its
samples to target, with the throughput that `jax-rl bench --replay` measures with the second over
a run of the first, give the times to expect with the second. Then the same study is run there.
Each run there is followed by a bench of its batch, and the whole is done several times: a machine
that is shared drifts from minute to minute.

The task pays for short responses, so that their length, and with it the throughput, changes many
times over on the way to the target: what a measurement of the first seconds alone would miss.
"""

import argparse
import dataclasses
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from jax_rl.records import read_run
from jax_rl.study.analyse import analyse
from jax_rl.study.batches import fit_study
from jax_rl.study.decisions.transfer import transfer_study
from jax_rl.study.summary import arm_of
from jax_rl.throughput import ThroughputPoint, ThroughputTable, read_throughput

CONFIG = """\
[task]
name = "addition"
max_prompt_length = 7
max_response_length = 64

[reward]                   # 1 for up to 2 tokens, 0 at 64
verifiers = ["format", "length"]
weights = [1.0, -1.0]
pattern = "(?s).*"
length_free = 2
processes = 1

[model]
layers = 1
embed = 64
vocab = 32

[batch]
size = 32
group = 8

[optimizer]
learning_rate = 6e-5
warmup_samples = 256

[validation]
prompts = 64
temperature = 1.0
every_samples = 256

[budget]
target = 0.95
samples = 24576
seconds = 1200

[checkpoint]
at_end = false

[study]
factor = 2
smaller = 0
larger = 2
seeds = 2
rate_rule = "sqrt"
steady_seconds = 1.0
"""
REFERENCE, BATCHES, SEEDS = 32, 3, 2  # of the configuration above
COMMAND = (sys.executable, "-m", "jax_rl.cli")


@dataclasses.dataclass(frozen=True)
class Row:
    """One batch by the training clock, from one bench and one study of the second machine."""

    batch: int
    samples: tuple[float, float]  # to target, in either study
    rates: tuple[float, float, float]  # first study, table over the way to the target, second
    predicted: float  # seconds
    measured: float


def main() -> int:
    """Runs the first study, then bench and study of the second machine in turn, and compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path("runs/two_machines"))
    parser.add_argument("--cores", type=int, nargs=2, default=(1, 2), metavar=("FIRST", "SECOND"))
    parser.add_argument("--seconds", type=float, default=10.0, help="of bench, per batch")
    parser.add_argument("--repeats", type=int, default=5, help="of bench and second study")
    options = parser.parse_args()
    first = options.dir / f"first_{options.cores[0]}_cores"
    try:
        options.dir.mkdir(parents=True)
    except FileExistsError:
        raise SystemExit(f"{options.dir} is there already: name another --dir") from None
    config = options.dir / "two_machines.toml"
    config.write_text(CONFIG, encoding="utf-8")

    # A cache of compiled programs shortens the script and is on no training clock.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(options.dir.resolve() / "compiled")
    run_command(["study", config, "--dir", first], cores=options.cores[0])
    replayed = first / "cells" / f"b{REFERENCE:05d}_s0"
    rows: list[Row] = []
    for repeat in range(options.repeats):
        second = options.dir / f"second_{options.cores[1]}_cores_{repeat}"
        benches = []
        for cell in run_cells(config, second, cores=options.cores[1]):
            benches.append(second.with_name(f"{second.name}_bench") / cell)
            words = ["--batches", int(cell[1:6]), "--replay", replayed, "--dir", benches[-1]]
            words += ["--seconds", options.seconds]
            run_command(["bench", config, *words], cores=options.cores[1])
        tables = [read_throughput(bench / "bench.json") for bench in benches]
        rows += compare(first, second, merge_tables(tables))
    print_rows(rows)
    return 0


def run_cells(config: Path, directory: Path, *, cores: int) -> Iterator[str]:
    """Runs a study cell by cell, as jobs of an array, and gives the name of each when it is run."""
    run: set[str] = set()
    for number in range(BATCHES * SEEDS):
        part = f"{number}/{BATCHES * SEEDS}"
        run_command(["study", config, "--dir", directory, "--cell", part], cores=cores)
        (cell,) = {place.name for place in (directory / "cells").iterdir()} - run
        run.add(cell)
        yield cell


def merge_tables(tables: Sequence[ThroughputTable]) -> ThroughputTable:
    """One table of several that the same machine has given: harmonic means of the rates."""
    points: dict[int, list[ThroughputPoint]] = {}
    for table in tables:
        for point in table.points:
            points.setdefault(point.batch, []).append(point)
    merged = [
        dataclasses.replace(
            own[0],
            rollouts_per_second=statistics.harmonic_mean(p.rollouts_per_second for p in own),
            by_progress=tuple(
                statistics.harmonic_mean(rates)
                for rates in zip(*(p.by_progress for p in own), strict=True)
            ),
        )
        for _, own in sorted(points.items())
    ]
    return dataclasses.replace(tables[0], points=tuple(merged))


def run_command(words: Sequence[object], *, cores: int) -> None:
    """`jax-rl WORDS` in a process of its own that may use so many cores."""
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    if len(allowed) < cores:
        raise SystemExit(f"{cores} cores are asked for and {len(allowed)} are there")
    line = ["taskset", "--cpu-list", ",".join(map(str, allowed)), *COMMAND, *map(str, words)]
    subprocess.run(line, check=True)


def compare(first: Path, second: Path, table: ThroughputTable) -> list[Row]:
    """The times that the first study and the table give, and those of the second study."""
    here, there = analyse(first), analyse(second)
    setting = here.settings[0].setting
    fit = fit_study([cell for cell in here.cells if cell.finished], settings=(setting,))
    configs = {arm_of(c): read_run(first / "cells" / c.name).start.config for c in fit.cells}
    (found,) = transfer_study(
        fit,
        here.batches,
        table,
        source="the table",
        setting=setting,
        reference=REFERENCE,
        configs=configs,
    )
    print(*found.sentences, *(f"Note: {note}." for note in found.notes), sep="\n")
    print(f"Measured: {there.training.sentences[0]}")
    second_results = {result.batch: result for result in there.batches}
    rows = []
    for arm in found.arms:
        other = second_results[arm.batch]
        if arm.samples is None or arm.time is None or other.samples_to_target is None:
            print(f"batch {arm.batch}: a run did not reach the target; no time to compare")
            continue
        rows.append(
            Row(
                batch=arm.batch,
                samples=(arm.samples, other.samples_to_target),
                rates=(arm.own_throughput, arm.throughput, other.throughput),
                predicted=arm.time,
                measured=other.training_time or float("nan"),
            )
        )
    return rows


def print_rows(rows: Sequence[Row]) -> None:
    """Every pair of prediction and measurement, and the medians of each batch."""
    header = ("batch", "samples 1", "samples 2", "rate 1", "rate 2 bench", "rate 2 study")
    print("".join(f"{word:>14}" for word in (*header, "predicted s", "measured s", "ratio")))
    batches = sorted({row.batch for row in rows})
    for row in sorted(rows, key=lambda row: row.batch):
        values = (*row.samples, *row.rates, row.predicted, row.measured)
        numbers = "".join(f"{value:14,.1f}" for value in values)
        print(f"{row.batch:>14}{numbers}{row.predicted / row.measured:14.3f}")
    print("\nmedians; the lowest and the highest of the single ratios beside theirs")
    print("".join(f"{word:>14}" for word in ("batch", "predicted s", "measured s", "ratio")))
    for batch in batches:
        own = [row for row in rows if row.batch == batch]
        predicted = statistics.median(row.predicted for row in own)
        measured = statistics.median(row.measured for row in own)
        ratios = sorted(row.predicted / row.measured for row in own)
        print(
            f"{batch:>14}{predicted:14.2f}{measured:14.2f}{predicted / measured:14.3f}"
            f"   {ratios[0]:.2f} to {ratios[-1]:.2f}"
        )


if __name__ == "__main__":
    sys.exit(main())
