"""Noise scales of a study by batch, beside the batch at which more samples are really needed."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jax_rl.study.intervals import geometric_mean
from jax_rl.study.noise.scale import NoiseScale, quantile
from jax_rl.study.noise.split import CovarianceSplit
from jax_rl.study.summary import Arm


@dataclasses.dataclass(frozen=True)
class TurningPoint:
    """The minibatch beyond which a larger one needs clearly more samples, as measured."""

    rollouts: float  # of one update, as the noise scale is
    bound: str  # "", or "at least" / "at most" where it is outside of the batches run
    what: str  # how it is defined, in words


@dataclasses.dataclass(frozen=True)
class BatchNoise:
    """The runs of one batch in one setting, by seed."""

    setting: str
    batch: int
    seeds: list[int]
    runs: list[NoiseScale]  # in the order of the seeds
    identified: int  # runs with a noise scale
    rollouts: float | None  # geometric mean; None unless every run has a value
    rollouts_low: float | None  # its 95 % t interval over seeds; None with one seed
    rollouts_high: float | None
    at_least: float | None  # where some have none: geometric mean with those at their lower bound
    signal: float | None  # |G|^2, mean over the runs that have it
    noise: float | None  # tr(Sigma) of one group's gradient, likewise
    turning_ratio: float | None  # measured turning point over the noise scale


@dataclasses.dataclass(frozen=True)
class NoiseSummary:
    """What a study says about the noise of its gradients."""

    batches: list[BatchNoise]  # by setting, then by batch
    rollouts: float | None  # geometric mean over the reference setting's batches that have one
    turning_point: TurningPoint | None  # of that setting
    turning_ratio: float | None  # measured turning point over that mean
    splits: list[CovarianceSplit]  # of the runs that were probed
    turning_reason: str = ""  # why there is no turning point

    @property
    def asked_for(self) -> bool:
        """Whether any run measured it, or was probed."""
        return bool(self.splits) or any(run.units for b in self.batches for run in b.runs)


def summarise_noise(
    runs: Mapping[tuple[Arm, int], NoiseScale],
    *,
    setting: str,
    turning_point: TurningPoint | None = None,
    turning_reason: str = "",
    splits: Sequence[CovarianceSplit] = (),
) -> NoiseSummary:
    """Puts the runs of a study together by batch.

    Args:
      runs: what each run says, by its arm and its seed.
      setting: the reference's, whose batches are averaged and held against
      turning_point: what the study measured in it, if it did.
      turning_reason: why it did not.
      splits: results of probes.
    """
    arms = sorted({arm for arm, _ in runs})
    batches = [
        _summarise_arm(
            arm,
            {seed: runs[found, seed] for found, seed in sorted(runs) if found == arm},
            turning_point if arm.setting == setting else None,
        )
        for arm in arms
    ]
    here = [one.rollouts for one in batches if one.setting == setting]
    known = [rollouts for rollouts in here if rollouts is not None]
    mean = geometric_mean(known) if known else None
    return NoiseSummary(
        batches=batches,
        rollouts=mean,
        turning_point=turning_point,
        turning_ratio=turning_point.rollouts / mean if turning_point and mean else None,
        splits=list(splits),
        turning_reason="" if turning_point else turning_reason,
    )


def _summarise_arm(
    arm: Arm, by_seed: Mapping[int, NoiseScale], turning_point: TurningPoint | None
) -> BatchNoise:
    runs = list(by_seed.values())
    known = [run.rollouts for run in runs if run.rollouts is not None]
    least = [run.rollouts_low if run.rollouts is None else run.rollouts for run in runs]
    bounds = [value for value in least if value is not None and value > 0]
    whole = len(known) == len(runs)
    mean = geometric_mean(known) if whole else None
    low, high = _bracket(known) if whole else (None, None)
    return BatchNoise(
        setting=arm.setting,
        batch=arm.batch,
        seeds=list(by_seed),
        runs=runs,
        identified=len(known),
        rollouts=mean,
        rollouts_low=low,
        rollouts_high=high,
        at_least=geometric_mean(bounds) if not whole and len(bounds) == len(runs) else None,
        signal=_mean([run.signal for run in runs]),
        noise=_mean([run.noise for run in runs]),
        turning_ratio=turning_point.rollouts / mean if turning_point and mean else None,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _bracket(values: Sequence[float]) -> tuple[float | None, float | None]:
    """95 % t interval of a geometric mean."""
    if len(values) < 2:
        return None, None
    logs = np.log(values)
    half = quantile(len(values) - 1) * float(np.std(logs, ddof=1)) / len(values) ** 0.5
    return float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half))
