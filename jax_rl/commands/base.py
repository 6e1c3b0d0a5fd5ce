"""What all commands of `jax-rl` share.

Nothing in this room imports JAX before the command line is known to be right.
"""

import dataclasses
from pathlib import Path
from typing import Protocol


class Command(Protocol):
    """What each command line above is."""

    def run(self) -> None:
        """Makes the call from Python that the command stands for."""

    def explain_interrupt(self) -> str:
        """Says what an interrupt leaves behind and how to go on."""


@dataclasses.dataclass(frozen=True)
class Hosts:
    """The processes of one program; TPU pods, SLURM and Kubernetes are detected without flags."""

    coordinator: str = ""
    """HOST:PORT of process 0, where nothing is detected."""
    processes: int = 0
    """Processes in all."""
    process: int = -1
    """Number of this one, from 0 on."""

    def connect(self) -> None:
        """Joins the processes, before anything asks JAX for devices."""
        from jax_rl.hosts.connect import connect

        connect(coordinator=self.coordinator, processes=self.processes, process=self.process)


DETECTED = Hosts()
"""No flags: the environment says whether there are several processes."""


def split_names(text: str) -> tuple[str, ...]:
    """The names in a list with commas between them."""
    return tuple(name.strip() for name in text.split(","))


def choose_directory(directory: Path | None, source: str, *, ending: str = "") -> Path:
    """The directory that was named, or one under runs/ with the configuration's name."""
    return Path("runs") / f"{Path(source).stem}{ending}" if directory is None else directory
