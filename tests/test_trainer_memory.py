"""Memory on paper: against numbers worked by hand, and against compiled programs."""

import dataclasses
from typing import Any

import jax
import pytest
from trainer_runs import CONFIG, change

from jax_rl.config import Config
from jax_rl.trainer.memory import MemoryPlan, plan_memory
from jax_rl.trainer.programs import Compiler, compile_programs
from jax_rl.trainer.setup import prepare_run

SHAPE = {
    "layers": 2,
    "embed": 64,
    "heads": 8,
    "kv_heads": 8,
    "head_dim": 8,
    "mlp": 192,
    "vocab": 2048,
    "remat": "full",
}
SMALL = change(
    CONFIG,
    task={"name": "addition", "max_prompt_length": 32, "max_response_length": 32},
    model=SHAPE,
    batch={"size": 64, "group": 8, "microbatch": 16, "wave": 32},
    validation={"prompts": 32, "every_samples": 64, "wave": 32},
    budget={"samples": 64},
)


def plan(config: Config) -> MemoryPlan:
    setup = prepare_run(config)
    return plan_memory(setup.config, setup.plan, setup.layout, dict(setup.mesh.shape))


def place(config: Config, layout: str, devices: int, **tables: Any) -> Config:
    return change(config, run={"layout": layout, "devices": devices}, **tables)


# One layer of width 4 with 2 heads and 1 kv head of 2, a feed-forward of 8, 32 tokens: embedding
# 32x4; norms 4 + 4 + 4; q 4x4, k and v 4x2, o 4x4; gate, up, down 4x8: 128 + 12 + 48 + 96.
TINY = change(
    CONFIG,
    task={"max_prompt_length": 6, "max_response_length": 4},
    model={"embed": 4, "heads": 2, "kv_heads": 1, "head_dim": 2, "mlp": 8, "qk_norm": False},
    batch={"size": 16, "group": 8, "microbatch": 4, "wave": 8},
    validation={"prompts": 24, "wave": 8},
)


def test_what_is_stored_by_hand() -> None:
    parameters = (32 * 4) + 12 + 48 + 96
    memory = plan(TINY)
    assert memory.weights == parameters * 4
    assert memory.moments == 2 * parameters * 4
    assert memory.reference == 0
    assert memory.sampler == parameters * 4
    # keys and values, 1 layer, 8 rows, 1 head of 2, 10 columns, float32
    assert memory.cache == 2 * 8 * 2 * 10 * 4
    assert memory.gradients == 2 * parameters * 4
    assert memory.state == 3 * parameters * 4


def test_activations_by_hand() -> None:
    memory = plan(TINY)
    # 4 rows of 10 columns on one device. Scores: 4 x 2 x 10 x 10, twice in float32 and once as
    # computed. Four arrays as wide as q, k, v (8) and the feed-forward (8); four of width 4 twice.
    block = 4 * 2 * 100 * 12 + 4 * 10 * (4 * (8 + 8) * 4 + 4 * 4 * 8)
    logits = 3 * 4 * 4 * 32 * 4  # one chunk of 4 response columns
    assert block > logits
    none = 4 * 10 * 4 * 4 + block + block  # the layer's entry, what it keeps, and its backward
    assert memory.activations == none
    assert plan(change(TINY, model={"remat": "full"})).activations == none - block
    # q and what is mixed 4 each, k and v 2 each, gate and up 8 each, o and down 4 each; scores.
    dots = 4 * 2 * 100 * 4 + 40 * (8 + 4 + 16 + 8) * 4
    assert plan(change(TINY, model={"remat": "dots"})).activations == none - block + dots
    # Embedding and one layer, which here is all but the final norm, three times.
    assert memory.in_use == 3 * (128 + 4 + 8 + 48 + 96) * 4


def test_sampling_by_hand() -> None:
    # Validation prefills 8 rows of 6 columns: their own cache, and one block: feed-forward 8 wide
    # and scores; decode has three [8, 32] logits.
    short = 2 * 8 * 2 * 6 * 4
    scores = 8 * 2 * 36 * 12
    prefill = short + max(scores + 48 * 8 * 2 * 4, 48 * 8 * 2 * 4) + 48 * 2 * 4 * 4
    logits = 3 * 8 * 32 * 4
    assert prefill > logits
    assert plan(TINY).sampling == prefill
    # With 512 tokens decode takes more: logits, and one block at one column.
    block = 8 * 2 * 10 * 12 + 8 * 8 * 2 * 4 + 8 * 2 * 4 * 4
    assert plan(change(TINY, model={"vocab": 512})).sampling == 3 * 8 * 512 * 4 + block


def test_peaks_add_up_what_is_there_together() -> None:
    memory = MemoryPlan(
        weights=1,
        moments=2,
        reference=4,
        sampler=8,
        cache=16,
        sampling=32,
        gradients=64,
        in_use=128,
        activations=256,
    )
    assert memory.sync == 1 + 2 + 4 + 2 * 8
    assert memory.generate == 1 + 2 + 4 + 8 + 16 + 32
    assert memory.learn == 1 + 2 + 4 + 64 + 128 + 256
    assert memory.peak == memory.learn
    assert dataclasses.replace(memory, cache=1000).peak == 1000 + 32 + 15
    assert dataclasses.replace(memory, sampler=1000).peak == 7 + 2 * 1000


def test_a_kl_term_keeps_the_reference() -> None:
    memory = plan(change(TINY, objective={"kl_coefficient": 0.1}))
    assert memory.reference == memory.weights


def test_units_of_several_microbatches_are_one_more_gradient() -> None:
    measured = change(TINY, measure={"noise_scale": True})  # 4 rows of groups of 8
    assert plan(measured).gradients == 3 * plan(TINY).weights
    whole = change(measured, batch={"microbatch": 8})
    assert plan(whole).gradients == 2 * plan(TINY).weights


def test_bfloat16_halves_what_is_in_use_alone() -> None:
    half, whole = plan(change(SMALL, model={"compute_dtype": "bfloat16"})), plan(SMALL)
    for name in ("sampler", "cache", "in_use"):
        assert 2 * getattr(half, name) == getattr(whole, name)
    for name in ("weights", "moments", "gradients"):
        assert getattr(half, name) == getattr(whole, name)


def test_layouts_split_what_they_split() -> None:
    one = plan(place(SMALL, "replicated", 1))
    replicated, fsdp, tensor = (plan(place(SMALL, n, 8)) for n in ("replicated", "fsdp", "tensor"))
    assert replicated.weights == one.weights
    assert replicated.activations * 8 == one.activations
    assert replicated.cache * 8 == one.cache
    # q and k norms have no axis that fsdp splits: 2 layers x 2 norms x 8.
    assert fsdp.weights == (one.weights - 4 * 32) // 8 + 4 * 32
    assert fsdp.sampler == one.sampler
    assert fsdp.cache * 8 == one.cache
    # All of it but norms: 2 x (2 x 64 + 2 x 8) + 64.
    assert tensor.sampler == (one.sampler - 4 * 352) // 8 + 4 * 352
    assert tensor.cache * 8 == one.cache


def test_the_larger_of_the_two_waves_counts() -> None:
    assert plan(change(SMALL, validation={"wave": 16})).cache == plan(SMALL).cache
    assert (
        plan(change(SMALL, validation={"prompts": 64, "wave": 64})).cache == 2 * plan(SMALL).cache
    )


@pytest.mark.parametrize(
    ("layout", "devices"),
    [("replicated", 1), pytest.param("fsdp", 8, marks=pytest.mark.slow)],
)
def test_compiled_programs_agree(layout: str, devices: int) -> None:
    """Arguments within 1 %, temporaries within a factor of 2 (measured: 1.0 to 1.7 on CPU)."""
    setup = prepare_run(place(SMALL, layout, devices))
    measured: dict[str, Any] = {}

    class Measure(Compiler):
        def compile(self, name: str, function: Any, *args: Any, shapes: Any, **static: Any) -> Any:
            if name in ("update", "decode"):
                program = function.lower(*args, **static).compile()
                measured[name] = program.memory_analysis()
            return None

    with jax.set_mesh(setup.mesh):
        compile_programs(setup, Measure(lambda event: None))
    memory = plan_memory(setup.config, setup.plan, setup.layout, dict(setup.mesh.shape))
    update, decode = measured["update"], measured["decode"]
    arguments = memory.weights + memory.moments
    assert arguments == pytest.approx(update.argument_size_in_bytes, rel=0.01)
    assert memory.sampler + memory.cache == pytest.approx(decode.argument_size_in_bytes, rel=0.01)
    ratio = (memory.gradients + memory.in_use + memory.activations) / update.temp_size_in_bytes
    assert 0.5 < ratio < 2.0, ratio
    # Validation prefills every row, which takes more than decode: at least the logits are there.
    assert decode.temp_size_in_bytes < 2 * memory.sampling
