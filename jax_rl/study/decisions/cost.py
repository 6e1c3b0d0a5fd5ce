"""What reaching the target costs: device-hours, money at a given price, and savings.

Arms on different numbers of devices trade time against device-hours: with devices growing along
with the batch, time falls as long as the batch stays efficient (Goyal et al. 2017, Accurate,
large minibatch SGD), at the same or more device-hours.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

from jax_rl.errors import UserError
from jax_rl.study.batches import StudyFit, count_devices, measure_cell
from jax_rl.study.intervals import geometric_mean
from jax_rl.study.judge import find_least
from jax_rl.study.summary import Arm, BatchResult, arm_of

SECONDS_PER_HOUR = 3600.0


@dataclasses.dataclass(frozen=True)
class Price:
    """Of one device for one hour."""

    per_device_hour: float
    currency: str = "USD"


@dataclasses.dataclass(frozen=True)
class ArmCost:
    """One arm: time and device-hours to the target, and what it saves against the reference.

    With censored runs there are only bounds, with seconds that are not comparable there is
    nothing. A saving below 0 is a loss.
    """

    setting: str
    batch: int
    devices: float  # geometric mean over its runs
    seconds: float | None
    device_hours: float | None
    device_hours_at_least: float | None  # censored runs at their whole length
    money: float | None
    saved_share: float | None  # of the reference's device-hours
    saved_device_hours: float | None
    saved_money: float | None
    on_front: bool  # no other arm needs neither more time nor more device-hours


@dataclasses.dataclass(frozen=True)
class Costs:
    """Every arm under one clock."""

    clock: str
    price: float | None  # per device-hour; None: device-hours alone
    currency: str
    reference_setting: str
    reference_batch: int
    several_device_counts: bool
    cheapest: list[Arm]  # none is known to need fewer device-hours than these
    arms: list[ArmCost]
    reason: str  # why nothing is known; empty if it is


def make_price(per_device_hour: float, currency: str) -> Price:
    """A price.

    Raises:
      UserError: it is below 0, or not a number.
    """
    if not 0 <= per_device_hour < math.inf:
        raise UserError(
            f"price = {per_device_hour:g} must be a number of at least 0: the price of one device"
            " for one hour"
        )
    return Price(per_device_hour, currency)


def count_device_hours(devices: float, seconds: float) -> float:
    """Device-hours of so many devices for so many seconds."""
    return devices * seconds / SECONDS_PER_HOUR


def price_hours(device_hours: float | None, price: Price | None) -> float | None:
    """Their price; None where there is none."""
    if device_hours is None or price is None:
        return None
    return device_hours * price.per_device_hour


def summarise_costs(
    fit: StudyFit,
    results: Sequence[BatchResult],
    *,
    reference: Arm,
    clock: str,
    price: Price | None = None,
    untuned: Collection[Arm] = (),
) -> Costs:
    """Costs of every arm under one clock, `training` or `elapsed`.

    Args:
      reference: the arm that savings are counted against.
      price: of a device-hour.
      untuned: arms whose best rate is not known, so that they may be the cheapest.
    """
    arms = [arm_of(result) for result in results]
    counts = {arm: count_devices(fit.cells_of(arm)) for arm in arms}
    # Without a number of devices, as in a log from elsewhere, there is no cost.
    devices = {arm: count for arm, count in counts.items() if count}
    obstacles = fit.by_kind.list_obstacles(*devices)
    seconds = {
        arm_of(r): None if obstacles else _read_seconds(r, clock)
        for r in results
        if arm_of(r) in devices
    }
    points = {
        arm: (value, count_device_hours(devices[arm], value))
        for arm, value in seconds.items()
        if value is not None
    }
    front = find_front(points)
    least = find_least(fit.by_kind, list(devices), clock=clock, devices=devices)
    base = points[reference][1] if reference in points else None
    return Costs(
        clock=clock,
        price=price.per_device_hour if price else None,
        currency=price.currency if price else "",
        reference_setting=reference.setting,
        reference_batch=reference.batch,
        several_device_counts=len(set(devices.values())) > 1,
        cheapest=[a for a in devices if a in least or a in untuned] if points else [],
        arms=[
            dataclasses.replace(
                _price_arm(arm, devices[arm], value, base=base, price=price),
                device_hours_at_least=(
                    count_device_hours(devices[arm], _bound_seconds(fit, arm, clock))
                    if value is None and not obstacles
                    else None
                ),
                on_front=arm in front,
            )
            for arm, value in seconds.items()
        ],
        reason=f"runs {'; '.join(obstacles)}" if obstacles else "",
    )


def _price_arm(
    arm: Arm, devices: float, seconds: float | None, *, base: float | None, price: Price | None
) -> ArmCost:
    """What an arm takes; `base` is the device-hours of the reference."""
    hours = None if seconds is None else count_device_hours(devices, seconds)
    saved = None if hours is None or base is None else base - hours
    return ArmCost(
        setting=arm.setting,
        batch=arm.batch,
        devices=devices,
        seconds=seconds,
        device_hours=hours,
        device_hours_at_least=None,
        money=price_hours(hours, price),
        saved_share=None if saved is None or not base else saved / base,
        saved_device_hours=saved,
        saved_money=price_hours(saved, price),
        on_front=False,
    )


def find_front(points: Mapping[Arm, tuple[float, float]]) -> set[Arm]:
    """The Pareto front: arms to which no other is at least as good in both and better in one."""

    def beats(other: tuple[float, float], mine: tuple[float, float]) -> bool:
        return other != mine and all(a <= b for a, b in zip(other, mine, strict=True))

    return {
        arm
        for arm, mine in points.items()
        if not any(beats(other, mine) for other in points.values())
    }


def _read_seconds(result: BatchResult, clock: str) -> float | None:
    seconds = result.training_time if clock == "training" else result.elapsed_time
    return None if seconds is None or math.isnan(seconds) else seconds


def _bound_seconds(fit: StudyFit, arm: Arm, clock: str) -> float:
    """Geometric mean of the seconds, censored runs at the length they had."""
    return geometric_mean([measure_cell(cell)[f"{clock}_time"] for cell in fit.cells_of(arm)])
