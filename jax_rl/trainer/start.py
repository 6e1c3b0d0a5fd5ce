"""The weights that training starts from: of a checkpoint directory, or of the warm start."""

import time
from pathlib import Path

import jax

from jax_rl.hosts.channel import Channel
from jax_rl.model.huggingface.files import check_checkpoint
from jax_rl.model.huggingface.load import load_weights
from jax_rl.model.weights import Weights, count_parameters
from jax_rl.records import Import, WarmStart
from jax_rl.trainer.setup import RunSetup
from jax_rl.trainer.warm_start import make_warm_start


def check_starting_weights(setup: RunSetup) -> None:
    """Looks at the headers of the checkpoint, if there is one, before anything is written.

    Raises:
      UserError: its files do not hold the model.
    """
    model = setup.config.model
    if model.checkpoint:
        check_checkpoint(Path(model.checkpoint), model)


def make_starting_weights(
    setup: RunSetup, channel: Channel | None = None
) -> tuple[Weights, WarmStart | Import]:
    """Float32 weights on the mesh in context, and the event that says where they came from.

    Args:
      setup: of the run.
      channel: between the processes of the program, if there are several.
    """
    model = setup.config.model
    if not model.checkpoint:
        return make_warm_start(setup, channel)
    start = time.perf_counter()
    weights = load_weights(Path(model.checkpoint), config=model, layout=setup.layout)
    jax.block_until_ready(weights)
    return weights, Import(
        path=model.checkpoint,
        parameters=count_parameters(model),
        seconds=time.perf_counter() - start,
    )
