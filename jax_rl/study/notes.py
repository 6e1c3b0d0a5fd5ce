"""What a reader must know before trusting a study, found in its records."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax_rl.errors import UserError
from jax_rl.records import RunRecord
from jax_rl.study.batches import StudyFit
from jax_rl.study.cells import (
    ACCOUNTING_TOLERANCE,
    OTHER_LIMIT,
    STEADY_LIMIT,
    Planned,
    describe_device,
    name_layout,
)
from jax_rl.study.names import Names
from jax_rl.study.settings import Setting
from jax_rl.study.summary import Arm, BatchResult, Cell, arm_of

FEWEST_GRID_POINTS = 5
"""A crossing before this many grid steps is read from a coarse grid."""

# Tables whose settings the runs of a study share, and the settings in them that it varies.
_SHARED = (
    "task",
    "text",
    "reward",
    "model",
    "warm_start",
    "batch",
    "sampler",
    "objective",
    "optimizer",
    "validation",
    "budget",
)
_LAYOUT_TABLES = ("mesh", "weights", "compute", "sampler", "cache")
_VARIED = {
    ("batch", "size"),
    ("batch", "microbatch"),
    ("batch", "wave"),
    ("model", "padded_vocab"),  # of the layout
    ("optimizer", "learning_rate"),
}


def check_same_experiment(
    config: Mapping[str, Any],
    settings: Mapping[str, Setting],
    planned: Sequence[Planned],
    runs: Mapping[str, RunRecord],
) -> None:
    """Refuses runs that differ from the study in more than setting, batch, seed and rate.

    Layouts are compared by what their files said when the runs began, not by name alone.

    Raises:
      UserError: naming the run, the setting, and both values.
    """
    rules: dict[str, tuple[str, dict[str, Any]]] = {}
    for plan in planned:
        if plan.name not in runs:
            continue
        start = runs[plan.name].start
        found = name_layout(start)
        if plan.setting and found != settings[plan.setting].layout:
            raise UserError(
                f"cells/{plan.name}: ran in the layout {found!r}, the study has"
                f" {settings[plan.setting].layout!r}; move the run away and continue the study"
            )
        own = {key: start.layout.get(key) for key in _LAYOUT_TABLES}
        first, expected = rules.setdefault(found, (plan.name, own))
        for table, value in own.items():
            if value != expected[table]:
                raise UserError(
                    f"cells/{plan.name}: the layout {found!r} had {table} = {value!r} there, and"
                    f" {expected[table]!r} in cells/{first}: two layouts of one name; move one of"
                    " the runs away and continue the study"
                )
    varied, only = _VARIED | _list_varied(settings), next(iter(settings))
    for plan in planned:
        if plan.name not in runs:
            continue
        moved = {("batch", "updates"): settings[plan.setting or only].updates}
        for table in _SHARED:
            for key, common in config[table].items():
                value = moved.get((table, key), common)
                found = runs[plan.name].start.config.get(table, {}).get(key)
                if found != value and (table, key) not in varied:
                    raise UserError(
                        f"cells/{plan.name}: ran with {table}.{key} = {found!r}, the study has"
                        f" {value!r}; runs of different experiments cannot be compared: move the"
                        " run away and continue the study"
                    )


def _list_varied(settings: Mapping[str, Setting]) -> set[tuple[str, str]]:
    """What the settings of a study move besides, each in its own way."""
    varied = set()
    if any(one.growth != "prompts" for one in settings.values()):
        varied.add(("batch", "group"))
    if any(one.rule == "adam" for one in settings.values()):
        varied |= {("optimizer", name) for name in ("b1", "b2", "epsilon")}
    return varied


def write_study_notes(
    planned: Sequence[Planned],
    runs: Mapping[str, RunRecord],
    cells: Sequence[Cell],
    used: Sequence[str],
    results: Sequence[BatchResult],
    config: Mapping[str, Any],
    names: Names,
    *,
    fit: StudyFit,
) -> list[str]:
    """The notes of a study, those that void a comparison first."""
    finished = [cell for cell in cells if cell.finished]
    return [
        *_note_missing(planned, cells, used),
        *_note_reference(results, int(config["batch"]["size"]), names),
        *_note_devices(runs, fit),
        *_note_versions(runs),
        *_note_grid(cells, int(config["validation"]["every_samples"])),
        *_note_seeds(results, names),
        *_note_checks(finished, runs),
        *_note_runs(runs),
    ]


def _note_missing(
    planned: Sequence[Planned], cells: Sequence[Cell], used: Sequence[str]
) -> list[str]:
    by_name = {cell.name: cell for cell in cells}
    missing = [plan.name for plan in planned if plan.name not in by_name]
    unfinished = [cell.name for cell in cells if not cell.finished]
    unused = [c for c in cells if c.finished and c.name not in used]
    notes = []
    if missing:
        notes.append(f"{_count(missing, len(planned))} planned runs have not started")
    if unfinished:
        notes.append(
            f"{_count(unfinished, len(planned))} planned runs are unfinished and not compared"
        )
    for cell in unused:
        reached = (
            f"{cell.crossing.samples:,.0f} samples to target" if cell.crossing else "target missed"
        )
        notes.append(
            f"{cell.name} has no comparable seconds (moved to other hardware, or stopped before"
            f" its first iteration) and is not compared: {reached}, {cell.samples:,}"
            " generated"
        )
    return notes


def _note_reference(results: Sequence[BatchResult], reference: int, names: Names) -> list[str]:
    there = {result.setting for result in results if result.batch == reference}
    return [
        f"the reference batch {names.show(Arm(layout, reference))} has no finished run, so no"
        " ratio to it is known"
        for layout in names.settings
        if layout not in there
    ]


def _note_devices(runs: Mapping[str, RunRecord], fit: StudyFit) -> list[str]:
    """Why seconds are not compared, by the rule that the verdict follows."""
    reasons = dict.fromkeys([*fit.list_obstacles(*fit.censored), *fit.incomparable])
    notes = [
        f"runs were {reason}: their throughput and times are not comparable, only their samples are"
        for reason in reasons
    ]
    devices = sorted({describe_device(run.start) for run in runs.values()})
    if notes or len(devices) < 2:
        return notes
    if fit.devices_grow:
        return [f"devices grow with the batch, and times are compared: {'; '.join(devices)}"]
    return [f"runs that are not compared were on other devices ({'; '.join(devices)})"]


def _note_versions(runs: Mapping[str, RunRecord]) -> list[str]:
    versions = {tuple(sorted(run.start.versions.items())) for run in runs.values()}
    if len(versions) < 2:
        return []
    names = sorted({name for name, _ in set.union(*map(set, versions)) - _common(versions)})
    return [f"runs were with different versions of {', '.join(names)}"]


def _common(versions: set[tuple[tuple[str, str], ...]]) -> set[tuple[str, str]]:
    return set.intersection(*map(set, versions))


def _note_grid(cells: Sequence[Cell], step: int) -> list[str]:
    notes = []
    longest = max((cell.curve_samples for cell in cells), key=len, default=[])
    off = [c.name for c in cells if c.curve_samples != longest[: len(c.curve_samples)]]
    if off:
        notes.append(f"{_count(off, len(cells))} runs were not validated on the common grid")
    coarse = [
        c.name for c in cells if c.crossing and c.crossing.samples < FEWEST_GRID_POINTS * step
    ]
    if coarse:
        notes.append(
            f"coarse grid: {_count(coarse, len(cells))} runs crossed within"
            f" {FEWEST_GRID_POINTS} grid steps of {step:,} samples"
        )
    return notes


def _note_seeds(results: Sequence[BatchResult], names: Names) -> list[str]:
    notes = []
    if len({tuple(result.seeds) for result in results}) > 1:
        notes.append(
            "not every batch has the same seeds: ratios between batches are adjusted for seed"
            " effects and differ from ratios of the geometric means"
        )
    if results and max(len(result.seeds) for result in results) == 1:
        notes.append("one seed per batch: estimates have no intervals")
    lost = [
        f"{r.not_held} of {len(r.seeds)} at {names.show(arm_of(r))}" for r in results if r.not_held
    ]
    if lost:
        notes.append(f"runs that fell back below the target after the crossing: {', '.join(lost)}")
    return notes


def _note_checks(cells: Sequence[Cell], runs: Mapping[str, RunRecord]) -> list[str]:
    total = len(cells)
    checks: list[tuple[str, Callable[[Cell], float], float]] = [
        ("phases do not add up to elapsed", lambda c: c.accounting_gap, ACCOUNTING_TOLERANCE),
        ("more than 2 % of elapsed has no named phase", lambda c: c.other_share, OTHER_LIMIT),
        (
            "steady throughput is more than 5 % off the run's",
            lambda c: c.steady_gap or 0.0,
            STEADY_LIMIT,
        ),
    ]
    notes = []
    for text, measure, limit in checks:
        failed = {c.name: measure(c) for c in cells if not abs(measure(c)) <= limit}
        if failed:
            worst = max(failed, key=lambda name: abs(failed[name]))
            notes.append(
                f"{text}: {len(failed)} of {total} runs, most in {worst} ({failed[worst]:+.1%})"
            )
    unmeasured = [c.name for c in cells if c.steady_per_second is None]
    if unmeasured:
        notes.append(f"no separate measurement of throughput: {_count(unmeasured, total)} runs")
    loaded = [c.name for c in cells if c.load_average > _cores(runs[c.name])]
    if loaded:
        worst_load = max(c.load_average for c in cells)
        notes.append(
            f"the host's load average was above its cores at the end of {_count(loaded, total)}"
            f" runs, at most {worst_load:.1f}: other work may have slowed them"
        )
    return notes


def _cores(run: RunRecord) -> float:
    return float(run.start.host.get("cores", float("inf")))


def _note_runs(runs: Mapping[str, RunRecord]) -> list[str]:
    """Notes that the runs made themselves, one line for all that made the same."""
    by_text: dict[str, list[str]] = {}
    for name, run in runs.items():
        for text in run.start.notes:
            by_text.setdefault(text, []).append(name)
    return [f"{text} ({', '.join(names)})" for text, names in by_text.items()]


def _count(names: Sequence[str], total: int) -> str:
    return f"{len(names)} of {total} ({', '.join(names)})"
