"""From hidden states to the distribution that is sampled; used by sampler and learner alike."""

import jax
import jax.numpy as jnp


def softcap(x: jax.Array, bound: float) -> jax.Array:
    """x, bent to stay within +-bound (arXiv:2408.00118); as it is for a bound of 0."""
    return jnp.tanh(x / bound) * bound if bound else x


def sampled_logits(
    hidden: jax.Array, head: jax.Array, temperature: jax.Array, *, bound: float, vocab: int
) -> jax.Array:
    """Float32 logits [..., v] of the distribution that training samples from.

    Args:
      hidden: [..., d].
      head: [v, d].
      temperature: [] float32, above 0; nothing is truncated.
      bound: of the logits before the temperature, ModelConfig.final_softcap; 0: none.
      vocab: rows of the head that can be drawn; those past it are padding.
    """
    logits = jnp.einsum("...d,vd->...v", hidden, head, preferred_element_type=jnp.float32)
    logits = softcap(logits, bound) / temperature
    if head.shape[0] == vocab:
        return logits
    # Not infinity: a share of 0 times it would be no number in the entropy.
    return jnp.where(_iota_last(logits) < vocab, logits, -1e30)


def pick_log_prob(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """Log-probability [...] of tokens [...] under logits [..., v], v sharded or not, in nats."""
    picked = jnp.sum(jnp.where(_iota_last(logits) == tokens[..., None], logits, 0.0), axis=-1)
    return picked - jax.nn.logsumexp(logits, axis=-1)


def _iota_last(array: jax.Array) -> jax.Array:
    """Indices [1, ..., v] of the last axis."""
    *outer, last = array.shape
    return jax.lax.broadcasted_iota(jnp.int32, (*(1 for _ in outer), last), len(outer))


def score_tokens(
    hidden: jax.Array,
    head: jax.Array,
    tokens: jax.Array,
    temperature: jax.Array,
    *,
    bound: float,
    vocab: int,
    chunk: int,
) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities and entropies without [b, t, v] logits in memory.

    Chunks of the length are scanned and recomputed in the backward pass.

    Args:
      hidden: [b, t, d], states that predict `tokens`.
      head: [v, d].
      tokens: [b, t] int32.
      temperature: [] float32.
      bound: of the logits, as for `sampled_logits`.
      vocab: rows of the head that can be drawn, as there.
      chunk: tokens per chunk, cut to a divisor of t.

    Returns:
      log_probs [b, t] and entropies [b, t], nats.
    """
    length = tokens.shape[1]
    chunk = next(size for size in range(min(chunk, length), 0, -1) if length % size == 0)

    @jax.checkpoint
    def score(head: jax.Array, part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        # [b, c, v]
        logits = sampled_logits(part[0], head, temperature, bound=bound, vocab=vocab)
        log_norm = jax.nn.logsumexp(logits, axis=-1)
        logs = jax.lax.stop_gradient(logits - log_norm[..., None])
        entropy = -jnp.sum(jnp.exp(logs) * logs, axis=-1)
        return pick_log_prob(logits, part[1]), entropy

    if chunk == length:
        return score(head, (hidden, tokens))

    def cut(x: jax.Array) -> jax.Array:
        parts = x.reshape(x.shape[0], length // chunk, chunk, *x.shape[2:])
        return jnp.moveaxis(parts, 1, 0)

    _, scores = jax.lax.scan(
        lambda carry, part: (carry, score(head, part)), None, (cut(hidden), cut(tokens))
    )
    log_probs, entropies = (jnp.moveaxis(x, 0, 1).reshape(tokens.shape) for x in scores)
    return log_probs, entropies
