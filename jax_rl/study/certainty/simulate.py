"""Studies that never ran, with known numbers, to see what the analysis makes of them.

A run's validation curve rises from the start score towards a ceiling and meets the target at its
own samples-to-target, which is log-normal: batch effect + seed effect + residual. Each validation
score is a binomial count over the prompts. The run ends by the rule that ends real runs, or with
the sample budget. What is read from it goes the way of real records from the curve on.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jax_rl.records import PHASES
from jax_rl.study.crossing import TAIL_POINTS, find_crossing, fit_isotonic, should_stop
from jax_rl.study.summary import Cell

SETTING = "simulated"

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What is true of a simulated study; the first batch is the reference."""

    name: str
    batches: tuple[int, ...]
    samples: tuple[float, ...]  # to target, geometric mean; [batches]
    rates: tuple[float, ...]  # rollouts per second, geometric mean; [batches]
    residual_sd: tuple[float, ...]  # of log samples; [batches]
    seed_sd: float = 0.1  # of log samples, shared by the runs of a seed
    rate_sd: float = 0.02  # of log throughput
    start_score: float = 0.2
    target: float = 0.7
    ceiling: float = 0.95
    prompts: int = 512  # of the validation set
    step: int = 1024  # of the validation grid, in samples
    budget: int = 131_072  # samples of a run

    @property
    def log_times(self) -> Floats:
        """True mean of log time to target; [batches]."""
        return np.log(np.array(self.samples) / np.array(self.rates))


_BATCHES = (16, 32, 64, 128, 256)
# Samples S (1 + B / 400) and rates R B / (B + 100): the larger batch is the faster here.
_PLAIN = Scenario(
    name="plain",
    batches=_BATCHES,
    samples=tuple(20_000 * (1 + batch / 400) for batch in _BATCHES),
    rates=tuple(2000 * batch / (batch + 100) for batch in _BATCHES),
    residual_sd=(0.1,) * len(_BATCHES),
)

SCENARIOS = (
    _PLAIN,
    # No batch is faster than another: every faster or slower is an error.
    dataclasses.replace(_PLAIN, name="equal", rates=tuple(n / 20 for n in _PLAIN.samples)),
    # The budget ends some runs of the largest batch before the target.
    dataclasses.replace(
        _PLAIN, name="censored", samples=(*_PLAIN.samples[:-1], 45_000), budget=49_152
    ),
    # One pooled variance is wrong here.
    dataclasses.replace(_PLAIN, name="unequal", residual_sd=(0.05, 0.07, 0.1, 0.15, 0.2)),
    # Five grid points to the target, and a validation set of 128 prompts.
    dataclasses.replace(_PLAIN, name="coarse", step=4096, prompts=128),
)


def simulate_study(
    scenario: Scenario, rng: np.random.Generator, *, seeds: int
) -> tuple[list[Cell], dict[str, float]]:
    """The cells of one study, and each run's true samples to target by the cell's name."""
    cells, truth = [], {}
    shared = rng.normal(scale=scenario.seed_sd, size=seeds)
    for i, batch in enumerate(scenario.batches):
        for seed in range(seeds):
            log_samples = shared[seed] + rng.normal(scale=scenario.residual_sd[i])
            samples = scenario.samples[i] * math.exp(log_samples)
            rate = scenario.rates[i] * math.exp(rng.normal(scale=scenario.rate_sd))
            cell = _run(scenario, rng, batch, seed, samples=samples, rate=rate)
            cells.append(cell)
            truth[cell.name] = samples
    return cells, truth


def _run(
    scenario: Scenario,
    rng: np.random.Generator,
    batch: int,
    seed: int,
    *,
    samples: float,
    rate: float,
) -> Cell:
    grid = list(range(0, scenario.budget + 1, scenario.step))
    span = scenario.ceiling - scenario.start_score
    decay = math.log(span / (scenario.ceiling - scenario.target))
    means = scenario.ceiling - span * np.exp(-decay * np.array(grid) / samples)
    counts = rng.binomial(scenario.prompts, means)
    scores = [scenario.start_score, *(float(c) / scenario.prompts for c in counts[1:])]
    length = _find_end(grid, scores, scenario.target)
    return make_cell_from_curve(
        batch,
        seed,
        samples=grid[:length],
        scores=scores[:length],
        rate=rate,
        target=scenario.target,
    )


def _find_end(grid: Sequence[int], scores: Sequence[float], target: float) -> int:
    """Grid points that the run gets to before its stopping rule, or the budget, ends it."""
    above = [i for i, score in enumerate(scores) if score >= target]
    first = above[0] + TAIL_POINTS + 1 if above else len(grid)
    return next(
        (n for n in range(first, len(grid)) if should_stop(grid[:n], scores[:n], target)),
        len(grid),
    )


def make_cell_from_curve(
    batch: int,
    seed: int,
    *,
    samples: list[int],
    scores: list[float],
    rate: float,
    target: float,
) -> Cell:
    """A finished run with this validation curve at a constant `rate` (rollouts per second)."""
    seconds = [n / rate for n in samples]
    updates = [n // batch for n in samples]
    crossing = find_crossing(
        samples,
        scores,
        training_seconds=seconds,
        elapsed_seconds=seconds,
        updates=updates,
        learnt=samples,
        in_flight=[0] * len(samples),
        target=target,
    )
    return Cell(
        name=f"b{batch:05d}_s{seed}",
        setting=SETTING,
        layout=SETTING,
        batch=batch,
        seed=seed,
        order=1,
        device="simulated",
        device_count=1,
        finished=True,
        learning_rate=1e-3,
        warmup_updates=0,
        crossing=crossing,
        samples=samples[-1],
        training_seconds=seconds[-1],
        elapsed_seconds=seconds[-1],
        phases=dict.fromkeys(PHASES, 0.0),
        phases_to_crossing={},
        rollouts_per_second=rate,
        tokens_per_second=rate,
        generate_per_second=rate,
        learn_per_second=rate,
        steady_per_second=None,
        steady_gap=None,
        accounting_gap=0.0,
        other_share=0.0,
        mean_length=1.0,
        p95_length=1.0,
        start_score=scores[0],
        best_score=max(scores),
        mismatch_max=0.0,
        load_average=0.0,
        curve_samples=samples,
        curve_scores=scores,
        curve_fit=[float(value) for value in fit_isotonic(scores)],
        curve_training_seconds=seconds,
        curve_elapsed_seconds=seconds,
        curve_updates=updates,
        curve_tokens=samples,
        notes=[],
    )
