"""What of a batch should grow: published statements, held against the user's own runs.

A batch is P prompts x K rollouts each. It can grow by either, be used for more updates, and be
given devices in proportion. A statement is supported or contradicted only by an interval that
says so; a study without the arms for it says "not measured".
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

from scipy.special import fdtri

from jax_rl.study.batches import StudyFit, compare_arms, measure_cell
from jax_rl.study.growth.arms import ArmShape, GrowthArms, describe_shape
from jax_rl.study.growth.evidence import (
    CONTRADICTED,
    SUPPORTED,
    UNDECIDED,
    UNMEASURED,
    Evidence,
    Statement,
    estimate_contrast,
    is_inside,
    join_outcomes,
    judge_sign,
    widen_interval,
)
from jax_rl.study.intervals import LEVEL, fit_additive
from jax_rl.study.noise.split import CovarianceSplit
from jax_rl.study.settings import Setting
from jax_rl.study.summary import Arm, arm_of

MARGIN = 1.25
"""Ratios between 1 / MARGIN and MARGIN count as equal, once their whole interval is inside."""


@dataclasses.dataclass(frozen=True)
class Growth:
    """All statements, and the arms that they were held against."""

    statements: list[Statement]
    arms: list[ArmShape]


def examine_growth(
    fit: StudyFit,
    settings: Mapping[str, Setting],
    *,
    groups: Mapping[Arm, int],
    splits: Sequence[CovarianceSplit] = (),
) -> Growth:
    """Holds the published statements against the runs of a study.

    Args:
      fit: of the finished runs.
      settings: by name, as `jax_rl.study.settings.read_settings` gives them.
      groups: rollouts per prompt of each arm, as `read_groups` gives them.
      splits: of the gradient's covariance, from probes of the study's runs.
    """
    shapes = {arm: describe_shape(fit, arm, settings, groups) for arm in fit.censored}
    arms = GrowthArms(fit, settings, shapes)
    return Growth(
        statements=[
            judge_saturation(arms),
            judge_steadying(arms),
            judge_noise(splits),
            judge_product(arms),
            judge_reuse(arms),
            judge_devices(arms),
        ],
        arms=list(shapes.values()),
    )


def judge_saturation(arms: GrowthArms) -> Statement:
    """K saturates: the exponent of updates-to-target in K shrinks as K grows, at fixed P.

    The gain is -d log U / d log K with U = S / N: 1 where K times the rollouts take 1 / K of the
    updates, 0 where they take as many.
    """
    rule = (
        "Supported if the gain of the last step in K is below that of the first beyond its"
        " interval, contradicted if it is above; needs three groups at one number of prompts"
        ' (study.growth = ["group"]).'
    )
    statement = Statement(
        "saturation",
        "More rollouts per prompt pay less and less (K saturates).",
        "IsoCompute, 2026",
        UNMEASURED,
        rule,
        [],
    )
    evidence: list[Evidence] = []
    outcomes = []
    for name, one in arms.settings.items():
        line = arms.complete_of(name) if one.growth == "group" else []
        if len(line) < 3:
            continue
        first, last = _gain(line[0], line[1]), _gain(line[-2], line[-1])
        fall = _subtract(first, last)
        steps = (
            (f"K {line[0].group} to {line[1].group}", "gain of K", first),
            (f"K {line[-2].group} to {line[-1].group}", "gain of K", last),
            ("first step less last step", "fall of the gain", fall),
        )
        found = [
            Evidence(
                arms.name(what, name),
                measure,
                *estimate_contrast(arms.fit, weights, offset=offset),
            )
            for what, measure, (weights, offset) in steps
        ]
        evidence += found
        outcomes.append(judge_sign(found[-1]))
    return dataclasses.replace(statement, outcome=join_outcomes(outcomes), evidence=evidence)


def judge_steadying(arms: GrowthArms) -> Statement:
    """P mostly steadies: the scatter of log samples over seeds falls as P grows, at fixed K."""
    rule = (
        "Ratio of the residual standard deviation of log samples in the half of the batches with"
        " fewer prompts over that in the other half, seed effects removed in each half by itself,"
        " with its F interval. Supported above 1, contradicted below; needs two seeds and four"
        " batches that grow by prompts."
    )
    evidence: list[Evidence] = []
    outcomes = []
    for name, one in arms.settings.items():
        line = arms.complete_of(name) if one.growth == "prompts" else []
        half = len(line) // 2
        if half < 2:
            continue
        few, many = (_fit_spread(arms.fit, part) for part in (line[:half], line[-half:]))
        if not (few[0] > 0 and many[0] > 0):
            continue
        ratio = few[0] / many[0]  # of variances
        low, high = (float(fdtri(few[1], many[1], p)) for p in ((1 + LEVEL) / 2, (1 - LEVEL) / 2))
        found = Evidence(
            arms.name(f"P ≤ {line[half - 1].prompts} over P ≥ {line[-half].prompts}", name),
            "ratio of spreads",
            math.sqrt(ratio),
            math.sqrt(ratio / low),
            math.sqrt(ratio / high),
        )
        evidence.append(found)
        outcomes.append(judge_sign(found, neutral=1.0))
    return Statement(
        "steadying",
        "More prompts mostly steady training: runs of different seeds differ less.",
        "IsoCompute, 2026",
        join_outcomes(outcomes),
        rule,
        evidence,
    )


def judge_noise(splits: Sequence[CovarianceSplit]) -> Statement:
    """Most of the gradient's variance lies within prompts, by the probes' two parts."""
    evidence = [
        Evidence(
            f"batch {one.batch}, seed {one.seed} at {one.samples:,} samples",
            "share within prompts",
            one.within_share.estimate,
            one.within_share.low,
            one.within_share.high,
        )
        for one in splits
        if one.within_share.estimate is not None
    ]
    return Statement(
        "noise",
        "The gradient's noise lies mostly within prompts.",
        "critical batch for policy optimization, 2026",
        join_outcomes([judge_sign(one, neutral=0.5) for one in evidence]),
        "Supported if the share within prompts is above one half beyond its interval, contradicted"
        " if below, undecided where probes disagree; needs a probe of a run's checkpoint.",
        evidence,
    )


def judge_product(arms: GrowthArms) -> Statement:
    """N = P x K counts: as many samples whether a batch grew by prompts or by group."""
    pairs = [
        (a, b)
        for names in arms.list_families("growth")
        for first, second in itertools.combinations(names, 2)
        for a, b in arms.pair(second, first)
        if arms.shapes[a].group != arms.shapes[b].group
    ]
    evidence = _compare_pairs(arms, pairs)
    inside = [is_inside(one, MARGIN) for one in evidence]
    apart = [judge_sign(one, neutral=1.0) != UNDECIDED for one in evidence]
    outcome = UNMEASURED
    if evidence:
        outcome = UNDECIDED
        if all(inside):
            outcome = SUPPORTED
        elif any(far and not near for far, near in zip(apart, inside, strict=True)):
            outcome = CONTRADICTED
    return Statement(
        "product",
        "N = P x K is the size that counts, however it is made up.",
        "critical batch for policy optimization, 2026",
        outcome,
        "Samples to target of one batch grown in two ways, intervals simultaneous (Bonferroni)."
        f" Supported if every interval lies within 1/{MARGIN:g} to {MARGIN:g}, contradicted if one"
        " that does not leaves out 1; needs one batch grown by prompts and by group"
        ' (study.growth = ["prompts", "group"]).',
        evidence,
    )


def judge_reuse(arms: GrowthArms) -> Statement:
    """Reuse: more updates per batch save samples."""
    pairs = [
        (a, b)
        for names in arms.list_families("updates")
        for first, second in itertools.combinations(
            sorted(names, key=lambda name: arms.settings[name].updates), 2
        )
        for a, b in arms.pair(second, first)
    ]
    evidence = _compare_pairs(arms, pairs)
    signs = {judge_sign(one, neutral=1.0) for one in evidence} - {UNDECIDED}
    outcome = UNMEASURED if not evidence else UNDECIDED
    if signs == {CONTRADICTED}:  # every ratio that is decided is below 1
        outcome = SUPPORTED
    elif signs == {SUPPORTED}:
        outcome = CONTRADICTED
    return Statement(
        "reuse",
        "Using a batch for several updates saves samples.",
        "Schulman et al. 2017, minibatch epochs of PPO",
        outcome,
        "Samples to target with more over fewer updates per batch, intervals simultaneous"
        " (Bonferroni). Supported if those that leave out 1 are below it, contradicted if above,"
        " undecided if there is none or they disagree; needs study.updates with several values.",
        evidence,
    )


def judge_devices(arms: GrowthArms) -> Statement:
    """Devices in proportion to the batch: less time for the same device-hours."""
    evidence: list[Evidence] = []
    outcomes = []
    pairs = [
        (first, shape)
        for name, one in arms.settings.items()
        if one.devices == "batch"
        for line in [_list_priced(arms, name)]
        for first, shape in itertools.product(line[:1], line[1:])
    ]
    for first, shape in pairs:
        times = {arm_of(shape): 1.0, arm_of(first): -1.0}
        more = math.log(shape.devices / first.devices)
        what = arms.name(f"{shape.batch} over {first.batch}", shape.setting)
        time, hours = (
            # Both are one interval, moved by a number that is known.
            _as_ratio(what, measure, _estimate_time(arms.fit, times, offset, len(pairs)))
            for measure, offset in (("training time", 0.0), ("device-hours", more))
        )
        evidence += [time, hours]
        outcomes.append(_judge_trade(time, hours))
    # One step that pays is what the statement says; it fails if none does.
    outcome = UNMEASURED
    if outcomes:
        outcome = SUPPORTED if SUPPORTED in outcomes else UNDECIDED
        if set(outcomes) == {CONTRADICTED}:
            outcome = CONTRADICTED
    return Statement(
        "devices",
        "Devices in proportion to the batch shorten training at little cost in device-hours.",
        "Goyal et al. 2017, Accurate, large minibatch SGD",
        outcome,
        "Ratios to the smallest batch, intervals simultaneous (Bonferroni). Supported if for one"
        " batch the time is shorter beyond its interval and the device-hours surely less than"
        f" {MARGIN:g} times; contradicted if for every batch one of the two surely fails; needs"
        ' devices of one kind, seconds that are comparable, and study.devices = ["batch"].',
        evidence,
    )


_Contrast = tuple[dict[Arm, float], float]
"""Weights of arms' log samples (they add up to 0), and a number that is known exactly."""
_Logs = tuple[float, float | None, float | None]
"""The logarithm of a ratio, and the ends of its interval."""


def _gain(small: ArmShape, large: ArmShape) -> _Contrast:
    """-d log U / d log K between two arms; log U = log S - log N."""
    step = math.log(large.group / small.group)
    known = math.log(large.batch / small.batch) / step
    return {arm_of(small): 1 / step, arm_of(large): -1 / step}, known


def _subtract(first: _Contrast, second: _Contrast) -> _Contrast:
    weights = dict(first[0])
    for arm, weight in second[0].items():
        weights[arm] = weights.get(arm, 0.0) - weight
    return weights, first[1] - second[1]


def _fit_spread(fit: StudyFit, shapes: Sequence[ArmShape]) -> tuple[float, float]:
    """Residual variance of log samples over these arms alone, and its degrees of freedom.

    Seed effects are removed within the arms given, so that nothing of other arms' scatter enters.
    """
    cells = fit.cells_of(*(arm_of(shape) for shape in shapes))
    logs = [math.log(measure_cell(cell)["samples"]) for cell in cells]
    own = fit_additive([arm_of(cell) for cell in cells], [cell.seed for cell in cells], logs)
    return own.residual_sd**2, float(own.degrees_of_freedom)


def _compare_pairs(arms: GrowthArms, pairs: Sequence[tuple[Arm, Arm]]) -> list[Evidence]:
    """Ratios of samples, with intervals that hold together (Bonferroni)."""
    evidence = []
    for arm, against in pairs:
        ratio = compare_arms(arms.fit, arm, against=against).samples
        if ratio.estimate is None:
            continue
        wide = widen_interval(ratio, len(pairs), freedom=arms.fit.degrees_of_freedom)
        name = f"batch {arm.batch}: {arm.setting} over {against.setting}"
        evidence.append(Evidence(name, "samples ratio", ratio.estimate, wide.low, wide.high))
    return evidence


def _list_priced(arms: GrowthArms, setting: str) -> list[ArmShape]:
    """A setting's arms whose device-hours may be compared, by batch."""
    line = [shape for shape in arms.complete_of(setting) if shape.devices]
    return [] if arms.fit.by_kind.list_obstacles(*(arm_of(shape) for shape in line)) else line


def _estimate_time(
    fit: StudyFit, weights: Mapping[Arm, float], offset: float, comparisons: int
) -> _Logs:
    return estimate_contrast(
        fit, weights, offset=offset, measure="training_time", comparisons=comparisons
    )


def _judge_trade(time: Evidence, hours: Evidence) -> str:
    shorter, dearer = judge_sign(time, neutral=1.0), judge_sign(hours, neutral=MARGIN)
    if shorter == CONTRADICTED and dearer == CONTRADICTED:  # both surely below
        return SUPPORTED
    return CONTRADICTED if SUPPORTED in (shorter, dearer) else UNDECIDED


def _as_ratio(name: str, measure: str, logs: _Logs) -> Evidence:
    estimate, *ends = logs
    low, high = (None if end is None else math.exp(end) for end in ends)
    return Evidence(name, measure, math.exp(estimate), low, high)
