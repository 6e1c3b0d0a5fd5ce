"""The KV cache: one array per layer, one write cursor for all rows.

Column c of row b holds the token that was written when the cursor stood at c. Prompts are
right-aligned, so every row's next token goes to the same column; a row is valid from
`starts[b]` to the cursor, and its token at column c has position c - starts[b].
"""

import jax
import jax.numpy as jnp
from flax import struct

from jax_rl.config import ModelConfig
from jax_rl.mesh.layout import Layout

CACHE_AXES = ("batch", "kv_heads", None, "head_dim")


@struct.dataclass
class KVCache:
    """Keys and values of every layer."""

    keys: tuple[jax.Array, ...]  # layers x [b, k, s, h]
    values: tuple[jax.Array, ...]  # layers x [b, k, s, h]
    starts: jax.Array  # [b] int32, first valid column of each row
    cursor: jax.Array  # [] int32, column that the next token is written to

    @property
    def columns(self) -> int:
        """Columns that the cache has room for."""
        return int(self.keys[0].shape[2])


def make_cache(
    rows: int, columns: int, *, starts: jax.Array, config: ModelConfig, layout: Layout
) -> KVCache:
    """An empty cache for so many rows and columns, in the compute dtype."""
    shape = (rows, config.kv_heads, columns, config.head_dim)
    dtype = jnp.dtype(config.compute_dtype)
    spec = layout.cache_spec(CACHE_AXES)

    def empty() -> tuple[jax.Array, ...]:
        return tuple(jnp.zeros(shape, dtype, out_sharding=spec) for _ in range(config.layers))

    return KVCache(keys=empty(), values=empty(), starts=starts, cursor=jnp.int32(0))


def copy_rows(array: jax.Array, copies: int, spec: jax.sharding.PartitionSpec) -> jax.Array:
    """Each row `copies` times in a row, without leaving its device: [r, ...] -> [r*copies, ...]."""
    rows, *rest = array.shape
    repeated = jnp.broadcast_to(jnp.expand_dims(array, 1), (rows, copies, *rest))
    return jnp.reshape(repeated, (rows * copies, *rest), out_sharding=spec)


def share_prompts(
    cache: KVCache, copies: int, *, columns: int, config: ModelConfig, layout: Layout
) -> KVCache:
    """A prefilled cache of r prompts as the cache of r x copies rows with room for `columns`."""
    spec = layout.cache_spec(CACHE_AXES)
    rows, _, written, _ = cache.keys[0].shape
    starts = copy_rows(cache.starts, copies, layout.compute_spec(("batch",)))
    wide = make_cache(rows * copies, columns, starts=starts, config=config, layout=layout)

    def widen(empty: jax.Array, prompt: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(empty, copy_rows(prompt, copies, spec), (0, 0, 0, 0))

    return KVCache(
        keys=tuple(map(widen, wide.keys, cache.keys)),
        values=tuple(map(widen, wide.values, cache.values)),
        starts=starts,
        cursor=jnp.int32(written),
    )
