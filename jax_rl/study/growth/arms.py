"""What the batches of a study are made of, and which of its arms differ in one thing alone."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from jax_rl.records import RunRecord
from jax_rl.study.batches import StudyFit, count_devices, measure_cell
from jax_rl.study.intervals import geometric_mean
from jax_rl.study.settings import Setting
from jax_rl.study.summary import Arm, Cell, arm_of


@dataclasses.dataclass(frozen=True)
class ArmShape:
    """What an arm's batch is made of, and what it took to the target."""

    setting: str
    batch: int
    prompts: int
    group: int
    updates: int
    devices: float  # geometric mean over its runs; 0: not known
    samples: float | None  # geometric means; None for an arm with a run that missed the target
    training_time: float | None  # seconds
    device_hours: float | None


@dataclasses.dataclass(frozen=True)
class GrowthArms:
    """What the statements are judged from."""

    fit: StudyFit
    settings: Mapping[str, Setting]
    shapes: Mapping[Arm, ArmShape]

    def list_families(self, axis: str) -> Iterator[list[str]]:
        """Settings that differ on this axis alone, two or more at a time."""
        families: dict[tuple[object, ...], list[str]] = {}
        for name, one in self.settings.items():
            fields = dataclasses.asdict(one) | {"name": "", axis: ""}
            families.setdefault(tuple(fields.values()), []).append(name)
        yield from (names for names in families.values() if len(names) > 1)

    def pair(self, first: str, second: str) -> list[tuple[Arm, Arm]]:
        """Arms of two settings with the same batch, that hold finished runs."""
        batches = sorted({arm.batch for arm in self.shapes})
        pairs = [(Arm(first, batch), Arm(second, batch)) for batch in batches]
        return [(a, b) for a, b in pairs if a in self.shapes and b in self.shapes]

    def complete_of(self, setting: str) -> list[ArmShape]:
        """Arms of a setting in which every run reached the target, by batch."""
        return [self.shapes[a] for a in self.fit.complete if a.setting == setting]

    def name(self, what: str, setting: str) -> str:
        """What is compared, after its setting where there are several."""
        return f"{setting}: {what}" if len(self.settings) > 1 else what


def read_groups(cells: Sequence[Cell], runs: Mapping[str, RunRecord]) -> dict[Arm, int]:
    """Rollouts per prompt of each arm, from its runs' records."""
    return {arm_of(c): int(runs[c.name].start.config["batch"]["group"]) for c in cells}


def describe_shape(
    fit: StudyFit, arm: Arm, settings: Mapping[str, Setting], groups: Mapping[Arm, int]
) -> ArmShape:
    """What an arm's batch is made of, and geometric means over its runs."""
    cells = fit.cells_of(arm)
    measured = [measure_cell(cell) for cell in cells]
    crossed = not fit.censored[arm]
    seconds = geometric_mean([m["training_time"] for m in measured])
    devices = count_devices(cells)
    return ArmShape(
        setting=arm.setting,
        batch=arm.batch,
        prompts=arm.batch // groups[arm],
        group=groups[arm],
        updates=settings[arm.setting].updates,
        devices=devices,
        samples=geometric_mean([m["samples"] for m in measured]) if crossed else None,
        training_time=seconds if crossed else None,
        device_hours=devices * seconds / 3600 if crossed and devices else None,
    )
