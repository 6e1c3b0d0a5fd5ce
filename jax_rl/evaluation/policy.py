"""The weights of a policy, ready to sample from."""

from pathlib import Path

import jax.numpy as jnp

from jax_rl.evaluation.source import Source
from jax_rl.model.huggingface.load import load_weights
from jax_rl.model.weights import Weights
from jax_rl.sampler.generate import sync_weights
from jax_rl.trainer.checkpoints import restore_weights
from jax_rl.trainer.programs import abstract_state
from jax_rl.trainer.setup import PolicySetup, RunSetup, prepare_policy, prepare_run
from jax_rl.trainer.warm_start import make_warm_start


def prepare_source(source: Source) -> PolicySetup:
    """What is needed to let the policy speak; only a warm start asks for the task as well."""
    if source.run is None and not source.config.model.checkpoint:
        return prepare_run(source.config)
    return prepare_policy(source.config)


def load_policy(source: Source, setup: PolicySetup) -> Weights:
    """The weights as the sampler holds them, on the mesh in context.

    Args:
      source: as `find_policy` gives it.
      setup: for it; of a run, or of a policy that needs none.

    Raises:
      UserError: no complete checkpoint is there.
    """
    model = setup.config.model
    if source.run is not None:
        stored = restore_weights(source.run, abstract_state(setup), vocab=model.vocab)
    elif model.checkpoint:
        # Nothing is learnt here, so no float32 masters are needed.
        dtype = jnp.dtype(model.compute_dtype)
        stored = load_weights(
            Path(model.checkpoint), config=model, layout=setup.layout, dtype=dtype
        )
    else:
        assert isinstance(setup, RunSetup)
        stored, _ = make_warm_start(setup)
    return sync_weights(stored, model, setup.layout.decoding)
