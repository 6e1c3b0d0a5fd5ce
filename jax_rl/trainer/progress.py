"""The line that a person watches while a run goes on."""

import sys
import time
from typing import TextIO

from jax_rl.records import UNCOUNTED_PHASES, Iteration, Validation

_REFRESH_SECONDS = 0.2
_SHOWN_PHASES = ("generate", "reward", "learn", "sync")


class ProgressLine:
    """Score, rates, phase shares and time left; a line in place on a terminal, else a few lines."""

    def __init__(
        self, label: str, *, sample_budget: int, enabled: bool, stream: TextIO | None = None
    ):
        """A line that begins with `label`; nothing is written when not enabled."""
        self._stream = stream or sys.stderr
        self._label, self._budget, self._enabled = label, sample_budget, enabled
        self._terminal = self._stream.isatty()
        self._score: float | None = None
        self._phases: dict[str, float] = {}
        self._training = 0.0  # of the whole run, what came before a resume included
        self._tokens = 0
        self._shown = 0.0
        self._width = 0

    def announce(self, text: str) -> None:
        """Says once what is about to run."""
        self._write(f"{self._label}  {text}", end="\n")

    def show_iteration(self, iteration: Iteration) -> None:
        """Takes an iteration in; the line is redrawn a few times a second."""
        self._tokens += iteration.tokens
        self._training = iteration.training_seconds
        for phase, seconds in iteration.phases.items():
            self._phases[phase] = self._phases.get(phase, 0.0) + seconds
        if self._terminal and time.monotonic() - self._shown >= _REFRESH_SECONDS:
            self._write(self._describe(iteration.samples), end="")

    def show_validation(self, validation: Validation) -> None:
        """Takes a score in and shows it."""
        self._score = validation.score
        text = self._describe(validation.samples)
        self._write(text, end="" if self._terminal else "\n")

    def finish(self, text: str) -> None:
        """Replaces the line by its last words."""
        self._write(f"{self._label}  {text}", end="\n")

    def _describe(self, samples: int) -> str:
        # Phases and tokens are of this process alone.
        training = sum(s for name, s in self._phases.items() if name not in UNCOUNTED_PHASES)
        parts = [self._label]
        if self._score is not None:
            parts.append(f"score {self._score:.3f}")
        parts.append(f"{samples:,} samples")
        if training > 0 and samples:
            rate = samples / self._training
            shares = " ".join(
                f"{name} {self._phases.get(name, 0.0) / training:.0%}" for name in _SHOWN_PHASES
            )
            left = (self._budget - samples) / rate
            parts.append(f"{rate:,.0f} samples/s  {self._tokens / training:,.0f} tokens/s")
            parts.append(shares)
            parts.append(f"budget ends in {_format_seconds(left)}")
        return "  ".join(parts)

    def _write(self, text: str, *, end: str) -> None:
        if not self._enabled:
            return
        self._shown = time.monotonic()
        lead = "\r" if self._terminal else ""
        fill = " " * max(self._width - len(text), 0) if self._terminal else ""
        self._width = 0 if end else len(text)
        self._stream.write(f"{lead}{text}{fill}{end}")
        self._stream.flush()


def _format_seconds(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
