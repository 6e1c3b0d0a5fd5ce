"""What holds of every model family, each check as one number against Hugging Face's own code.

Used by the tests and by `scripts/families.py`, which prints the table.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import checkpoints
import jax
import jax.numpy as jnp
import numpy as np
import programs
import torch_models
from programs import ONE, Place

from jax_rl.config import ModelConfig, ObjectiveConfig
from jax_rl.model.distribution import sampled_logits
from jax_rl.model.forward import forward, head_in_use
from jax_rl.model.huggingface.export import export_checkpoint
from jax_rl.model.huggingface.families import read_model_config
from jax_rl.model.huggingface.load import load_weights
from jax_rl.sampler.generate import SamplerSpec

LENGTH = 48
"""Columns of a row: beyond the windows of 6 and the scaling thresholds of 32."""
TEMPERATURE = 0.7
LOSS = {
    "group": programs.GROUP,
    "temperature": TEMPERATURE,
    "clip_low": 0.1,
    "clip_high": 0.15,
    "kl_coefficient": 0.3,
    "denominator": "tokens",
    "mask_truncated": False,
}
"""The clipped GRPO loss, as `torch_models.grpo_loss` takes it."""


@dataclasses.dataclass(frozen=True)
class Family:
    """A checkpoint of one family, and the model that wrote it."""

    name: str
    directory: Path
    model: Any  # of torch
    config: ModelConfig


def build(name: str, directory: Path) -> Family:
    """Writes the checkpoint and reads its configuration."""
    model = checkpoints.write_checkpoint(name, directory)
    return Family(name, directory, model, read_model_config(directory, base=ModelConfig()))


def load(family: Family, place: Place = ONE) -> Any:
    """Its weights in the layout, on the host."""
    with place.entered() as layout:
        loaded = load_weights(family.directory, config=family.config, layout=layout)
        return programs.to_host(loaded)


def make_rows(family: Family, rows: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Random tokens [rows, LENGTH] and first columns, from a full row to a single token."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(3, family.config.vocab, (rows, LENGTH)).astype(np.int32)
    starts = np.linspace(0, LENGTH - 1, rows).astype(np.int32)
    return tokens, starts


@functools.partial(jax.jit, static_argnames=("config", "layout"))
def _compute_logits(weights, tokens, starts, config, layout):
    hidden, _ = forward(weights, tokens, starts, config=config, layout=layout)
    head = head_in_use(weights, config=config, layout=layout)
    return sampled_logits(
        hidden, head, jnp.float32(1.0), bound=config.final_softcap, vocab=config.vocab
    )


def compute_logits(family: Family, place: Place = ONE) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the valid columns of mixed rows: ours, and the other implementation's."""
    tokens, starts = make_rows(family)
    with place.entered() as layout:
        weights = load_weights(family.directory, config=family.config, layout=layout)
        rows = place.put_rows((tokens, starts))
        ours = np.asarray(_compute_logits(weights, *rows, family.config, layout))
    theirs = torch_models.run_model(family.model, tokens, starts).detach().numpy()
    valid = np.arange(LENGTH)[None] >= starts[:, None]
    return ours[valid], theirs[valid]


def sample(family: Family, place: Place = ONE, *, greedy: bool = False, padded: bool = True) -> Any:
    """Rollouts of 32 rows, prompts of mixed length up to 42 tokens, responses of up to 6."""
    tokens, starts = make_rows(family, rows=programs.ROWS)
    prompt = LENGTH - programs.RESPONSE
    starts = np.minimum(starts, prompt - 1) * np.int32(padded)
    with place.entered() as layout:
        spec = SamplerSpec(
            model=family.config,
            layout=layout,
            max_prompt_length=prompt,
            max_response_length=programs.RESPONSE,
            copies=1,
            end_ids=() if greedy else (2,),
            pad_id=0,
            greedy=greedy,
        )
        weights = load_weights(family.directory, config=family.config, layout=layout)
        held = programs.sync_weights(weights, family.config, layout)
        ids = np.arange(programs.ROWS, dtype=np.int32)
        prompts = place.put_rows(
            programs.Prompts(tokens[:, :prompt], starts, ids, np.zeros_like(ids))
        )
        cache, hidden = programs.prefill(held, prompts, spec)
        heat = jnp.float32(1.0 if greedy else TEMPERATURE)
        rollouts, _, _ = programs.decode(
            held, cache, hidden, prompts, jax.random.key(0), heat, spec
        )
        return programs.to_host(rollouts)


def count_equal_tokens(family: Family) -> tuple[int, int]:
    """Greedy response tokens that the other implementation chooses too, and all of them."""
    found = sample(family, greedy=True)
    prompt = LENGTH - programs.RESPONSE
    tokens = found.tokens[:, :prompt]
    for _ in range(programs.RESPONSE):
        logits = torch_models.run_model(family.model, tokens, found.starts)[:, -1]
        chosen = logits.argmax(-1).numpy().astype(np.int32)
        tokens = np.concatenate([tokens, chosen[:, None]], axis=1)
    equal = found.tokens[:, prompt:] == tokens[:, prompt:]
    return int(equal.sum()), equal.size


def measure_mismatch(family: Family, place: Place = ONE) -> float:
    """Largest |learner - sampler| log-probability of sampled tokens, nats."""
    rollouts = sample(family, place)
    learnt = programs.score(
        place,
        rollouts,
        temperature=TEMPERATURE,
        model=family.config,
        weights=load(family),
        max_prompt_length=LENGTH - programs.RESPONSE,
        microbatch=programs.ROWS,
    )
    inside = np.arange(programs.RESPONSE)[None] < rollouts.lengths[:, None]
    return float(np.abs(learnt - rollouts.log_probs)[inside].max())


def compare_export(family: Family, directory: Path) -> tuple[int, int]:
    """Tensors of the exported checkpoint that equal the imported one's to the bit, and all."""
    from safetensors.numpy import load_file

    with ONE.entered() as layout:
        weights = load_weights(family.directory, config=family.config, layout=layout)
        export_checkpoint(
            weights, directory, config=family.config, source=family.directory, dtype="float32"
        )
    before = load_file(family.directory / "model.safetensors")
    after = load_file(directory / "model.safetensors")
    assert before.keys() == after.keys()
    equal = [np.array_equal(before[name], after[name]) for name in before]
    return sum(equal), len(equal)


def make_batch(family: Family) -> programs.HostBatch:
    """Rollouts of the family's own sampler, some way off the policy; without padding.

    A padding query that sees nothing has no gradient here and NaN in PyTorch.
    """
    rollouts = sample(family, padded=False)
    rng = np.random.default_rng(1)

    def move(log_probs: np.ndarray) -> np.ndarray:
        return (log_probs + 0.2 * rng.standard_normal(log_probs.shape)).astype(np.float32)

    return programs.HostBatch(
        rollouts=dataclasses.replace(rollouts, log_probs=move(rollouts.log_probs)),
        rewards=rng.integers(0, 3, programs.ROWS).astype(np.float32),
        valid=np.ones(programs.ROWS, bool),
        reference=move(rollouts.log_probs),
    )


def differentiate(
    family: Family, batch: programs.HostBatch, directory: Path, place: Place = ONE
) -> dict[str, np.ndarray]:
    """The gradient of `LOSS`, by the names of the checkpoint's tensors."""
    from safetensors.numpy import load_file

    names = ("clip_low", "clip_high", "kl_coefficient", "denominator", "mask_truncated")
    gradients, _ = programs.gradients_of(
        batch,
        place,
        model=family.config,
        weights=load(family),
        temperature=TEMPERATURE,
        objective=ObjectiveConfig(**{name: LOSS[name] for name in names}),
        microbatch=8,
    )
    # A gradient has the shape of its weight, so that it can be written as one.
    with ONE.entered():
        export_checkpoint(
            programs.put_weights(gradients, family.config, ONE),
            directory,
            config=family.config,
            source=family.directory,
            dtype="float32",
        )
    return dict(load_file(directory / "model.safetensors"))
