"""From the records of a study to its summary; nothing else is read.

A study's directory holds `study.json`, written before the first run (name, configuration, running
order, time of creation, names of the layouts if it compares several), and one record per run,
`cells/b00064_s0/records.jsonl` or `cells/fsdp_b00064_s0/records.jsonl`.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME, RunRecord, read_run
from jax_rl.study.batches import MEASURES, StudyFit, fit_study, summarise_arm
from jax_rl.study.cells import Planned, changed_hardware, make_cell
from jax_rl.study.layouts import (
    choose_singly,
    compare_layouts,
    describe_difference,
    describe_layout_samples,
)
from jax_rl.study.names import Names
from jax_rl.study.notes import check_same_experiment, write_study_notes
from jax_rl.study.summary import Arm, BatchResult, Cell, SettingResult, StudySummary, Verdict
from jax_rl.study.verdict import decide
from jax_rl.study.words import RateContext

STUDY_FILE = "study.json"
SUMMARY_FILE = "summary.json"


def analyse(directory: Path) -> StudySummary:
    """Everything that a study's records say; unfinished runs are listed and not compared.

    Raises:
      UserError: no study there, no run recorded yet, runs of different experiments, or a start
        score above the target.
    """
    study = _read_study(directory)
    runs, planned = _read_runs(directory, study)
    config = study["config"]
    if not runs:
        raise UserError(
            f"{directory}: none of the {len(planned)} planned runs has a record yet; start or"
            " continue the study there first"
        )
    check_same_experiment(config, planned, runs)
    cells = [
        make_cell(runs[p.name], p.name, order, setting=p.setting)
        for order, p in enumerate(planned, 1)
        if p.name in runs
    ]
    names = Names(tuple(study.get("layouts") or dict.fromkeys(c.setting for c in cells)))
    usable = [cell for cell in cells if _is_usable(cell, runs[cell.name])]
    fit = fit_study(usable, settings=names.settings)
    reference = int(config["batch"]["size"])
    results = [
        summarise_arm(
            fit,
            arm,
            reference=Arm(names.settings[0], reference),
            updates_per_iteration=int(config["batch"]["updates"]),
        )
        for arm in fit.censored
    ]
    context = RateContext(
        rule=config["study"]["rate_rule"],
        rate=float(config["optimizer"]["learning_rate"]),
        reference=reference,
    )
    training, elapsed = _decide_both(fit, results, names, context)
    settings = [
        _summarise_setting(setting, fit, results, cells, runs, context)
        for setting in names.settings
    ]
    ratios = compare_layouts(usable, names.settings)
    start = runs[cells[0].name].start
    warm_starts = [run.warm_start.seconds for run in runs.values() if run.warm_start]
    return StudySummary(
        name=study["name"],
        target=float(config["budget"]["target"]),
        sample_budget=int(config["budget"]["samples"]),
        seconds_budget=float(config["budget"]["seconds"]),
        rate_rule=context.rule,
        reference_batch=reference,
        reference_rate=context.rate,
        factor=int(config["study"]["factor"]),
        group=int(config["batch"]["group"]),
        setting=names.settings[0],
        task=_describe_task(config["task"]),
        parameters=start.parameters,
        device=cells[0].device,
        versions=start.versions,
        git_revision=start.git_revision,
        validation_prompts=int(config["validation"]["prompts"]),
        validation_every=int(config["validation"]["every_samples"]),
        validation_noise=estimate_noise(cells),
        start_score=_mean_start(cells),
        warm_start_seconds=max(warm_starts, default=0.0),
        checkpoint=str(config["model"].get("checkpoint", "")),
        batches=results,
        cells=cells,
        planned_cells=len(planned),
        residual_sd={name: fit.fits[name].residual_sd for name in MEASURES},
        degrees_of_freedom=fit.degrees_of_freedom,
        training=training,
        elapsed=elapsed,
        clocks_agree=agree(training, elapsed),
        settings=settings,
        single_choices=[
            choose_singly(
                fit,
                both,
                [getattr(setting, both.clock) for setting in settings],
                names=names,
                context=context,
            )
            for both in (training, elapsed)
            if names.several
        ],
        layout_ratios=ratios,
        layout_samples=describe_layout_samples(ratios),
        notes=[
            *(describe_difference(ratio) for ratio in ratios if ratio.differs),
            *write_study_notes(
                planned, runs, cells, [cell.name for cell in usable], results, config, names
            ),
        ],
    )


def _decide_both(
    fit: StudyFit, results: list[BatchResult], names: Names, context: RateContext
) -> tuple[Verdict, Verdict]:
    """The verdicts under the training and the elapsed clock, each saying if the other differs."""
    training, elapsed = (
        decide(fit, results, names=names, clock=clock, context=context)
        for clock in ("training", "elapsed")
    )
    return (
        _add_difference(training, elapsed, names),
        _add_difference(elapsed, training, names),
    )


def _summarise_setting(
    setting: str,
    fit: StudyFit,
    results: list[BatchResult],
    cells: list[Cell],
    runs: dict[str, RunRecord],
    context: RateContext,
) -> SettingResult:
    training, elapsed = _decide_both(fit, results, Names((setting,)), context)
    mine = [cell for cell in cells if cell.setting == setting]
    return SettingResult(
        setting=setting,
        layout=mine[0].layout if mine else setting,
        device="; ".join(sorted({cell.device for cell in mine})),
        axis_sizes=dict(runs[mine[0].name].start.layout.get("axis_sizes", {})) if mine else {},
        training=training,
        elapsed=elapsed,
    )


def _describe_task(task: dict[str, Any]) -> str:
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
    tells nothing; the estimate comes from its flat parts.
    """
    squares, freedom = 0.0, 0
    for cell in cells:
        pairs = zip(cell.curve_scores, cell.curve_fit, strict=True)
        squares += sum((score - fit) ** 2 for score, fit in pairs)
        freedom += len(cell.curve_fit) - len(set(cell.curve_fit))
    return math.sqrt(squares / freedom) if freedom else math.nan


def _read_study(directory: Path) -> dict[str, Any]:
    path = Path(directory) / STUDY_FILE
    if not path.is_file():
        raise UserError(f"{directory}: no study is there ({STUDY_FILE} is missing)")
    try:
        study = json.loads(path.read_text(encoding="utf-8"))
        missing = {"name", "config", "order"} - study.keys()
    except (ValueError, AttributeError) as error:
        raise UserError(f"{path}: not the description of a study: {error}") from None
    if missing:
        raise UserError(f"{path}: lacks {', '.join(sorted(missing))}")
    return dict(study)


def _read_runs(
    directory: Path, study: dict[str, Any]
) -> tuple[dict[str, RunRecord], list[Planned]]:
    planned = [Planned.from_entry(entry) for entry in study["order"]]
    runs = {}
    for plan in planned:
        place = Path(directory) / "cells" / plan.name
        # A run killed before its first event was complete has a file without a line.
        if (place / FILE_NAME).is_file() and "\n" in (place / FILE_NAME).read_text("utf-8"):
            runs[plan.name] = read_run(place)
    return runs, planned


def _is_usable(cell: Cell, run: RunRecord) -> bool:
    timed = cell.samples > 0 and cell.rollouts_per_second > 0
    return cell.finished and timed and not changed_hardware(run)


def _mean_start(cells: list[Cell]) -> float:
    scores = [cell.start_score for cell in cells if cell.curve_samples]
    return sum(scores) / len(scores) if scores else math.nan


def agree(verdict: Verdict, other: Verdict) -> bool:
    """Whether two verdicts name the same batch in the same setting, or both none."""
    return (verdict.setting, verdict.fastest) == (other.setting, other.fastest)


def _add_difference(verdict: Verdict, other: Verdict, names: Names) -> Verdict:
    """Says in a verdict that the other clock names another batch or setting."""
    if agree(verdict, other):
        return verdict
    # One has no fastest only if the other has none, so both have a setting and a batch here.
    mine, theirs = (names.show(Arm(v.setting or "", v.fastest or 0)) for v in (verdict, other))
    sentence = (
        f"The clocks differ: batch {mine} is the fastest by the {verdict.clock} clock,"
        f" batch {theirs} by the {other.clock} clock."
    )
    return dataclasses.replace(verdict, sentences=[*verdict.sentences, sentence])


def _drop_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_drop_non_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
