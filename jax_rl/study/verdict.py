"""Which batch reaches the target first, in words whose factors multiply."""

import dataclasses
import math
from collections.abc import Sequence

from jax_rl.study.batches import StudyFit, compare_batches
from jax_rl.study.summary import BatchResult, Comparison, Interval, Verdict


@dataclasses.dataclass(frozen=True)
class RateContext:
    """How the learning rate belongs to each batch; every verdict holds under it alone."""

    rule: str  # none, sqrt, linear
    rate: float  # at the reference batch
    reference: int

    def describe(self) -> str:
        """E.g. `under sqrt from rate 0.001 at 64`."""
        if self.rule == "none":
            return f"at rate {self.rate:g} for every batch"
        return f"under {self.rule} from rate {self.rate:g} at {self.reference}"


def decide(
    fit: StudyFit, results: Sequence[BatchResult], *, clock: str, context: RateContext
) -> Verdict:
    """The verdict under one clock, `training` or `elapsed`.

    The fastest batch has the smallest batch effect on log time among the batches whose runs all
    crossed. A batch cannot be told from it when the interval of their time ratio includes 1; a
    batch with censored runs, when the lower limit of its one-sided ratio does not exceed 1.
    """
    measure = f"{clock}_time"
    batches = [result.batch for result in results]
    if not fit.complete:
        return Verdict(clock, None, [], False, [_describe_no_fastest(fit)])
    effects = fit.fits[measure]
    fastest = min(zip(effects.effects, effects.batches, strict=True))[1]
    ratios = {
        batch: _time(compare_batches(fit, batch, against=fastest), clock)
        for batch in batches
        if batch != fastest
    }
    undistinguished = [b for b in batches if b == fastest or not _is_slower(ratios[b])]
    inside = min(batches) < fastest < max(batches)
    sentences = [
        *_describe_fastest(fit, results, fastest, clock=clock, context=context),
        _describe_set(fit, fastest, undistinguished, batches),
        _describe_range(fastest, undistinguished, batches),
        *_describe_coarse(results, undistinguished),
        *_describe_censored(fit, results),
    ]
    return Verdict(clock, fastest, undistinguished, inside, sentences)


def describe_comparison(
    comparison: Comparison, *, clock: str, context: RateContext, censored: str = ""
) -> str:
    """One batch against another, e.g. `×4 batch (64) reaches the target 1.9× sooner: ...`.

    The printed factors multiply: the printed throughput and samples give the printed time, for
    which they have as many digits as that takes. Under the elapsed clock the throughput is
    rollouts per elapsed second.
    """
    name = f"{format_multiple(comparison.batch / comparison.against)} batch ({comparison.batch})"
    time, samples = _time(comparison, clock), comparison.samples
    if time.estimate is None or samples.estimate is None:
        return f"{name}: no time ratio to {comparison.against}, {censored or 'no shared seed'}."
    words, throughput, more = _round_factors(samples.estimate, time.estimate, time.bound)
    unit = "throughput" if clock == "training" else "rollouts per elapsed second"
    bound = f"{samples.bound} " if samples.bound else ""
    return (
        f"{name} reaches the target {words}: {unit} ×{throughput}, samples {bound}×{more}"
        f" ({context.describe()}{'; ' + censored if censored else ''})."
    )


def format_multiple(multiple: float) -> str:
    """`×4`, or `×1/4` for a smaller batch."""
    if multiple < 1 and math.isclose(1 / multiple, round(1 / multiple)):
        return f"×1/{round(1 / multiple)}"
    return f"×{multiple:g}"


def format_factor(value: float, digits: int = 2) -> str:
    """A positive factor to a number of significant digits, without an exponent."""
    decimals = max(0, digits - 1 - math.floor(math.log10(value)))
    return f"{value:.{decimals}f}"


def _round_factors(samples: float, time: float, bound: str) -> tuple[str, str, str]:
    """The time in words, the throughput and the samples, such that the printed ones multiply."""
    exact = max(time, 1 / time)
    digits = 2 if exact >= 1.1 else 3
    factor = format_factor(exact, digits)
    sooner = time < 1
    # A factor half-way between two printed ones may never agree; 8 digits are then the end.
    for precision in range(2, 9):
        more = format_factor(samples, precision)
        throughput = format_factor(samples / time, precision)
        quotient = float(throughput) / float(more)
        if format_factor(quotient if sooner else 1 / quotient, digits) == factor:
            break
    if float(factor) == 1.0 and not bound:
        return "in the same time", throughput, more
    if sooner and bound:
        # At least this time is at most this much sooner.
        bound = "at most" if bound == "at least" else "at least"
    words = f"{factor}× {'sooner' if sooner else 'later'}"
    return f"{bound} {words}".strip(), throughput, more


def _time(comparison: Comparison, clock: str) -> Interval:
    return comparison.training_time if clock == "training" else comparison.elapsed_time


def _is_slower(ratio: Interval) -> bool:
    return ratio.low is not None and ratio.low > 1


def _describe_fastest(
    fit: StudyFit,
    results: Sequence[BatchResult],
    fastest: int,
    *,
    clock: str,
    context: RateContext,
) -> list[str]:
    """The fastest against the reference; if it is the reference, the next one against it."""
    reference = context.reference
    if fastest != reference and reference in fit.censored:
        comparison = compare_batches(fit, fastest, against=reference)
        censored = _count_censored(fit, reference)
        return [
            describe_comparison(comparison, clock=clock, context=context, censored=censored),
            *_describe_interval(_time(comparison, clock), fastest, reference),
        ]
    first = f"Batch {fastest} reaches the target first by the {clock} clock"
    if fastest != reference:
        return [f"{first}; the reference batch {reference} has no finished run to compare with."]
    sentences = [f"The reference batch ({fastest}) reaches the target first."]
    others = [b for b in fit.complete if b != fastest]
    if not others:
        return sentences
    effects = fit.fits[f"{clock}_time"]
    second = min(others, key=lambda b: float(effects.effects[effects.batches.index(b)]))
    comparison = compare_batches(fit, second, against=fastest)
    return [
        *sentences,
        "Next, the " + describe_comparison(comparison, clock=clock, context=context),
        *_describe_interval(_time(comparison, clock), second, fastest),
    ]


def _describe_interval(time: Interval, batch: int, against: int) -> list[str]:
    ends = {
        (True, True): "{low} to {high}",
        (True, False): "{low} or more",
        (False, True): "{high} or less",
    }.get((time.low is not None, time.high is not None))
    if ends is None:
        return []
    text = ends.format(
        low="" if time.low is None else format_factor(time.low),
        high="" if time.high is None else format_factor(time.high),
    )
    return [f"95 % interval of the time of {batch} over that of {against}: {text}."]


def _describe_set(
    fit: StudyFit, fastest: int, undistinguished: Sequence[int], batches: Sequence[int]
) -> str:
    others = [batch for batch in undistinguished if batch != fastest]
    if fit.degrees_of_freedom < 1:
        return (
            "There are no intervals: the runs leave no degrees of freedom (two seeds and two"
            f" batches that all reach the target are the fewest), so {_join(others)} cannot be"
            f" told from the fastest, {fastest}."
            if others
            else "There are no intervals: only one batch was measured."
        )
    comparisons = len(batches) - 1
    caution = (
        f" Each of the {comparisons} comparisons has its own 95 % interval, and the fastest was"
        " itself picked from these data; no correction is made for either, so the set may leave"
        " out the truly fastest batch more often than once in 20 studies."
    )
    if others:
        return f"{_join(others)} cannot be told from the fastest, {fastest}.{caution}"
    return f"Every other batch is slower than {fastest} beyond its interval.{caution}"


def _describe_range(fastest: int, undistinguished: Sequence[int], batches: Sequence[int]) -> str:
    if min(batches) < fastest < max(batches):
        edges = [b for b in (min(batches), max(batches)) if b in undistinguished]
        if edges:
            return (
                f"The fastest batch is inside the range of {min(batches)} to {max(batches)}, but"
                f" its edge ({_join(edges)}) cannot be told from it."
            )
        return f"The optimum is inside the range of {min(batches)} to {max(batches)}."
    if min(batches) == max(batches):
        return "The optimum is not inside the range: only one batch was measured."
    side, beyond = ("smallest", "smaller") if fastest == min(batches) else ("largest", "larger")
    return (
        f"The optimum is not inside the range: the fastest batch, {fastest}, is the {side}"
        f" measured, and a {beyond} one may be faster."
    )


def _describe_coarse(results: Sequence[BatchResult], undistinguished: Sequence[int]) -> list[str]:
    coarse = [result.batch for result in results if result.too_coarse]
    if not coarse:
        return []
    text = f"Too coarse: {_join(coarse)} had fewer than 20 updates to target"
    if set(coarse) & set(undistinguished):
        text += ", so the fastest, or one that cannot be told from it, is among the too coarse"
    return [text + "."]


def _describe_censored(fit: StudyFit, results: Sequence[BatchResult]) -> list[str]:
    lines = [
        f"{_count_censored(fit, r.batch)}, > {r.samples_at_least:,.0f} samples"
        for r in results
        if r.samples_at_least is not None
    ]
    if not lines:
        return []
    return [
        "Batches with censored runs have no point estimate and cannot be named the fastest ("
        + "; ".join(lines)
        + ")."
    ]


def _describe_no_fastest(fit: StudyFit) -> str:
    if not fit.censored:
        return "No run has finished, so there is no verdict."
    counts = "; ".join(_count_censored(fit, batch) for batch in fit.censored)
    return f"In no batch did every run reach the target, so there is no verdict ({counts})."


def _count_censored(fit: StudyFit, batch: int) -> str:
    if not fit.censored[batch]:
        return ""
    runs = sum(cell.batch == batch for cell in fit.cells)
    return f"{fit.censored[batch]} of {runs} runs of {batch} censored"


def _join(batches: Sequence[int]) -> str:
    words = [str(batch) for batch in batches]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
