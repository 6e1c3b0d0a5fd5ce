"""How sure the verdict is: spread, other readings of the curves, more seeds, other targets."""

import math
from collections.abc import Sequence

from jax_rl.report import text
from jax_rl.report.section import Section
from jax_rl.report.sections.certainty_tables import (
    RULES,
    draw_targets,
    name_fastest,
    tabulate_censored,
    tabulate_intervals,
    tabulate_readings,
    tabulate_spread,
    tabulate_targets,
)
from jax_rl.report.sections.quantities import add_near
from jax_rl.study.certainty.describe import Certainty
from jax_rl.study.certainty.sensitivity import Reading, Sensitivity, SetUncertainty, TargetPoint
from jax_rl.study.certainty.spread import FEWEST_BOOTSTRAP_SEEDS, MOST_SEEDS, MoreSeeds, Spread
from jax_rl.study.names import Names
from jax_rl.study.summary import Arm

UNEQUAL = 0.05
"""Below this p-value the spreads of the arms are called unequal."""

_METHODS = (
    "Verdicts: all intervals to the reference hold together in 95 % of studies (Dunnett 1955);"
    " their critical value is that of the multivariate t with the correlations of the design."
    " The arms that cannot be told from the fastest are those that no other arm beats beyond its"
    " one-sided simultaneous bound (Hsu 1984), so that the truly fastest is among them in at least"
    " 95 % of studies.",
    "Spread by arm: log time = arm effect + seed effect + residual. Bartlett's statistic of the"
    " residuals by arm is compared with its distribution under equal normal spreads in the same"
    " design, by simulation. The interval of two arms alone is a t interval of the log ratios of"
    " their shared seeds, which holds also where the spreads differ. From"
    f" {FEWEST_BOOTSTRAP_SEEDS} seeds on seeds are resampled too (studentised bootstrap).",
    "More seeds: the fewest per arm with which a true difference of the size named would leave the"
    " simultaneous interval with the probability named, by the noncentral t at the spread seen.",
    "Validation set: another draw of as many prompts would move all scores together by about"
    " sqrt(p (1 − p) / prompts), p the target. It is shared by all arms and not part of the"
    " intervals between them.",
)


def show_certainty(certainty: Certainty | None, *, names: Names) -> Section | None:
    """The section; None for a study without a fastest arm, of which there is nothing to doubt."""
    if certainty is None:
        return None
    spread, sensitivity, censored = certainty.spread, certainty.sensitivity, certainty.censored
    return Section(
        id="certainty",
        title="How sure is that?",
        paragraphs=[
            _say_readings(sensitivity, names),
            *_say_targets(sensitivity.targets, names),
            *_say_spread(spread),
            *(_say_more_seeds(need, spread, names) for need in spread.more_seeds),
            _say_validation_set(sensitivity.validation_set),
        ],
        tables=[
            tabulate_readings(sensitivity, names),
            *([tabulate_spread(spread, names)] if spread.arms else []),
            *([tabulate_intervals(spread, names)] if spread.intervals else []),
            *([tabulate_censored(censored, names)] if censored else []),
            *([tabulate_targets(sensitivity, names)] if sensitivity.targets else []),
        ],
        drawings=[draw_targets(sensitivity, names)] if len(sensitivity.targets) > 1 else [],
        methods=_METHODS,
    )


def _say_readings(sensitivity: Sensitivity, names: Names) -> str:
    headline, *others = sensitivity.readings
    if not others:
        return "The curves were read in one way alone."
    shown = names.show(Arm(headline.setting or "", headline.fastest or 0))
    moved = [r for r in others if not r.same_fastest]
    changed = [r for r in others if r.same_fastest and r.changed]
    if not moved and not changed:
        count = f"all {len(others)} other readings" if len(others) > 1 else "the one other reading"
        return (
            f"Under {count} of the curves {shown} is the fastest too, and"
            " no verdict against the reference changes."
        )
    parts = [f"by the {_name_reading(r)} {name_fastest(r, names)} is the fastest" for r in moved]
    parts += [
        f"by the {_name_reading(r)} the verdict on {names.join(r.changed)} changes" for r in changed
    ]
    return f"The verdict depends on how the curves are read: {'; '.join(parts)}."


def _name_reading(reading: Reading) -> str:
    where = f" at target {text.format_score(reading.target)}" if reading.shift else ""
    return f"{RULES[reading.rule]}{where}"


def _say_targets(targets: Sequence[TargetPoint], names: Names) -> list[str]:
    if not targets:
        return []
    spans: list[tuple[str, float, float]] = []
    for point in targets:
        fastest = Arm(point.setting or "", point.fastest or 0)
        others = [names.show(arm) for arm in point.arms if arm != fastest]
        name = add_near(name_fastest(point, names), others)
        low = spans[-1][1] if spans and spans[-1][0] == name else point.target
        spans = [*(spans[:-1] if spans and spans[-1][0] == name else spans)]
        spans.append((name, low, point.target))
    parts = [
        f"{name} at {text.format_score(low)}"
        + (f" to {text.format_score(high)}" if high > low else "")
        for name, low, high in spans
    ]
    return [f"The fastest by the target that one sets: {'; '.join(parts)}."]


def _say_spread(spread: Spread) -> list[str]:
    if spread.residual_sd is None:
        return []
    seen = (
        f"Times scatter by ±{text.format_percent(math.expm1(spread.residual_sd))} about the"
        f" effects of arm and seed (one standard deviation; {spread.degrees_of_freedom} degrees of"
        " freedom)."
    )
    if spread.p_value is None:
        return [f"{seen} Whether it is the same in every arm cannot be told."]
    unequal = spread.p_value < UNEQUAL
    words = (
        "the arms' spreads differ: read the intervals of two arms alone beside the pooled ones"
        if unequal
        else "no sign that the arms' spreads differ, which few seeds would show only if they"
        " differed a lot"
    )
    return [f"{seen} Equal spreads: p = {spread.p_value:.2g}, {words}."]


def _say_more_seeds(need: MoreSeeds, spread: Spread, names: Names) -> str:
    difference = text.format_percent(need.ratio - 1)
    whose = (
        "A difference" if need.batch is None else f"For {names.show(_arm_of(need))}, a difference"
    )
    seen = "" if need.batch is None else ", the one seen"
    if need.more is None:
        count = f"more than {MOST_SEEDS:,} seeds would be needed"
    elif need.more == 0:
        count = f"the {need.seeds} seeds at hand are enough"
    else:
        count = f"about {need.more} more seeds, {need.seeds + need.more} in all, would decide it"
    return (
        f"{whose} of {difference} in time{seen}: {count}, with a probability of"
        f" {100 * spread.power:.0f} % at the spread seen."
    )


def _arm_of(item: MoreSeeds) -> Arm:
    return Arm(item.setting or "", item.batch or 0)


def _say_validation_set(found: SetUncertainty) -> str:
    if found.score_sd is None and found.prompts:
        return (
            "Scores or target are not shares between 0 and 1, so that what another validation set"
            " would do is not known."
        )
    if found.score_sd is None:
        return "How many prompts the validation set has is not known, nor what another would do."
    ends = [
        text.format_percent(ratio - 1, signed=True)
        for ratio in (found.samples_lower, found.samples_higher)
        if ratio is not None
    ]
    moved = f", which would move samples to target by {' to '.join(ends)}" if ends else ""
    return (
        f"Another validation set of {found.prompts} prompts would shift every score by about"
        f" ±{text.format_score(found.score_sd)}{moved} in all arms alike."
    )
