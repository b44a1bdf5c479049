"""One pipelined connection: many awaiters, one socket.

    await a ─┐                    one write a turn            ┌─> future a
    await b ─┼─ pack ─ outgoing ────────────────────> server ─┼─> future b     replies come in the order
    await c ─┘                                                └─> future c     of the commands

Whatever is asked for in one turn of the event loop leaves in one write; where many ask, in two halves, so that the
server works on one while we read the answers to the other. The connection belongs to all awaiters: when one is
cancelled, or its deadline passes, its reply is read and dropped, and nobody else notices. A broken connection fails
everybody who was waiting, and tells each whether the command may have reached the server.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import hiredis

from kizuna.errors import OutcomeUnknown, StoreError, Unreachable
from kizuna.store.packing import pack
from kizuna.store.replies import translate
from kizuna.store.taking import Nobody, Together

Argument = str | bytes | int | float
Command = tuple[Argument, ...]
OnPush = Callable[[list[Any]], None]
OnLost = Callable[[str], None]
OnRefusal = Callable[["asyncio.Future[Any]", Command, float, StoreError], bool]
"""Takes what the server refused to run, with its deadline; True if it will see to the future itself."""

_NOTHING = object()
_Push, _ReplyError = hiredis.PushNotification, hiredis.ReplyError
# Fewer than this are not worth two writes.
_WORTH_HALVING = 32
_NEVER = float("inf")
# A deadline is counted from the call, silence from the moment the command joined the line, a little later. It is
# also how late a timer may be before we say that the loop was held up.
_SLACK_S = 0.05
_LOOK_FIRST = "look whether it happened before you repeat it"
_TRY_AGAIN = "it is being reconnected; try again"
# In RESP3 the server acknowledges a subscription with a push, in the place where a reply would stand; one for each
# channel, so a command must name just one.
_ACKNOWLEDGEMENTS = frozenset({b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe"})


# One entry in the line: who waits for its reply, how many bytes it took, until when. Several commands may be one entry.
_Waiting = tuple[asyncio.Future[Any] | Together, int, float, Command]
_NOBODY = cast("asyncio.Future[Any]", Nobody())


class Wire(asyncio.Protocol):
    """Made connected by `dialing`; of no use after it was lost (`Link` makes the next one)."""

    def __init__(
        self,
        server: str,
        *,
        silence_s: float,
        in_flight_bytes: int,
        on_push: OnPush | None = None,
        on_read: Callable[[], None] | None = None,
        on_lost: OnLost | None = None,
    ) -> None:
        """`on_read` is called when all that came at once has been handed out."""
        self.server = server
        self.lost: str | None = None
        """Why the connection is gone; None while it works."""
        self.failure: Exception | None = None
        """What the transport said about it, if it did."""
        self.in_flight = 0
        """Bytes that were sent, or are about to be, and are not answered yet."""
        self.heard_at = 0.0
        """When the last bytes came, on the loop's clock."""
        self.most_in_flight = in_flight_bytes
        """Where the owner stops sending more; `on_room` is called when there is less again."""
        self.on_room: Callable[[], None] | None = None
        self.on_refusal: OnRefusal | None = None
        self._silence_s = silence_s
        self._on_push, self._on_read = on_push, on_read
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._transport: asyncio.Transport
        self._closed = self._loop.create_future()
        self._line: deque[_Waiting] = deque()
        self._outgoing: list[bytes] = []
        self._flush_due = False
        # How many commands leave at once when the server is idle, without waiting for the end of the turn.
        self._enough = 1
        # Since when the server has owed us an answer without a byte coming from it.
        self._quiet_since = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None
        self._watch_at = _NEVER

    # -- commands -----------------------------------------------------------------------------------------

    def send(self, command: Command, deadline: float, future: asyncio.Future[Any] | None = None) -> asyncio.Future[Any]:
        """Put one command in the line now; the future gets the reply, or an error of ours."""
        if self.lost is not None:
            raise Unreachable(self.lost, self.server, _TRY_AGAIN)
        packed = pack(command)
        if future is None:
            future = self._loop.create_future()
        self._join_line(future, packed, deadline, command)
        return future

    def _join_line(
        self, future: asyncio.Future[Any] | Together, packed: bytes, deadline: float, command: Command
    ) -> None:
        line, outgoing, size = self._line, self._outgoing, len(packed)
        line.append((future, size, deadline, command))
        outgoing.append(packed)
        self.in_flight += size
        gathered, under_way = len(outgoing), len(line)
        if under_way == 1:
            self._quiet_since = self._loop.time()
        if gathered >= self._enough and gathered == under_way:
            # The server has nothing of ours: it can begin while we are still packing what others ask for.
            self.flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush_gathered)
        if deadline < self._watch_at:
            self._watch_from(deadline)

    def send_all(
        self, commands: Sequence[Command], deadline: float, together: Together, packed: bytes | None = None
    ) -> None:
        """Put some commands in the line now, as one entry; `together` gets all their replies. They may be `packed`
        already."""
        if self.lost is not None:
            raise Unreachable(self.lost, self.server, _TRY_AGAIN)
        if packed is None:
            packed = b"".join(map(pack, commands))
        self._join_line(together, packed, deadline, cast("Command", commands))
        # They have gathered already.
        self.flush()

    def flush(self) -> None:
        """Write what has gathered; done once a turn without being asked."""
        if self._outgoing and self.lost is None:
            self._enough = _enough_for_an_idle_server(len(self._line))
            self._transport.write(b"".join(self._outgoing))
            self._outgoing.clear()

    def _flush_gathered(self) -> None:
        self._flush_due = False
        self.flush()

    # -- the connection ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._quiet_since = self.heard_at = self._loop.time()
        line, gets = self._line, self._reader.gets
        self._reader.feed(data)
        try:
            while (reply := gets()) is not _NOTHING:
                kind = type(reply)
                if kind is _Push and reply[0] not in _ACKNOWLEDGEMENTS:
                    if self._on_push is not None:
                        self._on_push(reply)
                    continue
                if not line:
                    self.abort("the server sent a reply that nobody asked for")
                    return
                entry = line.popleft()
                future, size, deadline, command = entry
                if isinstance(future, Together):
                    self._take_parts(future, reply, entry)
                    continue
                self.in_flight -= size
                if future.done():
                    continue
                if kind is _ReplyError:
                    self._refuse(future, command, deadline, translate(str(reply), self.server))
                else:
                    future.set_result(reply)
        except hiredis.ProtocolError as error:
            self.abort(f"the server sent what is not RESP ({error})")
        if self.on_room is not None and self.in_flight < self.most_in_flight:
            self.on_room()
        if self._on_read is not None:
            self._on_read()

    def connection_lost(self, error: Exception | None) -> None:
        self.failure = error
        self._lose(f"the connection was lost ({error})" if error else "the server closed the connection")
        self._closed.set_result(None)

    def abort(self, reason: str) -> None:
        """Give the connection up at once."""
        self._lose(reason)
        self._transport.abort()

    def retire(self, then: Callable[[Wire], object]) -> None:
        """Let what was sent be answered, then close. The owner sends nothing more; `then` is called at the end."""
        self._on_lost = None
        self._closed.add_done_callback(lambda _: then(self))
        self.on_room = self._close_if_answered
        self._close_if_answered()

    async def aclose(self) -> None:
        """Close the socket and wait until it is gone. What was not answered yet fails."""
        # Not a polite close: flushing, or a TLS farewell, would wait for a server that may not be there.
        self.abort("the connection was closed here")
        await asyncio.shield(self._closed)

    # -- inside -----------------------------------------------------------------------------------------

    def _take_parts(self, together: Together, reply: Any, entry: _Waiting) -> None:
        """Replies to an entry of several commands, as many as are there. It stays in the line until it has all."""
        number, last, gets = together.came, len(entry[3]) - 1, self._reader.gets
        while type(reply) is not _ReplyError and number < last:
            # The usual case in a few steps: they are many.
            if type(reply) is _Push:
                break
            together.put(number, reply)
            number += 1
            reply = gets()
            if reply is _NOTHING:
                together.came = number
                self._line.appendleft(entry)
                return
        together.came = number
        self._take_part(together, reply, entry)

    def _take_part(self, together: Together, reply: Any, entry: _Waiting) -> None:
        _, size, deadline, commands = entry
        number = together.came
        if type(reply) is _Push and self._on_push is not None:
            self._line.appendleft(entry)
            self._on_push(reply)
            return
        together.came += 1
        if together.came < len(commands):
            self._line.appendleft(entry)
        else:
            self.in_flight -= size
        if together.done():
            return
        if type(reply) is _ReplyError:
            place = cast("asyncio.Future[Any]", together.place(number))
            self._refuse(place, cast("Command", commands[number]), deadline, translate(str(reply), self.server))
        else:
            together.take(number, reply)

    def _refuse(self, future: asyncio.Future[Any], command: Command, deadline: float, error: StoreError) -> None:
        if self.on_refusal is None or not self.on_refusal(future, command, deadline, error):
            fail(future, error)

    def _watch_from(self, deadline: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch_at = deadline
        self._watch = self._loop.call_at(deadline, self._pass_deadlines)

    def _pass_deadlines(self) -> None:
        """One timer for all: fail who has waited too long, and sleep until the next deadline."""
        now = self._loop.time()
        if now <= self._watch_at + _SLACK_S:
            self._fail_overdue()
        else:
            # The loop was held up, and what came in the meantime is not read yet: that first, but only once.
            self._watch_at = now + _SLACK_S
            self._watch = self._loop.call_at(self._watch_at, self._fail_overdue)

    def _fail_overdue(self) -> None:
        self._watch, self._watch_at = None, _NEVER
        now = self._loop.time()
        earliest = _NEVER
        # A copy: takers may send something in answer to this.
        for place, (future, size, deadline, command) in enumerate(list(self._line)):
            if future.done():
                continue
            if deadline <= now:
                if not isinstance(future, Together):
                    self._line[place] = (_NOBODY, size, deadline, command)
                fail(future, OutcomeUnknown("no reply in time", self.server, _LOOK_FIRST))
            elif deadline < earliest:
                earliest = deadline
        if self._is_given_up(now):
            self.abort(f"the server has been silent for {now - self._quiet_since:.1f}s")
        elif earliest < _NEVER:
            self._watch_from(earliest)

    def _is_given_up(self, now: float) -> bool:
        """Silent for too long; but not while it may be busy with a command that was given more time than that."""
        if not self._line or now - self._quiet_since + _SLACK_S < self._silence_s:
            return False
        _, _, deadline, _ = self._line[0]
        return deadline <= now

    def _close_if_answered(self) -> None:
        if not self._line and self.lost is None:
            self.abort("the connection is no longer needed")

    def _lose(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        if self._watch is not None:
            self._watch.cancel()
        line, sent = list(self._line), len(self._line) - len(self._outgoing)
        self._line.clear()
        self._outgoing.clear()
        self.in_flight = 0
        if self._on_lost is not None:
            # First: takers may send something in answer to this, and are to find the next connection.
            self._on_lost(reason)
        for place, (future, *_) in enumerate(line):
            if future.done():
                continue
            if place < sent:
                fail(future, OutcomeUnknown(reason, self.server, _LOOK_FIRST))
            else:
                fail(future, Unreachable(reason, self.server, _TRY_AGAIN))


def fail(future: asyncio.Future[Any] | Together, error: BaseException) -> None:
    """Whoever awaits it gets the error; where nobody does any more, it is no news for the log."""
    future.set_exception(error)
    future.exception()


def _enough_for_an_idle_server(under_way: int) -> int:
    """Alone, a command leaves at once. Few leave together, at the end of the turn. Many leave in two halves, which
    take turns from then on: while we read the answers to one, the server works on the other, and nobody sleeps."""
    if under_way == 1:
        return 1
    return under_way // 2 if under_way >= _WORTH_HALVING else sys.maxsize
