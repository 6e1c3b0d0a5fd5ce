"""Published statements against studies whose truth is known."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from study_records import build_cell

from jax_rl.report.sections.growth import show_growth
from jax_rl.study.batches import fit_study
from jax_rl.study.growth.evidence import (
    CONTRADICTED,
    SUPPORTED,
    UNDECIDED,
    UNMEASURED,
    Evidence,
    contrast_arms,
    join_outcomes,
    judge_sign,
    widen_interval,
)
from jax_rl.study.growth.statements import examine_growth
from jax_rl.study.intervals import fit_additive
from jax_rl.study.noise.scale import Ratio
from jax_rl.study.noise.split import CovarianceSplit, Estimated
from jax_rl.study.settings import Setting
from jax_rl.study.summary import Arm, Interval

BATCHES = (16, 32, 64, 128)


def make_setting(name, **changes) -> Setting:
    return dataclasses.replace(Setting(name, "one", "sqrt", "prompts", 1, "fixed"), **changes)


def make_fit(
    settings,
    samples,
    *,
    seeds=4,
    noise=0.02,
    rate=None,
    devices=None,
    noises=None,
    kind="cpu",
    incomparable=(),
):
    """A fit over settings x BATCHES x seeds.

    Args:
      samples: (setting, batch) -> true samples to target.
      rate: (setting, batch) -> rollouts per second.
      devices: (setting, batch) -> devices.
      kind: of device; with `{batch}` one for each batch.
      incomparable: reasons why no seconds are compared.
      noises: batch -> standard deviation of the log, instead of `noise`.
    """
    rng = np.random.default_rng(7)
    cells = []
    for setting in settings:
        for batch in BATCHES:
            for seed in range(seeds):
                scale = noises[batch] if noises else noise
                factor = math.exp(0.1 * seed + scale * rng.normal())
                cell = build_cell(
                    batch,
                    seed,
                    samples=samples(setting, batch) * factor,
                    rate=rate(setting, batch) if rate else 100.0,
                    layout=setting.name,
                )
                count = devices(setting, batch) if devices else 1
                device = f"{count} x {kind.format(batch=batch)} (cpu)"
                cells.append(dataclasses.replace(cell, device_count=count, device=device))
    names = [one.name for one in settings]
    return fit_study(cells, settings=names, incomparable=incomparable)


def make_study(settings, samples, **options):
    """What `make_fit` makes, examined."""
    groups = {
        Arm(one.name, batch): 8 * batch // 16 if one.growth == "group" else 8
        for one in settings
        for batch in BATCHES
    }
    fit = make_fit(settings, samples, **options)
    return examine_growth(fit, {one.name: one for one in settings}, groups=groups)


def find(growth, name):
    return next(one for one in growth.statements if one.id == name)


def test_one_setting_measures_only_what_it_can() -> None:
    growth = make_study([make_setting("one")], lambda setting, batch: 4000.0)
    outcomes = {one.id: one.outcome for one in growth.statements}
    assert outcomes.pop("steadying") in {UNDECIDED, SUPPORTED, CONTRADICTED}
    assert set(outcomes.values()) == {UNMEASURED}
    assert [(arm.prompts, arm.group) for arm in growth.arms] == [(2, 8), (4, 8), (8, 8), (16, 8)]


def test_group_that_stops_paying_saturates() -> None:
    # K 8, 16, 32, 64: samples stay up to 32 and double from there, so the gain falls from 1 to 0.
    def samples(setting, batch):
        return 4000.0 * max(1.0, batch / 64)

    statement = find(make_study([make_setting("g", growth="group")], samples), "saturation")
    first, last, fall = statement.evidence
    assert first.estimate == pytest.approx(1.0, abs=0.06)
    assert last.estimate == pytest.approx(0.0, abs=0.06)
    assert fall.estimate == pytest.approx(first.estimate - last.estimate)
    assert statement.outcome == SUPPORTED


def test_group_that_pays_more_and_more_contradicts_saturation() -> None:
    def samples(setting, batch):
        return 8000.0 if batch == 16 else 8000.0 * 2 if batch < 128 else 8000.0

    statement = find(make_study([make_setting("g", growth="group")], samples), "saturation")
    assert statement.outcome == CONTRADICTED


def test_steadying_is_a_ratio_of_spreads() -> None:
    noises = {16: 0.3, 32: 0.3, 64: 0.02, 128: 0.02}
    growth = make_study([make_setting("p")], lambda s, b: 4000.0, seeds=8, noises=noises)
    one = find(growth, "steadying")
    assert one.outcome == SUPPORTED
    found = one.evidence[0]
    # Two batches and 8 seeds in each half: 7 degrees of freedom.
    low, high = stats.f.ppf([0.025, 0.975], 7, 7)
    assert found.high / found.estimate == pytest.approx(1 / math.sqrt(low))
    assert found.low / found.estimate == pytest.approx(1 / math.sqrt(high))
    equal = make_study([make_setting("p")], lambda s, b: 4000.0, seeds=8, noise=0.05)
    assert find(equal, "steadying").outcome == UNDECIDED


def test_spread_of_equal_arms_is_told_apart_in_one_study_of_twenty() -> None:
    wrong = 0
    rng = np.random.default_rng(3)
    for _ in range(200):
        cells = [
            build_cell(b, s, samples=4000 * math.exp(s + 0.1 * rng.normal()), rate=1.0, layout="p")
            for b in BATCHES
            for s in range(3)
        ]
        settings, groups = {"p": make_setting("p")}, {Arm("p", batch): 8 for batch in BATCHES}
        growth = examine_growth(fit_study(cells, settings=["p"]), settings, groups=groups)
        wrong += find(growth, "steadying").outcome != UNDECIDED
    # 10 expected of 200; 3 standard deviations are 9.
    assert 1 <= wrong <= 19


def test_size_counts_where_both_ways_of_growing_agree() -> None:
    settings = [make_setting("prompts"), make_setting("group", growth="group")]

    def samples(setting, batch):
        return 4000.0 * (1 + batch / 64)

    same = find(make_study(settings, samples), "product")
    assert same.outcome == SUPPORTED
    # The smallest batch is one and the same in both, and no evidence.
    assert len(same.evidence) == 3
    assert same.evidence[0].name == "batch 32: group over prompts"

    def apart(setting, batch):
        return samples(setting, batch) * (1.6 if setting.growth == "group" else 1.0)

    assert find(make_study(settings, apart), "product").outcome == CONTRADICTED
    loud = make_study(settings, samples, noise=0.3, seeds=5)
    assert find(loud, "product").outcome == UNDECIDED


@pytest.mark.parametrize(
    ("factor", "outcome"), [(0.7, SUPPORTED), (1.4, CONTRADICTED), (1.0, UNDECIDED)]
)
def test_reuse_saves_or_costs_samples(factor, outcome) -> None:
    settings = [make_setting("once"), make_setting("twice", updates=2)]

    def samples(setting, batch):
        return 4000.0 * (factor if setting.updates == 2 else 1.0)

    one = find(make_study(settings, samples), "reuse")
    assert one.outcome == outcome
    assert one.evidence[0].name == "batch 16: twice over once"
    assert one.evidence[0].estimate == pytest.approx(factor, rel=0.06)


@pytest.mark.parametrize(
    ("power", "outcome"),
    [(1.0, SUPPORTED), (0.0, CONTRADICTED)],  # throughput in proportion to the devices, or flat
)
def test_devices_in_proportion(power, outcome) -> None:
    settings = [make_setting("grown", devices="batch")]
    one = find(grow(make_study, settings, power), "devices")
    assert one.outcome == outcome
    time, hours = one.evidence[:2]
    assert (time.measure, hours.measure) == ("training time", "device-hours")
    assert hours.estimate == pytest.approx(2 * time.estimate)
    # Three batches against the smallest: 4 arms and 4 seeds leave 9 degrees of freedom.
    error = grow(make_fit, settings, power).fits["training_time"].residual_sd * math.sqrt(2 / 4)
    half = stats.t.ppf(1 - 0.05 / 6, 9) * error
    assert math.log(time.high / time.estimate) == pytest.approx(half)


def grow(make, settings, power=1.0, **options):
    """Throughput is the devices to a power."""
    return make(
        settings,
        lambda setting, batch: 4000.0,
        rate=lambda setting, batch: 100.0 * (batch / 16) ** power,
        devices=lambda setting, batch: batch // 16,
        **options,
    )


@pytest.mark.parametrize(
    "options", [{"kind": "device of {batch}"}, {"incomparable": ["not alone on the machine"]}]
)
def test_devices_whose_hours_do_not_compare_say_nothing(options) -> None:
    settings = [make_setting("grown", devices="batch")]
    assert find(grow(make_study, settings), "devices").outcome == SUPPORTED
    one = find(grow(make_study, settings, **options), "devices")
    assert (one.outcome, one.evidence) == (UNMEASURED, [])


def test_an_unknown_number_of_devices_has_no_hours() -> None:
    settings = [make_setting("grown", devices="batch")]
    growth = make_study(
        settings, lambda setting, batch: 4000.0, devices=lambda setting, batch: 0 * batch
    )
    assert find(growth, "devices").outcome == UNMEASURED
    assert growth.arms[0].device_hours is None


def test_noise_within_prompts_is_what_the_probe_says() -> None:
    fit = fit_study([build_cell(16, 0, samples=100, rate=1.0)], settings=["replicated"])
    settings = {"replicated": make_setting("replicated")}
    groups = {Arm("replicated", 16): 8}
    number = Estimated(1.0, 0.5, 1.5)

    def judge(*shares):
        splits = [
            CovarianceSplit(
                batch=16,
                seed=0,
                samples=1024,
                prompts=8,
                group=8,
                signal=number,
                within=number,
                between=number,
                within_share=Ratio(*share),
                rollouts=Ratio(1.0, 0.5, 1.5),
            )
            for share in shares
        ]
        return find(examine_growth(fit, settings, groups=groups, splits=splits), "noise")

    assert judge((0.8, 0.6, 0.95)).outcome == SUPPORTED
    assert judge((0.8, 0.6, 0.95)).evidence[0].name == "batch 16, seed 0 at 1,024 samples"
    assert judge((0.2, 0.1, 0.4)).outcome == CONTRADICTED
    assert judge((0.2, 0.1, 0.4), (0.8, 0.6, 0.95)).outcome == UNDECIDED
    assert judge().outcome == UNMEASURED


def test_contrast_is_that_of_means() -> None:
    arms = [Arm("a", b) for b in (1, 2, 3) for _ in range(3)]
    values = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 9.0, 9.0, 9.0]
    fit = fit_additive(arms, [0, 1, 2] * 3, values)
    weights = {Arm("a", 1): 1.0, Arm("a", 2): -2.0, Arm("a", 3): 1.0}
    value, error = contrast_arms(fit, weights)
    assert value == pytest.approx(2.0 - 12.0 + 9.0)
    assert error == pytest.approx(math.sqrt((1 + 4 + 1) / 3))
    apart = fit_additive([Arm("a", 1), Arm("b", 1)], [0, 1], [1.0, 2.0])
    assert math.isnan(contrast_arms(apart, {Arm("a", 1): 1.0, Arm("b", 1): -1.0})[0])


def test_widened_interval_has_the_quantile_of_all_comparisons() -> None:
    half = stats.t.ppf(0.975, 6) * 0.1
    single = Interval(2.0, 2 * math.exp(-half), 2 * math.exp(half))
    wide = widen_interval(single, 5, freedom=6)
    assert wide.high == pytest.approx(2 * math.exp(stats.t.ppf(1 - 0.05 / 10, 6) * 0.1))
    assert wide.low * wide.high == pytest.approx(4.0)
    assert widen_interval(Interval(2.0, None, None), 5, freedom=0).low is None


def test_outcomes() -> None:
    one = Evidence("x", "y", 1.0, None, 0.5)
    assert judge_sign(one, neutral=1.0) == CONTRADICTED
    assert judge_sign(dataclasses.replace(one, high=None), neutral=1.0) == UNDECIDED
    assert join_outcomes([]) == UNMEASURED
    assert join_outcomes([SUPPORTED, UNDECIDED]) == SUPPORTED
    assert join_outcomes([SUPPORTED, CONTRADICTED]) == UNDECIDED


def test_section_says_what_holds_and_what_was_not_measured() -> None:
    from matplotlib.figure import Figure

    settings = [make_setting("prompts"), make_setting("group", growth="group")]
    section = show_growth(make_study(settings, lambda setting, batch: 4000.0 * (1 + batch / 64)))
    assert section is not None
    product = next(p for p in section.paragraphs if "N = P x K" in p)
    assert product.startswith("Supported: ")
    assert "batch 32: group over prompts, samples ratio" in product
    assert "Using a batch for several updates" in section.paragraphs[-1]
    assert section.tables[2].rows[5][:3] == ["group 32", "2", "16"]
    axes = Figure().subplots()
    section.drawings[0].draw(axes)
    assert len(axes.lines) == 2
