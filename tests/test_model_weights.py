"""Weights from their descriptions: counts, initial values, golden sharding tables."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType
from programs import EIGHT, LAYOUTS, MODEL, ONE, SMALL, Place, host_weights, put_weights

from jax_rl.config import ModelConfig, ObjectiveConfig, OptimizerConfig, RopeConfig
from jax_rl.learner.spec import LearnerSpec
from jax_rl.learner.update import init_state
from jax_rl.mesh.layout_file import load_layout
from jax_rl.model.weights import (
    compute_specs,
    count_parameters,
    decay_mask,
    describe_weights,
    dimensions,
    init_weights,
    weight_specs,
)

QWEN3 = ModelConfig(  # the shape of Qwen3-1.7B
    layers=28,
    embed=2048,
    heads=16,
    kv_heads=8,
    head_dim=128,
    mlp=6144,
    vocab=151_936,
    rope=RopeConfig(theta=1e6),
)
SPLIT = {  # dimensions of each weight that lie on a mesh axis; all others are whole
    "replicated": {},
    "fsdp": {
        "embedding": {1: "fsdp"},
        "final_norm": {0: "fsdp"},
        "attention_norm": {1: "fsdp"},
        "mlp_norm": {1: "fsdp"},
        "q": {1: "fsdp"},
        "k": {1: "fsdp"},
        "v": {1: "fsdp"},
        "o": {3: "fsdp"},
        "gate": {1: "fsdp"},
        "up": {1: "fsdp"},
        "down": {2: "fsdp"},
    },
    "tensor": {
        "embedding": {0: "tensor"},
        "q": {2: "tensor"},
        "k": {2: "tensor"},
        "v": {2: "tensor"},
        "o": {1: "tensor"},
        "gate": {2: "tensor"},
        "up": {2: "tensor"},
        "down": {1: "tensor"},
    },
}
SPLIT["fsdp_tensor"] = {
    name: {**SPLIT["fsdp"].get(name, {}), **SPLIT["tensor"].get(name, {})} for name in SPLIT["fsdp"]
}


def name_leaves(tree):
    return {str(path[-1].key): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.mark.parametrize("name", sorted(SPLIT))
def test_golden_shardings_of_weights_and_optimizer_on_a_16_by_8_mesh(name):
    layout = load_layout(LAYOUTS / f"{name}.toml")
    mesh = AbstractMesh((1, 16, 8), ("data", "fsdp", "tensor"), (AxisType.Explicit,) * 3)
    spec = LearnerSpec(QWEN3, layout, ObjectiveConfig(), OptimizerConfig(), 8, 1, 128, 32, 64)
    key = jax.random.key(0)
    with jax.sharding.use_abstract_mesh(mesh):
        weights = jax.eval_shape(lambda key: init_weights(key, QWEN3, layout), key)
        state = jax.eval_shape(lambda w: init_state(w, spec.optimizer, spec.model), weights)
    found = name_leaves(weights)
    assert found.keys() == {*SPLIT["fsdp"], "q_norm", "k_norm"}
    for key, leaf in found.items():
        expected = SPLIT[name].get(key, {})
        assert {i: axis for i, axis in enumerate(leaf.sharding.spec) if axis} == expected, key
        assert leaf.dtype == jnp.float32
    adam = state.optimizer[1]
    for moments in (adam.mu, adam.nu):
        for key, leaf in name_leaves(moments).items():
            assert leaf.sharding.spec == found[key].sharding.spec, key
            assert leaf.shape == found[key].shape


def test_shares_of_memory_on_a_16_by_8_mesh():
    # Both layouts split every large weight: 1.72 billion parameters / 128 on a device.
    layout = load_layout(LAYOUTS / "fsdp_tensor.toml")
    sizes = {"fsdp": 16, "tensor": 8}
    specs, weights = weight_specs(QWEN3, layout), describe_weights(QWEN3)
    share = 0
    for spec, weight in zip(jax.tree.leaves(specs), jax.tree.leaves(weights), strict=True):
        share += math.prod(weight.shape) // math.prod(sizes[a] for a in spec if a)
    assert count_parameters(QWEN3) / share == pytest.approx(128, rel=0.01)


def test_parameter_count_of_qwen3():
    # Qwen3-1.7B: 151936 x 2048 + 28 x (2 x 2048^2 + 2 x 2048 x 1024 + 3 x 2048 x 6144
    # + 2 x 2048 + 2 x 128) + 2048
    assert count_parameters(QWEN3) == 1_720_574_976
    untied = dataclasses.replace(QWEN3, tied_head=False)
    assert count_parameters(untied) - count_parameters(QWEN3) == 151_936 * 2048
    biased = dataclasses.replace(QWEN3, attention_bias=True)
    assert count_parameters(biased) - count_parameters(QWEN3) == 28 * (2048 + 2 * 1024)
    plain = dataclasses.replace(QWEN3, qk_norm=False)
    assert count_parameters(QWEN3) - count_parameters(plain) == 28 * 2 * 128


def test_dimensions_name_every_logical_axis_of_the_weights():
    expected = {"layers": 28, "embed": 2048, "heads": 16, "kv_heads": 8, "head_dim": 128}
    assert dimensions(QWEN3) == {**expected, "mlp": 6144, "vocab": 151_936}


def test_decay_applies_to_matrices_and_not_to_norms_and_biases():
    mask = name_leaves(decay_mask(MODEL))
    matrices = {"embedding", "head", "q", "k", "v", "o", "gate", "up", "down"}
    assert {name for name, decays in mask.items() if decays} == matrices
    assert len(mask) == len(matrices) + 3 + 2 + 3  # norms, q/k norms, biases


@pytest.mark.parametrize("place", [ONE, *EIGHT], ids=str)
def test_initial_weights_do_not_depend_on_the_layout(place):
    config = dataclasses.replace(MODEL, layers=1)
    with place.entered() as layout:
        weights = init_weights(jax.random.key(3), config, layout)
    specs = weight_specs(config, place.rules)
    for leaf, spec in zip(jax.tree.leaves(weights), jax.tree.leaves(specs), strict=True):
        assert leaf.sharding.spec == spec
    with ONE.entered() as layout:
        expected = init_weights(jax.random.key(3), config, layout)
    jax.tree.map(np.testing.assert_array_equal, weights, expected)


def test_initial_weights_have_variance_one_over_fan_in():
    wide = ModelConfig(layers=1, embed=64, heads=4, kv_heads=2, mlp=128, attention_bias=True)
    with ONE.entered() as layout:
        leaves = name_leaves(init_weights(jax.random.key(0), wide, layout))
        again = name_leaves(init_weights(jax.random.key(1), wide, layout))
    fan_in = {"embedding": 64, "q": 64, "k": 64, "v": 64, "o": 64, "gate": 64, "up": 64}
    for name, count in {**fan_in, "down": 128}.items():
        values = np.asarray(leaves[name])
        assert values.std() == pytest.approx(count**-0.5, rel=0.08), name
        assert abs(values.mean()) < 4 * values.std() / values.size**0.5, name
        assert not np.any(values == np.asarray(again[name])), name
    assert not np.array_equal(leaves["gate"], leaves["up"])
    assert np.all(leaves["q_norm"] == 1)
    assert np.all(leaves["q_bias"] == 0)


def test_compute_specs_follow_the_compute_rules():
    specs = name_leaves(compute_specs(SMALL, Place("fsdp", 8).rules))
    assert not any(axis for spec in specs.values() for axis in spec)  # whole when in use
    specs = name_leaves(compute_specs(SMALL, Place("tensor", 8).rules))
    assert specs["q"] == jax.P(None, None, "tensor", None)


def test_weights_of_a_place_are_stored_as_described():
    place = EIGHT[3]
    weights = put_weights(host_weights(MODEL), MODEL, place)
    shard = weights["layers"]["gate"].addressable_shards[0].data.shape
    assert shard == (2, 16 // 4, 16 // 2)
