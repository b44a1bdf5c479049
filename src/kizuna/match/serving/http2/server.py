"""Listens, and serves methods to whoever speaks gRPC. All I/O is here."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from kizuna.match.serving.http2.calls import Calls, Methods, Web
from kizuna.match.serving.http2.connection import Connection
from kizuna.match.serving.http2.faults import ENHANCE_YOUR_CALM, INTERNAL_ERROR, Fault
from kizuna.match.serving.http2.frames import PREFACE
from kizuna.match.serving.http2.messages import UNAVAILABLE

if TYPE_CHECKING:
    from kizuna.asgi import Application

log = logging.getLogger("kizuna.match.serving")

Http1 = Callable[[], asyncio.Protocol | None]
"""Makes what serves a connection that turns out to speak HTTP/1.1."""

# Who has not said a word by the first look is no peer.
_LOOK_EVERY_S = 15.0
# Counted in looks, and not by the clock: had we ourselves stood still meanwhile, we would not have heard the answer.
_PING_AT_LOOK, _GONE_AT_LOOK = 2, 4
_IDLE_AT_MOST_S = 3_600.0
_WRITTEN_AHEAD_BYTES = 1 << 18
_HANDSHAKE_WITHIN_S = 15.0
_CLOSED_WITHIN_S = 1.0
_NOT_ACCEPTED_YET = 1_024
_ACCEPTED_AT_ONCE = 64
_ACCEPT_AGAIN_S = 0.1
_NOT_SPOKEN = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n"
    b"This port speaks gRPC, which is HTTP/2.\n"
)


class Http2Server:
    """`most_bytes` is the largest message that is taken; `leaving` is what callers of endless methods are told when it
    stops. `web` answers what comes over HTTP/2 and is no gRPC."""

    def __init__(
        self,
        methods: Methods,
        *,
        most_bytes: int,
        leaving: str,
        http1: Http1 | None = None,
        web: Application | None = None,
    ) -> None:
        self._methods, self._most_bytes, self._leaving, self._http1 = methods, most_bytes, leaving, http1
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._welcoming: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._web = Web(web, self._stopping) if web else None
        self._peers: set[_Peer] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Whoever gives the listener closes it, after `stop`."""
        if tls is not None:
            tls.set_alpn_protocols(["h2", "http/1.1"] if self._http1 else ["h2"])
        listener.listen(_NOT_ACCEPTED_YET)
        # By ourselves: asyncio's server loses the sockets that it accepts while it is being closed.
        self._loop.add_reader(listener, self._accept, listener, tls)
        self._listener = listener

    async def stop(self, grace_s: float) -> None:
        """Nobody is let in any more; calls that are under way may end within the grace. Cancelled, cuts them off."""
        self._stopping.set()
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
        for task in self._welcoming:
            task.cancel()
        for peer in list(self._peers):
            peer.leave(self._leaving)
        try:
            await self._until_nobody_is_left(grace_s)
        finally:
            for peer in list(self._peers):
                peer.cut_off()
            await self._until_nobody_is_left(_CLOSED_WITHIN_S)
            for peer in list(self._peers):
                peer.abort()
            await asyncio.gather(*self._welcoming, *self._tasks, return_exceptions=True)

    def _accept(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        try:
            for _ in range(_ACCEPTED_AT_ONCE):
                self._welcome(listener.accept()[0], tls)
        except BlockingIOError:
            pass
        except OSError as error:
            # It has left already, or we have too many: then some will end.
            log.warning("no connection", extra={"error": str(error)})
            self._loop.remove_reader(listener)
            self._loop.call_later(_ACCEPT_AGAIN_S, self._accept_again, listener, tls)

    def _accept_again(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        if not self._stopping.is_set():
            self._loop.add_reader(listener, self._accept, listener, tls)

    def _welcome(self, connection: socket.socket, tls: ssl.SSLContext | None) -> None:
        connection.setblocking(False)
        within_s = _HANDSHAKE_WITHIN_S if tls else None
        task = asyncio.create_task(self._connect(connection, tls, within_s), name="kizuna grpc welcoming")
        self._welcoming.add(task)

        def is_done(task: asyncio.Task[None]) -> None:
            self._welcoming.discard(task)
            if task.cancelled():
                connection.close()

        task.add_done_callback(is_done)

    async def _connect(self, connection: socket.socket, tls: ssl.SSLContext | None, within_s: float | None) -> None:
        try:
            await self._loop.connect_accepted_socket(self._peer, connection, ssl=tls, ssl_handshake_timeout=within_s)
        except OSError as error:
            connection.close()
            log.debug("no handshake", extra={"error": str(error)})

    def let_in(self, peer: _Peer) -> bool:
        """Not while we stop: its handshake took longer than that."""
        if not self._stopping.is_set():
            self._peers.add(peer)
        return not self._stopping.is_set()

    def let_out(self, peer: _Peer) -> None:
        self._peers.discard(peer)

    def _peer(self) -> _Peer:
        return _Peer(self, Calls(self._methods, self._most_bytes, self._tasks, self._web), self._http1)

    async def _until_nobody_is_left(self, within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._peers:
                    await asyncio.wait([peer.closed for peer in self._peers])


class _Peer(asyncio.Protocol):
    """One connection.

    silent ──first bytes──┬── HTTP/2 ──> served ──leave──> no new calls ──> closed
                          └── HTTP/1.1 ──> somebody else's, or refused
    """

    def __init__(self, server: Http2Server, calls: Calls, http1: Http1 | None) -> None:
        self._server, self._calls, self._http1 = server, calls, http1
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(calls.accept, self._flush_soon, self._loop.time)
        calls.use(self._connection)
        self._first: bytes | None = b""
        """What came, as long as it is not clear what is spoken."""
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle
        self._is_over = False
        self._silent_looks = 0
        self._used_at = self._loop.time()
        self.closed = self._loop.create_future()

    # what asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_WRITTEN_AHEAD_BYTES)
        self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)
        if not self._server.let_in(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._silent_looks = 0
        if self._first is not None:
            data = self._first + data
            if not self._is_http2(data):
                return
        try:
            self._connection.read(data)
        except Fault as fault:
            log.info("connection refused", extra={"peer": self._name(), "why": fault.text})
            self._end(fault.code, fault.text)
        except Exception:
            # A mistake of ours: this connection pays for it, and no other.
            log.exception("connection failed", extra={"peer": self._name()})
            self._end(INTERNAL_ERROR, "")
        else:
            self._close_when_done()

    def eof_received(self) -> bool:
        """Nothing more can be asked, and nobody waits for what was."""
        return False

    def pause_writing(self) -> None:
        # It does not read: then we do not either, so that it cannot make us write ever more.
        self._connection.hold_up()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._connection.go_on()
        self._transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self._is_over = True
        self._timer.cancel()
        self._connection.drop_all()
        self._server.let_out(self)
        if not self.closed.done():
            self.closed.set_result(None)

    # what is spoken

    def _is_http2(self, data: bytes) -> bool:
        if PREFACE.startswith(data[: len(PREFACE)]):
            if len(data) >= len(PREFACE):
                self._first = None
                self._connection.greet()
                return True
            self._first = data
        elif self._http1 is not None and (other := self._http1()) is not None:
            self._hand_over(other, data)
        else:
            self._transport.write(_NOT_SPOKEN)
            self._close()
        return False

    def _hand_over(self, other: asyncio.Protocol, data: bytes) -> None:
        self.connection_lost(None)
        self._transport.set_protocol(other)
        other.connection_made(self._transport)
        other.data_received(data)

    # writing

    def _flush_soon(self) -> None:
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._connection.is_overfull and not self._is_over:
            self._end(ENHANCE_YOUR_CALM, "too many answers that are not taken")
            return
        data = self._connection.take()
        if data and not self._transport.is_closing():
            self._transport.write(data)
            self._connection.proceed()
            self._close_when_done()

    def _close_when_done(self) -> None:
        if self._connection.is_done and not self._is_over:
            self._close()

    # ends

    def leave(self, why: str = "") -> None:
        if self._first is not None:
            self._close()
        else:
            self._connection.go_away()
            self._calls.end_endless(UNAVAILABLE, why)
            self._flush()

    def cut_off(self) -> None:
        self._connection.drop_all()
        self._close()

    def abort(self) -> None:
        self._transport.abort()

    def _end(self, code: int, text: str) -> None:
        self._connection.drop_all()
        self._connection.go_away(code, text)
        self._close()

    def _close(self) -> None:
        """After what is written is on its way."""
        self._is_over = True
        data = self._connection.take()
        if data and not self._transport.is_closing():
            self._transport.write(data)
        self._transport.close()

    # peers who say nothing

    def _look(self) -> None:
        now_s = self._loop.time()
        self._silent_looks += 1
        self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)
        if self._connection.streams:
            self._used_at = now_s
        if self._is_over or not self._connection.is_ready:
            self._transport.abort()
        elif now_s - self._used_at > _IDLE_AT_MOST_S:
            self.leave()
        elif self._silent_looks == _PING_AT_LOOK:
            self._connection.ping()
        elif self._silent_looks >= _GONE_AT_LOOK:
            log.info("connection lost", extra={"peer": self._name()})
            self._transport.abort()

    def _name(self) -> str:
        return str(self._transport.get_extra_info("peername"))
