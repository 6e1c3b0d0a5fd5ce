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

from jax_rl.costs.program import ProgramCosts, measure_program
from jax_rl.learner.update import TrainState, init_state, score_rollouts, update
from jax_rl.mesh.batch_plan import BatchPlan
from jax_rl.mesh.layout import Layout
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
from jax_rl.trainer.fit import explain_out_of_memory, is_out_of_memory
from jax_rl.trainer.placement import Placement
from jax_rl.trainer.specs import ProgramSpecs

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
    validation: SamplerPrograms | None  # None where nothing is validated


class Compiler:
    """Compiles programs one by one and reports each."""

    def __init__(self, report: Callable[[Compile], None]):
        self._report = report
        self.counts: dict[str, int] = {}
        self.costs: dict[str, ProgramCosts] = {}

    def compile(self, name: str, function: Any, *args: Any, shapes: Any, **static: Any) -> Program:
        """The compiled program of a jitted function for these abstract arguments."""
        start = time.perf_counter()
        traced = function.trace(*args, **static)
        try:
            program: Program = traced.lower().compile()
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise explain_out_of_memory(error, program=name, doing="compiling") from error
        seconds = time.perf_counter() - start
        self.counts[name] = self.counts.get(name, 0) + 1
        # The longest that a decode loop can run, one token being drawn before it.
        spec = static.get("spec")
        trips = spec.max_response_length - 1 if isinstance(spec, SamplerSpec) else 1
        sizes = dict(jax.sharding.get_mesh().shape)
        costs = measure_program(traced.jaxpr, program, sizes, loop_trips=max(trips, 1))
        self.costs[name] = costs
        self._report(
            Compile(
                program=name,
                shapes={key: list(leaf.shape) for key, leaf in shapes.items()},
                seconds=seconds,
                costs=costs.as_dict(),
            )
        )
        return program


def abstract_state(setup: Placement) -> TrainState:
    """Shapes, types and shardings of the training state; the mesh is the one in context."""
    config, weights = setup.config, abstract_weights(setup)
    state: TrainState = jax.eval_shape(
        lambda w: init_state(w, config.optimizer, config.model), weights
    )
    return state


def abstract_weights(setup: Placement) -> Any:
    """Shapes, types and shardings of the stored weights."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.eval_shape(lambda k: init_weights(k, setup.config.model, setup.layout), key)


def compile_programs(
    setup: ProgramSpecs,
    compiler: Compiler,
    *,
    forced_lengths: bool = False,
    validates: bool = True,
) -> Programs:
    """Compiles every program of a training run; the mesh is the one in context.

    Args:
      setup: of the run.
      compiler: is told of each.
      forced_lengths: the sampler is given the lengths of the responses.
      validates: the sampler of the validation set is among them.
    """
    state = abstract_state(setup)
    scalar = _abstract(setup, (), jnp.float32)
    sync = compile_sync(setup, compiler)
    sampler, wave = compile_sampler(
        setup, setup.sampler, setup.plan, compiler, prefix="", forced_lengths=forced_lengths
    )
    validation = compile_validation(setup, compiler) if validates else None

    rollouts = wave
    join = None
    if setup.plan.waves > 1 or setup.layout.splits:
        waves = (wave,) * setup.plan.waves
        join = compiler.compile(
            "join", join_waves, waves, shapes={"tokens": wave.tokens}, layout=setup.layout
        )
        rollouts = jax.eval_shape(lambda parts: join_waves(parts, setup.layout), waves)

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
        _abstract(setup, (setup.plan.size,), jnp.float32),
        _abstract(setup, (setup.plan.size,), jnp.bool_),
        _abstract(setup, (setup.plan.updates,), jnp.float32),
        scalar,
        reference,
        shapes={"tokens": rollouts.tokens},
        spec=setup.learner,
    )
    return Programs(sync, sampler, join, learn, score, validation)


def compile_sync(setup: ProgramSpecs, compiler: Compiler) -> Program:
    """Compiles the learner's weights into the sampler's."""
    weights = abstract_weights(setup)
    return compiler.compile(
        "sync",
        sync_weights,
        weights,
        shapes={"embedding": weights["embedding"]},
        model=setup.config.model,
        layout=setup.layout.decoding,
    )


def compile_validation(setup: ProgramSpecs, compiler: Compiler) -> SamplerPrograms:
    """Compiles the sampler of the validation set."""
    spec, plan = setup.validation_sampler, setup.validation_plan
    programs, _ = compile_sampler(setup, spec, plan, compiler, prefix="validation_")
    return programs


def compile_sampler(
    setup: ProgramSpecs,
    spec: SamplerSpec,
    plan: BatchPlan,
    compiler: Compiler,
    *,
    prefix: str,
    forced_lengths: bool = False,
) -> tuple[SamplerPrograms, Rollouts]:
    """Prefill and decode for one wave, and the abstract rollouts that they give."""
    weights = jax.eval_shape(
        lambda w: sync_weights(w, setup.config.model, spec.layout), abstract_weights(setup)
    )

    def rows(*shape: int) -> jax.Array:
        axes = ("batch", *(None for _ in shape[1:]))
        return jnp.zeros(shape, jnp.int32, out_sharding=spec.layout.compute_spec(axes))

    prompts = jax.eval_shape(
        lambda: Prompts(
            tokens=rows(plan.prefill_rows, spec.max_prompt_length),
            starts=rows(plan.prefill_rows),
            groups=rows(plan.wave),
            members=rows(plan.wave),
            lengths=rows(plan.wave) if forced_lengths else None,
        )
    )
    key = jax.eval_shape(lambda: jax.random.key(0))
    key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=setup.everywhere)
    cache, hidden = jax.eval_shape(lambda w, p: prefill(w, p, spec), weights, prompts)
    args = (weights, cache, hidden, prompts, key, _abstract(setup, (), jnp.float32))
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


def _join(waves: tuple[Rollouts, ...], layout: Layout) -> Rollouts:
    def join(*parts: jax.Array) -> jax.Array:
        spec = layout.compute_spec(("batch", *(None for _ in parts[0].shape[1:])))
        if len(parts) == 1:
            return jax.sharding.reshard(parts[0], spec)
        stacked = jnp.stack(parts)  # [waves, rows, ...]
        shape = (len(parts) * parts[0].shape[0], *parts[0].shape[1:])
        return jnp.reshape(stacked, shape, out_sharding=spec)

    joined: Rollouts = jax.tree.map(join, *waves)
    return joined


join_waves = jax.jit(_join, static_argnames=("layout",))
"""Waves of rollouts as one batch, rows in global order, as the learner's layout splits them."""


def _abstract(setup: Placement, shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """An array that is whole on every device."""
    spec = PartitionSpec(*(None for _ in shape))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(setup.mesh, spec))
