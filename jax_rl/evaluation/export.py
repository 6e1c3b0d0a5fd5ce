"""A trained policy as a checkpoint directory that other programs load."""

import dataclasses
from pathlib import Path
from typing import Literal

import jax

from jax_rl.errors import UserError
from jax_rl.evaluation.source import find_policy
from jax_rl.model.huggingface.export import export_checkpoint
from jax_rl.trainer.checkpoints import restore_weights
from jax_rl.trainer.programs import abstract_state
from jax_rl.trainer.setup import prepare_policy


def export(
    run: Path,
    directory: Path,
    *,
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16",
    layout: str | None = None,
) -> list[Path]:
    """Writes the newest checkpoint of a run in Hugging Face's format; returns the files.

    Configuration and tokenizer come from the checkpoint directory that the run started from.

    Args:
      run: directory of a run.
      directory: to write to; must not hold anything yet.
      dtype: of the weights in the files.
      layout: how the weights lie on the devices that are here; the run's own if left out.

    Raises:
      UserError: no run is there, it started from no such directory, or `directory` is taken.
    """
    found = find_policy(run)
    origin = found.config.model.checkpoint
    if found.run is None or not origin:
        raise UserError(
            f"{run}: only a run that started from a checkpoint directory (model.checkpoint) can be"
            " exported: its config.json and tokenizer go with the weights"
        )
    # The devices here need not be those of the run, and neither task nor data is asked for.
    run_config = dataclasses.replace(
        found.config.run, devices=0, layout=layout or found.config.run.layout
    )
    setup = prepare_policy(dataclasses.replace(found.config, run=run_config))
    with jax.set_mesh(setup.mesh):
        weights = restore_weights(found.run, abstract_state(setup), vocab=setup.config.model.vocab)
        files = export_checkpoint(
            weights, directory, config=setup.config.model, source=Path(origin), dtype=dtype
        )
    print(f"exported {len(files)} files to {directory}")
    return files
