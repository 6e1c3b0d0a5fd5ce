"""One arm against another, in words whose factors multiply."""

import dataclasses
import math

from jax_rl.study.names import Names
from jax_rl.study.summary import Arm, Comparison, Interval, arm_of

SAME_TIME = "in the same time"


@dataclasses.dataclass(frozen=True)
class RateContext:
    """How the learning rate belongs to each batch; every verdict holds under it alone."""

    rule: str  # none, sqrt, linear, power, adam; empty where the settings have several
    rate: float  # at the reference batch
    reference: int
    tuned: bool = False  # each batch at the best of the rates tried around the rule's

    def describe(self) -> str:
        """E.g. `under sqrt from rate 0.001 at 64`."""
        if self.tuned:
            return "each batch at the best of the rates tried for it"
        if not self.rule:
            return f"each setting by its own rule from rate {self.rate:g} at {self.reference}"
        if self.rule == "none":
            return f"at rate {self.rate:g} for every batch"
        return f"under {self.rule} from rate {self.rate:g} at {self.reference}"


def describe_comparison(
    comparison: Comparison, *, clock: str, context: RateContext, names: Names, censored: str = ""
) -> str:
    """One arm against another, e.g. `×4 batch (64) reaches the target 1.9× sooner: ...`.

    The printed factors multiply: the printed throughput and samples give the printed time, for
    which they have as many digits as that takes. Under the elapsed clock the throughput is
    rollouts per elapsed second.
    """
    against = names.show(Arm(comparison.against_setting, comparison.against))
    if names.several:
        name, other = names.show(arm_of(comparison)), f" than {against}"
    else:
        multiple = format_multiple(comparison.batch / comparison.against)
        name, other = f"{multiple} batch ({comparison.batch})", ""
    time, samples = time_ratio(comparison, clock), comparison.samples
    if time.estimate is None or samples.estimate is None:
        return f"{name}: no time ratio to {against}, {censored or 'no shared seed'}."
    words, throughput, more = _round_factors(samples.estimate, time.estimate, time.bound)
    if words == SAME_TIME and other:
        other = f" as {against}"
    unit = "throughput" if clock == "training" else "rollouts per elapsed second"
    bound = f"{samples.bound} " if samples.bound else ""
    return (
        f"{name} reaches the target {words}{other}: {unit} ×{throughput}, samples {bound}×{more}"
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
    digits = _count_digits(exact)
    factor = format_factor(exact, digits)
    sooner = time < 1
    # A factor half-way between two printed ones may never agree; 8 digits are then the end.
    for precision in range(2, 9):
        more = format_factor(samples, precision)
        throughput = format_factor(samples / time, precision)
        quotient = float(throughput) / float(more)
        if format_factor(quotient if sooner else 1 / quotient, digits) == factor:
            break
    return _word_time(factor, bound, sooner=sooner), throughput, more


def describe_ratio(ratio: Interval) -> str:
    """A ratio of times in words: `1.9× sooner`, `at least 1.1× later`."""
    time = math.nan if ratio.estimate is None else ratio.estimate
    exact = max(time, 1 / time)
    factor = format_factor(exact, _count_digits(exact))
    return _word_time(factor, ratio.bound, sooner=time < 1)


def _count_digits(exact: float) -> int:
    return 2 if exact >= 1.1 else 3


def _word_time(factor: str, bound: str, *, sooner: bool) -> str:
    if float(factor) == 1.0 and not bound:
        return SAME_TIME
    if sooner and bound:
        # At least this time is at most this much sooner.
        bound = "at most" if bound == "at least" else "at least"
    return f"{bound} {factor}× {'sooner' if sooner else 'later'}".strip()


def time_ratio(comparison: Comparison, clock: str) -> Interval:
    """The ratio of times by one clock."""
    return comparison.training_time if clock == "training" else comparison.elapsed_time


def format_ends(ratio: Interval, digits: int = 2) -> str:
    """`0.53 to 0.61`, `0.53 or more`, `0.61 or less`; empty without an interval."""
    low = None if ratio.low is None else format_factor(ratio.low, digits)
    high = None if ratio.high is None else format_factor(ratio.high, digits)
    if low and high:
        return f"{low} to {high}"
    return f"{low} or more" if low else f"{high} or less" if high else ""
