"""The split of a known covariance into parts between and within prompts."""

import dataclasses
import math

import numpy as np
import pytest

from jax_rl.errors import UserError
from jax_rl.study.noise.scale import Ratio
from jax_rl.study.noise.split import (
    PairProducts,
    _leave_out,
    estimate_split,
    read_split,
    split_covariance,
    write_split,
)

SIZE, GROUP = 30, 8
SIGNAL, BETWEEN, WITHIN = 4.0, 6.0, 20.0


def draw(rng, prompts):
    """[prompts, 2, size]: two groups' gradients of each prompt."""

    def noise(total, *shape):
        return math.sqrt(total / SIZE) * rng.standard_normal((*shape, SIZE))

    own = math.sqrt(SIGNAL / SIZE) + noise(BETWEEN, prompts, 1)
    return own + noise(WITHIN, prompts, 2)


def multiply(gradients):
    first, second = gradients[:, 0], gradients[:, 1]
    mean = gradients.reshape(-1, gradients.shape[-1]).mean(0)
    return PairProducts(
        first=np.sum(first**2, axis=1),
        second=np.sum(second**2, axis=1),
        between=np.sum(first * second, axis=1),
        first_mean=first @ mean,
        second_mean=second @ mean,
        mean=float(mean @ mean),
    )


def split(pairs):
    return split_covariance(pairs, group=GROUP, batch=64, seed=0, samples=1000)


@pytest.fixture(scope="module")
def probes():
    rng = np.random.default_rng(0)
    return [split(multiply(draw(rng, 64))) for _ in range(500)]


def test_by_hand_from_pairs_of_different_prompts():
    gradients = draw(np.random.default_rng(1), 5)
    means = gradients.mean(1)
    pairs = [means[p] @ means[q] for p in range(5) for q in range(5) if p != q]
    within = [np.sum((a - b) ** 2) / 2 for a, b in gradients]
    between = np.mean([a @ b for a, b in gradients]) - np.mean(pairs)
    expected = [np.mean(pairs), np.mean(within), between]
    np.testing.assert_allclose(estimate_split(multiply(gradients)), expected)


def test_without_each_prompt_in_turn():
    gradients = draw(np.random.default_rng(2), 6)
    expected = [estimate_split(multiply(np.delete(gradients, p, axis=0))) for p in range(6)]
    np.testing.assert_allclose(_leave_out(multiply(gradients)), expected)


@pytest.mark.parametrize(
    ("name", "truth"), [("signal", SIGNAL), ("within", WITHIN), ("between", BETWEEN)]
)
def test_the_parts_are_recovered_and_their_intervals_cover_them(probes, name, truth):
    parts = [getattr(probe, name) for probe in probes]
    values = np.array([part.estimate for part in parts])
    error = values.std() / math.sqrt(len(values))
    assert abs(values.mean() - truth) < 3.5 * error
    assert error < 0.03 * truth
    assert 0.92 <= np.mean([part.low <= truth <= part.high for part in parts]) <= 0.98


@pytest.mark.parametrize(
    ("name", "truth"),
    [
        ("within_share", WITHIN / (WITHIN + BETWEEN)),
        ("rollouts", GROUP * (WITHIN + BETWEEN) / SIGNAL),
    ],
)
def test_the_ratios_are_recovered_and_their_intervals_cover_them(probes, name, truth):
    ratios = [getattr(probe, name) for probe in probes]
    assert all(probe.identified for probe in probes)
    assert np.median([ratio.estimate for ratio in ratios]) == pytest.approx(truth, rel=0.03)
    assert 0.92 <= np.mean([ratio.low <= truth <= ratio.high for ratio in ratios]) <= 0.98


def test_gradients_of_0_identify_nothing():
    nothing = split(multiply(np.zeros((10, 2, SIZE))))
    assert not nothing.identified
    assert nothing.within_share == nothing.rollouts == Ratio(None, None, None)
    assert nothing.within.estimate == nothing.within.high == 0


def test_too_few_prompts_are_refused():
    with pytest.raises(UserError, match=r"^7 prompts are too few.*at least 8"):
        split(multiply(np.zeros((7, 2, SIZE))))


def test_a_result_is_read_back_and_another_file_is_refused(tmp_path, probes):
    path = tmp_path / "probe.json"
    assert read_split(path) is None
    for one in (probes[0], split(multiply(np.zeros((10, 2, SIZE))))):
        write_split(one, path)
        assert dataclasses.asdict(read_split(path)) == dataclasses.asdict(one)
    path.write_text('{"signal": 1}')
    with pytest.raises(UserError, match=r"probe\.json: not the result of a probe"):
        read_split(path)
    with pytest.raises(UserError, match=r"cannot be written"):
        write_split(probes[0], tmp_path / "missing" / "probe.json")
