"""What a study found, as data: made from records by `analyse`, shown by `jax_rl.report`.

Ratios are against another arm, i.e. another batch (the reference, or the next smaller one) or
the same batch in another setting, and multiply: time ratio = samples ratio / throughput ratio,
exactly, per run and in the geometric means.
"""

import dataclasses
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from jax_rl.study.answers import Answers


@dataclasses.dataclass(frozen=True, order=True)
class Arm:
    """What a study compares: one batch in one setting, i.e. all else that a study may vary."""

    setting: str
    batch: int


class OfArm(Protocol):
    """Whatever is of one arm: a run, a result, a verdict on it."""

    @property
    def setting(self) -> str:
        """Name of the setting."""

    @property
    def batch(self) -> int:
        """Rollouts per iteration."""


def arm_of(item: OfArm) -> Arm:
    """The arm that a run belongs to, or that a result is of."""
    return Arm(item.setting, item.batch)


@dataclasses.dataclass(frozen=True)
class Interval:
    """A ratio with its 95 % interval; None where there is none.

    With a `bound` the estimate is that bound and no point estimate: the ratio of geometric
    means with each censored run at what it generated, and the interval's open side is None.
    Both sides censored: all None. One seed: an estimate without an interval.
    """

    estimate: float | None
    low: float | None
    high: float | None
    bound: str = ""  # "", "at least", "at most": one-sided because of censored runs


@dataclasses.dataclass(frozen=True)
class Crossing:
    """Where the isotonic fit of the validation curve meets the target (interpolated)."""

    samples: float
    updates: float
    training_seconds: float
    elapsed_seconds: float
    raw_samples: int  # first grid point at or above the target
    raw_training_seconds: float
    raw_elapsed_seconds: float
    learnt: int  # rollouts with a part in a gradient up to the raw crossing
    in_flight: int  # generated but not learnt from when the crossing was seen
    held: bool  # no later grid point fell back below the target


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of the study: one setting, one batch, one seed."""

    name: str  # directory under cells/
    setting: str
    layout: str  # that it lay in
    batch: int
    seed: int
    order: int  # place in the order of running, 1 for the first
    device: str  # count, kind and platform of its devices
    device_count: int
    finished: bool
    learning_rate: float
    warmup_updates: int
    crossing: Crossing | None  # None: censored
    samples: int  # generated in the whole run
    training_seconds: float
    elapsed_seconds: float
    phases: dict[str, float]  # whole run, seconds
    phases_to_crossing: dict[str, float]  # training phases up to the raw crossing, seconds
    rollouts_per_second: float  # up to the crossing (or the whole run), by the training clock
    tokens_per_second: float
    generate_per_second: float  # rollouts per second of generate alone
    learn_per_second: float
    steady_per_second: float | None  # the separate measurement
    steady_gap: float | None  # steady / run throughput - 1
    accounting_gap: float  # |sum of phases / elapsed - 1|
    other_share: float  # of elapsed
    mean_length: float
    p95_length: float
    start_score: float
    best_score: float
    mismatch_max: float
    load_average: float
    curve_samples: list[int]
    curve_scores: list[float]
    curve_fit: list[float]  # isotonic fit
    curve_training_seconds: list[float]
    curve_elapsed_seconds: list[float]
    curve_updates: list[int]
    curve_tokens: list[int]  # response tokens generated so far
    notes: list[str]
    ended: str = ""  # why, as the record says: target, sample_budget, not_finite ...


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One arm against another; factors multiply (sooner = 1 / time).

    Arms whose runs were on different devices have a ratio of samples and no other.
    """

    setting: str
    batch: int
    against_setting: str
    against: int  # the other arm's batch
    samples: Interval
    throughput: Interval
    training_time: Interval
    elapsed_time: Interval


@dataclasses.dataclass(frozen=True)
class BatchResult:
    """Geometric means over the seeds of one batch in one setting."""

    setting: str
    batch: int
    multiple: float  # of the reference
    learning_rate: float
    seeds: list[int]
    censored: int
    samples_to_target: float | None  # None: censored seeds leave no point estimate
    samples_at_least: float | None  # geometric mean, censored runs at their bound; None if none is
    updates_to_target: float | None
    training_time: float | None  # seconds
    elapsed_time: float | None
    training_time_at_least: float | None  # as samples_at_least
    elapsed_time_at_least: float | None
    throughput: float  # rollouts per second
    tokens_per_second: float
    generate_per_second: float
    learn_per_second: float
    steady_per_second: float | None
    mean_length: float
    p95_length: float
    phase_shares: dict[str, float]  # of elapsed
    against_reference: Comparison | None  # the reference batch in the same setting
    against_smaller: Comparison | None  # the next smaller batch in the same setting
    against_setting: Comparison | None  # the same batch in the study's first setting
    too_coarse: bool  # fewer than 20 updates to target
    not_held: int


@dataclasses.dataclass(frozen=True)
class ArmVerdict:
    """One arm against the reference, as one of several comparisons."""

    setting: str
    batch: int
    verdict: str  # "faster", "slower", "undecided"
    time: Interval  # over that of the reference; all of these hold together in 95 % of studies


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Which arm reaches the target first under one clock, in words and as a set."""

    clock: str  # "training" or "elapsed"
    setting: str | None  # of the fastest arm
    fastest: int | None  # its batch
    undistinguished: list[int]  # batches of its setting that cannot be told from it, it included
    inside_range: bool  # the fastest is neither the smallest nor the largest batch
    sentences: list[str]
    arms: list[Arm]  # all that cannot be told from the fastest, in any setting, it included
    against_fastest: list[Comparison]  # every other arm, each with its own 95 % interval
    against_reference: list[ArmVerdict] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class LayoutRatio:
    """Samples to target in one setting over those in another that differs in the layout alone.

    A layout moves no sample, so that the ratio is 1 up to noise; `differs` says that it is not.
    """

    setting: str
    against: str
    batch: int | None  # None: all batches together
    pairs: int  # of runs of one batch and seed
    samples: Interval  # 95 %
    differs: bool  # the interval that allows for the number of such ratios leaves out 1


@dataclasses.dataclass(frozen=True)
class SingleChoices:
    """What one choice alone would give under one clock; the other stays the reference."""

    clock: str
    setting: str | None  # the fastest at the reference batch
    settings: list[str]  # those that cannot be told from it, it included
    batch: int | None  # the fastest in the first setting
    sentences: list[str]


@dataclasses.dataclass(frozen=True)
class SettingResult:
    """One setting's own study: which of its batches is the fastest."""

    setting: str
    layout: str
    device: str  # of its runs
    axis_sizes: dict[str, int]  # of its mesh
    training: Verdict
    elapsed: Verdict


@dataclasses.dataclass(frozen=True)
class StudySummary:
    """Everything that the report shows; `summary.json` is this, field by field."""

    name: str
    target: float
    sample_budget: int
    seconds_budget: float
    rate_rule: str
    reference_batch: int
    reference_rate: float
    factor: int
    group: int
    setting: str  # the only one, or the first, which the others are compared with
    task: str
    parameters: int
    device: str
    versions: dict[str, str]
    git_revision: str
    validation_prompts: int
    validation_every: int
    validation_noise: float  # standard deviation of scores about the isotonic fit
    start_score: float
    warm_start_seconds: float
    checkpoint: str  # directory that all runs started from; empty: the warm start
    batches: list[BatchResult]  # by setting, then by batch
    cells: list[Cell]  # in the order of running
    planned_cells: int
    residual_sd: dict[str, float]  # of log samples, throughput, training_time, elapsed_time
    degrees_of_freedom: int
    training: Verdict  # over all settings
    elapsed: Verdict
    clocks_agree: bool  # on the fastest, on what is not told from it, and on every arm
    settings: list[SettingResult]  # in the order of the configuration
    single_choices: list[SingleChoices]  # one per clock; empty with one setting
    layout_ratios: list[LayoutRatio]  # empty with one layout
    layout_samples: list[str]  # what these ratios say; empty with one layout
    notes: list[str]  # what a reader must know: coarse grids, dropped runs, load, gaps
    answers: "Answers | None" = None  # to all further questions
    imported: bool = False  # made from other trainers' logs
    # Why the seconds of its arms are not all compared; empty where they are.
    incomparable: list[str] = dataclasses.field(default_factory=list)
    one_at_a_time: bool = False  # the records show that no two runs overlapped
