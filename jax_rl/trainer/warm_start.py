"""The supervised warm-up: worked examples bring the policy off zero, once per definition.

The result is cached under the hash of everything that it depends on. Its time is reported and
never counted as training.
"""

import dataclasses
import hashlib
import json
import os
import platform
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding

from jax_rl.config import ModelConfig
from jax_rl.hosts.channel import Channel
from jax_rl.learner.update import SCORE_CHUNK
from jax_rl.mesh.devices import put
from jax_rl.mesh.layout import Layout
from jax_rl.model.distribution import score_tokens
from jax_rl.model.forward import forward, head_in_use
from jax_rl.model.weights import Weight, Weights, describe_weights, init_weights
from jax_rl.records import WarmStart
from jax_rl.rewards.base import Problem
from jax_rl.tasks.prompts import worked_example
from jax_rl.trainer.setup import RunSetup

_FORMAT = 3
"""Raised when the warm-up's computation changes, so that old caches are not taken."""


def make_warm_start(setup: RunSetup, channel: Channel | None = None) -> tuple[Weights, WarmStart]:
    """Weights that training starts from, on the mesh in context, and their record.

    Args:
      setup: of the run.
      channel: between the processes of the program, if there are several; all load, or all train.
    """
    key = hash_definition(setup)
    path = cache_folder() / f"{key}.npz"
    mark = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    # Each host may have a cache of its own, made on other devices: equal to rounding only.
    marks = set(channel.gather(mark)) if channel else {mark}
    if marks == {mark} and mark:
        weights, report = _load(path, setup)
        return weights, dataclasses.replace(report, key=key, cached=True)
    start = time.perf_counter()
    weights, loss = _train_on_examples(setup)
    jax.block_until_ready(weights)
    report = WarmStart(key=key, seconds=time.perf_counter() - start, cached=False, loss=loss)
    _save(path, weights, report, setup.config.model)
    return weights, report


def cache_folder() -> Path:
    """JAX_RL_CACHE, or jax_rl in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("JAX_RL_CACHE") or Path(base) / "jax_rl") / "warm_start"


def hash_definition(setup: RunSetup) -> str:
    """Hash of what the starting weights depend on: not the batch, the layout or the run's seed."""
    config = setup.config
    held_out = hashlib.sha256("\n".join(sorted(setup.held_out)).encode()).hexdigest()
    definition = {
        "format": _FORMAT,
        "task": dataclasses.asdict(config.task),
        "model": dataclasses.asdict(dataclasses.replace(config.model, padded_vocab=0)),
        "warm_start": dataclasses.asdict(config.warm_start),
        "held_out": held_out,
        # What the tokenizer makes of the prompts stands for the tokenizer.
        "tokens": hashlib.sha256(setup.encode(setup.validation)[0].tobytes()).hexdigest(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "platform": jax.default_backend(),
    }
    text = json.dumps(definition, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _train_on_examples(setup: RunSetup) -> tuple[Weights, float | None]:
    config = setup.config.warm_start
    weights = init_weights(
        jax.random.key(config.seed, impl="threefry2x32"), setup.config.model, setup.layout
    )
    if config.updates == 0:
        return weights, None
    schedule = optax.cosine_decay_schedule(config.learning_rate, config.updates)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
    moments = jax.jit(optimizer.init)(weights)
    source = setup.training(config.seed)
    losses: list[jax.Array] = []
    for number in range(config.updates):
        examples = [worked_example(source, number * config.batch + i) for i in range(config.batch)]
        rng = np.random.default_rng((config.seed, number))
        examples = [_spoil(example, rng, share=config.mistakes) for example in examples]
        tokens, starts, lengths = _encode_examples(setup, examples)
        weights, moments, loss = _supervise(
            weights,
            moments,
            put(tokens, setup.sharding(("batch", None))),
            put(starts, setup.sharding(("batch",))),
            put(lengths, setup.sharding(("batch",))),
            optimizer,
            setup.config.model,
            setup.layout,
            setup.config.task.max_prompt_length,
        )
        losses.append(loss)
    return weights, float(np.mean(jax.device_get(losses[-20:])))


def _spoil(
    example: tuple[Problem, str], rng: np.random.Generator, *, share: float
) -> tuple[Problem, str]:
    """With probability `share`, one character of the answer becomes a random digit."""
    problem, answer = example
    if rng.random() >= share:
        return example
    place = int(rng.integers(len(answer)))
    return problem, f"{answer[:place]}{rng.integers(10)}{answer[place + 1 :]}"


def _encode_examples(
    setup: RunSetup, examples: list[tuple[Problem, str]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens [n, p + t] right-aligned at the prompt's end, starts [n], response lengths [n]."""
    limit, end = setup.config.task.max_response_length, setup.sampler.end_ids[0]
    prompts, prompt_lengths = setup.encode([problem for problem, _ in examples])
    responses = np.full((len(examples), limit), setup.sampler.pad_id, np.int32)
    lengths = np.zeros(len(examples), np.int32)
    for row, (_, answer) in enumerate(examples):
        response = [*setup.tokenizer.encode(answer), end][:limit]
        lengths[row] = len(response)
        responses[row, : len(response)] = response
    starts = np.int32(prompts.shape[1]) - prompt_lengths
    return np.concatenate([prompts, responses], axis=1), starts, lengths


@partial(
    jax.jit,
    static_argnames=("optimizer", "model", "layout", "prompt"),
    donate_argnames=("weights", "moments"),
)
def _supervise(
    weights: Weights,
    moments: optax.OptState,
    tokens: jax.Array,
    starts: jax.Array,
    lengths: jax.Array,
    optimizer: optax.GradientTransformation,
    model: ModelConfig,
    layout: Layout,
    prompt: int,
) -> tuple[Weights, optax.OptState, jax.Array]:
    """One update on the cross-entropy of the responses, nats per token."""

    def cross_entropy(weights: Weights) -> jax.Array:
        hidden, _ = forward(weights, tokens, starts, config=model, layout=layout)
        head = head_in_use(weights, config=model, layout=layout)
        states, responses = hidden[:, prompt - 1 : -1], tokens[:, prompt:]
        one = jnp.float32(1.0)
        log_probs, _ = score_tokens(
            states,
            head,
            responses,
            one,
            bound=model.final_softcap,
            vocab=model.vocab,
            chunk=SCORE_CHUNK,
        )
        columns = jax.lax.broadcasted_iota(jnp.int32, (1, log_probs.shape[1]), 1)
        mask = columns < lengths[:, None]
        return -jnp.sum(jnp.where(mask, log_probs, 0.0)) / jnp.sum(lengths)

    loss, gradients = jax.value_and_grad(cross_entropy)(weights)
    directions, moments = optimizer.update(gradients, moments, weights)
    return optax.apply_updates(weights, directions), moments, loss


def _save(path: Path, weights: Weights, report: WarmStart, model: ModelConfig) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    described = jax.tree.leaves(describe_weights(model))
    leaves = jax.tree_util.tree_leaves_with_path(weights)
    for (name, leaf), weight in zip(leaves, described, strict=True):
        whole = multihost_utils.process_allgather(leaf, tiled=True)
        arrays[jax.tree_util.keystr(name)] = np.asarray(whole)[: weight.unpadded[0]]
    loss = np.nan if report.loss is None else report.loss
    # Written aside and moved: a kill never leaves half a file under the final name.
    aside = path.with_suffix(f".{platform.node()}.{os.getpid()}.tmp")
    with aside.open("wb") as file:
        np.savez(file, __report__=np.array([report.seconds, loss]), **arrays)
    aside.replace(path)


def _load(path: Path, setup: RunSetup) -> tuple[Weights, WarmStart]:
    with np.load(path, allow_pickle=False) as arrays:
        seconds, loss = arrays["__report__"]

        def place(name: tuple[object, ...], weight: Weight) -> jax.Array:
            spec = setup.layout.weight_spec(weight.axes)
            array = arrays[jax.tree_util.keystr(name)]
            padding = [(0, weight.padding), *((0, 0) for _ in weight.shape[1:])]
            return put(np.pad(array, padding), NamedSharding(setup.mesh, spec))

        weights = jax.tree_util.tree_map_with_path(place, describe_weights(setup.config.model))
    found = None if np.isnan(loss) else float(loss)
    return weights, WarmStart(key="", seconds=float(seconds), cached=True, loss=found)
