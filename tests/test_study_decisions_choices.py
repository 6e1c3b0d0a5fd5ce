"""Three batches and the choices of each half, on studies with known samples and throughput."""

import dataclasses
import math
from collections.abc import Mapping

import pytest
from scipy import stats
from study_records import build_cell

from jax_rl.study.batches import fit_study, summarise_arm
from jax_rl.study.decisions.choices import Choices, choose_batches
from jax_rl.study.summary import Arm, Cell

REFERENCE = 64
WIGGLE = (-0.02, 0.03, -0.01)

# Samples to target, rollouts per second. Times: 80, 50, 25, 20, 40 s.
STUDY = {16: (4000, 50.0), 64: (4000, 80.0), 256: (4200, 168.0), 1024: (6000, 300.0),
         4096: (16000, 400.0)}  # fmt: skip


def build(
    study: Mapping[int, tuple[float, float]], *, censored: tuple[int, ...] = (), noise: float = 0.0
) -> list[Cell]:
    return [
        build_cell(
            batch,
            seed,
            samples=samples * math.exp(noise * WIGGLE[(seed + place) % 3]),
            rate=rate,
            crossed=batch not in censored,
        )
        for seed in range(3)
        for place, (batch, (samples, rate)) in enumerate(study.items())
    ]


def choose(cells: list[Cell], clock: str = "training", reference: int = REFERENCE) -> Choices:
    fit = fit_study(cells, settings=("replicated",))
    base = Arm("replicated", reference)
    results = [
        summarise_arm(fit, arm, reference=base, updates_per_iteration=1) for arm in fit.censored
    ]
    return choose_batches(fit, results, setting="replicated", reference=reference, clock=clock)


def estimates(choices: Choices) -> dict[str, tuple[int, float | None]]:
    return {half.by: (half.batch, half.regret.estimate) for half in choices.halves}


def test_three_batches_and_the_halves_by_hand() -> None:
    found = choose(build(STUDY))
    assert (found.efficient, found.fastest, found.reason) == (256, 1024, "")
    assert found.efficient_ratio is not None
    assert found.efficient_ratio.estimate == pytest.approx(1.05)
    # Against the reference's 50 s the ratios are 0.4 at 1,024 and 0.8 at 4,096: below 1 to the end.
    assert found.break_even is not None
    assert (found.break_even.estimate, found.break_even.bound) == (4096, "at least")
    halves = estimates(found)
    assert halves["samples"] == (16, pytest.approx(80 / 20))
    assert halves["throughput"] == halves["generation"] == (4096, pytest.approx(40 / 20))


def test_the_break_even_lies_on_a_line_in_logs() -> None:
    found = choose(build({**STUDY, 4096: (50000, 400.0)}))  # 125 s: ratio 2.5
    # log B from 1,024 to 4,096: the ratio goes from 0.4 to 1 / 0.4, through 1 half way.
    assert found.break_even is not None
    assert found.break_even.estimate == pytest.approx(2048)
    assert found.break_even.bound == ""


def test_limits_of_the_break_even_enclose_it() -> None:
    found = choose(build({**STUDY, 4096: (50000, 400.0)}, noise=3.0))
    edge = found.break_even
    assert edge is not None
    assert edge.low is not None
    assert edge.high is not None
    assert edge.estimate is not None
    assert 1024 < edge.low < edge.estimate < edge.high <= 4096
    plain = choose(build({**STUDY, 4096: (50000, 400.0)}, noise=0.5)).break_even
    assert plain is not None
    assert (plain.low or 0) > edge.low


def test_a_censored_batch_bounds_the_break_even_from_above() -> None:
    # At least 50,000 samples: at least 125 s, so that the break-even is at most at 2,048.
    found = choose(build({**STUDY, 4096: (50000, 400.0)}, censored=(4096,)))
    assert found.break_even is not None
    assert found.break_even.estimate == pytest.approx(2048)
    assert found.break_even.bound == "at most"
    throughput = next(half for half in found.halves if half.by == "throughput")
    assert throughput.batch == 4096
    assert throughput.regret.bound == "at least"
    assert throughput.regret.estimate == pytest.approx(125 / 20)


def test_the_bound_holds_whatever_a_censored_batch_between_would_take() -> None:
    # At least 0.8 at 4,096 and at least 1.25 at 16,384: if it is 0.8, then half way between them.
    study = {**STUDY, 16384: (25000, 400.0)}
    found = choose(build(study, censored=(4096, 16384)))
    assert found.break_even is not None
    assert found.break_even.estimate == pytest.approx(8192)
    assert found.break_even.bound == "at most"


def test_a_censored_batch_below_the_reference_time_says_nothing() -> None:
    found = choose(build(STUDY, censored=(4096,)))  # at least 40 s against 50 s
    assert found.break_even is not None
    assert (found.break_even.estimate, found.break_even.bound) == (1024, "at least")


def test_a_fastest_reference_breaks_even_at_itself() -> None:
    found = choose(build(STUDY), reference=1024)
    assert found.fastest == 1024
    assert found.break_even is not None
    assert found.break_even.estimate == 1024  # exactly, so that it can be recognised
    assert estimates(found)["samples"][1] == pytest.approx(4.0)


def test_the_confidence_is_that_of_the_one_sided_interval() -> None:
    cells = build(STUDY, noise=1.0)
    found = choose(cells)
    assert found.efficient == 256
    fit = fit_study(cells, settings=("replicated",)).fits["samples"]
    logs = {
        batch: sum(math.log(c.crossing.samples) for c in cells if c.batch == batch and c.crossing)
        / 3
        for batch in (64, 256)
    }
    error = fit.residual_sd * math.sqrt(2 / 3)
    t = (math.log(1.1) - (logs[256] - logs[64])) / error
    assert found.efficient_confidence == pytest.approx(stats.t.cdf(t, fit.degrees_of_freedom))
    assert 0.5 < found.efficient_confidence < 1


def test_only_the_reference_may_be_efficient() -> None:
    found = choose(build({64: (4000, 80.0), 256: (8000, 200.0)}))
    assert (found.efficient, found.efficient_confidence) == (64, None)


def test_the_clock_is_the_one_asked_for() -> None:
    cells = [
        dataclasses.replace(
            cell,
            crossing=dataclasses.replace(
                cell.crossing, elapsed_seconds=100.0 if cell.batch == 64 else 200.0
            ),
        )
        for cell in build(STUDY)
        if cell.crossing
    ]
    assert choose(cells, "elapsed").fastest == 64
    assert choose(cells, "training").fastest == 1024


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (build(STUDY, censored=tuple(STUDY)), "in no batch did every run reach the target"),
        (build(STUDY, censored=(64,)), "some runs of the reference batch 64 did not reach"),
        (
            build({b: v for b, v in STUDY.items() if b != 64}),
            "no run of the reference batch 64 has finished",
        ),
        (
            [
                *build(STUDY),
                build_cell(8192, 0, samples=9e4, rate=500.0, device="2 x cpu (cpu)"),
            ],
            "runs on different devices",
        ),
    ],
)
def test_what_is_missing_is_said(cells: list[Cell], reason: str) -> None:
    found = choose(cells)
    assert reason in found.reason
    assert found.break_even is None


@pytest.mark.parametrize("reference", [16, 64])
def test_batches_without_a_shared_seed_are_not_compared(reference: int) -> None:
    cells = [build_cell(16, 0, samples=4000, rate=50.0), build_cell(64, 1, samples=4000, rate=80.0)]
    found = choose(cells, reference=reference)
    other = 80 - reference
    assert found.reason == f"no shared seed connects {other} with the reference"
    assert (found.fastest, found.efficient) == (reference, reference)
    assert found.break_even is not None
    assert (found.break_even.estimate, found.break_even.bound) == (reference, "at least")


def test_the_fastest_is_connected_with_the_reference() -> None:
    """Seeds 2 and 3 took a hundredth of the time, in a batch that has no others."""
    cells = [
        build_cell(batch, seed, samples=4000, rate=rate)
        for batch, rate, seeds in ((16, 50.0, (0, 1)), (64, 80.0, (0, 1)), (256, 8000.0, (2, 3)))
        for seed in seeds
    ]
    found = choose(cells)
    assert found.fastest == 64
    assert found.reason == "no shared seed connects 256 with the reference"


def test_the_set_of_the_fastest_is_that_of_the_verdict() -> None:
    assert choose(build(STUDY, noise=0.5)).near == [1024]
    loud = choose(build(STUDY, noise=20.0))
    assert loud.fastest in loud.near
    assert len(loud.near) > 1
    fit = fit_study(build(STUDY, noise=0.5), settings=("replicated",))
    results = [
        summarise_arm(fit, arm, reference=Arm("replicated", 64), updates_per_iteration=1)
        for arm in fit.censored
    ]
    found = choose_batches(
        fit,
        results,
        setting="replicated",
        reference=64,
        clock="training",
        untuned=[Arm("replicated", 16)],
    )
    assert found.near == [16, 1024]
