"""Every further question that a study's records answer, each in a module of its own."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from jax_rl.study.certainty.describe import Certainty, describe_certainty
from jax_rl.study.clocks import CLOCKS
from jax_rl.study.curves.fits import SettingFits, fit_setting
from jax_rl.study.curves.scores import ScoreFit, fit_scores
from jax_rl.study.decisions.choices import Choices, choose_batches
from jax_rl.study.decisions.cost import Costs, Price, summarise_costs
from jax_rl.study.decisions.transfer import Transfer, transfer_study
from jax_rl.study.growth.arms import read_groups
from jax_rl.study.growth.statements import Growth, examine_growth
from jax_rl.study.material import Material
from jax_rl.study.noise.batches import NoiseSummary, TurningPoint, summarise_noise
from jax_rl.study.noise.scale import measure_noise
from jax_rl.study.noise.split import FILE_NAME, CovarianceSplit, read_split
from jax_rl.study.rates.effects import RateEffect, find_effects
from jax_rl.study.rates.gradients import GradientResult, summarise_gradients
from jax_rl.study.rates.tuning import Tuning
from jax_rl.study.settings import Setting
from jax_rl.study.summary import Verdict, arm_of
from jax_rl.study.use.time import TimeUse, study_time_use
from jax_rl.throughput import read_throughput


@dataclasses.dataclass(frozen=True)
class Wishes:
    """What a report is asked for besides what the records say."""

    price: Price | None = None
    throughput: tuple[Path, ...] = ()  # tables that bench or plan have written


NO_WISHES = Wishes()


@dataclasses.dataclass(frozen=True)
class Answers:
    """Each list may be empty."""

    settings: dict[str, Setting]  # what they are, by name
    certainty: list[Certainty]  # by clock; none for a verdict without a fastest arm
    tuning: Tuning
    rate_effects: list[RateEffect]
    gradients: list[GradientResult]  # by arm
    choices: list[Choices]  # by setting, then by clock
    fits: list[SettingFits]  # by setting
    score_fits: list[ScoreFit]  # by arm
    noise: NoiseSummary
    growth: Growth
    time_use: TimeUse
    costs: list[Costs]  # by clock
    transfers: list[Transfer]  # by table, then by layout in it


def answer(
    material: Material,
    verdicts: Sequence[Verdict],
    *,
    noise: float,
    wishes: Wishes = NO_WISHES,
) -> Answers:
    """Asks every question of this room.

    Args:
      material: of the study.
      verdicts: over all arms, by clock.
      noise: standard deviation of validation scores about their fits; NaN if unknown.
      wishes: price and tables.

    Raises:
      UserError: a table cannot be read, or belongs to another experiment.
    """
    fit, results, reference = material.fit, material.results, material.reference
    fits = [fit_setting(fit, name, tuned=material.tuned) for name in _list_settings(material)]
    splits = _read_splits(material)
    cells = [cell for arm in fit.censored for cell in fit.cells_of(arm)]  # as arms are shown
    return Answers(
        settings=dict(material.settings),
        certainty=_describe_certainty(material, verdicts, noise),
        tuning=material.tuning,
        rate_effects=find_effects(
            material.tuning, material.settings, material.usable, reference=reference.batch
        ),
        gradients=summarise_gradients(cells, material.runs),
        choices=[
            choose_batches(
                fit,
                results,
                setting=setting,
                reference=reference.batch,
                clock=clock,
                untuned=material.untuned,
            )
            for setting in _list_settings(material)
            for clock in CLOCKS
        ],
        fits=fits,
        score_fits=[fit_scores(fit, arm_of(result)) for result in results],
        noise=_summarise_noise(material, fits, splits),
        growth=examine_growth(
            fit,
            material.settings,
            groups=read_groups(material.usable, material.runs),
            splits=splits,
        ),
        time_use=study_time_use(
            cells,
            material.runs,
            reference=reference,
            measured=material.study.get("peaks"),
            list_obstacles=fit.list_obstacles,
        ),
        costs=[
            summarise_costs(
                fit,
                results,
                reference=reference,
                clock=clock,
                price=wishes.price,
                untuned=material.untuned,
            )
            for clock in CLOCKS
            if results
        ],
        transfers=_transfer(material, wishes),
    )


def _list_settings(material: Material) -> list[str]:
    """Those with a finished run."""
    return list(dict.fromkeys(result.setting for result in material.results))


def _describe_certainty(
    material: Material, verdicts: Sequence[Verdict], noise: float
) -> list[Certainty]:
    found = [
        describe_certainty(
            material.fit,
            verdict,
            names=material.names,
            reference=material.reference.batch,
            target=float(material.config["budget"]["target"]),
            noise=noise,
            prompts=int(material.config["validation"]["prompts"]),
            untuned=material.untuned,
        )
        for verdict in verdicts
    ]
    return [one for one in found if one is not None]


def _read_splits(material: Material) -> list[CovarianceSplit]:
    """Results of the probes of the study's runs."""
    places = [material.directory / "cells" / cell.name / FILE_NAME for cell in material.usable]
    return [split for place in places if (split := read_split(place)) is not None]


def _summarise_noise(
    material: Material, fits: Sequence[SettingFits], splits: Sequence[CovarianceSplit]
) -> NoiseSummary:
    """The noise scales beside the batch at which samples to target have doubled."""
    setting = material.reference.setting
    turning = None
    first = [one.samples for one in fits if one.setting == setting]
    point = first[0].turning_point if first else None
    if point is not None and point.estimate is not None:
        # The noise scale is one of minibatches, the fit one of batches of several.
        turning = TurningPoint(
            rollouts=point.estimate / material.settings[setting].updates,
            bound=point.bound,
            what="B_crit of the fit: the minibatch that needs twice the fewest samples",
        )
    return summarise_noise(
        {
            (arm_of(cell), cell.seed): measure_noise(
                material.runs[cell.name].iterations,
                group=int(material.runs[cell.name].start.config["batch"]["group"]),
                crossing=cell.crossing.samples if cell.crossing else None,
            )
            for cell in material.usable
        },
        setting=setting,
        turning_point=turning,
        turning_reason=first[0].reason if first else "no run of its setting is finished",
        splits=splits,
    )


def _transfer(material: Material, wishes: Wishes) -> list[Transfer]:
    return [
        one
        for path in wishes.throughput
        for one in transfer_study(
            material.fit,
            material.results,
            read_throughput(path),
            source=str(path),
            setting=material.reference.setting,
            reference=material.reference.batch,
            configs={arm_of(c): material.runs[c.name].start.config for c in material.usable},
        )
    ]
