"""A streamed response has the tokens that one decode gives."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from programs import (
    EIGHT,
    GROUP,
    GROUPS,
    MODEL,
    ONE,
    PROMPT,
    RESPONSE,
    Place,
    generate,
    host_weights,
    prompt_of,
    put_weights,
    sampler_spec,
)

from jax_rl.sampler import stream
from jax_rl.sampler.generate import sync_weights

_SEED = 5


def stream_group(place: Place, group: int, **changes) -> list[list[int]]:
    """What is yielded for the prompt of a group."""
    tokens, start = prompt_of(group, MODEL.vocab)
    shards = int(np.prod([place.mesh.shape[axis] for axis in place.rules.batch_axes]))
    with place.entered() as layout:
        held = sync_weights(put_weights(host_weights(MODEL), MODEL, place), MODEL, layout)
        return list(
            stream.stream_tokens(
                held,
                tokens[start:].tolist(),
                key=jax.random.key(_SEED),
                group=group,
                temperature=1.0,
                spec=sampler_spec(place, MODEL, 1, **changes),
                sharding=lambda axes: NamedSharding(place.mesh, layout.compute_spec(axes)),
                rows=shards,
            )
        )


@pytest.fixture(scope="module")
def decoded() -> list[list[int]]:
    """The first response of every group, by `decode`."""
    rollouts, _ = generate(ONE, end_ids=(1, 4, 7, 12), seed=_SEED)
    rows = rollouts.tokens[::GROUP, PROMPT:]
    lengths = rollouts.lengths[::GROUP]
    assert len(set(lengths.tolist())) > 1  # some end early
    assert lengths.max() == RESPONSE
    return [row[:length].tolist() for row, length in zip(rows, lengths, strict=True)]


@pytest.mark.parametrize(
    "place",
    [ONE, *(pytest.param(place, marks=pytest.mark.slow) for place in EIGHT[:2]), EIGHT[3]],
    ids=str,
)
def test_a_stream_ends_in_the_tokens_of_decode(place: Place, decoded: list[list[int]]) -> None:
    groups = range(GROUPS) if place == ONE else range(3)
    for group in groups:
        assert stream_group(place, group, end_ids=(1, 4, 7, 12))[-1] == decoded[group]


@pytest.mark.parametrize("steps", [1, 2, 4, 100])
def test_each_look_has_so_many_tokens_more(
    steps: int, decoded: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_STEPS", steps)
    for group in range(GROUPS):
        whole = decoded[group]
        seen = stream_group(ONE, group, end_ids=(1, 4, 7, 12))
        looks = [*range(1, len(whole), steps), len(whole)]
        assert seen == [whole[:count] for count in looks]


def test_the_key_and_the_group_make_the_response() -> None:
    with ONE.entered() as layout:
        held = sync_weights(put_weights(host_weights(MODEL), MODEL, ONE), MODEL, layout)

        def say(seed: int, group: int, greedy: bool = False) -> list[int]:
            return list(
                stream.stream_tokens(
                    held,
                    [5, 6, 7],
                    key=jax.random.key(seed),
                    group=group,
                    temperature=1.0,
                    spec=sampler_spec(ONE, MODEL, 1, end_ids=(), greedy=greedy),
                    sharding=lambda axes: NamedSharding(ONE.mesh, layout.compute_spec(axes)),
                    rows=1,
                )
            )[-1]

        assert say(0, 0) == say(0, 0)
        assert len({tuple(say(seed, group)) for seed in (0, 1) for group in (0, 1)}) == 4
        assert say(0, 0, greedy=True) == say(1, 1, greedy=True)
