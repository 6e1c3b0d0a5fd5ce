"""FLOPs against numbers worked by hand, and against a count of a transformer from its shapes."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from programs import ONE, learner_spec, sampler_spec

from jax_rl.config import ModelConfig
from jax_rl.costs.flops import Flops, count_flops
from jax_rl.learner.update import init_state, score_rollouts, update
from jax_rl.model.weights import init_weights
from jax_rl.sampler.generate import Prompts, decode, prefill, sync_weights

F32 = jnp.float32


def count(function: Any, *shapes: tuple[int, ...], loop_trips: float = 1.0) -> Flops:
    arguments = [jax.ShapeDtypeStruct(shape, F32) for shape in shapes]
    return count_flops(jax.make_jaxpr(function)(*arguments), loop_trips=loop_trips)


def test_products_by_hand() -> None:
    assert count(lambda a, b: a @ b, (3, 5), (5, 7)) == Flops(2 * 3 * 5 * 7, 0)
    batched = count(lambda a, b: jnp.einsum("bij,bkj->bik", a, b), (4, 3, 5), (4, 7, 5))
    assert batched == Flops(4 * 2 * 3 * 5 * 7, 0)
    # 6 x 6 from 8 x 8 by 3 x 3, from 5 features to 7, of 2 images.
    assert count(
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID"), (2, 5, 8, 8), (7, 5, 3, 3)
    ) == Flops(2 * (2 * 7 * 6 * 6) * (5 * 3 * 3), 0)


def test_elements_by_hand() -> None:
    assert count(lambda a, b: jnp.exp(a) + b, (3, 5), (3, 5)) == Flops(0, 2 * 15)
    assert count(lambda a: jnp.sum(a, axis=0), (3, 5)) == Flops(0, 15)
    assert count(lambda a: jnp.where(a > 0, a, 0.0).T.reshape(-1), (3, 5)) == Flops(0, 0)
    assert count(lambda a: jnp.arange(9) * 3 + 1, (3, 5)) == Flops(0, 0)
    assert count(lambda a: a.at[jnp.array([0, 2])].add(1.0), (3, 5)) == Flops(0, 10)


def test_loops_by_hand() -> None:
    def scan(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.scan(lambda c, each: (c @ each, None), x, w)[0]

    def nested(x: jax.Array) -> jax.Array:
        return lax.scan(lambda c, _: (scan(c, jnp.stack([c] * 3)), None), x, None, length=4)[0]

    def loop(x: jax.Array) -> jax.Array:
        return lax.while_loop(lambda c: c[0, 0] < 1, lambda c: c @ c, x)

    def choose(x: jax.Array) -> jax.Array:
        return lax.cond(x[0, 0] > 0, lambda c: c @ c, lambda c: c @ c @ c, x)

    product = 2 * 4**3
    assert count(scan, (4, 4), (5, 4, 4)).matmul == 5 * product
    assert count(nested, (4, 4)).matmul == 4 * 3 * product
    assert count(loop, (4, 4)).matmul == product
    assert count(loop, (4, 4), loop_trips=7.5).matmul == 7.5 * product
    assert count(choose, (4, 4)).matmul == 2 * product
    assert count(jax.jit(choose), (4, 4)).matmul == 2 * product


def test_recomputation_counts() -> None:
    def block(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.tanh(x @ w) @ w)

    def loss(function: Any) -> Any:
        return jax.grad(lambda x, w: jnp.sum(function(x, w)), argnums=(0, 1))

    product = 2 * 4 * 8 * 8
    shapes = ((4, 8), (8, 8))
    assert count(loss(block), *shapes).matmul == (2 + 4) * product
    assert count(loss(jax.checkpoint(block)), *shapes).matmul == (2 + 2 + 4) * product


def test_shard_map_runs_on_every_device() -> None:
    mesh = jax.make_mesh((2, 4), ("data", "fsdp"), axis_types=(AxisType.Auto,) * 2)
    here = jax.shard_map(
        lambda x: x @ x.T @ x,
        mesh=mesh,
        in_specs=PartitionSpec("data"),
        out_specs=PartitionSpec("data"),
        check_vma=False,
    )
    # Each of 8 devices has 4 rows of 6: 4x6 by 6x4, and 4x4 by 4x6.
    assert count(here, (8, 6)).matmul == 8 * 2 * (2 * 4 * 6 * 4)


TINY = ModelConfig(
    layers=2,
    embed=64,
    heads=4,
    kv_heads=4,
    head_dim=16,
    mlp=192,
    vocab=512,
    qk_norm=False,
    tied_head=False,
    remat="none",
)
"""As Llama: no norm of queries and keys, a head of its own."""
QWEN = ModelConfig(
    layers=4,
    embed=1024,
    heads=16,
    kv_heads=8,
    head_dim=128,
    mlp=3072,
    vocab=151936,
    compute_dtype="bfloat16",
    remat="full",
)
"""Qwen3-0.6B with four of its layers."""
GEMMA = ModelConfig(
    layers=3,
    embed=640,
    heads=4,
    kv_heads=1,
    head_dim=256,
    mlp=2048,
    vocab=262144,
    activation="gelu",
    norm_offset=True,
    embedding_scale=True,
    post_norms=True,
    remat="full",
)
"""Gemma 3 270M with three of its layers; the head is the embedding."""
MODELS = pytest.mark.parametrize("model", [TINY, QWEN, GEMMA], ids=["tiny", "qwen", "gemma"])
ROWS, PROMPT, RESPONSE = 8, 32, 64


@dataclasses.dataclass(frozen=True)
class Shapes:
    """Abstract arguments of the programs, on one device."""

    model: ModelConfig

    def rows(self, *columns: int, dtype: Any = jnp.int32) -> jax.ShapeDtypeStruct:
        spec = ONE.rules.compute_spec(("batch", *(None for _ in columns)))
        return jax.ShapeDtypeStruct((ROWS, *columns), dtype, sharding=NamedSharding(ONE.mesh, spec))

    def whole(self, *shape: int, dtype: Any = F32) -> jax.ShapeDtypeStruct:
        spec = PartitionSpec(*(None for _ in shape))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(ONE.mesh, spec))

    def weights(self) -> Any:
        key = jax.eval_shape(lambda: jax.random.key(0))
        return jax.eval_shape(lambda k: init_weights(k, self.model, ONE.rules), key)

    def decode(self) -> Any:
        """The traced decode program and what it returns."""
        spec = sampler_spec(
            ONE, self.model, 1, max_prompt_length=PROMPT, max_response_length=RESPONSE
        )
        held = jax.eval_shape(lambda w: sync_weights(w, self.model, ONE.rules), self.weights())
        prompts = Prompts(self.rows(PROMPT), self.rows(), self.rows(), self.rows())
        cache, hidden = jax.eval_shape(lambda *a: prefill(*a, spec), held, prompts)
        key = self.whole(dtype=jax.eval_shape(lambda: jax.random.key(0)).dtype)
        arguments = (held, cache, hidden, prompts, key, self.whole())
        rollouts = jax.eval_shape(lambda *a: decode(*a, spec), *arguments)[0]
        return decode.trace(*arguments, spec=spec).jaxpr, rollouts


def count_layers(model: ModelConfig, tokens: int, keys: int) -> float:
    """Products of a forward pass through the layers, in which a token attends to `keys` keys."""
    heads = model.heads * model.head_dim
    kv_heads = model.kv_heads * model.head_dim
    parameters = 2 * model.embed * (heads + kv_heads) + 3 * model.embed * model.mlp
    return model.layers * tokens * (2 * parameters + 4 * heads * keys)


def count_head(model: ModelConfig, tokens: int) -> float:
    return 2 * tokens * model.embed * model.vocab


@MODELS
def test_programs_against_a_count_from_the_shapes(model: ModelConfig) -> None:
    shapes = Shapes(model)
    with ONE.entered():
        traced, rollouts = shapes.decode()
        spec = learner_spec(
            ONE,
            model,
            microbatch=ROWS // 2,
            max_prompt_length=PROMPT,
            max_response_length=RESPONSE,
            group=4,
        )
        weights = shapes.weights()
        scored = score_rollouts.trace(weights, rollouts, shapes.whole(), spec=spec).jaxpr
        state = jax.eval_shape(lambda w: init_state(w, spec.optimizer, model), weights)
        learnt = update.trace(
            state,
            rollouts,
            shapes.whole(ROWS),
            shapes.whole(ROWS, dtype=jnp.bool_),
            shapes.whole(1),
            shapes.whole(),
            shapes.rows(RESPONSE, dtype=F32),
            spec=spec,
        ).jaxpr

    columns = PROMPT + RESPONSE
    step = count_layers(model, ROWS, columns) + count_head(model, ROWS)
    sampled = count_flops(traced, loop_trips=RESPONSE - 1).matmul
    assert sampled == count_head(model, ROWS) + (RESPONSE - 1) * step

    layers = count_layers(model, ROWS * columns, columns)
    head = count_head(model, ROWS * RESPONSE)
    assert count_flops(scored).matmul == layers + head

    # Backward is twice forward. Logits are always made again, and so are the layers under full
    # rematerialisation; without a norm after it the last product of a layer is not needed again.
    again = layers if model.remat == "full" else 0
    if again and not model.post_norms:
        again -= model.layers * ROWS * columns * 2 * model.mlp * model.embed
    learning = count_flops(learnt)
    assert learning.matmul == 3 * layers + again + 4 * head
    # Norms, softmax, loss and optimizer are there, and small against the products.
    assert 0 < learning.other < 0.05 * learning.matmul
