"""One pipelined connection: many awaiters, one socket.

    await a ─┐                    one write a turn            ┌─> future a
    await b ─┼─ pack ─ outgoing ────────────────────> server ─┼─> future b     replies come in the order
    await c ─┘                                                └─> future c     of the commands

Whatever is asked for in one turn of the event loop leaves in one write, except that the first command to an idle
server leaves at once. The connection belongs to all awaiters: when one is cancelled, or its deadline passes, its
reply is read and dropped, and nobody else notices. A broken connection fails everybody who was waiting, and tells
each whether the command may have reached the server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

from kizuna.errors import OutcomeUnknown, Unreachable
from kizuna.store.replies import translate

Argument = str | bytes | int | float
Command = tuple[Argument, ...]
OnPush = Callable[[list[Any]], None]
OnLost = Callable[[str], None]

_NOTHING = object()
_NEVER = float("inf")
# A deadline is counted from the call, silence from the moment the command joined the line, a little later.
_SLACK_S = 0.05
_LOOK_FIRST = "look whether it happened before you repeat it"
_TRY_AGAIN = "it is being reconnected; try again"
# In RESP3 the server acknowledges a subscription with a push, in the place where a reply would stand.
_ACKNOWLEDGEMENTS = frozenset({b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe"})


# One command in the line: who waits, for how many bytes of room, until when.
_Waiting = tuple[asyncio.Future[Any], int, float]


class Wire(asyncio.Protocol):
    """Made connected by `dialing`; of no use after it was lost (`Link` makes the next one)."""

    def __init__(
        self,
        server: str,
        *,
        silence_s: float,
        in_flight_bytes: int,
        on_push: OnPush | None = None,
        on_lost: OnLost | None = None,
    ) -> None:
        self.server = server
        self.lost: str | None = None
        """Why the connection is gone; None while it works."""
        self.on_room: Callable[[], None] | None = None
        self._silence_s = silence_s
        self._in_flight_bytes = in_flight_bytes
        self._on_push = on_push
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._transport: asyncio.Transport
        self._closed = self._loop.create_future()
        self._line: deque[_Waiting] = deque()
        self._outgoing: list[bytes] = []
        self._flush_due = False
        self._in_flight = 0
        # Since when the server has owed us an answer without a byte coming from it.
        self._quiet_since = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None
        self._watch_at = _NEVER

    # -- commands -----------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether fewer bytes are in flight than we are willing to have; `on_room` is called when so again."""
        return self._in_flight < self._in_flight_bytes

    def send(self, command: Command, deadline: float, future: asyncio.Future[Any] | None = None) -> asyncio.Future[Any]:
        """Put one command in the line now; the future gets the reply, or an error of ours."""
        if self.lost is not None:
            raise Unreachable(self.lost, self.server, _TRY_AGAIN)
        packed = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub knows one-tuples only
        if future is None:
            future = self._loop.create_future()
        server_is_idle = not self._line
        self._line.append((future, len(packed), deadline))
        self._outgoing.append(packed)
        self._in_flight += len(packed)
        if server_is_idle:
            # It can begin while we are still packing what others ask for in this turn.
            self._quiet_since = self._loop.time()
            self.flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush_gathered)
        if deadline < self._watch_at:
            self._watch_from(deadline)
        return future

    def flush(self) -> None:
        """Write what has gathered; done once a turn without being asked."""
        if self._outgoing and self.lost is None:
            self._transport.write(b"".join(self._outgoing))
            self._outgoing.clear()

    def _flush_gathered(self) -> None:
        self._flush_due = False
        self.flush()

    # -- the connection ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._quiet_since = self._loop.time()
        reader, line = self._reader, self._line
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not _NOTHING:
                if type(reply) is hiredis.PushNotification and reply[0] not in _ACKNOWLEDGEMENTS:
                    if self._on_push is not None:
                        self._on_push(reply)
                    continue
                if not line:
                    self.abort("the server sent a reply that nobody asked for")
                    return
                future, size, _ = line.popleft()
                self._in_flight -= size
                if future.done():
                    continue
                if type(reply) is hiredis.ReplyError:
                    future.set_exception(translate(str(reply), self.server))
                else:
                    future.set_result(reply)
        except hiredis.ProtocolError as error:
            self.abort(f"the server sent what is not RESP ({error})")
        if self.on_room is not None and self._in_flight < self._in_flight_bytes:
            self.on_room()

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(f"the connection was lost ({error})" if error else "the server closed the connection")
        self._closed.set_result(None)

    def abort(self, reason: str) -> None:
        """Give the connection up at once."""
        self._lose(reason)
        self._transport.abort()

    async def aclose(self) -> None:
        """Close the socket and wait until it is gone."""
        # Not a polite close: flushing, or a TLS farewell, would wait for a server that may not be there.
        self.abort("the connection was closed here")
        await asyncio.shield(self._closed)

    # -- inside -----------------------------------------------------------------------------------------

    def _watch_from(self, deadline: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch_at = deadline
        self._watch = self._loop.call_at(deadline, self._pass_deadlines)

    def _pass_deadlines(self) -> None:
        """One timer for all: fail who has waited too long, and sleep until the next deadline."""
        self._watch, self._watch_at = None, _NEVER
        now = self._loop.time()
        earliest = _NEVER
        for future, _, deadline in self._line:
            if future.done():
                continue
            if deadline <= now:
                future.set_exception(OutcomeUnknown("no reply in time", self.server, _LOOK_FIRST))
            elif deadline < earliest:
                earliest = deadline
        silent_s = now - self._quiet_since
        if self._line and silent_s + _SLACK_S >= self._silence_s:
            self.abort(f"the server has been silent for {silent_s:.1f}s")
        elif earliest < _NEVER:
            self._watch_from(earliest)

    def _lose(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        if self._watch is not None:
            self._watch.cancel()
        unsent = len(self._outgoing)
        sent = len(self._line) - unsent
        for place, (future, _, _) in enumerate(self._line):
            if future.done():
                continue
            if place < sent:
                future.set_exception(OutcomeUnknown(reason, self.server, _LOOK_FIRST))
            else:
                future.set_exception(Unreachable(reason, self.server, _TRY_AGAIN))
        self._line.clear()
        self._outgoing.clear()
        self._in_flight = 0
        if self._on_lost is not None:
            self._on_lost(reason)
