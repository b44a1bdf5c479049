from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from typing import TYPE_CHECKING

import hiredis
import pytest
import trustme

from kizuna.testing import ChaosProxy, ServerProcess, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Client:
    """A raw connection that writes commands inline and reads lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, proxy: ChaosProxy, context: ssl.SSLContext | None = None) -> Client:
        return cls(*await asyncio.open_connection(proxy.host, proxy.port, ssl=context))

    def send(self, command: str) -> None:
        self.writer.write(command.encode() + b"\r\n")

    async def line(self) -> bytes:
        return (await self.reader.readline()).rstrip()

    async def ask(self, command: str) -> bytes:
        self.send(command)
        return await self.line()

    async def hears_nothing(self, for_s: float = 0.05) -> bool:
        try:
            await asyncio.wait_for(self.reader.read(1), for_s)
        except TimeoutError:
            return True
        return False

    async def was_cut(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@pytest.fixture
async def proxy(server: ServerProcess) -> AsyncIterator[ChaosProxy]:
    async with ChaosProxy(server.host, server.port) as proxy:
        yield proxy
    assert proxy.open_connections == 0


@pytest.fixture
async def client(proxy: ChaosProxy) -> AsyncIterator[Client]:
    client = await Client.to(proxy)
    yield client
    await client.close()


async def test_a_proxy_left_alone_forwards_and_counts(proxy: ChaosProxy, client: Client) -> None:
    assert await client.ask("PING") == b"+PONG"

    assert proxy.connections == proxy.open_connections == 1
    assert proxy.bytes_to_server == len(b"PING\r\n")
    assert proxy.bytes_to_client == len(b"+PONG\r\n")


async def test_megabytes_arrive_complete_and_in_order(
    proxy: ChaosProxy, client: Client, server: ServerProcess, root: str
) -> None:
    value = b"".join(b"%08d" % number for number in range(500_000))
    client.writer.write(hiredis.pack_command(("SET", root, value)))  # type: ignore[arg-type]

    assert await client.line() == b"+OK"
    client.send(f"GET {root}")
    assert await client.line() == b"$%d" % len(value)
    assert await client.reader.readexactly(len(value)) == value
    server.call("DEL", root)


async def test_delay_is_added_in_each_direction_and_to_all_at_once(proxy: ChaosProxy, client: Client) -> None:
    await client.ask("PING")
    proxy.delay_s = 1.0
    began = time.monotonic()

    for _ in range(5):
        client.send("PING")
        await asyncio.sleep(0.005)
    answers = [await client.line() for _ in range(5)]

    assert answers == [b"+PONG"] * 5
    # One after the other, it would be ten seconds.
    assert 2.0 <= time.monotonic() - began < 9.9


async def test_a_stall_keeps_connections_and_resume_delivers_what_was_sent(proxy: ChaosProxy, client: Client) -> None:
    await client.ask("PING")
    proxy.stall()
    client.send("PING")
    late = await Client.to(proxy)
    late.send("PING")

    assert await client.hears_nothing()
    assert await late.hears_nothing()
    proxy.resume()
    assert await client.line() == b"+PONG"
    assert await late.line() == b"+PONG"
    await late.close()


async def test_a_dropped_reply_leaves_the_work_done_and_the_connection_silent(
    proxy: ChaosProxy, client: Client, server: ServerProcess, root: str
) -> None:
    proxy.drop_replies(1)
    client.send(f"INCR {root}")
    await eventually(lambda: server.call("GET", root) == b"1")
    client.send(f"INCR {root}")
    await eventually(lambda: server.call("GET", root) == b"2")

    assert await client.hears_nothing()
    other = await Client.to(proxy)
    assert await other.ask(f"INCR {root}") == b":3"
    await other.close()
    server.call("DEL", root)


async def test_a_dropped_reply_can_cut_its_connection(
    proxy: ChaosProxy, client: Client, server: ServerProcess, root: str
) -> None:
    proxy.drop_replies(1, then="cut")
    client.send(f"INCR {root}")

    assert await client.was_cut()
    assert server.call("GET", root) == b"1"
    server.call("DEL", root)


async def test_replies_are_dropped_until_they_are_delivered_again(proxy: ChaosProxy, client: Client) -> None:
    proxy.drop_replies()
    client.send("PING")
    second = await Client.to(proxy)
    second.send("PING")
    assert await client.hears_nothing()
    assert await second.hears_nothing()

    proxy.deliver_replies()
    third = await Client.to(proxy)
    assert await third.ask("PING") == b"+PONG"
    assert await client.hears_nothing()
    await second.close()
    await third.close()


async def test_a_truncated_reply_is_the_last_of_its_connection(proxy: ChaosProxy, client: Client) -> None:
    await client.ask("PING")
    proxy.truncate_next_reply(3)
    client.send("PING")

    assert await client.reader.read() == b"+PO"


async def test_a_duplicated_command_is_done_twice(
    proxy: ChaosProxy, client: Client, server: ServerProcess, root: str
) -> None:
    proxy.duplicate = True

    assert await client.ask(f"INCR {root}") == b":1"
    assert await client.line() == b":2"
    server.call("DEL", root)


async def test_a_cut_resets_every_connection_and_takes_new_ones(proxy: ChaosProxy, client: Client) -> None:
    await client.ask("PING")
    await proxy.cut()

    assert proxy.open_connections == 0
    with pytest.raises(ConnectionResetError):
        await client.reader.read(1)
    again = await Client.to(proxy)
    assert await again.ask("PING") == b"+PONG"
    await again.close()


async def test_refusing_keeps_open_connections_and_accepting_returns_to_the_port(
    proxy: ChaosProxy, client: Client
) -> None:
    await client.ask("PING")
    port = proxy.port
    proxy.refuse()

    with pytest.raises(ConnectionRefusedError):
        await Client.to(proxy)
    assert await client.ask("PING") == b"+PONG"

    await proxy.accept()
    again = await Client.to(proxy)
    assert (proxy.port, await again.ask("PING")) == (port, b"+PONG")
    await again.close()


async def test_a_client_that_leaves_is_not_kept(proxy: ChaosProxy) -> None:
    client = await Client.to(proxy)
    await client.ask("PING")
    await client.close()

    await eventually(lambda: proxy.open_connections == 0)


async def test_a_server_that_is_gone_closes_the_clients_connection() -> None:
    async with ChaosProxy("127.0.0.1", 1) as proxy:
        client = await Client.to(proxy)

        assert await client.was_cut()
        await client.close()


async def test_clients_may_speak_tls_to_a_plain_server(server: ServerProcess) -> None:
    authority, for_server, for_client = (
        trustme.CA(),
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    authority.issue_cert("127.0.0.1").configure_cert(for_server)
    authority.configure_trust(for_client)

    async with ChaosProxy(server.host, server.port, ssl_context=for_server) as proxy:
        client = await Client.to(proxy, for_client)
        assert await client.ask("PING") == b"+PONG"
        await proxy.cut()
        assert await client.was_cut()
        await client.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await Client.to(proxy, ssl.create_default_context())


async def test_leaving_the_block_ends_connections_in_every_state(server: ServerProcess) -> None:
    before = asyncio.all_tasks()
    async with ChaosProxy(server.host, server.port) as proxy:
        clients = [await Client.to(proxy) for _ in range(3)]
        await clients[0].ask("PING")
        proxy.delay_s = 30
        clients[1].send("PING")
        await eventually(lambda: proxy.open_connections == 3)
        proxy.stall()
        clients[2].send("PING")

    assert asyncio.all_tasks() == before
    for client in clients:
        assert await client.was_cut()
        await client.close()
