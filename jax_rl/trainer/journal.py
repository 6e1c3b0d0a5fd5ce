"""What a run says of itself: the record, the line that a person watches, and what looks wrong."""

import math

from jax_rl.records import Event, Iteration, Validation, Writer
from jax_rl.trainer.progress import ProgressLine


class Journal:
    """Takes every event of a run, writes and shows it, and notices numbers that are not finite."""

    def __init__(self, writer: Writer, line: ProgressLine):
        """Goes to a record and to a line; a process that writes nothing has silent ones."""
        self.line = line
        self.validations: list[Validation] = []
        self.failure: str | None = None  # why training cannot go on
        self._writer = writer
        self._told = False

    def record(self, event: Event | None, *, first_failure: str | None = None) -> None:
        """Takes an event; None is nothing.

        Args:
          event: written and, if it is of interest, shown.
          first_failure: of a reward so far, in words.
        """
        if event is None:
            return
        self._writer.write(event)
        if isinstance(event, Iteration):
            self.line.show_iteration(event)
            if event.failed_rewards:
                self._tell(
                    f"iteration {event.iteration}: {event.failed_rewards} rewards failed and their"
                    " rollouts are masked",
                    first_failure,
                )
            self.failure = self.failure or _find_failure(event)
        elif isinstance(event, Validation):
            self.validations.append(event)
            self.line.show_validation(event)
            if event.failed_rewards:
                self._tell(
                    f"validation at {event.samples} samples: {event.failed_rewards} rewards failed"
                    " and count as 0",
                    first_failure,
                )

    def _tell(self, what: str, first_failure: str | None) -> None:
        """Once a run; the record has the numbers of every time."""
        if not self._told:
            self._told = True
            self.line.announce(f"{what}; the first: {first_failure}")


def _find_failure(event: Iteration) -> str | None:
    # The norm of the update is the first to show that the weights are lost.
    if all(map(math.isfinite, (event.loss, event.grad_norm, event.update_norm))):
        return None
    return (
        f"iteration {event.iteration}: loss {event.loss}, gradient norm {event.grad_norm}, update"
        f" norm {event.update_norm}; a lower optimizer.learning_rate is the first thing to try"
    )
