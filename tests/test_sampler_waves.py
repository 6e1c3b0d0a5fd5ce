"""Waves cut a batch without changing who is who."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from programs import Place

from jax_rl.config import BatchConfig
from jax_rl.mesh.batch_plan import plan_batch
from jax_rl.sampler.generate import Prompts
from jax_rl.sampler.waves import PromptRows, split_waves

ROWS = PromptRows(
    tokens=np.array([[0, 1, 5], [1, 6, 7], [0, 0, 1], [0, 1, 9]], np.int32),
    lengths=np.array([2, 3, 1, 2], np.int32),
    first_group=40,
)


def split(place: Place, *, wave: int, rows: PromptRows = ROWS) -> tuple[Prompts, ...]:
    """Four prompts in groups of 8."""
    plan = plan_batch(BatchConfig(size=32, group=8, wave=wave), place.rules, dict(place.mesh.shape))

    def sharding(axes: tuple[str | None, ...]) -> NamedSharding:
        return NamedSharding(place.mesh, place.rules.compute_spec(axes))

    return split_waves(rows, plan, sharding)


def join(waves: tuple[Prompts, ...], name: str) -> np.ndarray:
    return np.concatenate([jax.device_get(getattr(wave, name)) for wave in waves])


def test_one_wave_by_hand() -> None:
    (wave,) = split(Place("replicated", 1), wave=0)
    assert jax.device_get(wave.tokens).tolist() == ROWS.tokens.tolist()  # each prefilled once
    assert jax.device_get(wave.starts).tolist() == [1, 0, 2, 1]
    expected = [40] * 8 + [41] * 8 + [42] * 8 + [43] * 8
    assert jax.device_get(wave.groups).tolist() == expected
    assert jax.device_get(wave.members).tolist() == list(range(8)) * 4


def test_waves_of_eight_and_sixteen_carry_the_ids_of_the_unsplit_batch() -> None:
    place = Place("replicated", 1)
    whole = split(place, wave=0)
    for wave, count in [(8, 4), (16, 2)]:
        waves = split(place, wave=wave)
        assert len(waves) == count
        for name in ("tokens", "starts", "groups", "members"):
            np.testing.assert_array_equal(join(waves, name), join(whole, name))


def test_forced_lengths_go_with_their_rows() -> None:
    place = Place("fsdp", 8)
    lengths = np.arange(1, 33, dtype=np.int32)
    rows = dataclasses.replace(ROWS, response_lengths=lengths)
    waves = split(place, wave=16, rows=rows)
    assert join(waves, "lengths").tolist() == lengths.tolist()
    assert all(wave.lengths.sharding == wave.groups.sharding for wave in waves)
    assert all(wave.lengths is None for wave in split(place, wave=16))


def test_a_group_wider_than_a_shard_prefills_its_prompt_once_per_shard() -> None:
    place = Place("replicated", 8)
    whole = split(Place("replicated", 1), wave=0)
    # A wave of 16 is two groups on eight shards of two rows: four prefilled rows per prompt.
    waves = split(place, wave=16)
    assert jax.device_get(waves[0].tokens).tolist() == [[0, 1, 5]] * 4 + [[1, 6, 7]] * 4
    assert jax.device_get(waves[1].starts).tolist() == [2] * 4 + [1] * 4
    for name in ("groups", "members"):
        np.testing.assert_array_equal(join(waves, name), join(whole, name))


@pytest.mark.parametrize("layout", ["replicated", "fsdp"])
def test_rows_and_their_prompts_lie_on_the_same_shard(layout: str) -> None:
    for wave in split(Place(layout, 8), wave=16):
        for rows in (wave.tokens, wave.groups):
            assert rows.sharding.shard_shape(rows.shape)[0] == rows.shape[0] // 8
