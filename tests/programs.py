"""Places, models, rollouts and programs that the tests of model, sampler and learner share.

Programs are compiled per shape and place, so tests that use the shapes here share them.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from jax_rl.config import ModelConfig, ObjectiveConfig, OptimizerConfig
from jax_rl.learner import update as learner
from jax_rl.learner.rows import weigh_rows
from jax_rl.learner.spec import LearnerSpec
from jax_rl.mesh.devices import make_mesh
from jax_rl.mesh.layout import Layout
from jax_rl.mesh.layout_file import load_layout
from jax_rl.model.distribution import sampled_logits
from jax_rl.model.forward import forward, head_in_use
from jax_rl.model.weights import Weights, describe_weights
from jax_rl.sampler.generate import Prompts, Rollouts, SamplerSpec, decode, prefill, sync_weights

LAYOUTS = Path(__file__).parent.parent / "sharding"
MODEL = ModelConfig(
    layers=2,
    embed=16,
    heads=16,
    kv_heads=8,
    head_dim=4,
    mlp=16,
    vocab=32,
    attention_bias=True,
    tied_head=False,
)
SMALL = ModelConfig(layers=1, embed=8, heads=2, kv_heads=1, head_dim=4, mlp=8, vocab=16)
PROMPT, RESPONSE, GROUP, GROUPS = 8, 6, 4, 8
ROWS = GROUP * GROUPS


class OnMesh:
    """Rules on a mesh, and arrays put where the rules of what computes say."""

    rules: Layout
    mesh: jax.sharding.Mesh

    @contextlib.contextmanager
    def entered(self) -> Iterator[Layout]:
        with jax.set_mesh(self.mesh):
            yield self.rules

    def put(self, array: Any, *axes: str | None) -> jax.Array:
        return jax.device_put(array, NamedSharding(self.mesh, self.rules.compute_spec(axes)))

    def put_rows(self, tree: Any) -> Any:
        """Host arrays [n, ...] with n split as the layout splits the batch."""
        return jax.tree.map(lambda x: self.put(x, "batch", *(None,) * (np.ndim(x) - 1)), tree)


@dataclasses.dataclass(frozen=True)
class Place(OnMesh):
    """A layout of ours on so many of the forced host devices."""

    layout: str
    devices: int

    def __str__(self) -> str:
        return f"{self.layout}-{self.devices}"

    @functools.cached_property
    def rules(self) -> Layout:
        return load_layout(LAYOUTS / f"{self.layout}.toml")

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh:
        return make_mesh(self.rules, jax.devices()[: self.devices])


@dataclasses.dataclass(frozen=True)
class Spot(OnMesh):
    """Any rules on any mesh."""

    rules: Layout
    mesh: jax.sharding.Mesh


ONE = Place("replicated", 1)
EIGHT = tuple(Place(name, 8) for name in ("replicated", "fsdp", "tensor", "fsdp_tensor"))
PLACES = (ONE, Place("fsdp", 1), Place("tensor", 1), *EIGHT)


def host_weights(config: ModelConfig, seed: int = 0) -> Weights:
    """Weights in NumPy, none of them at its trivial initial value."""
    rng = np.random.default_rng(seed)

    def draw(weight: Any) -> np.ndarray:
        noise = rng.standard_normal(weight.shape)
        if weight.init == "normal":
            return (noise / np.sqrt(weight.fan_in)).astype(np.float32)
        return (float(weight.init == "ones") + 0.2 * noise).astype(np.float32)

    return jax.tree.map(draw, describe_weights(config))


def put_weights(weights: Weights, config: ModelConfig, place: OnMesh) -> Weights:
    """Host weights where the layout stores them."""
    return jax.tree.map(
        lambda w, d: jax.device_put(w, NamedSharding(place.mesh, place.rules.weight_spec(d.axes))),
        weights,
        describe_weights(config),
    )


def to_host(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)


# Sampling


def prompt_of(group: int, vocab: int) -> tuple[np.ndarray, int]:
    """The prompt [p] of a group and its first column; what lies before is not zero."""
    rng = np.random.default_rng([7, group])
    return rng.integers(3, vocab, PROMPT).astype(np.int32), int(rng.integers(0, PROMPT - 2))


def sampler_spec(place: OnMesh, model: ModelConfig, copies: int, **changes: Any) -> SamplerSpec:
    spec = SamplerSpec(
        model=model,
        layout=place.rules,
        max_prompt_length=PROMPT,
        max_response_length=RESPONSE,
        copies=copies,
        end_ids=(2, 9),
        pad_id=0,
    )
    return dataclasses.replace(spec, **changes)


def make_prompts(
    place: OnMesh, groups: np.ndarray, members: np.ndarray, *, copies: int, vocab: int
):
    rows = [prompt_of(int(g), vocab) for g in groups[::copies]]
    return Prompts(
        tokens=place.put(np.stack([tokens for tokens, _ in rows]), "batch", None),
        starts=place.put(np.array([start for _, start in rows], np.int32), "batch"),
        groups=place.put(groups.astype(np.int32), "batch"),
        members=place.put(members.astype(np.int32), "batch"),
    )


def sample_ids(groups: list[int] | range, group: int = GROUP) -> tuple[np.ndarray, np.ndarray]:
    """Group and member of every row, members next to each other."""
    return np.repeat(np.array(groups), group), np.tile(np.arange(group), len(groups))


def generate(
    place: Place,
    model: ModelConfig = MODEL,
    *,
    ids: tuple[np.ndarray, np.ndarray] | None = None,
    copies: int = GROUP,
    temperature: float = 1.0,
    seed: int = 5,
    weights: Weights | None = None,
    **changes: Any,
) -> tuple[Rollouts, int]:
    """Rollouts on the host and the number of decode steps; rows are the sample ids."""
    groups, members = ids if ids is not None else sample_ids(range(GROUPS))
    with place.entered() as layout:
        spec = sampler_spec(place, model, copies, **changes)
        stored = put_weights(weights or host_weights(model), model, place)
        held = sync_weights(stored, model, layout)
        prompts = make_prompts(place, groups, members, copies=copies, vocab=model.vocab)
        cache, hidden = prefill(held, prompts, spec)
        heat = jnp.float32(temperature)
        rollouts, steps, _ = decode(held, cache, hidden, prompts, jax.random.key(seed), heat, spec)
        return to_host(rollouts), int(steps)


@functools.partial(jax.jit, static_argnames=("model", "layout"))
def _response_logits(weights, tokens, starts, temperature, model, layout):
    hidden, _ = forward(weights, tokens, starts, config=model, layout=layout)
    head = head_in_use(weights, config=model, layout=layout)
    return sampled_logits(
        hidden[:, PROMPT - 1 : -1],
        head,
        temperature,
        bound=model.final_softcap,
        vocab=model.vocab,
    )


def response_distributions(
    rollouts: Rollouts, temperature: float, model: ModelConfig = MODEL
) -> np.ndarray:
    """Probabilities [n, t, v] of the response tokens by the learner's forward, in float64."""
    with ONE.entered() as layout:
        weights = put_weights(host_weights(model), model, ONE)
        rows = ONE.put_rows((rollouts.tokens, rollouts.starts))
        logits = _response_logits(weights, *rows, jnp.float32(temperature), model, layout)
    wide = np.asarray(logits, np.float64)
    shares = np.exp(wide - wide.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


# Randomness, by hand


def threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011, Random123)."""
    mask = 0xFFFFFFFF
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (counter[0] + keys[0]) & mask, (counter[1] + keys[1]) & mask
    for block in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            x = (x + y) & mask
            y = ((y << turn | y >> (32 - turn)) & mask) ^ x
        x = (x + keys[(block + 1) % 3]) & mask
        y = (y + keys[(block + 2) % 3] + block + 1) & mask
    return x, y


def uniform_by_hand(seed: int, group: int, member: int, position: int) -> float:
    """The number behind a token: the key folded with group, member and position."""
    key = (0, seed)
    for data in (group, member, position):
        key = threefry(key, (0, data))
    high, low = threefry(key, (0, 0))
    return ((high ^ low) >> 9) * 2.0**-23


# Learning


def learner_spec(place: OnMesh, model: ModelConfig = MODEL, **changes: Any) -> LearnerSpec:
    spec = LearnerSpec(
        model=model,
        layout=place.rules,
        objective=ObjectiveConfig(kl_coefficient=0.1),
        optimizer=OptimizerConfig(weight_decay=0.1),
        group=GROUP,
        updates=1,
        microbatch=ROWS,
        max_prompt_length=PROMPT,
        max_response_length=RESPONSE,
    )
    return dataclasses.replace(spec, **changes)


@dataclasses.dataclass(frozen=True)
class HostBatch:
    """What an update is given, on the host."""

    rollouts: Rollouts
    rewards: np.ndarray
    valid: np.ndarray
    reference: np.ndarray | None  # log-probabilities of the reference

    def take(self, rows: np.ndarray) -> "HostBatch":
        """The same batch with its rows in another order."""
        reference = None if self.reference is None else self.reference[rows]
        rollouts = jax.tree.map(lambda x: x[rows], self.rollouts)
        return HostBatch(rollouts, self.rewards[rows], self.valid[rows], reference)

    def pad_left(self, columns: int) -> "HostBatch":
        """The same batch with more padding before its prompts."""
        rng = np.random.default_rng(columns)
        rows = self.rewards.shape[0]
        padding = rng.integers(0, 16, (rows, columns)).astype(np.int32)
        rollouts = dataclasses.replace(
            self.rollouts,
            tokens=np.concatenate([padding, self.rollouts.tokens], axis=1),
            starts=self.rollouts.starts + np.int32(columns),
        )
        return dataclasses.replace(self, rollouts=rollouts)


def make_batch(
    model: ModelConfig,
    lengths: np.ndarray,
    *,
    prompt: int = PROMPT,
    response: int = RESPONSE,
    seed: int = 0,
    noise: float = 0.2,
    ended: np.ndarray | None = None,
) -> HostBatch:
    """Random rollouts of given lengths near the policy; log-probabilities past them are NaN."""
    rng = np.random.default_rng(seed)
    rows = len(lengths)
    past = np.arange(response)[None] >= np.asarray(lengths)[:, None]
    rollouts = Rollouts(
        tokens=rng.integers(0, model.vocab, (rows, prompt + response)).astype(np.int32),
        starts=rng.integers(0, prompt - 1, rows).astype(np.int32),
        lengths=np.asarray(lengths, np.int32),
        ended=np.ones(rows, bool) if ended is None else ended,
        log_probs=np.zeros((rows, response), np.float32),
    )
    current = score(ONE, rollouts, model=model, max_prompt_length=prompt, microbatch=rows)

    def nearby() -> np.ndarray:
        drift = noise * rng.standard_normal((rows, response))
        return np.where(past, np.nan, current + drift).astype(np.float32)

    return HostBatch(
        rollouts=dataclasses.replace(rollouts, log_probs=nearby()),
        rewards=rng.integers(0, 3, rows).astype(np.float32),
        valid=np.ones(rows, bool),
        reference=nearby(),
    )


def score(
    place: Place,
    rollouts: Rollouts,
    *,
    temperature: float = 1.0,
    model: ModelConfig = MODEL,
    weights: Weights | None = None,
    **changes: Any,
) -> np.ndarray:
    """Log-probabilities [n, t] by the learner."""
    changes.setdefault("max_response_length", rollouts.log_probs.shape[1])
    with place.entered():
        stored = put_weights(weights or host_weights(model), model, place)
        spec = learner_spec(place, model, **changes)
        rows = place.put_rows(rollouts)
        return np.asarray(learner.score_rollouts(stored, rows, jnp.float32(temperature), spec))


@functools.partial(jax.jit, static_argnames=("spec",))
def differentiate(weights, rollouts, rewards, valid, temperature, reference, spec):
    """Gradient and metrics of one minibatch, from rewards on."""
    rows, metrics = weigh_rows(rollouts, rewards, valid, reference, spec)
    gradients, more = learner.minibatch_gradients(weights, rows, temperature, spec)
    return gradients, {**metrics, **more}


def gradients_of(
    batch: HostBatch,
    place: Place = ONE,
    *,
    model: ModelConfig = MODEL,
    weights: Weights | None = None,
    temperature: float = 1.0,
    **changes: Any,
) -> tuple[Weights, dict[str, float]]:
    """Gradient and metrics on the host."""
    rows, columns = batch.rollouts.tokens.shape
    response = batch.rollouts.log_probs.shape[1]
    changes.setdefault("microbatch", rows)
    changes.setdefault("max_prompt_length", columns - response)
    changes.setdefault("max_response_length", response)
    with place.entered():
        stored = put_weights(weights or host_weights(model), model, place)
        spec = learner_spec(place, model, **changes)
        rollouts, reference = place.put_rows((batch.rollouts, batch.reference))
        rewards, valid = place.put(batch.rewards, None), place.put(batch.valid, None)
        heat = jnp.float32(temperature)
        gradients, metrics = differentiate(stored, rollouts, rewards, valid, heat, reference, spec)
        return to_host(gradients), {name: m.value() for name, m in to_host(metrics).items()}


def largest_gap(found: Weights, expected: Weights) -> tuple[float, str]:
    """The largest relative distance of a tensor, and its name."""
    wanted = dict(jax.tree_util.tree_leaves_with_path(expected))
    gaps = []
    for path, value in jax.tree_util.tree_leaves_with_path(found):
        size = np.linalg.norm(wanted[path])
        assert size > 0, f"{path}: the expected tensor is 0, which shows nothing"
        gap = np.linalg.norm(np.asarray(value, np.float64) - wanted[path]) / size
        gaps.append((float(gap), jax.tree_util.keystr(path)))
    assert len(gaps) == len(wanted)
    return max(gaps)
