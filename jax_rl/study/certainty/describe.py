"""How sure a verdict is: its spread, other readings of its curves, and its censored runs."""

import dataclasses
from collections.abc import Collection

from jax_rl.study.batches import StudyFit
from jax_rl.study.certainty.censored import CensoredRatio, estimate_censored
from jax_rl.study.certainty.sensitivity import Sensitivity, describe_sensitivity
from jax_rl.study.certainty.spread import Spread, describe_spread
from jax_rl.study.names import Names
from jax_rl.study.summary import Arm, Verdict, arm_of


@dataclasses.dataclass(frozen=True)
class Certainty:
    """What stands behind the verdict under one clock."""

    clock: str
    spread: Spread
    sensitivity: Sensitivity
    censored: list[CensoredRatio]  # empty where no run is censored


def describe_certainty(
    fit: StudyFit,
    verdict: Verdict,
    *,
    names: Names,
    reference: int,
    target: float,
    noise: float,
    prompts: int,
    untuned: Collection[Arm] = (),
) -> Certainty | None:
    """Everything about the certainty of a verdict; None for a verdict without a fastest arm.

    Args:
      fit: of the study's finished runs.
      verdict: over all arms of `names`, made from `fit`.
      reference: the reference batch, in the first setting.
      noise: standard deviation of the scores about their fits; NaN if unknown.
      prompts: of the validation set.
      untuned: arms that the verdict leaves open because their best rate is not known, which no
        number of seeds would change.
    """
    if verdict.fastest is None:
        return None
    arm = Arm(names.settings[0], reference)
    undecided = [
        arm_of(v)
        for v in verdict.against_reference
        if v.verdict == "undecided" and not {arm, arm_of(v)} & set(untuned)
    ]
    return Certainty(
        clock=verdict.clock,
        spread=describe_spread(fit, clock=verdict.clock, reference=arm, undecided=undecided),
        sensitivity=describe_sensitivity(
            fit,
            names=names,
            reference=arm,
            target=target,
            noise=noise,
            prompts=prompts,
            clock=verdict.clock,
            untuned=untuned,
        ),
        censored=estimate_censored(fit.cells, reference=arm, most_freedom=fit.degrees_of_freedom),
    )
