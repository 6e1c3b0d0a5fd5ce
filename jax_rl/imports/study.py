"""Logs of other trainers as a study's directory, from which the same report is made."""

import datetime
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_rl.errors import UserError
from jax_rl.imports.columns import choose_columns
from jax_rl.imports.runs import LoggedRun, check_runs
from jax_rl.imports.series import Point, Series, read_series
from jax_rl.imports.tables import read_rows
from jax_rl.records import PHASES, End, Iteration, RecordWriter, Start, Validation
from jax_rl.study.cells import Planned

SETTING = "imported"
"""Name of the only setting of a study that names none."""

_TOLERANCE = 0.01
"""Rates this near to a rule are taken to follow it."""


def import_study(
    runs: Sequence[LoggedRun],
    directory: Path,
    *,
    target: float,
    reference: int = 0,
    columns: Mapping[str, str] | None = None,
    format: str = "auto",
    task: str = "",
    model: str = "",
    parameters: int = 0,
    prompts: int = 0,
) -> Path:
    """Writes study.json and a record for each log.

    Args:
      runs: the logs and what each is of.
      directory: of the study; new or empty.
      target: validation score to reach.
      reference: batch that the others are compared with; 0: the smallest.
      columns: by role, where the names are not recognised; those of a run come first.
      format: of the logs.
      task: what was trained on, for the report.
      model: what was trained, for the report.
      parameters: of the model; 0: not known.
      prompts: in the validation set; 0: not known.

    Returns:
      the directory, ready for `jax_rl.report.build.build_report`.

    Raises:
      UserError: a log that cannot be read, a column that is not there, runs that make no study, a
        target that is no number, or a directory that is not empty.
    """
    directory = Path(directory)
    check_runs(runs)
    if not math.isfinite(target):
        raise UserError(f"target = {target} must be a number, a validation score to reach")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UserError(f"{directory} is not empty; choose another directory")
    series = [_read(run, format, columns or {}) for run in runs]
    rates = [_find_rate(run, one) for run, one in zip(runs, series, strict=True)]
    batches = sorted({run.batch for run in runs})
    reference = reference or batches[0]
    if reference not in batches:
        raise UserError(
            f"reference {reference}: no run has this batch (there are:"
            f" {', '.join(map(str, batches))})"
        )
    config = _make_config(runs, series, reference, target=target)
    rule = name_rule(runs, rates, reference)
    config["optimizer"]["learning_rate"] = next(
        rate for run, rate in zip(runs, rates, strict=True) if run.batch == reference
    )
    config["study"]["rate_rule"] = rule
    config["task"]["dataset"] = task or "a task that the logs do not name"
    config["model"]["checkpoint"] = model or "a model that the logs do not name"
    config["validation"]["prompts"] = prompts
    for run, one, rate in zip(runs, series, rates, strict=True):
        start = _make_start(run, one, config, rate=rate, rule=rule, parameters=parameters)
        _write_run(directory, run, one, start)
    # Last, so that a directory without it is known to be incomplete.
    study = _describe_study(directory, runs, config)
    (directory / "study.json").write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    return directory


def name_rule(runs: Sequence[LoggedRun], rates: Sequence[float], reference: int) -> str:
    """The rate rule that the logged rates follow, or words for none that is known."""
    base = next(rate for run, rate in zip(runs, rates, strict=True) if run.batch == reference)
    for rule, power in (("none", 0.0), ("sqrt", 0.5), ("linear", 1.0)):
        right = [base * (run.batch / reference) ** power for run in runs]
        if np.allclose(rates, right, rtol=_TOLERANCE, atol=0.0):
            return rule
    return "the rates logged"


def _read(run: LoggedRun, format: str, columns: Mapping[str, str]) -> Series:
    rows, found = read_rows(run.file, format=run.format or format, run=run.run)
    chosen = choose_columns(
        {name for row in rows for name in row},
        format=found,
        given={**columns, **run.map},
        where=str(run.file),
    )
    return read_series(rows, chosen, run)


def _find_rate(run: LoggedRun, series: Series) -> float:
    logged = max((p.values.get("rate", 0.0) for p in series.points), default=0.0)
    rate = run.rate or logged
    if not rate > 0:
        raise UserError(
            f"{run.file}: the learning rate is not in the log; give it: rate=1e-6, or name its"
            " column by --map rate=COLUMN"
        )
    return rate


def _make_config(
    runs: Sequence[LoggedRun], series: Sequence[Series], reference: int, *, target: float
) -> dict[str, Any]:
    """What an analysis asks of a configuration, and nothing that a log does not tell."""
    last = [one.points[-1] for one in series]
    steps = [
        step
        for one in series
        for step in np.diff([0, *(p.samples for p in one.points if "score" in p.values)])
        if step > 0
    ]
    batches = sorted({run.batch for run in runs})
    ratios = [b / a for a, b in itertools.pairwise(batches)]
    groups = {run.group for run in runs if run.batch == reference}
    return {
        "task": {"name": "imported", "train": "", "dataset": "", "difficulty": 0},
        "text": {},
        "reward": {},
        "model": {"checkpoint": ""},
        "warm_start": {"updates": 0},
        "batch": {"size": reference, "group": min(groups), "updates": runs[0].updates},
        "sampler": {},
        "objective": {},
        "optimizer": {"learning_rate": 0.0, "warmup_samples": 0},
        "validation": {
            "prompts": 0,
            "every_samples": int(np.median(steps)) if steps else reference,
            "samples_per_prompt": 1,
        },
        "budget": {
            "target": target,
            "samples": max(point.samples for point in last),
            "seconds": max(point.elapsed for point in last),
        },
        "study": {"factor": round(float(np.median(ratios))) if ratios else 2, "rate_rule": ""},
        "run": {"seed": 0, "layout": SETTING},
    }


def _make_start(
    run: LoggedRun,
    series: Series,
    config: Mapping[str, Any],
    *,
    rate: float,
    rule: str,
    parameters: int,
) -> Start:
    own = json.loads(json.dumps(config))
    own["batch"] |= {"size": run.batch, "group": run.group, "updates": run.updates}
    own["run"] |= {"seed": run.seed, "layout": run.setting or SETTING}
    own["optimizer"]["learning_rate"] = rate
    own["imported"] = {"file": run.file.name, "run": run.run}
    return Start(
        time=_now(),
        config=own,
        layout={"name": run.setting or SETTING},
        batch_plan={},
        learning_rate=rate,
        rate_rule=rule,
        reference_batch=int(config["batch"]["size"]),
        warmup_updates=0,
        parameters=parameters,
        platform=SETTING,
        device_kind=run.device or ("unknown device" if run.devices else "devices of unknown kind"),
        device_count=run.devices,  # 0: not known
        process_count=1,
        host={},
        versions={},
        flags={},
        git_revision="",
        resumed_at_samples=None,
        notes=[f"imported: seconds are those of the log's {series.clock}", *series.notes],
    )


def _write_run(directory: Path, run: LoggedRun, series: Series, start: Start) -> None:
    writer = RecordWriter(directory / "cells" / Planned(run.setting, run.batch, run.seed).name)
    writer.write(start)
    totals, pending = dict.fromkeys(PHASES, 0.0), dict[str, float]()
    done = 0
    for point in series.points:
        # What came after the point before belongs to the iteration that ends here.
        phases = _add(pending, point.phases)
        pending = dict(point.after) if point.samples > done else _add(phases, point.after)
        totals = _add(_add(totals, point.phases), point.after)
        if point.samples > done:
            writer.write(_make_iteration(run, point, phases, made=point.samples - done))
            done = point.samples
        if "score" in point.values:
            writer.write(_make_validation(run, point))
    last = series.points[-1]
    writer.write(
        End(
            reason=SETTING,
            samples=last.samples,
            learnt=last.samples,
            iterations=round(last.step),
            updates=round(last.step * run.updates),
            elapsed_seconds=last.elapsed + sum(last.after.values()),
            training_seconds=last.training,
            phases=totals,
            hidden={},
            compiled={},
            load_average=math.nan,
            peak_memory_bytes=0,
        )
    )
    writer.close()


def _add(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Seconds by phase, added up."""
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in (*one, *other)}


def _make_iteration(
    run: LoggedRun, point: Point, phases: Mapping[str, float], *, made: int
) -> Iteration:
    """What a log tells of the iterations since the point before; NaN for all that it does not."""
    value = point.values
    length = value.get("mean_length", math.nan)
    return Iteration(
        iteration=round(point.step),
        samples=point.samples,
        learnt=point.samples,
        update=round(point.step * run.updates),
        learning_rate=value.get("rate", math.nan),
        elapsed_seconds=point.elapsed,
        training_seconds=point.training,
        phases=dict(phases),
        hidden={},
        tokens=round(length * made) if math.isfinite(length) else 0,
        decode_steps=0,
        mean_length=length,
        p95_length=math.nan,
        truncated=value.get("truncated", math.nan),
        reward=value.get("reward", math.nan),
        tied_groups=math.nan,
        failed_rewards=0,
        reward_timeouts=0,
        loss=value.get("loss", math.nan),
        grad_norm=value.get("grad_norm", math.nan),
        clipped_gradient=math.nan,
        update_norm=math.nan,
        entropy=value.get("entropy", math.nan),
        ratio_clipped=math.nan,
        kl=value.get("kl"),
        mismatch_mean=math.nan,
        mismatch_max=math.nan,
    )


def _make_validation(run: LoggedRun, point: Point) -> Validation:
    return Validation(
        samples=point.samples,
        iteration=round(point.step),
        update=round(point.step * run.updates),
        score=point.values["score"],
        rollouts=0,
        failed_rewards=0,
        mean_length=math.nan,
        elapsed_seconds=point.elapsed,
        training_seconds=point.training,
        seconds=point.after.get("validate", math.nan),
    )


def _describe_study(
    directory: Path, runs: Sequence[LoggedRun], config: Mapping[str, Any]
) -> dict[str, Any]:
    study: dict[str, Any] = {
        "name": directory.resolve().name,
        "config": config,
        "order": [Planned(run.setting, run.batch, run.seed).entry for run in runs],
        "created": _now(),
        "imported": True,
    }
    named = {run.setting: run for run in runs if run.setting}
    if named:
        study["settings"] = {
            name: {
                "layout": name,
                "rule": config["study"]["rate_rule"],
                "growth": "prompts",
                "updates": run.updates,
                "devices": "fixed",
            }
            for name, run in named.items()
        }
    return study


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
