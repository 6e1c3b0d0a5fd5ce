"""The middle of the star, on process 0: who is there, who waits for whom, who has ended."""

import asyncio
import dataclasses
import hashlib
import hmac
import secrets
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from jax_rl.hosts.wire import Outbox, make_frame, read_frame

BUFFER = 1 << 24
"""Bytes that a connection may hold before they are read."""
TICK_SECONDS = 0.5
PAUSED_SECONDS = 5.0
"""A tick that comes so late means that this process itself stood still, and not the others."""
HANDSHAKE_SECONDS = 10.0
_JOIN_SECONDS = 60.0
_SETTLE_SECONDS = 0.3  # an error may be the echo of a death that is seen a moment later
_GRACE_SECONDS = 1.5  # for processes that are about to raise the same error themselves
_KILL_SECONDS = 3.0  # until those that were told to end have ended
LINGER_SECONDS = 10.0
"""How long a process that failed may take from then on to end."""
_AGAIN_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
_NAMED_AT_MOST = 3


@dataclasses.dataclass(eq=False)
class _Member:
    index: int
    host: str
    outbox: Outbox
    heard: float
    doing: str = ""
    failed: bool = False
    gone: bool = False

    def note(self) -> None:
        self.heard = _now()

    def __str__(self) -> str:
        return f"process {self.index} ({self.host})"

    def send(self, frame: bytes) -> None:
        if not self.gone:
            self.outbox.send(frame)


class Hub:
    """Passes values between the processes, and says who is late and who has ended.

    Lives in one event loop; nothing but `finished` is for other threads.
    """

    def __init__(
        self,
        count: int,
        *,
        key: bytes,
        late_after: float,
        silence_after: float,
        tell: Callable[[str], None],
    ):
        """A hub that is not yet listening.

        Args:
          count: all processes.
          key: secret that members prove to know.
          late_after: seconds in which others wait before a process is called late.
          silence_after: seconds without a heartbeat after which a process has ended.
          tell: takes a line about late processes.
        """
        self._count, self._key = count, key
        self._late_after, self._silence_after, self._tell = late_after, silence_after, tell
        self._members: dict[int, _Member] = {}
        self._place = ""  # where those that wait are: gather, share or the end
        self._waiting: dict[int, bytes] = {}
        self._since = 0.0  # when the first of them came
        self._next_notice = 0.0
        self._closed = False
        self._ending = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.finished = asyncio.Event()
        """After an error: all others have ended, or had the time to."""

    async def listen(self) -> int:
        """Starts to take connections.

        Returns:
          the port.
        """
        dual = socket.has_dualstack_ipv6()
        listener = socket.create_server(
            ("", 0),
            family=socket.AF_INET6 if dual else socket.AF_INET,
            dualstack_ipv6=dual,
            backlog=max(128, self._count),
        )
        self._server = await asyncio.start_server(
            lambda reader, writer: self._spawn(self._serve(reader, writer)),
            sock=listener,
            limit=BUFFER,
        )
        self._spawn(self._watch())
        return int(listener.getsockname()[1])

    async def close(self) -> None:
        """Closes all connections, after what was sent."""
        self._server.close()
        closing = [m.outbox.close(_CLOSE_SECONDS) for m in self._members.values()]
        await asyncio.gather(*closing)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.result())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            member = await asyncio.wait_for(self._admit(reader, writer), HANDSHAKE_SECONDS)
        except Exception:  # whatever a port scanner, or somebody without the key, may send
            writer.close()
            return
        try:
            while True:
                head, body = await read_frame(reader, note=member.note)
                self._take(member, head, body)
        except (OSError, EOFError):
            self._lose(member)
            writer.close()

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Member:
        challenge = secrets.token_hex(16)
        writer.write(make_frame(challenge=challenge))
        head, _ = await read_frame(reader, body_limit=0)
        index = int(head["index"])
        if not hmac.compare_digest(prove(self._key, f"{index} {challenge}"), str(head["proof"])):
            raise ValueError("a wrong key")
        if index in self._members or not 0 <= index < self._count:
            raise ValueError("a process that is there already")
        writer.write(make_frame(proof=prove(self._key, f"hub {head['challenge']}")))
        member = _Member(index, str(head["host"]), Outbox(writer), heard=_now())
        self._members[index] = member
        if len(self._members) == self._count:
            self._send_all(make_frame(kind="joined", host=self._members[0].host))
        return member

    def _take(self, member: _Member, head: dict, body: bytes) -> None:
        member.note()
        member.doing = head["doing"]
        if head["kind"] == "put":
            self._put(member, head["place"], body)
        elif head["kind"] == "fail":
            self._fail(member, head["message"], head["code"])

    def _put(self, member: _Member, place: str, body: bytes) -> None:
        if not self._waiting:
            self._place, self._since = place, _now()
            self._next_notice = self._since + self._late_after
        elif place != self._place:
            first = self._members[next(iter(self._waiting))]
            self._end(
                f"the processes are out of step: {first} waits at {self._place}, and {member} has"
                f" come to {place}"
            )
            return
        self._waiting[member.index] = body
        if len(self._waiting) < self._count:
            return
        bodies = [self._waiting[i] for i in range(self._count if place == "gather" else 1)]
        self._waiting = {}
        self._closed = place == "the end"
        sizes = [len(one) for one in bodies]
        frame = make_frame(b"".join(bodies), kind="values", sizes=sizes, last=self._closed)
        self._send_all(frame)

    def _fail(self, member: _Member, message: str, code: int) -> None:
        first = not any(other.failed for other in self._members.values())
        member.failed = True
        if first:
            text = f"{member}: {message}"
            loop = asyncio.get_running_loop()
            loop.call_later(_SETTLE_SECONDS, self._end, text, code, _GRACE_SECONDS)

    def _lose(self, member: _Member, how: str = "") -> None:
        if not member.failed and not self._closed:
            self._end(f"{member} ended without a word{how}")
        member.gone = True

    def _end(self, message: str, code: int = 1, grace: float = 0.0) -> None:
        if self._ending:
            return
        self._ending = True
        self._send_all(make_frame(kind="end", message=message, code=code, grace=grace))
        self._spawn(self._see_off(grace))

    async def _see_off(self, grace: float) -> None:
        """Process 0 goes last: when it ends, JAX aborts all others at once."""
        everyone = list(self._members.values())
        others = [member for member in everyone if member.index != 0]
        await _wait(lambda: all(m.failed or m.gone for m in everyone), grace)
        if all(m.failed and not m.gone for m in everyone):
            self._closed = True
            self._send_all(make_frame(kind="verdict", together=True))
            return
        await _wait(lambda: all(m.failed or m.gone for m in others), _KILL_SECONDS)
        for member in others:
            member.send(make_frame(kind="verdict", together=False))
        await _wait(lambda: all(m.gone for m in others), LINGER_SECONDS)
        self.finished.set()
        self._send_all(make_frame(kind="verdict", together=False))

    async def _watch(self) -> None:
        """Heartbeats, both ways, and notices about who is late."""
        start = last = _now()
        while not self._closed:
            await asyncio.sleep(TICK_SECONDS)
            now = _now()
            for member in list(self._members.values()):
                member.send(make_frame(kind="beat"))
                if now - last > PAUSED_SECONDS:
                    member.heard = now
                if now - member.heard > self._silence_after and not member.gone:
                    self._lose(member, f" (nothing heard of it for {now - member.heard:.0f} s)")
            last = now
            if len(self._members) < self._count and now - start > _JOIN_SECONDS:
                self._end(self._name_absent())
            if self._waiting and now >= self._next_notice:
                self._next_notice = now + _AGAIN_SECONDS
                self._tell(self._name_late(now - self._since))

    def _name_late(self, seconds: float) -> str:
        late = [m for m in self._members.values() if m.index not in self._waiting]
        late.sort(key=lambda member: member.index)
        named = [f"{m} is late, at: {m.doing or 'the start'}" for m in late[:_NAMED_AT_MOST]]
        if len(late) > _NAMED_AT_MOST:
            named.append(f"and {len(late) - _NAMED_AT_MOST} more are late")
        return (
            f"{'; '.join(named)}; {len(self._waiting)} of {self._count} processes have waited"
            f" {seconds:.0f} s"
        )

    def _name_absent(self) -> str:
        absent = [str(i) for i in range(self._count) if i not in self._members]
        return (
            f"process {', '.join(absent)} of {self._count} did not connect to process 0 within"
            f" {_JOIN_SECONDS:.0f} s; TCP connections between all hosts must be allowed, on any"
            " port"
        )

    def _send_all(self, frame: bytes) -> None:
        for member in self._members.values():
            member.send(frame)


def prove(key: bytes, text: str) -> str:
    """Shows that one knows the key without sending it."""
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _wait(until: Callable[[], bool], seconds: float) -> None:
    limit = _now() + seconds
    while not until() and _now() < limit:
        await asyncio.sleep(0.02)
