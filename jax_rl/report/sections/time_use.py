"""Where the time of each batch goes, and what its throughput is made of."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jax_rl.records import PHASES, UNCOUNTED_PHASES
from jax_rl.report import text
from jax_rl.report.section import Drawing, Section, Table
from jax_rl.study.names import join_words
from jax_rl.study.summary import Arm, StudySummary, arm_of
from jax_rl.study.use.time import ArmTimeUse, Rates, TimeUse

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MIB = 2**20
_TRAINING = tuple(phase for phase in PHASES if phase not in UNCOUNTED_PHASES)

METHODS = (
    "Phases and all shares are taken up to the raw crossing (over the whole of a run that misses"
    " the target) and averaged over the runs of an arm. Hidden work is host work done while the"
    " devices were busy; it costs no time and is in no phase.",
    "Idle rows = 1 - response tokens / (decode steps x rows of a wave): a wave runs until its"
    " longest response has ended, and rows that ended before go on without work.",
    "Padding of the learner: it computes every row at the largest prompt and response length."
    " Response positions without a token = 1 - mean length / longest length. Lengths of prompts"
    " are not recorded, so the share of all positions is given as a range, from full prompts to"
    " empty ones.",
    "Rates achieved = matrix FLOPs and bytes of the compiled programs x their calls / seconds of"
    " the phase, per device. The calls of decode are counted in forward passes that were really"
    " made; what a layout repeats on every device is counted once.",
    "Throughput is rollouts per second = tokens per second / mean length, for each run, so that the"
    " ratios in the split multiply; they are geometric means over the seeds that both arms have.",
)


def show_time_use(summary: StudySummary, use: TimeUse) -> Section | None:
    """The section; None where no run tells of its phases."""
    named = [phase for phase in PHASES if phase != "other"]
    arms = [one for one in use.arms if any(one.use.seconds[phase] > 0 for phase in named)]
    if not arms:
        return None
    tables = [
        _tabulate_phases(summary, arms),
        _tabulate_tokens(summary, arms),
        _tabulate_split(summary, arms),
        _tabulate_rates(summary, arms),
        _tabulate_memory(summary, arms),
    ]
    return Section(
        id="time-use",
        title="Where the time goes",
        paragraphs=_describe(summary, use, arms),
        tables=[table for table in tables if table is not None],
        drawings=[_draw_phases(summary, arms)] if any(a.seconds_per_thousand for a in arms) else [],
        methods=METHODS,
    )


def _name(summary: StudySummary, arm: ArmTimeUse) -> str:
    return text.format_arm(summary, arm_of(arm))


def _describe(summary: StudySummary, use: TimeUse, arms: Sequence[ArmTimeUse]) -> list[str]:
    words = [f"{_name(summary, arm)}: {_describe_largest(arm)}" for arm in arms]
    sentences = [f"The largest parts of the training time are {'; '.join(words)}."]
    for arm in arms:
        if arm.split is not None:
            one = arm.split
            against = text.format_arm(summary, Arm(one.against_setting, one.against))
            sentences.append(
                f"{_name(summary, arm)} against {against}: throughput"
                f" ×{text.format_ratio(one.throughput)} = tokens per second"
                f" ×{text.format_ratio(one.tokens_per_second)} / length"
                f" ×{text.format_ratio(one.length)}."
            )
    known = [a for a in arms if a.use.wasted_decoding is not None]
    if known:
        shares = [
            f"{text.format_percent(a.use.wasted_decoding)} at {_name(summary, a)}" for a in known
        ]
        sentences.append(
            f"Of the sampler's rows x steps, those that had already ended: {join_words(shares)}."
        )
    if use.incomparable:
        sentences.append(
            f"The seconds of these runs are not comparable ({'; '.join(use.incomparable)}): only"
            " their samples are."
        )
    return sentences


def _describe_largest(arm: ArmTimeUse) -> str:
    order = sorted(arm.use.shares, key=lambda phase: -arm.use.shares[phase])[:2]
    parts = [f"{phase} {text.format_percent(arm.use.shares[phase])}" for phase in order]
    return join_words(parts) or text.NOTHING


def _tabulate_phases(summary: StudySummary, arms: Sequence[ArmTimeUse]) -> Table:
    kinds = sorted({name for arm in arms for name in arm.use.hidden})
    length, unit = text.choose_time_unit(s for arm in arms for s in arm.use.seconds.values() if s)
    rows = []
    for arm in arms:
        row = [_name(summary, arm)]
        for phase in PHASES:
            share = arm.use.shares.get(phase)
            cell = text.format_number(arm.use.seconds[phase] / length)
            row.append(cell if share is None else f"{cell} ({text.format_percent(share)})")
        hidden = [text.format_number(arm.use.hidden.get(k, 0.0) / length) for k in kinds]
        rows.append([*row, *hidden])
    header = ["batch", *(f"{phase}, {unit}" for phase in PHASES)]
    return Table(
        id="time-phases",
        title="Phases up to the crossing",
        about=(
            "Mean over runs; in brackets the share of the training time, which leaves out validate,"
            " checkpoint and compile. Hidden work ran behind the devices' work and is in no phase."
        ),
        header=[*header, *(f"hidden {kind}, {unit}" for kind in kinds)],
        rows=rows,
    )


def _tabulate_tokens(summary: StudySummary, arms: Sequence[ArmTimeUse]) -> Table | None:
    if all(a.use.wasted_decoding is None and a.use.response_padding is None for a in arms):
        return None
    rows = [
        [
            _name(summary, arm),
            text.format_percent(arm.use.wasted_decoding),
            text.format_percent(arm.use.response_padding),
            f"{text.format_percent(arm.use.padding_low)} to"
            f" {text.format_percent(arm.use.padding_high)}",
        ]
        for arm in arms
    ]
    return Table(
        id="time-tokens",
        title="Work on rows that have ended, and on padding",
        about=(
            "Idle rows: share of rows x decode steps in which the row had ended. Padding: share of"
            " the learner's positions that hold no token; of all positions as a range, because"
            " lengths of prompts are not recorded."
        ),
        header=["batch", "idle rows", "response padding", "padding of all positions"],
        rows=rows,
    )


def _tabulate_split(summary: StudySummary, arms: Sequence[ArmTimeUse]) -> Table | None:
    rows = [
        [
            _name(summary, arm),
            text.format_arm(summary, Arm(arm.split.against_setting, arm.split.against)),
            text.format_ratio(arm.split.throughput),
            text.format_ratio(arm.split.tokens_per_second),
            text.format_ratio(arm.split.length),
            str(arm.split.seeds),
        ]
        for arm in arms
        if arm.split is not None
    ]
    if not rows:
        return None
    return Table(
        id="time-split",
        title="Throughput in its two factors",
        about="Ratios to the reference: throughput = tokens per second / length.",
        header=["batch", "against", "throughput", "tokens per second", "length", "seeds"],
        rows=rows,
    )


def _tabulate_rates(summary: StudySummary, arms: Sequence[ArmTimeUse]) -> Table | None:
    sides: list[tuple[str, Callable[[ArmTimeUse], Rates | None]]] = [
        ("generate", lambda arm: arm.use.generate),
        ("learn", lambda arm: arm.use.learn),
    ]
    rows = []
    for arm in arms:
        row = [_name(summary, arm)]
        for _, side in sides:
            row += _format_rates(side(arm))
        rows.append(row)
    if all(cell == text.NOTHING for row in rows for cell in row[1:]):
        return None
    header = [f"{name}, {unit}" for name, _ in sides for unit in ("GFLOP/s", "GB/s")]
    return Table(
        id="time-rates",
        title="Rates that one device achieved",
        about=(
            "Matrix products and memory traffic of the compiled programs over the seconds of the"
            " phase; in brackets the share of what the device can reach, where that is known."
        ),
        header=["batch", *header],
        rows=rows,
    )


def _format_rates(rates: Rates | None) -> list[str]:
    if rates is None:
        return [text.NOTHING, text.NOTHING]
    pairs = ((rates.flops, rates.flops_share), (rates.bytes, rates.bytes_share))
    return [
        text.format_number(None if value is None else value / 1e9)
        + (f" ({text.format_percent(share)})" if share is not None else "")
        for value, share in pairs
    ]


def _tabulate_memory(summary: StudySummary, arms: Sequence[ArmTimeUse]) -> Table | None:
    kinds = list(dict.fromkeys(kind for arm in arms for kind in arm.memory.by_kind))
    phases = list(dict.fromkeys(phase for arm in arms for phase in arm.memory.compiled))
    if not kinds and all(arm.memory.measured is None for arm in arms):
        return None

    def show(value: int | None) -> str:
        return text.format_number(None if value is None else value / _MIB)

    rows = [
        [
            _name(summary, arm),
            *(show(arm.memory.by_kind.get(kind)) for kind in kinds),
            *(show(arm.memory.compiled.get(phase)) for phase in phases),
            show(arm.memory.measured),
        ]
        for arm in arms
    ]
    process = any(arm.memory.of_process for arm in arms)
    where = "of the whole process, because a CPU does not tell" if process else "of the device"
    return Table(
        id="time-memory",
        title="Memory of one device, MiB",
        about=(
            "By kind: counted from shapes (gradients, activations and decoding are estimates). Peak"
            " by phase: of the compiled programs, with the weights and the optimizer beside them."
            f" Measured: the peak of the run, {where}."
        ),
        header=["batch", *kinds, *(f"peak of {phase}" for phase in phases), "measured"],
        rows=rows,
    )


def _draw_phases(summary: StudySummary, arms: Sequence[ArmTimeUse]) -> Drawing:
    shown = [arm for arm in arms if arm.seconds_per_thousand]

    def draw(axes: "Axes") -> None:
        from matplotlib.ticker import MaxNLocator

        from jax_rl.report.figures import PHASE_COLORS

        left = [0.0 for _ in shown]
        for phase in _TRAINING:
            parts = [arm.seconds_per_thousand[phase] for arm in shown]
            axes.barh(
                range(len(shown)),
                parts,
                left=left,
                height=0.7,
                color=PHASE_COLORS[phase],
                label=phase,
            )
            left = [start + part for start, part in zip(left, parts, strict=True)]
        axes.set_yticks(range(len(shown)), [_name(summary, arm) for arm in shown])
        axes.invert_yaxis()
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("training seconds per 1,000 rollouts")
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(_TRAINING))

    ends = "; ".join(
        f"{_name(summary, arm)}: {text.format_number(arm.training_per_thousand)} s" for arm in shown
    )
    return Drawing(
        name="time_per_rollout",
        heading="What a thousand rollouts cost in each phase",
        reading="A phase whose bar shrinks from one batch to the next is where throughput is won.",
        description=f"Training seconds per 1,000 rollouts, stacked by phase. {ends}.",
        draw=draw,
    )
