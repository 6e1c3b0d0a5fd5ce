"""How often the analysis is right: simulated studies through crossing, fit and verdict."""

import dataclasses
import math
import zlib
from collections.abc import Sequence

import numpy as np

from jax_rl.study.batches import StudyFit, fit_study, summarise_arm
from jax_rl.study.certainty.censored import estimate_censored
from jax_rl.study.certainty.simulate import SETTING, Scenario, simulate_study
from jax_rl.study.certainty.spread import compare_intervals
from jax_rl.study.names import Names
from jax_rl.study.summary import Arm, Cell, Interval, Verdict
from jax_rl.study.verdict import decide
from jax_rl.study.words import RateContext


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What the analysis said about one simulated study, against what is true."""

    pooled: dict[int, bool]  # by batch: the 95 % interval of the time ratio holds the true one
    paired: dict[int, bool]  # likewise the interval of the two arms alone
    resampled: list[bool]  # likewise the bootstrap over seeds, where there are ten
    together: bool | None  # all simultaneous two-sided intervals hold; None without one
    verdicts: int  # arms compared with the reference
    wrong: int  # of them said to be faster or slower and are not
    undecided: int
    best_kept: bool | None  # the truly fastest is not told from the fastest; None: no fastest
    set_size: int
    errors: dict[int, list[float]]  # log of found over true samples, where every run crossed
    one_sided: list[bool]  # one-sided intervals that hold the true ratio
    likelihood: list[bool]  # intervals of the censored log-normal fit that do


@dataclasses.dataclass(frozen=True)
class Coverage:
    """Shares over the studies of one scenario; None where nothing was counted."""

    scenario: str
    seeds: int
    studies: int
    pooled: float | None  # coverage of the 95 % interval of one ratio, over all batches
    worst_pooled: float | None  # the least, by batch
    paired: float | None
    worst_paired: float | None
    resampled: float | None
    together: float | None  # coverage of the simultaneous intervals
    any_wrong: float  # studies with a wrong faster or slower
    undecided: float  # of the verdicts on arms
    best_left_out: float | None  # studies whose set lacks the truly fastest
    set_size: float  # mean
    bias: dict[int, float]  # mean of found over true samples to target, minus 1, by batch
    bias_error: dict[int, float]  # its standard error
    one_sided: float | None
    likelihood: float | None
    censored: int  # ratios behind the last two


def measure_coverage(
    scenario: Scenario, *, seeds: int, studies: int, rng_seed: int = 0
) -> Coverage:
    """Simulates and analyses `studies` studies of `seeds` runs per batch each."""
    rng = np.random.default_rng([rng_seed, seeds, zlib.crc32(scenario.name.encode())])
    outcomes = [
        judge_study(*simulate_study(scenario, rng, seeds=seeds), scenario) for _ in range(studies)
    ]
    verdicts = sum(outcome.verdicts for outcome in outcomes)
    pooled, paired = (
        _share_by_batch([getattr(outcome, kind) for outcome in outcomes])
        for kind in ("pooled", "paired")
    )
    errors = {
        batch: np.array([error for outcome in outcomes for error in outcome.errors[batch]])
        for batch in scenario.batches
        # Where some runs are censored, those that crossed are the early ones.
        if all(batch in outcome.errors for outcome in outcomes)
    }
    one_sided = [holds for outcome in outcomes for holds in outcome.one_sided]
    return Coverage(
        scenario=scenario.name,
        seeds=seeds,
        studies=studies,
        pooled=pooled[0],
        worst_pooled=pooled[1],
        paired=paired[0],
        worst_paired=paired[1],
        resampled=_share([holds for outcome in outcomes for holds in outcome.resampled]),
        together=_share([outcome.together for outcome in outcomes]),
        any_wrong=float(np.mean([outcome.wrong > 0 for outcome in outcomes])),
        undecided=sum(outcome.undecided for outcome in outcomes) / max(1, verdicts),
        best_left_out=_share([None if o.best_kept is None else not o.best_kept for o in outcomes]),
        set_size=float(np.mean([outcome.set_size for outcome in outcomes])),
        bias={batch: math.expm1(e.mean()) for batch, e in errors.items() if len(e)},
        bias_error={batch: float(e.std() / len(e) ** 0.5) for batch, e in errors.items() if len(e)},
        one_sided=_share(one_sided),
        likelihood=_share([holds for outcome in outcomes for holds in outcome.likelihood]),
        censored=len(one_sided),
    )


def judge_study(cells: Sequence[Cell], truth: dict[str, float], scenario: Scenario) -> Outcome:
    """Analyses the cells of a simulated study and holds the result against what is true."""
    fit = fit_study(cells, settings=[SETTING])
    reference = Arm(SETTING, scenario.batches[0])
    verdict = _decide(fit, reference)
    ratios = np.exp(scenario.log_times - scenario.log_times[0])
    true_ratio = dict(zip(scenario.batches, (float(r) for r in ratios), strict=True))
    intervals = compare_intervals(fit, clock="training", reference=reference)
    against = verdict.against_reference
    two_sided = [_holds(v.time, true_ratio[v.batch]) for v in against if not v.time.bound]
    fastest = min(true_ratio, key=lambda batch: true_ratio[batch])
    return Outcome(
        pooled={c.batch: _holds(c.pooled, true_ratio[c.batch]) for c in intervals},
        paired={c.batch: _holds(c.paired, true_ratio[c.batch]) for c in intervals},
        resampled=[_holds(c.bootstrap, true_ratio[c.batch]) for c in intervals if c.bootstrap],
        together=all(two_sided) if two_sided else None,
        verdicts=len(against),
        wrong=sum(_is_wrong(v.verdict, true_ratio[v.batch]) for v in against),
        undecided=sum(v.verdict == "undecided" for v in against),
        best_kept=fastest in verdict.undistinguished if verdict.fastest is not None else None,
        set_size=len(verdict.arms),
        errors={
            arm.batch: [
                math.log(c.crossing.samples / truth[c.name])
                for c in fit.cells_of(arm)
                if c.crossing
            ]
            for arm in fit.complete
        },
        one_sided=[_holds(v.time, true_ratio[v.batch]) for v in against if v.time.bound],
        likelihood=[
            _holds(e.training_time, true_ratio[e.batch])
            for e in estimate_censored(cells, reference=reference)
            if e.training_time.estimate is not None
        ],
    )


def _decide(fit: StudyFit, reference: Arm) -> Verdict:
    results = [
        summarise_arm(fit, arm, reference=reference, updates_per_iteration=1)
        for arm in fit.censored
    ]
    context = RateContext("none", 1e-3, reference.batch)
    return decide(fit, results, names=Names((SETTING,)), clock="training", context=context)


def _holds(interval: Interval, ratio: float) -> bool:
    above = interval.low is None or interval.low <= ratio
    return above and (interval.high is None or ratio <= interval.high)


def _is_wrong(verdict: str, ratio: float) -> bool:
    # Equal times are neither faster nor slower; exp and log leave 1 only to rounding.
    equal = math.isclose(ratio, 1.0, abs_tol=1e-9)
    return (verdict == "faster" and (ratio > 1 or equal)) or (
        verdict == "slower" and (ratio < 1 or equal)
    )


def _share(found: Sequence[bool | None]) -> float | None:
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known else None


def _share_by_batch(found: Sequence[dict[int, bool]]) -> tuple[float | None, float | None]:
    """Over all batches, and the least by batch."""
    batches = sorted({batch for one in found for batch in one})
    shares = [_share([one.get(batch) for one in found]) for batch in batches]
    overall = _share([value for one in found for value in one.values()])
    return overall, min((share for share in shares if share is not None), default=None)
