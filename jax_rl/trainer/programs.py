"""The compiled programs of a run: each one lowered and compiled once, before the loop.

Shapes come from evaluating the functions abstractly, in the order in which data flows through
them, so that nothing is executed to find them out.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from jax_rl.learner.update import TrainState, init_state, score_rollouts, update
from jax_rl.mesh.batch_plan import BatchPlan
from jax_rl.model.weights import init_weights
from jax_rl.records import Compile
from jax_rl.sampler.generate import (
    Prompts,
    Rollouts,
    SamplerSpec,
    decode,
    prefill,
    sync_weights,
)
from jax_rl.trainer.setup import PolicySetup, RunSetup

Program = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class SamplerPrograms:
    """Prefill and decode, compiled for one wave."""

    prefill: Program
    decode: Program


@dataclasses.dataclass(frozen=True)
class Programs:
    """Everything that the loop calls."""

    sync: Program
    sampler: SamplerPrograms
    join: Program | None  # waves to one batch; None with one wave
    update: Program
    score: Program | None  # reference log-probabilities; None without a KL term
    validation: SamplerPrograms


class Compiler:
    """Compiles programs one by one and reports each."""

    def __init__(self, report: Callable[[Compile], None]):
        self._report = report
        self.counts: dict[str, int] = {}

    def compile(self, name: str, function: Any, *args: Any, shapes: Any, **static: Any) -> Program:
        """The compiled program of a jitted function for these abstract arguments."""
        start = time.perf_counter()
        program: Program = function.lower(*args, **static).compile()
        self.counts[name] = self.counts.get(name, 0) + 1
        self._report(
            Compile(
                program=name,
                shapes={key: list(leaf.shape) for key, leaf in shapes.items()},
                seconds=time.perf_counter() - start,
            )
        )
        return program


def abstract_state(setup: PolicySetup) -> TrainState:
    """Shapes, types and shardings of the training state; the mesh is the one in context."""
    config, weights = setup.config, abstract_weights(setup)
    state: TrainState = jax.eval_shape(
        lambda w: init_state(w, config.optimizer, config.model), weights
    )
    return state


def abstract_weights(setup: PolicySetup) -> Any:
    """Shapes, types and shardings of the stored weights."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.eval_shape(lambda k: init_weights(k, setup.config.model, setup.layout), key)


def compile_programs(setup: RunSetup, compiler: Compiler) -> Programs:
    """Compiles every program of a training run; the mesh is the one in context."""
    state = abstract_state(setup)
    scalar, whole = _abstract_scalar(setup), NamedSharding(setup.mesh, PartitionSpec(None))
    sync = compile_sync(setup, compiler)
    sampler, wave = compile_sampler(setup, setup.sampler, setup.plan, compiler, prefix="")
    validation = compile_validation(setup, compiler)

    rollouts = wave
    join = None
    if setup.plan.waves > 1:
        waves = (wave,) * setup.plan.waves
        join = compiler.compile(
            "join", join_waves, waves, shapes={"tokens": wave.tokens}, layout=setup.layout
        )
        rollouts = jax.eval_shape(lambda parts: join_waves(parts, setup.layout), waves)

    def rows(count: int, dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((count,), dtype, sharding=whole)

    score, reference = None, None
    if setup.config.objective.kl_coefficient > 0:
        args = (state.weights, rollouts, scalar)
        score = compiler.compile(
            "score", score_rollouts, *args, shapes={"tokens": rollouts.tokens}, spec=setup.learner
        )
        reference = jax.eval_shape(lambda *a: score_rollouts(*a, setup.learner), *args)
    learn = compiler.compile(
        "update",
        update,
        state,
        rollouts,
        rows(setup.plan.size, jnp.float32),
        rows(setup.plan.size, jnp.bool_),
        rows(setup.plan.updates, jnp.float32),
        scalar,
        reference,
        shapes={"tokens": rollouts.tokens},
        spec=setup.learner,
    )
    return Programs(sync, sampler, join, learn, score, validation)


def compile_sync(setup: RunSetup, compiler: Compiler) -> Program:
    """Compiles the learner's weights into the sampler's."""
    weights = abstract_weights(setup)
    return compiler.compile(
        "sync",
        sync_weights,
        weights,
        shapes={"embedding": weights["embedding"]},
        model=setup.config.model,
        layout=setup.layout,
    )


def compile_validation(setup: RunSetup, compiler: Compiler) -> SamplerPrograms:
    """Compiles the sampler of the validation set."""
    spec, plan = setup.validation_sampler, setup.validation_plan
    programs, _ = compile_sampler(setup, spec, plan, compiler, prefix="validation_")
    return programs


def compile_sampler(
    setup: RunSetup, spec: SamplerSpec, plan: BatchPlan, compiler: Compiler, *, prefix: str
) -> tuple[SamplerPrograms, Rollouts]:
    """Prefill and decode for one wave, and the abstract rollouts that they give."""
    weights = jax.eval_shape(
        lambda w: sync_weights(w, setup.config.model, setup.layout), abstract_weights(setup)
    )

    def rows(*shape: int) -> jax.Array:
        axes = ("batch", *(None for _ in shape[1:]))
        return jnp.zeros(shape, jnp.int32, out_sharding=setup.layout.compute_spec(axes))

    prompts = jax.eval_shape(
        lambda: Prompts(
            tokens=rows(plan.prefill_rows, spec.max_prompt_length),
            starts=rows(plan.prefill_rows),
            groups=rows(plan.wave),
            members=rows(plan.wave),
        )
    )
    key = jax.eval_shape(lambda: jax.random.key(0))
    whole = NamedSharding(setup.mesh, PartitionSpec())
    key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=whole)
    cache, hidden = jax.eval_shape(lambda w, p: prefill(w, p, spec), weights, prompts)
    args = (weights, cache, hidden, prompts, key, _abstract_scalar(setup))
    programs = SamplerPrograms(
        prefill=compiler.compile(
            f"{prefix}prefill",
            prefill,
            weights,
            prompts,
            shapes={"tokens": prompts.tokens},
            spec=spec,
        ),
        decode=compiler.compile(
            f"{prefix}decode", decode, *args, shapes={"cache": cache.keys[0]}, spec=spec
        ),
    )
    rollouts, _, _ = jax.eval_shape(lambda *a: decode(*a, spec), *args)
    return programs, rollouts


def _join(waves: tuple[Rollouts, ...], layout: Any) -> Rollouts:
    def join(*parts: jax.Array) -> jax.Array:
        stacked = jnp.stack(parts)  # [waves, rows, ...]
        axes = ("batch", *(None for _ in parts[0].shape[1:]))
        shape = (len(parts) * parts[0].shape[0], *parts[0].shape[1:])
        return jnp.reshape(stacked, shape, out_sharding=layout.compute_spec(axes))

    joined: Rollouts = jax.tree.map(join, *waves)
    return joined


join_waves = jax.jit(_join, static_argnames=("layout",))
"""Waves of rollouts as one batch, rows in global order, over all shards."""


def _abstract_scalar(setup: RunSetup) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(
        (), jnp.float32, sharding=NamedSharding(setup.mesh, PartitionSpec())
    )
