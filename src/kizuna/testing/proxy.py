"""A TCP proxy that misbehaves on demand: what networks do, to connections that are already open.

client <──> proxy <──> server
each direction: read ──> queue of (due, bytes) ──> [stalled?] ──> [dropped, doubled, truncated?] ──> write
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import struct
from typing import TYPE_CHECKING, Literal, Self

from kizuna.testing.servers import HOST, free_port

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine

log = logging.getLogger("kizuna.testing")

_READ_BYTES = 65_536
_CHUNKS_QUEUED = 256
_PORTS_TRIED = 20
# On, with zero seconds: close() sends RST and forgets what was not sent.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

_UnderWay = asyncio.Queue[tuple[float, bytes]]


class ChaosProxy:
    """Forwards to one server. Everything can be changed while connections are open.

    A "reply" here is what the server's side of a connection delivers in one read; a client that waits for
    each answer before it asks again sees exactly its own. With `ssl_context` clients speak TLS to the proxy,
    which speaks plainly to the server.

    `delay_s` is added in each direction, and does not limit what is under way at once. `duplicate` sends to
    the server twice what the client sent once.
    """

    host = HOST

    def __init__(self, target_host: str, target_port: int, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self.target = (target_host, target_port)
        self.port = 0
        self.delay_s = 0.0
        self.duplicate = False
        self.connections = 0
        """How many were ever accepted."""
        self.bytes_to_server = 0
        self.bytes_to_client = 0
        self._ssl_context = ssl_context
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._replies_to_drop = 0.0
        self._cut_on_drop = False
        self._truncate_to: int | None = None
        self._listener: asyncio.Server | None = None
        self._open: set[_Connection] = set()
        self._ended = False

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'rediss' if self._ssl_context else 'redis'}://{self.address}/0"

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def stall(self) -> None:
        """A partition: connections stay, new ones are taken, and nothing gets through until `resume`."""
        self._flowing.clear()

    def resume(self) -> None:
        """What was sent during a stall now arrives, as TCP would have it."""
        self._flowing.set()

    def drop_replies(self, count: float = math.inf, *, then: Literal["silence", "cut"] = "silence") -> None:
        """The server gets and does what it is asked, but the next `count` replies do not reach the client.

        TCP does not skip bytes: a connection that lost a reply is silent from then on, or cut.
        """
        self._replies_to_drop, self._cut_on_drop = count, then == "cut"

    def deliver_replies(self) -> None:
        """End `drop_replies`. Connections that lost one stay silent."""
        self._replies_to_drop = 0

    def truncate_next_reply(self, to_bytes: int) -> None:
        """Only the first bytes of it arrive; then that connection is closed."""
        self._truncate_to = to_bytes

    async def cut(self) -> None:
        """Reset all connections. New ones are taken."""
        await asyncio.gather(*(connection.reset() for connection in self._open))

    def refuse(self) -> None:
        """Nobody listens at the port from now on; connections that are open stay."""
        if self._listener is not None:
            # wait_closed() would wait for the open connections, and close() alone has freed the port.
            self._listener.close()
            self._listener = None

    async def accept(self) -> None:
        """Listen (again), on the same port as before."""
        if self._listener is None:
            self._listener = await self._listen_on(self.port)

    async def __aenter__(self) -> Self:
        for _ in range(_PORTS_TRIED - 1):
            self.port = free_port()
            # Somebody else may have taken it since; then the next one is tried.
            with contextlib.suppress(OSError):
                await self.accept()
                return self
        self.port = free_port()
        await self.accept()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._ended = True
        self.refuse()
        await self.cut()

    async def _listen_on(self, port: int) -> asyncio.Server:
        # In two steps: start_server() that also serves would, if cancelled in its last turn, leave a socket.
        listener = await asyncio.start_server(self._take, self.host, port, ssl=self._ssl_context, start_serving=False)
        try:
            await listener.start_serving()
        except BaseException:
            listener.close()
            raise
        return listener

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._ended:  # the system had accepted it just before we stopped listening
            writer.transport.abort()
            return
        self.connections += 1
        connection = _Connection(self, reader, writer)
        self._open.add(connection)
        connection.task.add_done_callback(lambda _: self._open.discard(connection))

    async def until_flowing(self) -> None:
        await self._flowing.wait()

    def towards_server(self, data: bytes) -> bytes:
        sent = data * 2 if self.duplicate else data
        self.bytes_to_server += len(sent)
        return sent

    def towards_client(self, data: bytes, connection: _Connection) -> bytes:
        """What of a reply is delivered; the connection is told if that was its last."""
        if self._replies_to_drop > 0 and not connection.lost_a_reply:
            self._replies_to_drop -= 1
            connection.lost_a_reply, connection.ends_now = True, self._cut_on_drop
        if connection.lost_a_reply:
            return b""
        if self._truncate_to is not None:
            data, self._truncate_to, connection.ends_now = data[: self._truncate_to], None, True
        self.bytes_to_client += len(data)
        return data


class _Connection:
    """One client, its connection to the server, and what flows between them."""

    def __init__(self, proxy: ChaosProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.lost_a_reply = False
        self.ends_now = False
        self._proxy = proxy
        self._client = (reader, writer)
        self._writers = [writer]
        self.task = asyncio.create_task(self._serve())

    async def reset(self) -> None:
        for writer in self._writers:
            sock = writer.get_extra_info("socket")
            # It may be closed already: the other side was quicker.
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()
        self.task.cancel()
        await asyncio.wait([self.task])

    async def _serve(self) -> None:
        try:
            await self._proxy.until_flowing()
            server_reader, server_writer = await asyncio.open_connection(*self._proxy.target)
            self._writers.append(server_writer)
            client_reader, client_writer = self._client
            await _first_of(
                self._pump(client_reader, server_writer, self._proxy.towards_server),
                self._pump(server_reader, client_writer, lambda data: self._proxy.towards_client(data, self)),
            )
        except OSError as error:
            # Either side is gone, which is what the other one is now told by the close below.
            log.debug("proxied connection ended", extra={"error": str(error)})
        finally:
            await self._close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Callable[[bytes], bytes]
    ) -> None:
        """Forward until the end of the stream was forwarded too, in order, `delay_s` after it was read."""
        under_way: _UnderWay = asyncio.Queue(_CHUNKS_QUEUED)
        await _first_of(self._collect(reader, under_way), self._deliver(under_way, writer, change))

    async def _collect(self, reader: asyncio.StreamReader, under_way: _UnderWay) -> None:
        loop = asyncio.get_running_loop()
        while True:
            data = await reader.read(_READ_BYTES)
            await under_way.put((loop.time() + self._proxy.delay_s, data))
            if not data:
                await loop.create_future()  # the delivery of the end ends the pump

    async def _deliver(
        self,
        under_way: _UnderWay,
        writer: asyncio.StreamWriter,
        change: Callable[[bytes], bytes],
    ) -> None:
        loop = asyncio.get_running_loop()
        while not self.ends_now:
            due, data = await under_way.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            await self._proxy.until_flowing()
            if not data:
                return
            writer.write(change(data))
            await writer.drain()

    async def _close(self) -> None:
        for writer in self._writers:
            writer.close()
        for writer in self._writers:
            # A connection that was reset is closed as well; there is nothing more to do about it.
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _first_of(*parts: Coroutine[None, None, None]) -> None:
    """Run all until one ends; end the others, and pass on why it ended."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    failures = [task.exception() for task in tasks if not task.cancelled()]
    for failure in filter(None, failures):
        raise failure
