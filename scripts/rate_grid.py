#!/usr/bin/env python3
"""Tries learning rates at the reference batch of a study, on seeds that the study does not use.

    scripts/rate_grid.py arithmetic --rates 1.25e-4 2.5e-4 5e-4 1e-3 --seeds 100 101

Each rate is trained once per seed to the study's target; a line of JSON per run gives
samples-to-target (the isotonic crossing), the best score, and whether the run held its target.
Above the best rate a policy soon collapses, below it only slows down, so the smallest rate whose
samples-to-target (geometric mean) is within a tenth of the fewest is named at the end.
"""

import argparse
import dataclasses
import json
import math
import shutil
import sys
import tempfile
from pathlib import Path

import jax

from jax_rl.config import Config
from jax_rl.config_file import load_config
from jax_rl.errors import DivergedError, UserError
from jax_rl.records import read_run
from jax_rl.study.cells import make_cell
from jax_rl.study.intervals import geometric_mean
from jax_rl.sweep.stop import stop_after_tail
from jax_rl.trainer.run import train

_TOLERANCE = 1.1


def main() -> int:
    """Runs the grid and prints one JSON line per run, then the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", help="path or name of a configuration")
    parser.add_argument("--rates", type=float, nargs="+", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--batch", type=int, help="instead of batch.size")
    args = parser.parse_args()
    config = load_config(args.config)
    used = range(config.run.seed, config.run.seed + config.study.seeds)
    if taken := sorted(set(args.seeds) & set(used)):
        raise UserError(f"seeds {taken} are the study's own; choose others than {list(used)}")
    if args.batch:
        config = dataclasses.replace(
            config, batch=dataclasses.replace(config.batch, size=args.batch)
        )
    folder = Path(tempfile.mkdtemp(prefix="rate_grid_"))
    # Runs of the grid differ in the rate alone; what is compiled once serves all of them.
    jax.config.update("jax_compilation_cache_dir", str(folder / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    results: dict[float, list[float]] = {}
    try:
        for rate in args.rates:
            for seed in args.seeds:
                results.setdefault(rate, []).append(try_rate(config, rate, seed, folder))
    finally:
        shutil.rmtree(folder)
    means = {rate: geometric_mean(found) for rate, found in results.items()}
    for rate, mean in means.items():
        reached = sum(math.isfinite(value) for value in results[rate])
        reached_by = f"reached by {reached} of {len(args.seeds)}"
        print(f"rate {rate:g}: samples-to-target {mean:,.0f}, {reached_by}")
    fewest = min(means.values())
    if not math.isfinite(fewest):
        raise UserError("no rate reached the target within the sample budget; widen the grid")
    chosen = min(rate for rate, mean in means.items() if mean <= _TOLERANCE * fewest)
    print(f"smallest rate within 10 % of the fewest: {chosen:g} at batch {config.batch.size}")
    return 0


def try_rate(config: Config, rate: float, seed: int, folder: Path) -> float:
    """Samples-to-target of one run, infinite where it never gets there; prints its line."""
    trial = dataclasses.replace(
        config,
        optimizer=dataclasses.replace(config.optimizer, learning_rate=rate),
        run=dataclasses.replace(config.run, seed=seed),
        checkpoint=dataclasses.replace(config.checkpoint, at_end=False),
    )
    directory = folder / f"{rate:g}_{seed}"
    try:
        train(trial, directory, progress=False, stop=stop_after_tail)
    except DivergedError as error:
        print(f"rate {rate:g} seed {seed}: {error}", file=sys.stderr)
    record = read_run(directory)
    cell = make_cell(record, directory.name, 1)
    crossing = cell.crossing.samples if cell.crossing else math.inf
    line = {
        "batch": config.batch.size,
        "rate": rate,
        "seed": seed,
        "samples_to_target": crossing if math.isfinite(crossing) else None,
        "held": cell.crossing.held if cell.crossing else None,
        "start_score": cell.start_score,
        "best_score": cell.best_score,
        "last_score": cell.curve_scores[-1],
        "samples": cell.samples,
        "rollouts_per_second": round(cell.rollouts_per_second, 1),
    }
    print(json.dumps(line), flush=True)
    return crossing


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"rate_grid: {error}")
