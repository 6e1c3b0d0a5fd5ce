#!/usr/bin/env python3
"""How often the study's analysis is right: simulated studies with known answers.

    python scripts/coverage.py                 all scenarios at 3, 5 and 10 seeds, 500 studies each
    python scripts/coverage.py --studies 50    the same, sooner and coarser

Each study goes the whole way from noisy validation curves through crossing and fit to the
verdict. A share p over n studies has a standard error of sqrt(p (1 - p) / n): 1 % at 95 % and 500.
"""

import argparse
import dataclasses
import json
import sys
import time

from jax_rl.study.certainty.coverage import Coverage, measure_coverage
from jax_rl.study.certainty.simulate import SCENARIOS

HEADER = (
    f"{'scenario':9}{'seeds':>6}{'interval':>9}{'(worst)':>8}{'alone':>7}{'(worst)':>8}"
    f"{'bootstrap':>10}{'together':>9}{'wrong':>7}{'open':>6}{'best out':>9}"
    f"{'set':>5}{'1-sided':>8}{'ML fit':>7}  bias of the crossing by batch"
)
LEGEND = """
interval   coverage of the 95 % interval of one time ratio to the reference; (worst): by batch
alone      the same for the interval from two arms alone, which is right for unequal spreads
bootstrap  the same for seeds resampled, from 10 seeds on
together   studies in which all simultaneous intervals hold
wrong      studies with a faster or slower that is not true; open: verdicts left undecided
best out   studies whose set of arms not told from the fastest lacks the truly fastest
set        mean size of that set
1-sided    coverage of the one-sided ratios of censored batches; ML fit: of the log-normal fit's
bias       mean of found over true samples to target, minus 1, in %; batches without censoring"""


def main() -> int:
    """Prints one line per scenario and number of seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 5, 10])
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--scenarios", nargs="+", choices=names, default=names)
    parser.add_argument("--json", help="file for the same numbers, one JSON object a line")
    args = parser.parse_args()
    started, found = time.perf_counter(), []
    print(HEADER, flush=True)
    for scenario in SCENARIOS:
        for seeds in args.seeds if scenario.name in args.scenarios else []:
            found.append(measure_coverage(scenario, seeds=seeds, studies=args.studies))
            print(format_line(found[-1]), flush=True)
    print(LEGEND)
    print(f"\n{args.studies} studies a line, {time.perf_counter() - started:.0f} s")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(dataclasses.asdict(one)) + "\n" for one in found)
    return 0


def format_line(found: Coverage) -> str:
    """One line of the table; shares in per cent."""
    bias = "  ".join(f"{100 * value:+.2f}" for value in found.bias.values())
    worst_error = max(found.bias_error.values(), default=0.0)
    return (
        f"{found.scenario:9}{found.seeds:6}{show(found.pooled):>9}{show(found.worst_pooled):>8}"
        f"{show(found.paired):>7}{show(found.worst_paired):>8}{show(found.resampled):>10}"
        f"{show(found.together):>9}{show(found.any_wrong):>7}{show(found.undecided, 0):>6}"
        f"{show(found.best_left_out):>9}{found.set_size:5.2f}{show(found.one_sided):>8}{show(found.likelihood):>7}"
        f"  {bias}  (± {100 * worst_error:.2f})"
    )


def show(share: float | None, decimals: int = 1) -> str:
    """A share in per cent; a dash where nothing was counted."""
    return "-" if share is None else f"{100 * share:.{decimals}f}"


if __name__ == "__main__":
    sys.exit(main())
