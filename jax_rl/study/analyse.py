"""From the records of a study to its summary; nothing else is read."""

import bisect
import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jax_rl.study.answers import NO_WISHES, Wishes, answer
from jax_rl.study.batches import MEASURES
from jax_rl.study.clocks import CLOCKS, add_difference, agree
from jax_rl.study.comparable import went_in_turn
from jax_rl.study.crossing import TAIL_POINTS, TAIL_RATIO, fit_isotonic
from jax_rl.study.layouts import (
    choose_singly,
    compare_layouts,
    describe_difference,
    describe_layout_samples,
)
from jax_rl.study.material import Material, gather
from jax_rl.study.names import Names, name_settings
from jax_rl.study.notes import write_study_notes
from jax_rl.study.summary import (
    Cell,
    LayoutRatio,
    SettingResult,
    SingleChoices,
    StudySummary,
    Verdict,
)
from jax_rl.study.verdict import decide
from jax_rl.study.words import RateContext

SUMMARY_FILE = "summary.json"


def analyse(directory: Path, wishes: Wishes = NO_WISHES) -> StudySummary:
    """Everything that a study's records say; unfinished runs are listed and not compared.

    Args:
      directory: of the study.
      wishes: what is asked for besides: a price, throughput of other hardware.

    Raises:
      UserError: no study there, no run recorded yet, runs of different experiments, or a start
        score above the target.
    """
    material = gather(directory)
    config, names = material.config, material.names
    training, elapsed = _decide_both(material, names)
    settings = [_summarise_setting(setting, material) for setting in names.settings]
    ratios = _compare_layouts(material)
    noise = estimate_noise(material.cells)
    start = material.runs[material.cells[0].name].start
    warm_starts = [run.warm_start.seconds for run in material.runs.values() if run.warm_start]
    return StudySummary(
        name=material.study["name"],
        target=float(config["budget"]["target"]),
        sample_budget=int(config["budget"]["samples"]),
        seconds_budget=float(config["budget"]["seconds"]),
        rate_rule=config["study"]["rate_rule"],
        reference_batch=material.reference.batch,
        reference_rate=float(config["optimizer"]["learning_rate"]),
        factor=int(config["study"]["factor"]),
        group=int(config["batch"]["group"]),
        setting=names.settings[0],
        task=_describe_task(config["task"]),
        parameters=start.parameters,
        device="; ".join(sorted({cell.device for cell in material.cells})),
        versions=start.versions,
        git_revision=start.git_revision,
        validation_prompts=int(config["validation"]["prompts"]),
        validation_every=int(config["validation"]["every_samples"]),
        validation_noise=noise,
        start_score=_mean_start(material.cells),
        warm_start_seconds=max(warm_starts, default=0.0),
        checkpoint=str(config["model"].get("checkpoint", "")),
        batches=material.results,
        cells=material.cells,
        planned_cells=len(material.planned),
        residual_sd={name: material.fit.fits[name].residual_sd for name in MEASURES},
        degrees_of_freedom=material.fit.degrees_of_freedom,
        training=training,
        elapsed=elapsed,
        clocks_agree=agree(training, elapsed),
        settings=settings,
        single_choices=_choose_singly(material, (training, elapsed), settings),
        layout_ratios=ratios,
        layout_samples=describe_layout_samples(ratios),
        imported=bool(material.study.get("imported")),
        incomparable=material.fit.list_obstacles(*material.fit.censored),
        one_at_a_time=went_in_turn(material.runs.values()),
        answers=answer(material, (training, elapsed), noise=noise, wishes=wishes),
        notes=[
            *(describe_difference(ratio) for ratio in ratios if ratio.differs),
            *write_study_notes(
                material.planned,
                material.runs,
                material.cells,
                [cell.name for cell in material.usable],
                material.results,
                config,
                names,
                fit=material.fit,
            ),
        ],
    )


def _decide_both(material: Material, names: Names) -> tuple[Verdict, Verdict]:
    """The verdicts under the training and the elapsed clock, each saying if the other differs."""
    context = _describe_rates(material, names)
    training, elapsed = (
        decide(
            material.fit,
            material.results,
            names=names,
            clock=clock,
            context=context,
            untuned=material.untuned,
        )
        for clock in CLOCKS
    )
    return (
        add_difference(training, elapsed, names),
        add_difference(elapsed, training, names),
    )


def _describe_rates(material: Material, names: Names) -> RateContext:
    """How the rate belongs to the arms of these settings."""
    rules = {material.settings[name].rule for name in names.settings}
    return RateContext(
        rule=rules.pop() if len(rules) == 1 else "",
        rate=float(material.config["optimizer"]["learning_rate"]),
        reference=material.reference.batch,
        tuned=bool(material.tuning.arms),
    )


def _summarise_setting(setting: str, material: Material) -> SettingResult:
    training, elapsed = _decide_both(material, Names((setting,)))
    mine = [cell for cell in material.cells if cell.setting == setting]
    start = material.runs[mine[0].name].start if mine else None
    return SettingResult(
        setting=setting,
        layout=material.settings[setting].layout,
        device="; ".join(sorted({cell.device for cell in mine})),
        axis_sizes=dict(start.layout.get("axis_sizes", {})) if start else {},
        training=training,
        elapsed=elapsed,
    )


def _choose_singly(
    material: Material, verdicts: tuple[Verdict, Verdict], settings: list[SettingResult]
) -> list[SingleChoices]:
    if not material.names.several:
        return []
    return [
        choose_singly(
            material.fit,
            both,
            [getattr(setting, both.clock) for setting in settings],
            names=material.names,
            context=_describe_rates(material, material.names),
            word=name_settings((one.name, one.layout) for one in material.settings.values()),
        )
        for both in verdicts
    ]


def _compare_layouts(material: Material) -> list[LayoutRatio]:
    """Of every family of settings that differ in the layout alone, against its first."""
    families: dict[tuple[Any, ...], list[str]] = {}
    for name, setting in material.settings.items():
        others = (setting.rule, setting.growth, setting.updates, setting.devices)
        families.setdefault(others, []).append(name)
    return [
        ratio
        for family in families.values()
        for ratio in compare_layouts([c for c in material.usable if c.setting in family], family)
    ]


def _describe_task(task: Mapping[str, Any]) -> str:
    """The task, and what its problems come from."""
    if task.get("train"):
        return f"{task['name']}, {task['train']}"
    if task.get("dataset"):
        return f"{task['name']}, {task['dataset']}"
    return f"{task['name']}, difficulty {task['difficulty']}"


def write_summary(summary: StudySummary, directory: Path) -> Path:
    """Writes summary.json, field by field; a number that does not exist (NaN) becomes null."""
    path = Path(directory) / SUMMARY_FILE
    content = _drop_non_finite(dataclasses.asdict(summary))
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return path


def estimate_noise(cells: list[Cell]) -> float:
    """Standard deviation of the scores about the isotonic fits, pooled over runs; NaN if unknown.

    A fit's degrees of freedom are the number of its levels (Meyer and Woodroofe 2000, On the
    degrees of freedom in shape-restricted regression), so the squared residuals are divided by
    points minus levels. Where a curve is steep nearly every point is a level of its own and
    tells nothing; the estimate comes from its flat parts. A run that collapses later is no noise:
    points count up to the tail of the crossing, or of the best score where there is none.
    """
    squares, freedom = 0.0, 0
    for cell in cells:
        scores = cell.curve_scores[: _count_points(cell)]
        fit = fit_isotonic(scores)
        squares += sum((score - level) ** 2 for score, level in zip(scores, fit, strict=True))
        freedom += len(fit) - len(set(fit))
    return math.sqrt(squares / freedom) if freedom else math.nan


def _count_points(cell: Cell) -> int:
    """Points of a curve up to where a run that has crossed, or is at its best, would stop."""
    if not cell.curve_scores:
        return 0
    if cell.crossing is None:
        return cell.curve_scores.index(max(cell.curve_scores)) + TAIL_POINTS + 1
    raw = bisect.bisect_left(cell.curve_samples, cell.crossing.raw_samples)
    far = bisect.bisect_left(cell.curve_samples, TAIL_RATIO * cell.crossing.samples)
    return max(raw + TAIL_POINTS, far) + 1


def _mean_start(cells: list[Cell]) -> float:
    scores = [cell.start_score for cell in cells if cell.curve_samples]
    return sum(scores) / len(scores) if scores else math.nan


def _drop_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_drop_non_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
