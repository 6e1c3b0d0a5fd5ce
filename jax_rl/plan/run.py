"""What an experiment needs of hardware that is not here, and how fast it could be there."""

import dataclasses
import datetime
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_rl.bench.request import list_requests
from jax_rl.config import Config
from jax_rl.config_file import config_to_dict
from jax_rl.costs.chips import Chip, find_by_kind, find_chip, load_chips
from jax_rl.costs.roofline import UNKNOWN_AXES
from jax_rl.errors import UserError
from jax_rl.plan.cache import list_versions
from jax_rl.plan.capacity import Largest, find_largest
from jax_rl.plan.jobs import Job, Point, Recipe, check_layers, choose_recipes, map_point
from jax_rl.plan.peaks import Peaks, make_chip
from jax_rl.plan.pool import Answer, Worker, run_jobs
from jax_rl.plan.predict import Prediction, as_throughput, describe, predict
from jax_rl.plan.results import read_result
from jax_rl.plan.target import HERE, Target, parse_target
from jax_rl.plan.topology import check_extras, count_groups
from jax_rl.throughput import ThroughputTable, write_throughput
from jax_rl.trainer.policy import resolve_model

TABLE_FILE, DETAILS_FILE = "plan.json", "plan_details.json"

_BOUND = (
    "rollouts/s are at most what is said, for decode loops of that length and operands that come"
    " from device memory: every program at its roofline, nothing between them. MFU counts what"
    " model.remat computes again"
)
_UNSEEN = (
    "rewards, input, output and what the host does are not in it; every decode loop is taken to"
    " run to {steps} tokens"
)
_CUDA = (
    "compiled without a GPU: no autotuning, and no cuDNN kernels are chosen by measuring them;"
    " on a device the programs, and their temporaries, may differ. The launchers' XLA flags are not"
    " set unless XLA_FLAGS has them; capacity is 90 % of the memory, as they let JAX take"
)
_GPU_SHARE = 0.9
"""Of a GPU's memory, which the launchers let JAX take (XLA_PYTHON_CLIENT_MEM_FRACTION)."""
_HERE = "peaks are estimates, measured here by short matrix products, copies and sums"


@dataclasses.dataclass(frozen=True)
class Plan:
    """Every layout with every batch on one target."""

    target: Target
    chip: Chip
    devices: Mapping[str, Any]  # count, groups, kind, platform, processes
    predictions: tuple[Prediction, ...]
    largest: tuple[Largest, ...]  # one per layout
    compiled: Mapping[str, float]  # programs, of them from the cache, and seconds of compiling
    length: int  # tokens that each decode loop runs to
    notes: tuple[str, ...]

    @property
    def failures(self) -> tuple[str, ...]:
        """Programs that could not be compiled, for another reason than memory."""
        return tuple(
            f"{one.point.request.layout}, batch {one.point.plan.size:,}, {name}: {obstacle.text}"
            for one in self.predictions
            for name, obstacle in one.obstacles.items()
            if not obstacle.too_large
        )


def run_plan(
    config: Config,
    target: str,
    *,
    layouts: Sequence[str] = (),
    batches: Sequence[int] = (),
    response_length: int | None = None,
    layers_compiled: Sequence[int] = (),
    every_batch: bool = False,
    jobs: int | None = None,
    chips: Path | None = None,
    output: Path | None = None,
    progress: bool = True,
) -> Plan:
    """Compiles an experiment's programs for a target and says what they need and cost.

    Args:
      config: the experiment; no weights, data or tokenizer are read, but a checkpoint's shape is.
      target: such as tpu:v5p:4x4x4, cuda:h100:8, or here.
      layouts: names or paths; run.layout if empty.
      batches: rollouts per iteration; batch.size if empty.
      response_length: tokens of the longest response of a wave, to which its decode loop runs;
        task.max_response_length if None.
      layers_compiled: two numbers of layers to compile sampler and sync with instead of the
        model's, which then lies on the line through them.
      every_batch: compile the update of every batch; otherwise that of the largest, whose loop
        over microbatches turns less often in the others.
      jobs: programs compiled side by side; one per core if None.
      chips: a file with chips of the user's own.
      output: directory for plan.json and plan_details.json; None writes nothing.
      progress: print a line for each program as it is compiled.

    Raises:
      UserError: whatever of the target, layouts or batches cannot be used.
    """
    known = load_chips(chips)
    aim = parse_target(target, known)
    check_extras(aim)
    config, _ = resolve_model(config)
    layers = check_layers(layers_compiled, config)
    length = _check_length(response_length, config)
    requests = list_requests(config, batches or (config.batch.size,), layouts)
    dtype = config.model.compute_dtype
    with Worker(aim) as worker:
        devices = worker.describe(aim, dtype=dtype)
        points = [
            map_point(request, devices=devices["count"], groups=devices["groups"])
            for request in requests
        ]
        recipes = choose_recipes(
            points, layers=layers, every_batch=every_batch, decode_trips=length - 1
        )
        answers = _compile(
            aim, recipes, workers=jobs or os.cpu_count() or 1, opened=worker, progress=progress
        )
    chip = _choose_chip(aim, devices, known, dtype=dtype)
    predictions = tuple(
        _predict(point, recipe, answers, chip, groups=devices["groups"])
        for point, recipe in zip(points, recipes, strict=True)
    )
    plan = Plan(
        target=aim,
        chip=chip,
        devices={key: value for key, value in devices.items() if key != "peaks"},
        predictions=predictions,
        largest=_find_largest(predictions),
        compiled=_count(answers),
        length=length,
        notes=_list_notes(aim, predictions, length),
    )
    if output is not None:
        write_plan(plan, config, output)
    return plan


def write_plan(plan: Plan, config: Config, directory: Path) -> None:
    """Writes plan.json, a throughput table as `bench` writes one, and all details beside it."""
    table = ThroughputTable(
        kind="predicted",
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        config=config_to_dict(config),
        platform=plan.devices["platform"],
        device_kind=plan.devices["kind"],
        device_count=plan.devices["count"],
        process_count=plan.devices["processes"],
        versions=list_versions(),
        points=tuple(as_throughput(one, length=plan.length) for one in plan.predictions),
        notes=plan.notes,
    )
    write_throughput(table, directory / TABLE_FILE)
    details = {
        "target": plan.target.name,
        "chip": {**vars(plan.chip), "flops": dict(plan.chip.flops)},
        "devices": dict(plan.devices),
        "response_length": plan.length,
        "versions": list_versions(),
        "compiled": dict(plan.compiled),
        "points": [describe(one) for one in plan.predictions],
        "largest": [dataclasses.asdict(one) for one in plan.largest],
        "notes": list(plan.notes),
    }
    path = directory / DETAILS_FILE
    try:
        path.write_text(json.dumps(details, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error


def _check_length(length: int | None, config: Config) -> int:
    most = config.task.max_response_length
    if length is None:
        return most
    if not 1 <= length <= most:
        raise UserError(
            f"response_length = {length} must be from 1 to task.max_response_length = {most}"
        )
    return length


def _compile(
    target: Target,
    recipes: Sequence[Mapping[str, Recipe]],
    *,
    workers: int,
    opened: Worker,
    progress: bool,
) -> dict[Job, Answer]:
    """Each different program once, those that take longest first."""
    order = ("update", "prefill", "decode", "sync", "score", "join")
    different = {part.job for recipe in recipes for parts in recipe.values() for part in parts}
    jobs = sorted(
        different,
        key=lambda job: (order.index(job.program), -job.layers, job.layout, job.config.batch.size),
    )

    def report(number: int, answer: Answer) -> None:
        if progress:
            print(
                f"[{number + 1}/{len(jobs)}] {_describe_answer(jobs[number], answer)}", flush=True
            )

    lines = [job.as_line() for job in jobs]
    answers = run_jobs(target, lines, workers=workers, opened=opened, report=report)
    return dict(zip(jobs, answers, strict=True))


def _describe_answer(job: Job, answer: Answer) -> str:
    what = f"{job.layout} {job.program}, batch {job.config.batch.size:,}, {job.layers} layer(s)"
    if answer.get("cached"):
        return f"{what}: from the cache"
    if "seconds" in answer:
        processor = answer["processor_seconds"]
        return f"{what}: {answer['seconds']:.0f} s ({processor:.0f} s of a core)"
    return f"{what}: {'does not fit' if 'too_large' in answer else 'not compiled'}"


def _choose_chip(
    target: Target, devices: Mapping[str, Any], known: Mapping[str, Chip], *, dtype: str
) -> Chip:
    if target.platform != HERE:
        chip = find_chip(target.chip, known)
        share = _GPU_SHARE if target.platform == "cuda" else 1.0
        return dataclasses.replace(chip, memory_bytes=int(chip.memory_bytes * share))
    peaks = Peaks(**devices["peaks"])
    found = find_by_kind(devices["kind"], known)
    if found is None:
        return make_chip(devices["kind"], peaks, dtype)
    return dataclasses.replace(found, memory_bytes=peaks.memory_bytes)


def _predict(
    point: Point,
    recipes: Mapping[str, Recipe],
    answers: Mapping[Job, Answer],
    chip: Chip,
    *,
    groups: int,
) -> Prediction:
    results = {name: read_result(recipe, answers) for name, recipe in recipes.items()}
    crossed = count_groups(point.sizes, groups)
    return predict(point, results, chip, crossed=crossed, recipes=recipes)


def _find_largest(predictions: Sequence[Prediction]) -> tuple[Largest, ...]:
    by_layout: dict[str, list[Prediction]] = {}
    for one in predictions:
        by_layout.setdefault(one.point.request.layout, []).append(one)
    return tuple(find_largest(ones) for ones in by_layout.values())


def _count(answers: Mapping[Job, Answer]) -> dict[str, float]:
    """Programs, how many of them came from the cache, and seconds of cores that the others took."""
    new = [answer for answer in answers.values() if not answer.get("cached")]
    return {
        "programs": len(answers),
        "cached": len(answers) - len(new),
        "processor_seconds": sum(answer.get("processor_seconds", 0.0) for answer in new),
    }


def _list_notes(target: Target, predictions: Sequence[Prediction], length: int) -> tuple[str, ...]:
    notes = [_BOUND, _UNSEEN.format(steps=f"{length:,}")]
    if target.platform == "cuda":
        notes.append(_CUDA)
    if target.platform == HERE:
        notes.append(_HERE)
    if any(
        UNKNOWN_AXES in {**b.links, **b.network} for one in predictions for b in one.bounds.values()
    ):
        notes.append("some collectives fit no mesh axis; they are counted under 'unknown'")
    return tuple(notes)
