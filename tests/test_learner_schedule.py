"""Warm-up and rate rules, worked by hand."""

import pytest

from jax_rl.config import OptimizerConfig
from jax_rl.errors import UserError
from jax_rl.learner.schedule import (
    rate_at,
    scale_optimizer,
    scaled_rate,
    warmup_note,
    warmup_updates,
)


@pytest.mark.parametrize(
    ("samples", "minibatch", "updates"),
    [(512, 128, 4), (512, 8, 64), (513, 128, 5), (1, 128, 1), (0, 128, 1), (512, 4096, 1)],
)
def test_warmup_is_this_runs_updates_rounded_up(samples, minibatch, updates):
    assert warmup_updates(samples, minibatch) == updates


def test_rate_rises_from_the_first_update_and_never_decays():
    rates = [rate_at(update, peak=0.8, warmup=4) for update in range(6)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8], rel=1e-15)
    assert rate_at(1_000_000, peak=0.8, warmup=4) == 0.8


def test_run_of_one_update_moves_the_weights():
    assert rate_at(0, peak=1e-3, warmup=warmup_updates(1280, 128)) == pytest.approx(1e-4)
    assert rate_at(0, peak=1e-3, warmup=warmup_updates(0, 128)) == 1e-3


@pytest.mark.parametrize(
    ("rule", "minibatch", "rate"),
    [
        ("none", 512, 1e-3),
        ("sqrt", 512, 2e-3),
        ("linear", 512, 4e-3),
        ("none", 32, 1e-3),
        ("sqrt", 32, 5e-4),
        ("linear", 32, 2.5e-4),
        ("sqrt", 128, 1e-3),
        ("adam", 512, 2e-3),
        ("adam", 32, 5e-4),
    ],
)
def test_rate_moves_with_the_minibatch(rule, minibatch, rate):
    moved = scaled_rate(1e-3, rule=rule, minibatch=minibatch, reference_minibatch=128)
    assert moved == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize(("power", "rate"), [(0.0, 1e-3), (0.75, 8e-3), (1.5, 64e-3)])
def test_power_rule_raises_the_ratio_to_a_power(power, rate):
    moved = scaled_rate(
        1e-3, rule="power", minibatch=2048, reference_minibatch=128, power=power
    )  # ratio 16
    assert moved == pytest.approx(rate, rel=1e-12)


def test_adam_rule_keeps_half_lives_in_samples():
    reference = OptimizerConfig(learning_rate=1e-3, b1=0.9, b2=0.99, epsilon=1e-8)
    moved = scale_optimizer(reference, rule="adam", minibatch=512, reference_minibatch=128)
    assert moved.learning_rate == pytest.approx(2e-3)
    # One update on four times the samples forgets what four updates did.
    assert moved.b1 == pytest.approx(0.9 * 0.9 * 0.9 * 0.9)
    assert moved.b2 == pytest.approx(0.99 * 0.99 * 0.99 * 0.99)
    assert moved.epsilon == pytest.approx(5e-9)
    small = scale_optimizer(reference, rule="adam", minibatch=32, reference_minibatch=128)
    assert small.b1**4 == pytest.approx(0.9) and small.b2**4 == pytest.approx(0.99)
    assert small.epsilon == pytest.approx(2e-8)


@pytest.mark.parametrize("rule", ["none", "sqrt", "linear", "power"])
def test_other_rules_move_the_rate_alone(rule):
    reference = OptimizerConfig()
    moved = scale_optimizer(reference, rule=rule, minibatch=512, reference_minibatch=128)
    assert (moved.b1, moved.b2, moved.epsilon) == (0.9, 0.99, 1e-8)
    assert moved.learning_rate == scaled_rate(
        1e-3, rule=rule, minibatch=512, reference_minibatch=128
    )


def test_unknown_rule_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"study\.rate_rule = 'sqr'.*'sqrt'"):
        scaled_rate(1e-3, rule="sqr", minibatch=8, reference_minibatch=8)


@pytest.mark.parametrize(
    ("warmup", "words"), [(1, "peak rate already"), (2, "2 updates"), (4, "4 updates")]
)
def test_short_warmup_is_said_in_one_sentence(warmup, words):
    note = warmup_note(warmup)
    assert note is not None
    assert words in note
    assert "optimizer.warmup_samples" in note
    assert note.endswith(".")
    assert note.count(". ") == 0


@pytest.mark.parametrize("warmup", [5, 64])
def test_gradual_warmup_needs_no_note(warmup):
    assert warmup_note(warmup) is None
