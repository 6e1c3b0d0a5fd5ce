"""Every family against Hugging Face's implementation, from its checkpoint to its responses."""

import copy

import checkpoints
import family_checks
import numpy as np
import programs
import pytest
import torch_models
from programs import EIGHT

NAMES = sorted(checkpoints.FAMILIES)
VARIANTS = ("llama_linear", "llama_yarn", "qwen3_yarn", "gemma3_linear")
"""Whose decoding differs from another family's in the frequencies alone, which logits show."""


@pytest.fixture(scope="module")
def family(request, tmp_path_factory):
    return family_checks.build(request.param, tmp_path_factory.mktemp(request.param))


each_family = pytest.mark.parametrize("family", NAMES, indirect=True)
each_decoder = pytest.mark.parametrize(
    "family",
    [pytest.param(n, marks=[pytest.mark.slow] if n in VARIANTS else []) for n in NAMES],
    indirect=True,
)


@each_family
def test_logits_equal_the_reference_implementation(family):
    ours, theirs = family_checks.compute_logits(family)
    assert np.abs(theirs).max() > 1.0 and theirs.std() > 0.3
    assert np.abs(ours - theirs).max() <= 1e-4


@each_decoder
def test_greedy_responses_equal_the_reference_implementation(family):
    equal, total = family_checks.count_equal_tokens(family)
    assert equal == total


@each_decoder
def test_on_policy_law_holds(family):
    assert family_checks.measure_mismatch(family) <= 1e-5


@each_family
def test_export_gives_every_tensor_back(family, tmp_path):
    equal, total = family_checks.compare_export(family, tmp_path / "export")
    assert equal == total > 10


@pytest.mark.parametrize(
    ("family", "place"),
    [
        *(pytest.param("llama", place, marks=pytest.mark.slow) for place in EIGHT[:3]),
        ("llama", EIGHT[3]),
        ("gemma3", EIGHT[1]),
    ],
    indirect=["family"],
    ids=str,
)
def test_on_policy_law_holds_on_eight_devices(family, place):
    assert family_checks.measure_mismatch(family, place) <= 1e-5


@pytest.mark.parametrize(
    "family",
    [
        "gemma2",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("gemma3_linear", "qwen3_yarn")),
    ],
    indirect=True,
)
def test_gradient_equals_that_of_the_loss_written_in_pytorch(family, tmp_path):
    batch = family_checks.make_batch(family)
    found = family_checks.differentiate(family, batch, tmp_path / "gradients")
    model = copy.deepcopy(family.model).double()
    model.get_input_embeddings().padding_idx = None  # which would stop that row's gradient
    torch_models.grpo_loss(model, batch, **family_checks.LOSS).backward()
    expected = {name: p.grad.numpy() for name, p in model.named_parameters()}
    gap, name = programs.largest_gap(found, expected)
    assert gap <= 1e-4, name


def test_batch_law_holds_for_local_layers_and_caps_on_eight_devices(tmp_path):
    family = family_checks.build("gemma2", tmp_path / "gemma2")
    batch = family_checks.make_batch(family)
    expected = family_checks.differentiate(family, batch, tmp_path / "one")
    found = family_checks.differentiate(family, batch, tmp_path / "eight", EIGHT[1])
    gap, name = programs.largest_gap(found, expected)
    assert gap <= 1e-5, name
