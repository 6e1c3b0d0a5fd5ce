"""Times the sampler, the learner and whole iterations on a fixed workload; prints JSON lines.

    python scripts/bench.py --cases S1,L1,E1 --batches 16,64,256
    taskset -c 1 python scripts/bench.py --layout replicated --repeats 7      (one CPU core)

A Qwen3-shaped model with random float32 weights, 32-token prompts and 64 new tokens. No token
ends a response, so that every batch is the same number of tokens.

    S1  sampling with log-probabilities, every prompt another; tokens/s
    S8  the same in groups of 8, whose prompt is prefilled once; tokens/s
    L1  one GRPO update over the whole batch; sequences/s
    E1  whole iterations in groups of 8: prompts, sample, reward (the share of one token), update;
        samples/s

Every program is compiled ahead of time and called once before it is timed; a repeat lasts at
least half a second and ends when its results are on the host or its arrays are ready. A line
holds the median over the repeats (`value`) and the slowest and the fastest (`min`, `max`).
"""

import argparse
import dataclasses
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_rl.config import (
    BatchConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    RopeConfig,
)
from jax_rl.errors import UserError
from jax_rl.learner.update import LearnerSpec, init_state, score_rollouts, update
from jax_rl.mesh.batch_plan import BatchPlan, plan_batch
from jax_rl.mesh.devices import check_divides, make_mesh
from jax_rl.mesh.layout import Layout
from jax_rl.mesh.layout_file import load_layout
from jax_rl.model.weights import dimensions, init_weights
from jax_rl.resources import find_layout
from jax_rl.sampler.generate import Rollouts, SamplerSpec, decode, prefill, sync_weights
from jax_rl.sampler.waves import PromptRows, split_waves

NOISY = 0.1
"""Share of our cores that other processes may take before a line is marked noisy."""

QWEN3_TINY = ModelConfig(
    layers=4,
    embed=256,
    heads=4,
    kv_heads=2,
    head_dim=64,
    mlp=768,
    vocab=512,
    rope=RopeConfig(theta=1_000_000.0),
)
"""Qwen3's shape (q/k norm, tied head), small."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is timed."""

    name: str = "tiny"
    model: ModelConfig = QWEN3_TINY
    prompt_length: int = 32
    response_length: int = 64
    group: int = 8
    rewarded_token: int = 7
    learning_rate: float = 1e-5
    min_repeat_seconds: float = 0.5


@dataclasses.dataclass(frozen=True)
class Case:
    """A call to be timed, and how much it does."""

    run: Callable[[], None]  # returns when its work is done
    work: int  # units per call
    unit: str  # of the rate
    compile_seconds: float
    compile_cpu_seconds: float


@dataclasses.dataclass(frozen=True)
class Repeat:
    """One repeat, per call."""

    seconds: float
    cpu_seconds: float  # of this process
    other_cores: float | None  # of ours that other processes kept busy; None: not known here


class Bench:
    """Builds the cases of one batch size; the mesh is the one in context."""

    def __init__(self, workload: Workload, batch: int, group: int, layout: Layout, mesh: Mesh):
        """Maps the batch onto the mesh."""
        self.workload, self.layout, self.mesh = workload, layout, mesh
        self.plan: BatchPlan = plan_batch(
            BatchConfig(size=batch, group=group), layout, dict(mesh.shape)
        )
        self.sampler = SamplerSpec(
            model=workload.model,
            layout=layout,
            max_prompt_length=workload.prompt_length,
            max_response_length=workload.response_length,
            copies=self.plan.copies,
            end_ids=(workload.model.vocab,),
            pad_id=workload.model.vocab,
        )
        self.learner = LearnerSpec(
            model=workload.model,
            layout=layout,
            objective=ObjectiveConfig(denominator="sequences"),
            optimizer=OptimizerConfig(weight_decay=0.01),
            group=group,
            updates=1,
            microbatch=self.plan.microbatch,
            max_prompt_length=workload.prompt_length,
            max_response_length=workload.response_length,
        )
        self.weights = init_weights(jax.random.key(0), workload.model, layout)
        self.key = self.put(jax.random.key(1))
        self.temperature = self.put(np.float32(1.0))
        self.rates = self.put(np.full((1,), workload.learning_rate, np.float32))
        self.compile_seconds = self.compile_cpu_seconds = 0.0
        self._numbers = np.random.default_rng(0)
        self._group = 0  # of the next prompt

    def put(self, value: Any) -> jax.Array:
        """A host value, whole on every device."""
        return jax.device_put(value, NamedSharding(self.mesh, PartitionSpec()))

    def sharding(self, axes: tuple[str | None, ...]) -> NamedSharding:
        """Where an array with these logical axes lies."""
        return NamedSharding(self.mesh, self.layout.compute_spec(axes))

    def compile(self, function: Any, *args: Any, **static: Any) -> Callable[..., Any]:
        """The compiled program of a jitted function, and its seconds on the account."""
        wall, cpu = time.perf_counter(), time.process_time()
        program: Callable[..., Any] = function.lower(*args, **static).compile()
        self.compile_seconds += time.perf_counter() - wall
        self.compile_cpu_seconds += time.process_time() - cpu
        return program

    def make_prompts(self) -> Any:
        """The next prompts, on the mesh."""
        shape = (self.plan.prompts, self.workload.prompt_length)
        tokens = self._numbers.integers(self.workload.model.vocab, size=shape, dtype=np.int32)
        lengths = np.full(shape[0], shape[1], np.int32)
        rows = PromptRows(tokens, lengths, self._group)
        self._group += shape[0]
        (prompts,) = split_waves(rows, self.plan, self.sharding)
        return prompts

    def compile_sampler(self, weights: Any) -> Callable[[Any, Any], Rollouts]:
        """Prefill and decode as one call; returns before the devices have finished."""
        spec, prompts = self.sampler, self.make_prompts()
        fill = self.compile(prefill, weights, prompts, spec=spec)
        shapes = jax.eval_shape(lambda w, p: prefill(w, p, spec), weights, prompts)
        go = self.compile(decode, weights, *shapes, prompts, self.key, self.temperature, spec=spec)

        def sample(weights: Any, prompts: Any) -> Rollouts:
            cache, hidden = fill(weights, prompts)
            rollouts, _, _ = go(weights, cache, hidden, prompts, self.key, self.temperature)
            return rollouts

        return sample

    def check(self, lengths: np.ndarray) -> None:
        """Refuses a number of tokens other than the workload's."""
        if not (lengths == self.workload.response_length).all():
            raise AssertionError(f"responses ended early: {lengths}")

    def finish(self, run: Callable[[], None], work: int, unit: str) -> Case:
        """The case with what has been compiled so far."""
        return Case(run, work, unit, self.compile_seconds, self.compile_cpu_seconds)

    def sampling(self) -> Case:
        """Prefill and decode of one batch."""
        weights = sync_weights(self.weights, self.workload.model, self.layout)
        sample = self.compile_sampler(weights)

        def run() -> None:
            self.check(
                np.asarray(jax.block_until_ready(sample(weights, self.make_prompts())).lengths)
            )

        return self.finish(run, self.plan.size * self.workload.response_length, "tokens/s")

    def learning(self) -> Case:
        """One update on one fixed batch."""
        rows, model = self.plan.size, self.workload.model
        prompt, response = self.workload.prompt_length, self.workload.response_length
        square, row = self.sharding(("batch", None)), self.sharding(("batch",))
        tokens = self._numbers.integers(model.vocab, size=(rows, prompt + response), dtype=np.int32)
        unscored = Rollouts(
            tokens=jax.device_put(tokens, square),
            starts=jax.device_put(np.zeros(rows, np.int32), row),
            lengths=jax.device_put(np.full(rows, response, np.int32), row),
            ended=jax.device_put(np.ones(rows, bool), row),
            log_probs=jax.device_put(np.zeros((rows, response), np.float32), square),
        )
        log_probs = score_rollouts(self.weights, unscored, self.temperature, self.learner)
        rollouts = dataclasses.replace(unscored, log_probs=log_probs)
        rewards = self.put(np.linspace(-1.0, 1.0, rows, dtype=np.float32))
        state = init_state(self.weights, self.learner.optimizer, self.learner.model)
        args = (rollouts, rewards, self.put(np.ones(rows, bool)), self.rates, self.temperature)
        learn = self.compile(update, state, *args, None, spec=self.learner)

        def run() -> None:
            nonlocal state
            state, metrics = learn(state, *args, None)
            jax.block_until_ready((state, metrics))

        return self.finish(run, rows, "sequences/s")

    def iterating(self) -> Case:
        """Prompts, sync, sample, reward, update; one iteration per call."""
        rows, prompt = self.plan.size, self.workload.prompt_length
        sync = self.compile(
            sync_weights, self.weights, model=self.workload.model, layout=self.layout
        )
        in_use = sync(self.weights)
        sample = self.compile_sampler(in_use)
        rollouts = sample(in_use, self.make_prompts())
        state = init_state(self.weights, self.learner.optimizer, self.learner.model)
        valid, unscored = self.put(np.ones(rows, bool)), self.put(np.zeros(rows, np.float32))
        args = (rollouts, unscored, valid, self.rates, self.temperature, None)
        learn = self.compile(update, state, *args, spec=self.learner)

        def run() -> None:
            nonlocal state
            rollouts = sample(sync(state.weights), self.make_prompts())
            tokens, lengths = jax.device_get((rollouts.tokens, rollouts.lengths))
            self.check(lengths)
            share = (tokens[:, prompt:] == self.workload.rewarded_token).mean(axis=1)
            rewards = self.put(share.astype(np.float32))
            state, metrics = learn(
                state, rollouts, rewards, valid, self.rates, self.temperature, None
            )
            jax.block_until_ready((state, metrics))

        return self.finish(run, rows, "samples/s")


def make_case(name: str, workload: Workload, batch: int, layout: Layout, mesh: Mesh) -> Case:
    """The case of this name, compiled."""
    group = 1 if name == "S1" else workload.group
    bench = Bench(workload, batch, group, layout, mesh)
    build = {
        "S1": bench.sampling,
        "S8": bench.sampling,
        "L1": bench.learning,
        "E1": bench.iterating,
    }
    return build[name]()


def measure(run: Callable[[], None], repeats: int, min_seconds: float) -> list[Repeat]:
    """Repeats of a call, each long enough; the call is made twice before them."""
    run()
    start = time.perf_counter()
    run()
    calls = max(1, -int(-min_seconds // (time.perf_counter() - start)))
    results: list[Repeat] = []
    for _ in range(repeats):
        busy, cpu, start = _busy_seconds(), time.process_time(), time.perf_counter()
        for _ in range(calls):
            run()
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        after = _busy_seconds()
        other = None if busy is None or after is None else max(after - busy - cpu, 0.0) / wall
        results.append(Repeat(wall / calls, cpu / calls, other))
    return results


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _busy_seconds() -> float | None:
    """Seconds that our cores have been busy, whoever kept them so; None where it is not known."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            fields = [line.split() for line in file if line.startswith("cpu")]
    except OSError:
        return None
    ours = {f"cpu{core}" for core in _cores()}
    # user, nice, system, then after idle and iowait: irq, softirq, steal
    ticks = sum(sum(map(int, f[1:4] + f[6:9])) for f in fields if f[0] in ours)
    return ticks / os.sysconf("SC_CLK_TCK")


def describe(case: Case, repeats: Sequence[Repeat]) -> dict[str, Any]:
    """The numbers of one line."""
    seconds = [repeat.seconds for repeat in repeats]
    others = [repeat.other_cores for repeat in repeats if repeat.other_cores is not None]
    other = statistics.median(others) if others else None
    median = statistics.median(seconds)
    return {
        "value": round(case.work / median, 3),
        "unit": case.unit,
        "min": round(case.work / max(seconds), 3),
        "max": round(case.work / min(seconds), 3),
        "n": len(repeats),
        "calls_per_s": round(1.0 / median, 4),
        "median_s": round(median, 6),
        "cpu_s": round(statistics.median(repeat.cpu_seconds for repeat in repeats), 6),
        "compile_s": round(case.compile_seconds, 3),
        "compile_cpu_s": round(case.compile_cpu_seconds, 3),
        "other_load_cores": None if other is None else round(other, 3),
        "noisy": other is not None and other > NOISY * len(_cores()),
    }


def describe_machine(layout: Layout) -> dict[str, Any]:
    """What the numbers were measured on and with."""
    devices = jax.devices()
    return {
        "layout": layout.name,
        "devices": len(devices),
        "device_kind": devices[0].device_kind,
        "cores": len(_cores()),
        "threads": os.cpu_count(),
        "versions": {
            name: metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax", "numpy")
        },
    }


def run_bench(
    workload: Workload,
    cases: Sequence[str],
    batches: Sequence[int],
    layout: Layout,
    repeats: int,
    write: Callable[[dict[str, Any]], None],
) -> None:
    """Times every case at every batch and hands each record to `write`."""
    mesh = make_mesh(layout, jax.devices())
    check_divides(layout, dict(mesh.shape), dimensions(workload.model))
    machine = describe_machine(layout)
    with jax.set_mesh(mesh):
        for name in cases:
            for batch in batches:
                case = make_case(name, workload, batch, layout, mesh)
                timed = measure(case.run, repeats, workload.min_repeat_seconds)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                unit = 1024**2 if sys.platform == "darwin" else 1024
                write(
                    {
                        "peer": "jax_rl",
                        "case": name,
                        "model": workload.name,
                        "batch": batch,
                        **describe(case, timed),
                        "peak_rss_mb": round(peak / unit),
                        **machine,
                    }
                )


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the options and prints one JSON line per case and batch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="S1,S8,L1,E1", help="comma list of cases")
    parser.add_argument("--batches", default="16,64,256", help="comma list, in rollouts")
    parser.add_argument("--layout", default="replicated", help="name or path of a layout file")
    parser.add_argument("--repeats", type=int, default=5, help="timed repeats, at least 5")
    options = parser.parse_args(argv)
    cases = options.cases.split(",")
    unknown = [case for case in cases if case not in ("S1", "S8", "L1", "E1")]
    if unknown:
        parser.error(f"--cases: {', '.join(unknown)} unknown; known: S1, S8, L1, E1")
    try:
        batches = [int(batch) for batch in options.batches.split(",")]
    except ValueError:
        parser.error(f"--batches {options.batches!r}: whole numbers with commas are right")
    if options.repeats < 5:
        parser.error(f"--repeats {options.repeats}: a median needs at least 5")
    try:
        layout = load_layout(find_layout(options.layout))
        run_bench(
            Workload(),
            cases,
            batches,
            layout,
            options.repeats,
            lambda record: print(json.dumps(record), flush=True),
        )
    except UserError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
