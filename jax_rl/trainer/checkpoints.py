"""Complete states on disk: weights, optimizer, and where the run stands.

Keys and prompts need no state of their own: they are functions of the seed and the position.
A checkpoint is visible only once it is complete, so a kill while saving leaves the one before.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from jax_rl.config import CheckpointConfig
from jax_rl.errors import UserError
from jax_rl.learner.update import TrainState
from jax_rl.model.weights import Weights
from jax_rl.trainer.position import Position

FOLDER = "checkpoints"


@dataclasses.dataclass(frozen=True)
class HostState:
    """What is saved beside the arrays."""

    position: Position
    phases: dict[str, float]  # seconds so far
    hidden: dict[str, float]


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, directory: Path, config: CheckpointConfig):
        """Opens the folder; it is made with the first save."""
        import orbax.checkpoint as ocp  # takes seconds to import: only runs that save pay

        self._ocp = ocp
        self._manager = ocp.CheckpointManager(
            (directory / FOLDER).resolve(),
            options=ocp.CheckpointManagerOptions(
                max_to_keep=config.keep, enable_async_checkpointing=False
            ),
        )

    def save(self, state: TrainState, host: HostState) -> str:
        """Saves a state under its sample count; returns its path inside the run's directory."""
        args = self._ocp.args
        step = host.position.samples
        self._manager.save(
            step,
            args=args.Composite(
                state=args.StandardSave(state), host=args.JsonSave(dataclasses.asdict(host))
            ),
            force=True,
        )
        self._manager.wait_until_finished()
        return f"{FOLDER}/{step}"

    def latest(self) -> int | None:
        """Sample count of the newest complete checkpoint."""
        step = self._manager.latest_step()
        return None if step is None else int(step)

    def restore(
        self, abstract: TrainState, *, vocab: int, step: int | None = None
    ) -> tuple[TrainState, HostState]:
        """The newest complete checkpoint, or that of a step, laid out as `abstract` says.

        Rows of the embedding past `vocab` are padding: zeros, as many as the layout needs, whatever
        was saved.

        Raises:
          UserError: there is none, or it is of another model.
        """
        step = self.latest() if step is None else step
        if step is None:
            raise UserError(
                f"{self._manager.directory}: no complete checkpoint is there, so there is nothing"
                " to go on from"
            )
        args = self._ocp.args
        placed = _place(abstract)
        try:
            padded = self._is_padded_otherwise(step, placed, vocab)
            restored: Any = self._manager.restore(
                step,
                args=args.Composite(
                    state=args.StandardRestore(placed, strict=not padded),
                    host=args.JsonRestore(),
                ),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{self._manager.directory}/{step}: the checkpoint does not fit this configuration:"
                f" {error}"
            ) from error
        host = restored["host"]
        return restored["state"], HostState(
            position=Position(**host["position"]),
            phases=host["phases"],
            hidden=host["hidden"],
        )

    def _is_padded_otherwise(self, step: int, placed: TrainState, vocab: int) -> bool:
        with self._ocp.StandardCheckpointer() as reader:
            stored = reader.metadata(self._manager.directory / str(step) / "state")
        return _differ_by_padding(stored.item_metadata.tree, placed, vocab)

    def close(self) -> None:
        """Releases what the manager holds."""
        self._manager.close()


def has_checkpoint(directory: Path) -> bool:
    """Whether a run's directory holds a complete checkpoint; one being saved has another name."""
    folder = directory / FOLDER
    return folder.is_dir() and any(path.name.isdigit() for path in folder.iterdir())


def _place(abstract: TrainState) -> TrainState:
    """Shardings on the devices of the mesh in context; abstract evaluation names none."""
    mesh = jax.sharding.get_mesh()

    def place(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        # A count that came from no array has no sharding: it lies on every device.
        spec = leaf.sharding.spec if leaf.sharding else PartitionSpec()
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    placed: TrainState = jax.tree.map(place, abstract)
    return placed


def _differ_by_padding(stored: Any, placed: TrainState, vocab: int) -> bool:
    """Whether arrays have other shapes on disk, if only by the padding of the vocabulary.

    Raises:
      ValueError: they differ by more.
    """
    shapes = {_name(path): leaf.shape for path, leaf in _list_leaves(stored)}
    differ = False
    for path, leaf in _list_leaves(placed):
        name, shape = _name(path), shapes.get(_name(path))
        if shape is None or tuple(shape) == leaf.shape:
            continue  # what is missing is refused by the restore itself
        table = name[-1] in ("embedding", "head") and tuple(shape[1:]) == leaf.shape[1:]
        if not table or min(shape[0], leaf.shape[0]) < vocab:
            raise ValueError(f"{'.'.join(name)} is {tuple(shape)} on disk and {leaf.shape} here")
        differ = True
    return differ


def _list_leaves(tree: Any) -> list[tuple[Any, Any]]:
    leaves: list[tuple[Any, Any]] = jax.tree_util.tree_leaves_with_path(tree)
    return leaves


def _name(path: Any) -> tuple[str, ...]:
    """A leaf's place, the same for dataclasses, tuples and dicts."""
    return tuple(
        str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path
    )


def restore_weights(directory: Path, abstract: TrainState, *, vocab: int) -> Weights:
    """The stored weights of a run's newest checkpoint; see `Checkpoints.restore`."""
    checkpoints = Checkpoints(directory, CheckpointConfig())
    try:
        state, _ = checkpoints.restore(abstract, vocab=vocab)
    finally:
        checkpoints.close()
    return state.weights
