"""What grows with the batch, worked by hand: N = P x K."""

import pytest

from jax_rl.config import BatchConfig
from jax_rl.errors import UserError
from jax_rl.growth import count_devices, grow_batch

REFERENCE = BatchConfig(size=64, group=8, updates=2, microbatch=16, wave=32)
"""8 prompts x 8."""


@pytest.mark.parametrize(
    ("growth", "size", "group"),
    [
        ("prompts", 16, 8),
        ("prompts", 256, 8),
        ("group", 16, 2),
        ("group", 64, 8),
        ("group", 128, 16),
        ("group", 256, 32),
        ("both", 16, 4),
        ("both", 64, 8),
        ("both", 256, 16),
        ("both", 1024, 32),
    ],
)
def test_batch_grows_by_prompts_group_or_both(growth, size, group):
    grown = grow_batch(REFERENCE, size, growth=growth)
    assert (grown.size, grown.group, grown.updates) == (size, group, 2)
    assert (grown.microbatch, grown.wave) == (min(16, size // 2), min(32, size))


def test_minibatches_may_change_too():
    reused = grow_batch(REFERENCE, 16, updates=4)
    assert (reused.updates, reused.microbatch) == (4, 4)


@pytest.mark.parametrize(
    ("growth", "size", "words"),
    [
        ("group", 8, ["batch 8", "8 prompts", "groups of 1", "at least 2"]),
        ("group", 12, ["groups of 1.5"]),
        ("both", 128, ["x2 the reference", "study.factor = 4", "11.3137"]),
        ("both", 1, ["x0.015625", "to 1 and 1"]),
    ],
)
def test_growth_that_is_not_whole_is_refused(growth, size, words):
    with pytest.raises(UserError) as caught:
        grow_batch(REFERENCE, size, growth=growth)
    assert all(word in str(caught.value) for word in words), caught.value


def test_devices_grow_with_the_batch():
    for size, devices in ((32, 2), (64, 4), (256, 16)):
        assert count_devices(4, size=size, reference=64, growth="batch") == devices
        assert count_devices(4, size=size, reference=64, growth="fixed") == 4
    assert count_devices(0, size=32, reference=64, growth="fixed") == 0
    with pytest.raises(UserError, match=r"needs run\.devices"):
        count_devices(0, size=64, reference=64, growth="batch")
    with pytest.raises(UserError, match=r"batch 8 would have 0\.5 devices, with run\.devices = 4"):
        count_devices(4, size=8, reference=64, growth="batch")
