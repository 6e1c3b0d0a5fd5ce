"""Made-up studies for the tests of the report; every number follows from a formula."""

import dataclasses
import math

from jax_rl.study.summary import (
    Arm,
    BatchResult,
    Cell,
    Comparison,
    Crossing,
    Interval,
    SettingResult,
    StudySummary,
    Verdict,
)

BATCHES = (4, 16, 64, 256, 1024)
REFERENCE = 16
TARGET = 0.8
BUDGET = 65_536
GRID = 2048
HOSTILE = "<script>alert('note')</script> & [red]"


def true_samples(batch: int) -> float:
    """Samples to the target: level, then rising past 256."""
    return 12_000 * (1 + (batch / 512) ** 1.2)


def true_throughput(batch: int) -> float:
    """Rollouts per second: saturates at 4,000."""
    return 4_000 * batch / (batch + 12)


def make_cell(batch: int, seed: int, *, order: int, censored: bool = False, note: str = "") -> Cell:
    """A run whose score rises as 1 - exp(-samples)."""
    scale = true_samples(batch) * (1 + 0.05 * (seed - 1)) / math.log(2)
    end = BUDGET if censored else math.ceil(1.3 * scale * math.log(2) / GRID) * GRID
    samples = list(range(0, end + 1, GRID))
    top = 0.5 if not censored else 0.3
    fit = [0.6 + 2 * (TARGET - 0.6) * top / 0.5 * (1 - math.exp(-s / scale)) for s in samples]
    if censored:
        fit = [min(score, 0.79) for score in fit]
    wobble = [0.006 * math.sin(3.1 * i + seed + batch) for i in range(len(samples))]
    rate = true_throughput(batch) * (1 + 0.02 * (seed - 1))
    training = end / rate
    crossed = scale * math.log(2)
    raw = math.ceil(crossed / GRID) * GRID
    elapsed = 1.25 * training + 6
    phases = {
        "generate": 0.55 * training,
        "reward": 0.02 * training,
        "learn": 0.41 * training,
        "sync": 0.01 * training,
        "other": 0.01 * training,
        "validate": 0.2 * training,
        "checkpoint": 0.05 * training,
        "compile": 6.0,
    }
    crossing = Crossing(
        samples=crossed,
        updates=crossed / batch,
        training_seconds=crossed / rate,
        elapsed_seconds=1.25 * crossed / rate + 6,
        raw_samples=raw,
        raw_training_seconds=raw / rate,
        raw_elapsed_seconds=1.25 * raw / rate + 6,
        learnt=raw - batch // 8,
        in_flight=0,
        held=seed != 2,
    )
    return Cell(
        name=f"b{batch}-s{seed}",
        setting="replicated",
        layout="replicated",
        batch=batch,
        seed=seed,
        order=order,
        device="1 x made-up core (cpu)",
        device_count=1,
        finished=True,
        learning_rate=1e-3 * math.sqrt(batch / REFERENCE),
        warmup_updates=max(1, 512 // batch),
        crossing=None if censored else crossing,
        samples=end,
        training_seconds=training,
        elapsed_seconds=elapsed,
        phases=phases,
        phases_to_crossing={k: 0.8 * v for k, v in phases.items()},
        rollouts_per_second=rate,
        tokens_per_second=3.5 * rate,
        generate_per_second=rate / 0.55,
        learn_per_second=rate / 0.41,
        steady_per_second=1.03 * rate,
        steady_gap=0.03,
        accounting_gap=0.0004,
        other_share=0.008,
        mean_length=3.5,
        p95_length=5.0,
        start_score=fit[0],
        best_score=max(fit),
        mismatch_max=2e-6,
        load_average=1.1,
        curve_samples=samples,
        curve_scores=[f + w for f, w in zip(fit, wobble, strict=True)],
        curve_fit=fit,
        curve_training_seconds=[s / rate for s in samples],
        curve_elapsed_seconds=[1.25 * s / rate + 6 for s in samples],
        curve_updates=[s // batch for s in samples],
        curve_tokens=[int(3.5 * s) for s in samples],
        notes=[note] if note else [],
    )


def _mean(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def _interval(ratio: float, *, bound: str = "", spread: float = 1.15) -> Interval:
    if bound:
        return Interval(
            estimate=ratio,
            low=ratio / spread if bound == "at least" else None,
            high=ratio * spread if bound == "at most" else None,
            bound=bound,
        )
    return Interval(ratio, ratio / spread, ratio * spread)


def _compare(mine: list[Cell], other: list[Cell]) -> Comparison:
    def used(cell: Cell) -> float:
        return cell.crossing.samples if cell.crossing else float(cell.samples)

    mine_open = any(c.crossing is None for c in mine)
    other_open = any(c.crossing is None for c in other)
    samples = _mean([used(c) for c in mine]) / _mean([used(c) for c in other])
    throughput = _mean([c.rollouts_per_second for c in mine]) / _mean(
        [c.rollouts_per_second for c in other]
    )
    if mine_open and other_open:
        nothing = Interval(None, None, None)
        return Comparison(
            setting="replicated",
            batch=mine[0].batch,
            against_setting="replicated",
            against=other[0].batch,
            samples=nothing,
            throughput=_interval(throughput),
            training_time=nothing,
            elapsed_time=nothing,
        )
    bound = "at least" if mine_open else "at most" if other_open else ""
    time = samples / throughput
    return Comparison(
        setting="replicated",
        batch=mine[0].batch,
        against_setting="replicated",
        against=other[0].batch,
        samples=_interval(samples, bound=bound),
        throughput=_interval(throughput, spread=1.03),
        training_time=_interval(time, bound=bound, spread=1.16),
        elapsed_time=_interval(time**0.8, bound=bound, spread=1.16),
    )


def _seconds(cell: Cell, clock: str) -> float:
    return getattr(cell.crossing or cell, f"{clock}_seconds")


def make_result(
    batch: int, cells: list[Cell], reference: list[Cell], smaller: list[Cell] | None
) -> BatchResult:
    """The row of one batch."""
    crossings = [c.crossing for c in cells if c.crossing is not None]
    whole = len(crossings) == len(cells)
    used = [c.crossing.samples if c.crossing else float(c.samples) for c in cells]
    total = sum(cells[0].phases.values())
    return BatchResult(
        setting="replicated",
        batch=batch,
        multiple=batch / REFERENCE,
        learning_rate=cells[0].learning_rate,
        seeds=[c.seed for c in cells],
        censored=len(cells) - len(crossings),
        samples_to_target=_mean(used) if whole else None,
        samples_at_least=None if whole else _mean(used),
        updates_to_target=_mean(used) / batch if whole else None,
        training_time=_mean([c.training_seconds for c in crossings]) if whole else None,
        elapsed_time=_mean([c.elapsed_seconds for c in crossings]) if whole else None,
        training_time_at_least=None if whole else _mean([_seconds(c, "training") for c in cells]),
        elapsed_time_at_least=None if whole else _mean([_seconds(c, "elapsed") for c in cells]),
        throughput=_mean([c.rollouts_per_second for c in cells]),
        tokens_per_second=_mean([c.tokens_per_second for c in cells]),
        generate_per_second=_mean([c.generate_per_second for c in cells]),
        learn_per_second=_mean([c.learn_per_second for c in cells]),
        steady_per_second=_mean([1.03 * c.rollouts_per_second for c in cells]),
        mean_length=3.5,
        p95_length=5.0,
        phase_shares={k: v / total for k, v in cells[0].phases.items()},
        against_reference=None if batch == REFERENCE else _compare(cells, reference),
        against_smaller=None if smaller is None else _compare(cells, smaller),
        against_setting=None,
        too_coarse=whole and _mean(used) / batch < 20,
        not_held=sum(not c.held for c in crossings),
    )


def make_study(
    *,
    batches: tuple[int, ...] = BATCHES,
    seeds: tuple[int, ...] = (0, 1, 2),
    censored: frozenset[tuple[int, int]] = frozenset(),
    dropped: frozenset[tuple[int, int]] = frozenset(),
    note: str = "",
) -> StudySummary:
    """A study; `censored` and `dropped` are sets of (batch, seed)."""
    order = [(b, s) for s in seeds for b in sorted(batches, key=lambda b: (b * 7 + s) % 11)]
    cells = [
        make_cell(b, s, order=i, censored=(b, s) in censored, note=note if i == 1 else "")
        for i, (b, s) in enumerate(order, 1)
        if (b, s) not in dropped
    ]
    groups = {b: sorted((c for c in cells if c.batch == b), key=lambda c: c.seed) for b in batches}
    here = [b for b in batches if groups[b]]
    results = [
        make_result(b, groups[b], groups[REFERENCE], groups[here[i - 1]] if i else None)
        for i, b in enumerate(here)
    ]
    training = {r.batch: r.training_time for r in results if r.training_time is not None}
    fastest = min(training, key=lambda b: training[b]) if training else None
    says = (
        [f"The batch of {fastest} reaches the target first."]
        if fastest
        else ["No batch reached the target in every seed."]
    )
    training_clock, elapsed_clock = (
        _make_verdict(clock, fastest, says) for clock in ("training", "elapsed")
    )
    return StudySummary(
        name="addition",
        target=TARGET,
        sample_budget=BUDGET,
        seconds_budget=3600.0,
        rate_rule="sqrt",
        reference_batch=REFERENCE,
        reference_rate=1e-3,
        factor=4,
        group=4,
        setting="replicated",
        task="addition, 2 digits",
        parameters=101_248,
        device="cpu (8 x made-up core)",
        versions={"jax": "0.10.2", "numpy": "2.1"},
        git_revision="0123abc",
        validation_prompts=512,
        validation_every=GRID,
        validation_noise=0.006,
        start_score=0.6,
        warm_start_seconds=21.5,
        checkpoint="",
        batches=results,
        cells=cells,
        planned_cells=len(batches) * len(seeds),
        residual_sd={
            "samples": 0.05,
            "throughput": 0.02,
            "training_time": 0.054,
            "elapsed_time": 0.05,
        },
        degrees_of_freedom=8,
        training=training_clock,
        elapsed=elapsed_clock,
        clocks_agree=True,
        settings=[
            SettingResult(
                "replicated",
                "replicated",
                "1 x made-up core (cpu)",
                {},
                training_clock,
                elapsed_clock,
            )
        ],
        single_choices=[],
        layout_ratios=[],
        layout_samples=[],
        notes=[note] if note else [],
    )


def _make_verdict(clock: str, fastest: int | None, sentences: list[str]) -> Verdict:
    arms = [] if fastest is None else [Arm("replicated", fastest)]
    setting = arms[0].setting if arms else None
    near = [arm.batch for arm in arms]
    return Verdict(clock, setting, fastest, near, fastest is not None, sentences, arms, [])


def with_name(summary: StudySummary, name: str) -> StudySummary:
    """The same study under another name."""
    return dataclasses.replace(summary, name=name)


CENSORED = make_study(censored=frozenset((1024, s) for s in (0, 1, 2)))
PARTLY = make_study(censored=frozenset({(1024, 0), (1024, 1), (256, 2)}))
NOTHING_REACHED = make_study(censored=frozenset((b, s) for b in BATCHES for s in (0, 1, 2)))
UNFINISHED = make_study(dropped=frozenset({(4, 2), (1024, 1), (1024, 2)}))
NOTHING_FINISHED = dataclasses.replace(
    UNFINISHED,
    batches=[],
    cells=[dataclasses.replace(UNFINISHED.cells[0], finished=False, crossing=None)],
    validation_noise=math.nan,
    residual_sd=dict.fromkeys(UNFINISHED.residual_sd, math.nan),
    degrees_of_freedom=0,
    training=_make_verdict("training", None, ["No run has finished."]),
    elapsed=_make_verdict("elapsed", None, ["No run has finished."]),
)
STUDIES = {
    "normal": make_study(),
    "censored": CENSORED,
    "partly": PARTLY,
    "nothing_reached": NOTHING_REACHED,
    "one_seed": make_study(seeds=(0,)),
    "unfinished": UNFINISHED,
    "hostile": with_name(make_study(note=HOSTILE), f"$\\frac${HOSTILE}"),
    "one_batch": make_study(batches=(16,), seeds=(0,)),
    "nothing_finished": NOTHING_FINISHED,
}
