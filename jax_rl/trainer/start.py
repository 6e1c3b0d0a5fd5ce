"""What training starts from: a checkpoint directory, the warm start, or where a run stood."""

import dataclasses
import time
from pathlib import Path

import jax

from jax_rl.hosts.channel import Channel
from jax_rl.learner.update import TrainState, init_state
from jax_rl.model.huggingface.files import check_checkpoint
from jax_rl.model.huggingface.load import load_weights
from jax_rl.model.weights import Weights, count_parameters
from jax_rl.records import Import, WarmStart
from jax_rl.trainer.checkpoints import Checkpoints, HostState
from jax_rl.trainer.fit import explain_out_of_memory, is_out_of_memory
from jax_rl.trainer.programs import abstract_state
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


@dataclasses.dataclass(frozen=True)
class Beginning:
    """What is on the devices when training begins."""

    state: TrainState
    reference: Weights | None  # of the KL term
    host: HostState | None  # where a resumed run stands
    event: WarmStart | Import | None  # where new weights came from


def make_beginning(
    setup: RunSetup, checkpoints: Checkpoints, *, resumes: bool, channel: Channel
) -> Beginning:
    """Makes the weights of a new run, or restores a run's newest checkpoint.

    Raises:
      UserError: there is none, or the devices' memory does not suffice.
    """
    config = setup.config
    keeps_reference = config.objective.kl_coefficient > 0
    reference, host, report = None, None, None
    try:
        if resumes:
            # What one process sees in the directory, all restore.
            step = channel.share(checkpoints.latest())
            abstract = abstract_state(setup)
            state, host = checkpoints.restore(abstract, vocab=config.model.vocab, step=step)
        if host is None or keeps_reference:
            weights, report = make_starting_weights(setup, channel)
            reference = jax.tree.map(lambda w: w.copy(), weights) if keeps_reference else None
        if host is None:
            state = init_state(weights, config.optimizer, config.model)
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise explain_out_of_memory(error, program="state", doing="making") from error
    return Beginning(state, reference, host, None if host else report)
