"""A process's connection to the hub, on a thread of its own that nothing on a device holds up."""

import asyncio
import concurrent.futures
import itertools
import secrets
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from jax_rl.errors import UserError
from jax_rl.hosts.address import Address
from jax_rl.hosts.ending import end_process, exit_now, say, skip_shutdown
from jax_rl.hosts.hub import (
    BUFFER,
    HANDSHAKE_SECONDS,
    LINGER_SECONDS,
    PAUSED_SECONDS,
    TICK_SECONDS,
    Hub,
    prove,
)
from jax_rl.hosts.wire import Outbox, make_frame, read_frame

_T = TypeVar("_T")
_BEAT_SECONDS = 2.0


class Loop:
    """An event loop on a thread; an error that nobody handles there ends the process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_give_up)
        self._thread = threading.Thread(target=self._loop.run_forever, name="hosts", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine there and waits for what it returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls a function there and does not wait."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """Ends the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.set_exception_handler(lambda loop, context: None)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))  # sockets close in callbacks
        self._loop.close()


class Link:
    """What one process says to the hub and hears from it."""

    def __init__(self, loop: Loop, index: int, *, silence_after: float, hub: Hub | None = None):
        """A link that is not yet connected.

        Args:
          loop: where it lives.
          index: this process.
          silence_after: seconds without a sign of the hub after which process 0 has ended.
          hub: the hub, on process 0.
        """
        self._loop, self._index, self._hub = loop, index, hub
        self._silence_after = silence_after
        self._hub_host = ""
        self._doing = ""
        self._heard = 0.0
        self._joined: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._values: concurrent.futures.Future[list[bytes]] = concurrent.futures.Future()
        self._verdict: concurrent.futures.Future[bool] = concurrent.futures.Future()
        self._failed = False
        self.closed = False
        """All have left together; nobody is missed any more."""
        self._end: tuple[str, int] | None = None

    def join(self, address: Address, names: tuple[str, ...]) -> None:
        """Connects, and waits until all others have.

        Args:
          address: that of the hub.
          names: names of process 0 to try before those of the address.

        Raises:
          UserError: process 0 cannot be reached.
        """
        self._loop.run(self._connect(address, tuple(dict.fromkeys(names + address.names))))
        self._joined.result()

    def report(self, doing: str) -> None:
        """Says what this process is at, with the next heartbeat."""
        self._doing = doing

    def meet(self, place: str, body: bytes = b"") -> list[bytes]:
        """Waits until all processes have come to the same place.

        Args:
          place: gather, share or the end.
          body: what this process brings.

        Returns:
          what all have brought (gather), or process 0 (else).
        """
        values = self._values = concurrent.futures.Future()
        self._loop.call(self._send, body, {"kind": "put", "place": place})
        return values.result()

    def leave(self) -> None:
        """Says goodbye, once all others do too."""
        self.meet("the end")

    def fail(self, message: str, code: int) -> None:
        """Tells all that this process ends with an error, and waits until they have heard it.

        If all processes fail at about the same time, all go on from here. Otherwise the others
        have ended, and this process will exit with the code, without JAX's shutdown.
        """
        restore = skip_shutdown(code)
        self._loop.call(self._send_failure, message, code)
        if self._verdict.result():
            restore()
        else:
            self._loop.call(self._limit_exit, code)

    def close(self) -> None:
        """Closes the connection after all have left."""
        self._loop.run(self._close())
        self._loop.close()

    async def _close(self) -> None:
        if self._hub is not None:
            await self._hub.close()
        await self._outbox.close(TICK_SECONDS)

    async def _connect(self, address: Address, names: tuple[str, ...]) -> None:
        failures = []
        for name in names:
            try:
                work = self._introduce(name, address)
                reader, writer = await asyncio.wait_for(work, HANDSHAKE_SECONDS)
                break
            except (OSError, EOFError, ValueError, KeyError, TimeoutError) as error:
                failures.append(f"{name} ({error or type(error).__name__})")
        else:
            raise UserError(
                f"process {self._index} ({socket.gethostname()}) cannot reach process 0 on port"
                f" {address.port} of {', '.join(failures)}; TCP connections between all hosts must"
                " be allowed, on any port"
            )
        self._note()
        self._outbox = Outbox(writer)
        self._tasks = [
            asyncio.ensure_future(work) for work in (self._listen(reader), self._watch())
        ]
        for task in self._tasks:
            task.add_done_callback(lambda done: done.cancelled() or done.result())

    async def _introduce(
        self, name: str, address: Address
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Both sides show that they know the key."""
        reader, writer = await asyncio.open_connection(name, address.port, limit=BUFFER)
        try:
            theirs, _ = await read_frame(reader, body_limit=0)
            proof = prove(address.key, f"{self._index} {theirs['challenge']}")
            mine, host = secrets.token_hex(16), socket.gethostname()
            writer.write(make_frame(index=self._index, host=host, challenge=mine, proof=proof))
            answer, _ = await read_frame(reader, body_limit=0)
            if answer["proof"] != prove(address.key, f"hub {mine}"):
                raise ValueError("somebody else answers there")
        except BaseException:
            writer.close()
            raise
        return reader, writer

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while not self.closed:
                self._take(*await read_frame(reader, note=self._note))
        except (OSError, EOFError):
            if not self.closed:
                self._lose_hub("")

    def _note(self) -> None:
        self._heard = _now()

    def _take(self, head: dict[str, Any], body: bytes) -> None:
        self._note()
        kind = head["kind"]
        if kind == "joined":
            self._hub_host = head["host"]
            self._joined.set_result(None)
        elif kind == "values":
            ends = itertools.accumulate(head["sizes"])
            parts = [body[end - size : end] for size, end in zip(head["sizes"], ends, strict=True)]
            self.closed = head["last"]
            self._values.set_result(parts)
        elif kind == "end":
            self._take_end(head["message"], head["code"], head["grace"])
        elif kind == "verdict":
            self.closed = head["together"]
            if not self._verdict.done():
                self._verdict.set_result(head["together"])

    def _take_end(self, message: str, code: int, grace: float) -> None:
        self._end = (message, code)
        if grace:
            asyncio.get_running_loop().call_later(grace, self._expire)
        else:
            self._finish()

    def _expire(self) -> None:
        if not self._failed and not self.closed:
            self._finish()

    def _finish(self) -> None:
        """Ends this process with the message of all."""
        assert self._end is not None
        if self._hub is None:
            end_process(*self._end)
        message, code = self._end
        say(f"error: {message}")
        self._last = asyncio.ensure_future(self._go_last(self._hub, code))

    async def _go_last(self, hub: Hub, code: int) -> None:
        await hub.finished.wait()
        exit_now(code)

    def _lose_hub(self, how: str) -> None:
        if self._end is None:
            self._end = (f"process 0 ({self._hub_host}) ended without a word{how}", 1)
            self._finish()
        elif not self._failed:
            self._finish()
        elif not self._verdict.done():
            self._verdict.set_result(False)

    async def _watch(self) -> None:
        sent, last = "", _now()
        beat = last
        while not self.closed:
            await asyncio.sleep(TICK_SECONDS)
            now = _now()
            if now - last > PAUSED_SECONDS:
                self._heard = now
            last = now
            if self._doing != sent or now - beat >= _BEAT_SECONDS:
                sent, beat = self._doing, now
                self._send(b"", {"kind": "beat"})
            if now - self._heard > self._silence_after and self._end is None:
                self._lose_hub(f" (nothing heard of it for {now - self._heard:.0f} s)")

    def _send(self, body: bytes, head: dict[str, Any]) -> None:
        self._outbox.send(make_frame(body, doing=self._doing, **head))

    def _send_failure(self, message: str, code: int) -> None:
        self._failed = True
        self._send(b"", {"kind": "fail", "message": message, "code": code})

    def _limit_exit(self, code: int) -> None:
        """Threads that wait for other processes must not keep this one alive."""
        asyncio.get_running_loop().call_later(LINGER_SECONDS, exit_now, code)


def _give_up(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if error is not None and not isinstance(error, OSError):
        end_process(f"the connection between the processes failed: {error!r}", 1)


def _now() -> float:
    return asyncio.get_running_loop().time()
