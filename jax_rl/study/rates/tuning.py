"""The multiple of the rule's rate that trials choose, for each batch in each setting.

Every arm begins with the same multiples. A best multiple at the edge of those tried gets one
more beyond it, a few times; if it is still at the edge then, the choice says so.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_rl.records import read_run
from jax_rl.study.cells import Planned
from jax_rl.study.intervals import geometric_mean
from jax_rl.study.rates.trials import (
    FOLDER,
    Trial,
    TrialPlan,
    TrialResult,
    is_finished,
    plan_trials,
    read_trial,
)
from jax_rl.study.settings import read_settings
from jax_rl.study.summary import Cell


@dataclasses.dataclass(frozen=True)
class TriedRate:
    """The trials of one multiple at one batch."""

    multiple: float
    learning_rate: float
    seeds: list[int]
    crossed: int  # of them
    samples_to_target: float | None  # geometric mean; None where a trial did not cross
    samples_at_least: float | None  # the same with such trials at their bound; None if all crossed
    final_score: float | None  # mean over trials; None where one diverged


@dataclasses.dataclass(frozen=True)
class ArmTuning:
    """The trials of one batch in one setting, and what they choose."""

    setting: str
    batch: int
    rates: list[TriedRate]  # by multiple; those that are finished
    missing: int  # trials that are not finished yet
    multiple: float | None  # chosen; None while trials are missing
    learning_rate: float | None
    on_edge: bool  # the smallest or the largest that was tried
    by_score: bool  # no multiple's trials all crossed: the highest mean final score was taken
    extensions: int  # multiples beyond those of the plan
    samples: int  # generated in trials
    training_seconds: float
    elapsed_seconds: float


@dataclasses.dataclass(frozen=True)
class Tuning:
    """How the rates of a study were tuned."""

    multiples: list[float]  # tried at every batch; empty: moved by the rule and not tuned
    seeds: list[int]
    arms: list[ArmTuning]  # in the order of settings, then by batch; empty without trials
    trials: int  # finished
    samples: int  # generated in trials
    training_seconds: float
    elapsed_seconds: float
    samples_share: float | None  # of trials in all samples generated; None without any
    seconds_share: float | None  # of trials in all elapsed seconds


def list_trials(
    setting: str, batch: int, plan: TrialPlan, results: Mapping[Trial, TrialResult]
) -> list[Trial]:
    """All trials of an arm that are known to be needed, finished or not, by multiple and seed.

    As long as one of them is not among `results`, more may come: the multiple at the edge is
    only extended by what all trials before it have shown.
    """
    multiples = list(plan.multiples)
    for _ in range(plan.extensions if multiples else 0):
        rates = _list_rates(_make_trials(setting, batch, multiples, plan), results)
        if len(rates) < len(multiples):
            break
        best = choose_rate(rates)
        if best.multiple == multiples[-1]:
            multiples.append(multiples[-1] ** 2 / multiples[-2])
        elif best.multiple == multiples[0]:
            multiples.insert(0, multiples[0] ** 2 / multiples[1])
        else:
            break
    return _make_trials(setting, batch, multiples, plan)


def choose_rate(rates: Sequence[TriedRate]) -> TriedRate:
    """The multiple with the smallest geometric mean of samples to target.

    Only multiples whose trials all crossed are looked at; where there is none, the one with the
    highest mean final score is taken, one with a trial that diverged last of all. Of equals, the
    one nearest to the rule's rate.
    """
    crossed = [rate for rate in rates if rate.samples_to_target is not None]
    if crossed:
        return min(crossed, key=lambda r: (r.samples_to_target, abs(math.log(r.multiple))))

    def rank(rate: TriedRate) -> tuple[float, float]:
        score = -math.inf if rate.final_score is None else rate.final_score
        return -score, abs(math.log(rate.multiple))

    return min(rates, key=rank)


def tune_arm(
    setting: str, batch: int, plan: TrialPlan, results: Mapping[Trial, TrialResult]
) -> ArmTuning:
    """What the finished trials of one arm say; a choice only when none is missing.

    Args:
      setting, batch: the arm, the setting as trials are named.
      plan: what every arm begins with; it has multiples.
      results: finished trials of this arm and of others.
    """
    trials = list_trials(setting, batch, plan, results)
    rates = _list_rates(trials, results)
    done = [results[trial] for trial in trials if trial in results]
    missing = len(trials) - len(done)
    best = choose_rate(rates) if not missing else None
    return ArmTuning(
        setting=setting,
        batch=batch,
        rates=rates,
        missing=missing,
        multiple=best.multiple if best else None,
        learning_rate=best.learning_rate if best else None,
        on_edge=best is not None and best in (rates[0], rates[-1]),
        by_score=best is not None and best.samples_to_target is None,
        extensions=len(trials) // len(plan.seeds) - len(plan.multiples),
        samples=sum(result.samples for result in done),
        training_seconds=sum(result.training_seconds for result in done),
        elapsed_seconds=sum(result.elapsed_seconds for result in done),
    )


def read_tuning(directory: Path, study: Mapping[str, Any], cells: Sequence[Cell] = ()) -> Tuning:
    """The tuning of a study from the records of its trials.

    Args:
      directory: of the study.
      study: the content of its study.json.
      cells: the compared runs, which the cost of the trials is set against.
    """
    plan = plan_trials(study["config"])
    order = list(read_settings(study))
    only = order[0]
    planned = [Planned.from_entry(entry) for entry in study["order"]]
    keys = {(p.setting, p.batch) for p in planned} if plan.multiples else set()
    arms, finished = [], 0
    for name, batch in sorted(keys, key=lambda key: (order.index(key[0] or only), key[1])):
        results = read_results(directory, name, batch, plan)
        arm = tune_arm(name, batch, plan, results)
        arms.append(dataclasses.replace(arm, setting=name or only))
        finished += len(list_trials(name, batch, plan, results)) - arm.missing
    samples = sum(arm.samples for arm in arms)
    elapsed = sum(arm.elapsed_seconds for arm in arms)
    return Tuning(
        multiples=list(plan.multiples),
        seeds=list(plan.seeds) if plan.multiples else [],
        arms=arms,
        trials=finished,
        samples=samples,
        training_seconds=sum(arm.training_seconds for arm in arms),
        elapsed_seconds=elapsed,
        samples_share=_share(samples, sum(cell.samples for cell in cells)),
        seconds_share=_share(elapsed, sum(cell.elapsed_seconds for cell in cells)),
    )


def read_results(
    directory: Path,
    setting: str,
    batch: int,
    plan: TrialPlan,
    known: Mapping[Trial, TrialResult] | None = None,
) -> dict[Trial, TrialResult]:
    """The finished trials of an arm, those that an extension brought included.

    Args:
      directory: of the study.
      setting, batch: the arm.
      plan: what every arm begins with.
      known: results that need not be read again.
    """
    results = dict(known or {})
    looked: set[Trial] = set()
    while new := [t for t in list_trials(setting, batch, plan, results) if t not in looked]:
        looked.update(new)
        for trial in new:
            place = Path(directory) / FOLDER / trial.name
            if trial not in results and is_finished(place):
                results[trial] = read_trial(read_run(place))
    return results


def _make_trials(
    setting: str, batch: int, multiples: Sequence[float], plan: TrialPlan
) -> list[Trial]:
    pairs = itertools.product(multiples, plan.seeds)
    return [Trial(setting, batch, multiple, seed) for multiple, seed in pairs]


def _list_rates(trials: Sequence[Trial], results: Mapping[Trial, TrialResult]) -> list[TriedRate]:
    """The multiples all of whose trials are finished."""
    rates = []
    for multiple, group in itertools.groupby(trials, key=lambda trial: trial.multiple):
        mine = list(group)
        if all(trial in results for trial in mine):
            done = [results[trial] for trial in mine]
            rates.append(_summarise_rate(multiple, [trial.seed for trial in mine], done))
    return rates


def _summarise_rate(multiple: float, seeds: list[int], results: Sequence[TrialResult]) -> TriedRate:
    crossed = sum(result.crossing is not None for result in results)
    # A run that diverged before its first iteration ended generated nothing: at least 1 sample.
    mean = geometric_mean([r.crossing or max(1, r.samples) for r in results])
    scores = [result.final_score for result in results]
    known = [score for score in scores if score is not None]
    return TriedRate(
        multiple=multiple,
        learning_rate=results[0].learning_rate,
        seeds=seeds,
        crossed=crossed,
        samples_to_target=mean if crossed == len(results) else None,
        samples_at_least=None if crossed == len(results) else mean,
        final_score=sum(known) / len(known) if len(known) == len(scores) else None,
    )


def _share(part: float, rest: float) -> float | None:
    return part / (part + rest) if part + rest > 0 else None
