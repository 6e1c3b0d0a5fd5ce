"""Device-hours and money: a published example, and studies by hand."""

import dataclasses
import math
from typing import Any

import pytest
from study_records import build_cell

from jax_rl.study.batches import fit_study, summarise_arm
from jax_rl.study.decisions.cost import (
    ArmCost,
    Costs,
    Price,
    count_device_hours,
    find_front,
    price_hours,
    summarise_costs,
)
from jax_rl.study.summary import Arm, Cell

HOUR = 3600.0


def test_the_published_example() -> None:
    """10,000 devices for 30 days at $3 an hour, and a tenth of the time less."""
    month, price = 30 * 24 * HOUR, Price(3.0)
    hours = count_device_hours(10_000, month)
    assert price_hours(hours, price) == pytest.approx(21.6e6)
    saved = hours - count_device_hours(10_000, 0.9 * month)
    assert saved == pytest.approx(720_000)
    assert price_hours(saved, price) == pytest.approx(2.16e6)


def summarise(
    cells: list[Cell], devices: dict[int, int], *, price: Price | None = None, clock: str
) -> Costs:
    cells = [dataclasses.replace(cell, device_count=devices[cell.batch]) for cell in cells]
    fit = fit_study(cells, settings=("replicated",))
    reference = Arm("replicated", 64)
    results = [
        summarise_arm(fit, arm, reference=reference, updates_per_iteration=1)
        for arm in fit.censored
    ]
    return summarise_costs(
        fit,
        results,
        reference=reference,
        clock=clock,
        price=price,
    )


def build(batch: int, hours: float, seed: int = 0, *, crossed: bool = True) -> Cell:
    """A run of 3,600 samples per hour of training; the elapsed clock shows twice the time."""
    return build_cell(batch, seed, samples=3600 * hours, rate=1.0, crossed=crossed)


def test_savings_against_the_reference() -> None:
    cells = [build(64, 10), build(256, 4)]
    found = summarise(cells, {64: 2, 256: 4}, price=Price(3.0, "EUR"), clock="training")
    assert (found.price, found.currency, found.several_device_counts) == (3.0, "EUR", True)
    base, other = found.arms
    assert (base.device_hours, base.saved_share) == (pytest.approx(20), pytest.approx(0))
    assert other == ArmCost(
        setting="replicated",
        batch=256,
        devices=4,
        seconds=pytest.approx(4 * HOUR),
        device_hours=pytest.approx(16),
        device_hours_at_least=None,
        money=pytest.approx(48),
        saved_share=pytest.approx(0.2),
        saved_device_hours=pytest.approx(4),
        saved_money=pytest.approx(12),
        on_front=True,
    )
    elapsed = summarise(cells, {64: 2, 256: 4}, clock="elapsed")
    assert elapsed.arms[1].device_hours == pytest.approx(32)
    assert (elapsed.arms[1].money, elapsed.price, elapsed.currency) == (None, None, "")


def test_a_censored_arm_has_a_bound_and_saves_nothing_known() -> None:
    cells = [build(64, 10), build(64, 10, 1), build(256, 9), build(256, 4, 1, crossed=False)]
    _, other = summarise(cells, {64: 2, 256: 2}, price=Price(1.0), clock="training").arms
    assert (other.seconds, other.device_hours, other.money) == (None, None, None)
    assert other.device_hours_at_least == pytest.approx(2 * math.sqrt(9 * 4))
    assert (other.saved_device_hours, other.on_front) == (None, False)


def test_without_the_reference_there_are_no_savings() -> None:
    (only,) = summarise([build(256, 4)], {256: 2}, clock="training").arms
    assert (only.device_hours, only.saved_share) == (pytest.approx(8), None)


def test_without_a_number_of_devices_there_is_no_cost() -> None:
    found = summarise([build(64, 10), build(256, 4)], {64: 0, 256: 2}, clock="training")
    assert [arm.batch for arm in found.arms] == [256]
    assert found.arms[0].saved_share is None


def test_the_front_leaves_out_what_another_beats_in_both() -> None:
    points = {
        Arm("a", 1): (10.0, 10.0),
        Arm("a", 2): (5.0, 12.0),
        Arm("a", 4): (5.0, 20.0),  # as soon as 2, and dearer
        Arm("a", 8): (6.0, 12.0),  # as dear as 2, and later
        Arm("a", 16): (2.0, 30.0),
        Arm("b", 1): (10.0, 10.0),  # the same as a 1
    }
    assert find_front(points) == {Arm("a", 1), Arm("b", 1), Arm("a", 2), Arm("a", 16)}


def on(cell: Cell, device: str, count: int) -> Cell:
    return dataclasses.replace(cell, device=f"{count} x {device} (gpu)", device_count=count)


def summarise_plain(cells: list[Cell], **options: Any) -> Costs:
    fit = fit_study(cells, settings=("replicated",), **options)
    reference = Arm("replicated", 64)
    results = [
        summarise_arm(fit, arm, reference=reference, updates_per_iteration=1)
        for arm in fit.censored
    ]
    return summarise_costs(fit, results, reference=reference, clock="training", price=Price(1.0))


def test_hours_of_two_kinds_of_device_are_not_compared() -> None:
    found = summarise_plain([on(build(64, 10), "A100", 2), on(build(256, 4), "H100", 4)])
    assert found.reason == "runs on different devices (A100 (gpu); H100 (gpu))"
    assert found.cheapest == []
    for arm in found.arms:
        assert (arm.seconds, arm.device_hours, arm.device_hours_at_least) == (None, None, None)
        assert (arm.saved_share, arm.money, arm.on_front) == (None, None, False)
    alike = summarise_plain([on(build(64, 10), "H100", 2), on(build(256, 4), "H100", 4)])
    assert (alike.reason, alike.arms[1].saved_share) == ("", pytest.approx(0.2))
    busy = summarise_plain([build(64, 10), build(256, 4)], incomparable=["not alone"])
    assert (busy.reason, busy.arms[0].device_hours) == ("runs not alone", None)


def test_each_run_has_its_own_number_of_devices() -> None:
    """A seed on 2 devices for 10 hours and one on 8 for 5: 20 and 40 device-hours."""
    cells = [on(build(64, 10), "H100", 2), on(build(64, 5, 1), "H100", 8)]
    (only,) = summarise_plain(cells, devices_grow=True).arms
    assert only.device_hours == pytest.approx(math.sqrt(20 * 40))
    assert only.devices == pytest.approx(4)


def test_the_set_of_the_cheapest() -> None:
    """Times scatter by a few percent, so that 16 against 16.3 device-hours says nothing."""
    hours = {64: (10.0, 9.5, 10.3), 256: (8.0, 8.2, 7.9), 1024: (4.1, 3.9, 4.2)}
    devices = {64: 2, 256: 2, 1024: 4}
    cells = [
        on(build(batch, own, seed), "H100", devices[batch])
        for batch, row in hours.items()
        for seed, own in enumerate(row)
    ]
    found = summarise_plain(cells)
    assert [arm.batch for arm in found.cheapest] == [256, 1024]
