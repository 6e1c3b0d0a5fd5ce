"""Studies with known numbers: records on disk, and cells in memory."""

import dataclasses
import json
from pathlib import Path

from jax_rl.config import Config
from jax_rl.records import PHASES, End, Iteration, RecordWriter, Start, Steady, Validation
from jax_rl.study.cells import Planned
from jax_rl.study.summary import Cell, Crossing

STEP = 1024
BUDGET = 16 * STEP
TARGET = 0.75
SHARES = {"generate": 0.6, "learn": 0.3, "reward": 0.05, "sync": 0.04, "other": 0.01}
COMPILE, VALIDATE = 10.0, 0.5


def make_config(reference=64, **budget):
    config = Config()
    return dataclasses.asdict(
        dataclasses.replace(
            config,
            batch=dataclasses.replace(config.batch, size=reference),
            validation=dataclasses.replace(config.validation, every_samples=STEP),
            budget=dataclasses.replace(config.budget, target=TARGET, samples=BUDGET, **budget),
        )
    )


def make_start(config, batch, seed, name="", **changes):
    config = json.loads(json.dumps(config))
    config["batch"]["size"], config["run"]["seed"] = batch, seed
    config["run"]["layout"] = name or "replicated"
    start = Start(
        time="2026-01-01T00:00:00Z",
        config=config,
        layout={
            "name": name or "replicated",
            "axis_sizes": {"data": 1, "fsdp": 1, "tensor": 1},
        },
        batch_plan={},
        learning_rate=1e-3 * (batch / 64) ** 0.5,
        rate_rule="sqrt",
        reference_batch=64,
        warmup_updates=512 // batch,
        parameters=100_000,
        platform="cpu",
        device_kind="cpu",
        device_count=1,
        process_count=1,
        host={"cores": 2},
        versions={"jax": "0.10.2"},
        flags={},
        git_revision="abc",
        resumed_at_samples=None,
        notes=[],
    )
    return dataclasses.replace(start, **changes)


def write_run(
    study: Path,
    batch: int,
    seed: int,
    *,
    samples: float,
    rate: float,
    layout: str = "",
    config=None,
    killed_at: int | None = None,
    bumps=None,
    other: float = 0.0,
    steady: float = 1.0,
    failed: int = 0,
    start=None,
):
    """A run whose score rises in a straight line from 0.25 through the target at `samples`.

    Args:
      rate: rollouts per training second.
      layout: of a study of several layouts.
      killed_at: samples after which the record breaks off.
      bumps: added to the score at some grid points, by index.
      other: elapsed seconds that belong to the phase other, besides the usual share.
      steady: steady over run throughput.
      failed: rollouts of each iteration without a part in a gradient.
    """
    config = config or make_config()
    writer = RecordWriter(study / "cells" / Planned(layout, batch, seed).name)
    writer.write(make_start(config, batch, seed, layout, **(start or {})))
    points = 0

    def elapsed(done):
        return COMPILE + done / rate + VALIDATE * points

    def validate(done):
        nonlocal points
        score = 0.25 + 0.5 * done / samples + (bumps or {}).get(points, 0.0)
        writer.write(
            Validation(
                samples=done,
                iteration=done // batch,
                update=done // batch,
                score=score,
                failed_rewards=0,
                rollouts=512,
                mean_length=4.0,
                elapsed_seconds=elapsed(done),
                training_seconds=done / rate,
                seconds=VALIDATE,
            )
        )
        points += 1

    validate(0)
    last = min(BUDGET, -(-int(max(1.25 * samples, samples + 2 * STEP)) // STEP) * STEP)
    for done in range(batch, last + 1, batch):
        writer.write(
            Iteration(
                iteration=done // batch,
                samples=done,
                learnt=done - failed * (done // batch),
                update=done // batch,
                learning_rate=1e-3,
                elapsed_seconds=elapsed(done),
                training_seconds=done / rate,
                phases={name: share * batch / rate for name, share in SHARES.items()},
                hidden={},
                tokens=4 * batch,
                mean_length=4.0,
                p95_length=5.0,
                decode_steps=4,
                truncated=0.0,
                reward=0.5,
                tied_groups=0.1,
                failed_rewards=failed,
                reward_timeouts=0,
                loss=0.0,
                grad_norm=1.0,
                clipped_gradient=0.0,
                update_norm=0.01,
                entropy=1.0,
                ratio_clipped=0.0,
                kl=None,
                mismatch_mean=1e-7,
                mismatch_max=1e-6,
            )
        )
        if killed_at is not None and done >= killed_at:
            writer.close()
            return
        if done % STEP == 0:
            validate(done)
    totals = {name: share * last / rate for name, share in SHARES.items()}
    totals |= {"validate": VALIDATE * points, "compile": COMPILE, "checkpoint": 0.0}
    totals["other"] += other
    writer.write(
        Steady(
            iterations=10,
            rollouts=1000,
            tokens=4400,
            seconds=1000 / (rate * steady),
        )
    )
    writer.write(
        End(
            reason="target" if 1.25 * samples <= last else "sample_budget",
            samples=last,
            learnt=last - failed * (last // batch),
            iterations=last // batch,
            updates=last // batch,
            elapsed_seconds=elapsed(last) + other,
            training_seconds=last / rate + other,
            phases=totals,
            hidden={},
            goodput=0.9,
            compiled={"train": 1},
            load_average=1.0,
            peak_memory_bytes=1,
        )
    )
    writer.close()


def write_study(study: Path, runs, **options):
    """A study of runs {(batch, seed): (samples to target, rollouts per second)}.

    With keys (layout, batch, seed) it is one of several layouts, in the order of their first run.
    """
    study.mkdir(parents=True, exist_ok=True)
    planned = {Planned.from_entry(key): numbers for key, numbers in runs.items()}
    content = {
        "name": "test",
        "config": options.get("config") or make_config(),
        "order": [list(key) for key in runs],
        "created": "2026-01-01T00:00:00Z",
    }
    layouts = list(dict.fromkeys(cell.setting for cell in planned if cell.setting))
    if layouts:
        content["layouts"] = layouts
        content["config"]["study"]["layouts"] = layouts
    (study / "study.json").write_text(json.dumps(content))
    for cell, (samples, rate) in planned.items():
        write_run(
            study,
            cell.batch,
            cell.seed,
            layout=cell.setting,
            samples=samples,
            rate=rate,
            **options,
        )


def build_cell(
    batch,
    seed,
    *,
    samples,
    rate,
    elapsed_rate=None,
    crossed=True,
    layout="replicated",
    device="1 x cpu (cpu)",
) -> Cell:
    """A cell in memory; `elapsed_rate` is rollouts per elapsed second."""
    samples = samples if crossed else int(samples)
    training, elapsed = samples / rate, samples / (elapsed_rate or rate / 2)
    crossing = Crossing(
        samples=samples,
        updates=samples / batch,
        training_seconds=training,
        elapsed_seconds=elapsed,
        raw_samples=int(samples),
        raw_training_seconds=training,
        raw_elapsed_seconds=elapsed,
        learnt=int(samples),
        in_flight=0,
        held=True,
    )
    return Cell(
        name=Planned("" if layout == "replicated" else layout, batch, seed).name,
        setting=layout,
        layout=layout,
        batch=batch,
        seed=seed,
        order=1,
        device=device,
        device_count=1,
        finished=True,
        learning_rate=1e-3,
        warmup_updates=8,
        crossing=crossing if crossed else None,
        samples=int(samples),
        training_seconds=training,
        elapsed_seconds=elapsed,
        phases=dict.fromkeys(PHASES, elapsed / len(PHASES)),
        phases_to_crossing={},
        rollouts_per_second=rate,
        tokens_per_second=4 * rate,
        generate_per_second=2 * rate,
        learn_per_second=2 * rate,
        steady_per_second=None,
        steady_gap=None,
        accounting_gap=0.0,
        other_share=0.0,
        mean_length=4.0,
        p95_length=5.0,
        start_score=0.2,
        best_score=0.8,
        mismatch_max=0.0,
        load_average=1.0,
        curve_samples=[],
        curve_scores=[],
        curve_fit=[],
        curve_training_seconds=[],
        curve_elapsed_seconds=[],
        curve_updates=[],
        curve_tokens=[],
        notes=[],
    )
