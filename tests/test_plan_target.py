"""Targets as a command line names them."""

import pytest

from jax_rl.costs.chips import load_chips
from jax_rl.errors import UserError
from jax_rl.plan.target import Target, parse_target

CHIPS = load_chips()


@pytest.mark.parametrize(
    ("text", "target", "chips"),
    [
        ("tpu:v5p:4x4x4", Target("tpu", "v5p", (4, 4, 4), 1), 64),
        ("tpu:v5e:16x16", Target("tpu", "v5e", (16, 16), 1), 256),
        ("tpu:v6e:16x16", Target("tpu", "v6e", (16, 16), 1), 256),
        ("tpu:v5p:4x4x4*2", Target("tpu", "v5p", (4, 4, 4), 2), 128),
        ("cuda:h100:8", Target("cuda", "h100", (8,), 1), 8),
        ("cuda:h200:8x4", Target("cuda", "h200", (8,), 4), 32),
        ("here", Target("here"), 0),
    ],
)
def test_a_target_is_read_and_named(text: str, target: Target, chips: int) -> None:
    found = parse_target(text, CHIPS)
    assert found == target
    assert found.name == text
    assert found.chips == chips


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("tpy:v5p:4x4x4", ["unknown platform 'tpy'", "did you mean 'tpu'?", "cuda:h100:8"]),
        ("tpu:v5p", ["'tpu:v5p' must be platform:chip:shape", "tpu:v5p:4x4x4"]),
        ("", ["unknown platform ''"]),
        ("tpu:v5q:4x4", ["unknown chip 'v5q'", "did you mean"]),
        ("tpu:h100:8", ["unknown chip 'h100'", "v5e"]),
        ("cuda:v5p:8", ["unknown chip 'v5p'", "h100"]),
        ("tpu:v5e:16", ["'16' must be the chips of a slice", "16x16*2"]),
        ("tpu:v5e:4x4x", ["'4x4x' must be the chips of a slice"]),
        ("tpu:v5e:0x4", ["'0x4' must be the chips of a slice"]),
        ("tpu:v5e:4x4*0", ["'4x4*0' must be the chips of a slice"]),
        ("cuda:h100:8x4x2", ["'8x4x2' must be the devices of a host", "8x4"]),
        ("cuda:h100:eight", ["'eight' must be the devices of a host"]),
    ],
)
def test_what_is_no_target_is_refused(text: str, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        parse_target(text, CHIPS)
    for part in parts:
        assert part in str(caught.value)
