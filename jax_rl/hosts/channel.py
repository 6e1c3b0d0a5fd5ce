"""What the processes of one program tell each other besides what their devices exchange."""

import contextlib
import secrets
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax

from jax_rl.errors import UserError
from jax_rl.hosts.address import Address, exchange_address, find_own_names
from jax_rl.hosts.connect import find_coordinator
from jax_rl.hosts.ending import say, skip_shutdown
from jax_rl.hosts.hub import Hub
from jax_rl.hosts.link import Link, Loop
from jax_rl.hosts.wire import decode, encode

_MESSAGE_LIMIT = 4000  # characters of an error that is sent to the others


class Channel(Protocol):
    """All processes of one program; every call is made by all, in the same order, on one thread."""

    index: int
    """This process."""
    count: int
    """All processes."""

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in their order, on every process.

        Args:
          value: JSON-like, with NumPy arrays of numbers anywhere in it; tuples come out as lists.
        """

    def share(self, value: Any) -> Any:
        """Process 0's value on every process; what the others give is not looked at."""

    def report(self, doing: str) -> None:
        """Says what this process is at now, for the message that calls it late. Costs nothing."""


@contextlib.contextmanager
def open_channel(
    *,
    late_after: float = 60.0,
    tell: Callable[[str], None] = say,
    silence_after: float = 30.0,
) -> Iterator[Channel]:
    """Opens the channel between all processes of this program, and watches over them.

    Open it right after `connect`. An error that leaves the block on one process ends all with its
    message; so does a process that is killed or whose host vanishes. All leave the block together.

    Args:
      late_after: seconds for which others wait in gather or share before process 0 says which
        process is late and what it is at; again each minute.
      tell: takes that line on process 0; writes to standard error by default.
      silence_after: seconds without a heartbeat after which a process counts as ended.

    Raises:
      UserError: the processes cannot reach each other.
    """
    if jax.process_count() == 1:
        yield _Alone()
        return
    loop = Loop()
    link = _join(loop, late_after=late_after, tell=tell, silence_after=silence_after)
    try:
        yield _Star(link)
        link.leave()
    except BaseException as error:
        message, code = _describe(error)
        if code:
            link.fail(message, code)
        else:
            link.leave()
        raise
    finally:
        # After a failure of this process alone the connection stays: it tells when this one ends.
        if link.closed:
            link.close()


class _Alone:
    """The channel of a program that is one process; it takes the same values."""

    index, count = 0, 1

    def gather(self, value: Any) -> list[Any]:
        return [decode(encode(value))]

    def share(self, value: Any) -> Any:
        return decode(encode(value))

    def report(self, doing: str) -> None:
        pass


class _Star:
    def __init__(self, link: Link):
        self.index, self.count = jax.process_index(), jax.process_count()
        self._link = link
        self.report = link.report

    def gather(self, value: Any) -> list[Any]:
        return [decode(body) for body in self._link.meet("gather", encode(value))]

    def share(self, value: Any) -> Any:
        (body,) = self._link.meet("share", encode(value) if self.index == 0 else b"")
        return decode(body)


def _join(
    loop: Loop, *, late_after: float, tell: Callable[[str], None], silence_after: float
) -> Link:
    hub, address = None, None
    if jax.process_index() == 0:
        key = secrets.token_bytes(32)
        hub = Hub(
            jax.process_count(),
            key=key,
            late_after=late_after,
            silence_after=silence_after,
            tell=tell,
        )
        address = Address(find_own_names(), loop.run(hub.listen()), key)
    address = exchange_address(address)
    link = Link(loop, jax.process_index(), silence_after=silence_after, hub=hub)
    restore = skip_shutdown(2)
    link.join(address, find_coordinator())
    restore()
    return link


def _describe(error: BaseException) -> tuple[str, int]:
    """Message and exit code of an error."""
    match error:
        case UserError():
            return str(error), 2
        case KeyboardInterrupt():
            return "interrupted", 130
        case SystemExit():
            code = error.code
            return f"exit {code}", code if isinstance(code, int) else int(code is not None)
    text = "".join(traceback.format_exception_only(error)).strip()
    return text[:_MESSAGE_LIMIT], 1
