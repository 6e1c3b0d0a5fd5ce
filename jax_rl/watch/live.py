"""A live view of a study or a run in the terminal, from its records alone."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jax_rl.watch.frame import render_frame
from jax_rl.watch.state import Watcher

if TYPE_CHECKING:
    from rich.console import Console


def watch(
    directory: str | Path,
    *,
    once: bool = False,
    interval: float = 2.0,
    console: "Console | None" = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Shows how far the runs are until all are finished; writes nothing and stops nothing.

    Args:
      directory: of a study, or of one run.
      once: print one frame and return.
      interval: seconds between two looks at the records.
      console: where to print; standard output if left out.
      sleep: waits between two looks.

    Raises:
      UserError: neither a study nor a run is there.
    """
    from rich.console import Console
    from rich.live import Live

    console = console or Console(highlight=False)
    watcher = Watcher(Path(directory))
    snapshot = watcher.look()
    if once or snapshot.finished or not console.is_terminal:
        # In a pipe a frame that is drawn over the last one would be a heap of frames.
        console.print(render_frame(snapshot))
        return
    with Live(render_frame(snapshot), console=console, auto_refresh=False) as live:
        while not snapshot.finished:
            sleep(interval)
            snapshot = watcher.look()
            live.update(render_frame(snapshot), refresh=True)
