"""The KV cache: written in place, read by position, shared over a group."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from programs import EIGHT, MODEL, ONE, host_weights, put_weights

from jax_rl.model.cache import CACHE_AXES, copy_rows, make_cache, share_prompts
from jax_rl.model.forward import forward, unstack_layers


def columns_of(array):
    """[rows, columns, ...], wherever the cache keeps its columns."""
    return np.moveaxis(np.asarray(array), CACHE_AXES.index(None), 1)


@functools.partial(jax.jit, static_argnames=("layout", "cuts", "columns"))
def extend(weights, tokens, starts, layout, cuts, columns):
    """Hidden states of the tokens, written to one cache piece by piece."""
    held = unstack_layers(weights, config=MODEL, layout=layout)
    cache = make_cache(tokens.shape[0], columns, starts=starts, config=MODEL, layout=layout)
    parts, first = [], 0
    for size in cuts:
        part = tokens[:, first : first + size]
        hidden, cache = forward(held, part, starts, cache, config=MODEL, layout=layout)
        parts.append(hidden)
        first += size
    return jax.numpy.concatenate(parts, axis=1), cache


@pytest.mark.parametrize("place", [ONE, EIGHT[3]], ids=str)
def test_pieces_through_the_cache_equal_the_whole_without_one(place):
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 32, (8, 9)).astype(np.int32)
    starts = np.array([0, 1, 2, 3, 4, 5, 0, 3], np.int32)
    with place.entered() as layout:
        weights = put_weights(host_weights(MODEL), MODEL, place)
        rows = place.put_rows((tokens, starts))
        expected, none = jax.jit(lambda w, t, s: forward(w, t, s, config=MODEL, layout=layout))(
            weights, *rows
        )
        found, cache = extend(weights, *rows, layout, (6, 1, 2), 12)
    assert none is None
    assert int(cache.cursor) == 9
    assert cache.columns == 12
    valid = np.arange(9)[None] >= starts[:, None]
    np.testing.assert_allclose(
        np.asarray(found)[valid], np.asarray(expected)[valid], rtol=1e-4, atol=1e-5
    )
    for keys in cache.keys:
        assert not np.any(columns_of(keys)[:, 9:])


@pytest.mark.parametrize("place", [ONE, *EIGHT], ids=str)
def test_a_prompt_is_shared_by_neighbouring_rows_and_keeps_its_place(place):
    rng = np.random.default_rng(0)
    with place.entered() as layout:
        starts = place.put(np.arange(8, dtype=np.int32), "batch")
        small = make_cache(8, 3, starts=starts, config=MODEL, layout=layout)
        filled = jax.tree.map(
            lambda x: jax.device_put(rng.standard_normal(x.shape).astype(np.float32), x.sharding),
            (small.keys, small.values),
        )
        small = dataclasses.replace(small, keys=filled[0], values=filled[1])
        wide = jax.jit(
            lambda cache: share_prompts(cache, 4, columns=5, config=MODEL, layout=layout)
        )(small)
        assert jax.typeof(wide.keys[0]).sharding.spec == jax.typeof(small.keys[0]).sharding.spec
    assert int(wide.cursor) == 3
    assert np.asarray(wide.starts).tolist() == np.repeat(np.arange(8), 4).tolist()
    for before, after in zip(filled[0] + filled[1], wide.keys + wide.values, strict=True):
        expected = np.repeat(columns_of(before), 4, axis=0)
        np.testing.assert_array_equal(columns_of(after)[:, :3], expected)
        assert not np.any(columns_of(after)[:, 3:])


def test_rows_are_copied_without_leaving_their_device():
    place = EIGHT[1]
    with place.entered() as layout:
        rows = place.put(np.arange(16.0), "batch")
        compiled = (
            jax.jit(lambda x: copy_rows(x, 4, layout.compute_spec(("batch",))))
            .lower(rows)
            .compile()
        )
    text = compiled.as_text()
    assert not any(word in text for word in ("all-gather", "all-to-all", "collective-permute"))
    assert np.asarray(compiled(rows)).tolist() == np.repeat(np.arange(16.0), 4).tolist()


def test_the_cache_has_the_compute_type_and_one_array_per_layer():
    low = dataclasses.replace(MODEL, compute_dtype="bfloat16")
    with ONE.entered() as layout:
        cache = make_cache(2, 5, starts=np.zeros(2, np.int32), config=low, layout=layout)
    assert len(cache.keys) == len(cache.values) == 2
    assert {columns_of(array).shape for array in cache.keys + cache.values} == {(2, 5, 8, 4)}
    assert {str(array.dtype) for array in cache.keys + cache.values} == {"bfloat16"}
