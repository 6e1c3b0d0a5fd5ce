"""The command that looks on while runs go."""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg


@dataclasses.dataclass(frozen=True)
class Watch:
    """Show in the terminal how far a study or a run is, while it goes on.

    The same as `jax_rl.watch.live.watch(directory)`. Reads the records alone; Ctrl-C ends the view
    and not the runs.
    """

    directory: Annotated[Positional[Path], arg(metavar="DIR")]
    """Directory of a study or of a run."""
    once: bool = False
    """Print one frame and end; so too where the output is no terminal."""
    interval: float = 2.0
    """Seconds between two looks at the records."""

    def run(self) -> None:
        import contextlib

        from jax_rl.errors import UserError
        from jax_rl.watch.live import watch

        if not self.interval > 0:
            raise UserError(f"--interval: {self.interval:g} seconds; give more than 0")
        with contextlib.suppress(KeyboardInterrupt):  # the way to leave, and no error
            watch(self.directory, once=self.once, interval=self.interval)

    def explain_interrupt(self) -> str:
        return "only the view; the runs go on"
