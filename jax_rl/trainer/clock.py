"""The accounting of a run: every second belongs to exactly one phase.

The clock is always in one phase. Entering another charges the time since the last change to
the one before, so that phases add up to the elapsed time by construction. Work of the host that
was hidden behind the device is measured beside it, in a column of its own.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator

from jax_rl.records import PHASES, UNCOUNTED_PHASES


@dataclasses.dataclass(frozen=True)
class Cut:
    """The clock at one moment, in seconds, and what came since the cut before."""

    elapsed: float
    training: float
    phases: dict[str, float]
    hidden: dict[str, float]


class PhaseClock:
    """Charges time to phases; starts in `other`."""

    def __init__(
        self,
        *,
        phases: dict[str, float] | None = None,
        hidden: dict[str, float] | None = None,
        now: Callable[[], float] = time.perf_counter,
    ):
        """Starts the clock, going on from earlier totals when a run is resumed (seconds)."""
        self._now = now
        self._phase = "other"
        self._totals = dict.fromkeys(PHASES, 0.0) | (phases or {})
        self._hidden: dict[str, float] = dict(hidden or {})
        self._last_cut = dict(self._totals)
        self._last_hidden_cut = dict(self._hidden)
        self._since = now()

    def enter(self, phase: str) -> None:
        """Ends the current phase and begins this one; one of `records.PHASES`."""
        self._charge()
        if phase not in self._totals:
            raise ValueError(f"{phase!r} is no phase; known: {', '.join(PHASES)}")
        self._phase = phase

    def charge(self, phase: str, seconds: float) -> None:
        """Adds time that was measured before the clock was started."""
        self._totals[phase] += seconds

    def stop(self) -> None:
        """Charges the time up to now; what comes after it until `enter` belongs to no phase."""
        self._charge()
        self._phase = ""

    @contextlib.contextmanager
    def hide(self, work: str, *, busy: Callable[[], bool]) -> Iterator[None]:
        """Measures host work; it counts as hidden when the device is still busy at its end."""
        start = self._now()
        yield
        if busy():
            self._hidden[work] = self._hidden.get(work, 0.0) + self._now() - start

    @property
    def totals(self) -> dict[str, float]:
        """Seconds of each phase so far."""
        self._charge()
        return dict(self._totals)

    @property
    def hidden(self) -> dict[str, float]:
        """Seconds of each kind of hidden work so far."""
        return dict(self._hidden)

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the run."""
        return sum(self.totals.values())

    @property
    def training(self) -> float:
        """Elapsed seconds without compile, validate and checkpoint."""
        return _sum_training(self.totals)

    def cut(self) -> Cut:
        """Both clocks now, and the seconds of each phase and of hidden work since the last cut."""
        totals, hidden = self.totals, self.hidden
        phases = {name: totals[name] - self._last_cut[name] for name in totals}
        behind = {name: hidden[name] - self._last_hidden_cut.get(name, 0.0) for name in hidden}
        self._last_cut, self._last_hidden_cut = totals, hidden
        return Cut(sum(totals.values()), _sum_training(totals), phases, behind)

    def _charge(self) -> None:
        now = self._now()
        if self._phase:
            self._totals[self._phase] += now - self._since
        self._since = now


def _sum_training(totals: dict[str, float]) -> float:
    return sum(totals[phase] for phase in PHASES if phase not in UNCOUNTED_PHASES)
