"""The server on a real port: with gRPC's own client, and with clients that do what that one never would."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from tests.match.serving.channels import OWN_CONNECTION, refusal
from tests.match.serving.http2.talking import GREETING, POST, Frame, data, headers_of, message, request, split

from kizuna.asgi import Application
from kizuna.listening import listen
from kizuna.match.serving.http2 import frames, server
from kizuna.match.serving.http2.calls import Method
from kizuna.match.serving.http2.faults import ENHANCE_YOUR_CALM, PROTOCOL_ERROR
from kizuna.match.serving.http2.frames import DATA, GOAWAY, HEADERS, PING, RST_STREAM, frame
from kizuna.match.serving.http2.messages import Ended
from kizuna.match.serving.http2.server import Http1, Http2Server
from kizuna.testing.waiting import eventually

MEGABYTE = 1 << 20


async def echo(asked: bytes) -> bytes:
    return asked


async def echo_all(asked: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for each in asked:
        yield each


async def count(asked: bytes) -> AsyncIterator[bytes]:
    for number in range(int(asked)):
        yield b"%d" % number


METHODS = {
    "Echo": Method(echo),
    "EchoAll": Method(echo_all, takes_many=True, gives_many=True),
    "Count": Method(count, gives_many=True),
}


class Address:
    def __init__(self, port: int, served: Http2Server) -> None:
        self.port, self.served = port, served

    def channel(self, **options: int) -> Any:
        told = [*OWN_CONNECTION, *((f"grpc.{name}", value) for name, value in options.items())]
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=told)

    @asynccontextmanager
    async def raw(self) -> AsyncIterator[Raw]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Raw(reader, writer)
        finally:
            writer.close()


class Raw:
    """A client that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = self._read()

    def send(self, *sent: bytes) -> None:
        self.writer.write(b"".join(sent))

    async def until(self, kind: int, flags: int = 0) -> Frame:
        """The next frame of that kind, with these flags at least."""
        async with asyncio.timeout(20):
            async for found in self._frames:
                if found.kind == kind and found.flags & flags == flags:
                    return found
        raise AssertionError("the connection was closed")

    async def all_until(self, kind: int) -> list[Frame]:
        found = []
        async with asyncio.timeout(20):
            async for each in self._frames:
                found.append(each)
                if each.kind == kind:
                    break
        return found

    async def is_closed(self) -> bool:
        async with asyncio.timeout(20):
            with suppress(ConnectionError):
                while await self.reader.read(65_536):
                    pass
        return True

    async def _read(self) -> AsyncIterator[Frame]:
        while True:
            try:
                head = await self.reader.readexactly(9)
                high, low = struct.unpack_from(">BH", head)
                payload = await self.reader.readexactly(high << 16 | low)
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            yield next(split(head + payload))


@asynccontextmanager
async def serving(
    http1: Http1 | None = None, web: Application | None = None, **methods: Method
) -> AsyncIterator[Address]:
    paths = {f"/shop.Shop/{name}".encode(): method for name, method in {**METHODS, **methods}.items()}
    served = Http2Server(paths, most_bytes=4 * MEGABYTE, leaving="we leave", http1=http1, web=web)
    listener = await listen("127.0.0.1", 0, "nothing")
    with listener:
        served.start(listener)
        try:
            yield Address(listener.getsockname()[1], served)
        finally:
            await served.stop(0)


def path(name: str, **more: str) -> list[tuple[bytes, bytes]]:
    """The headers of a call."""
    told = {**dict(POST), b":path": f"/shop.Shop/{name}".encode()}
    return list((told | {name.replace("_", "-").encode(): value.encode() for name, value in more.items()}).items())


# gRPC's own client


async def test_large_answers_and_requests_arrive_as_they_were_sent() -> None:
    body = bytes(range(256)) * (3 * MEGABYTE // 256)
    async with serving() as address, address.channel() as channel:
        answers = await asyncio.gather(*(channel.unary_unary("/shop.Shop/Echo")(body + bytes([n])) for n in range(4)))

    assert answers == [body + bytes([n]) for n in range(4)]


async def test_a_thousand_calls_at_once_on_one_connection() -> None:
    async with serving() as address, address.channel() as channel:
        call = channel.unary_unary("/shop.Shop/Echo")
        answers = await asyncio.gather(*(call(b"%d" % number) for number in range(1_000)))

    assert answers == [b"%d" % number for number in range(1_000)]


async def test_many_answers_come_in_order() -> None:
    async with serving() as address, address.channel() as channel:
        answers = [each async for each in channel.unary_stream("/shop.Shop/Count")(b"5000")]

    assert answers == [b"%d" % number for number in range(5_000)]


async def test_requests_that_still_come_are_answered_meanwhile() -> None:
    async with serving() as address, address.channel() as channel:
        call = channel.stream_stream("/shop.Shop/EchoAll")()
        answers = []
        for body in (b"a", b"b" * 300_000, b"", b"c"):
            await call.write(body)
            answers.append(await call.read())
        await call.done_writing()

        assert answers == [b"a", b"b" * 300_000, b"", b"c"]
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is StatusCode.OK


async def test_requests_that_nobody_reads_are_not_taken_without_end() -> None:
    async def reads_nothing(_: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    ignoring = Method(reads_nothing, takes_many=True, gives_many=True)
    async with serving(Ignore=ignoring) as address, address.raw() as client:
        client.send(GREETING, request(1, None, path("Ignore")))
        # As much as a stream may send before it hears that it was taken.
        client.send(*(data(1, message(b"x" * 1_019) * 16, ends=False) for _ in range(16)))
        client.send(frame(PING, 0, 0, b"12345678"))
        allowed = [each.stream for each in await client.all_until(PING) if each.kind == frames.WINDOW_UPDATE]

    assert 1 not in allowed


async def test_a_client_that_compresses_is_understood() -> None:
    async with serving() as address, address.channel() as channel:
        call = channel.unary_unary("/shop.Shop/Echo")
        answer = await call(b"a" * 100_000, compression=grpc.Compression.Gzip)
        code, text = await refusal(call(b"a" * 100_000, compression=grpc.Compression.Deflate))

    assert answer == b"a" * 100_000
    assert code is StatusCode.UNIMPLEMENTED
    assert "deflate" in text


async def test_metadata_is_taken_and_too_much_of_it_is_refused() -> None:
    async with serving() as address, address.channel(max_metadata_size=1_000_000) as channel:
        call = channel.unary_unary("/shop.Shop/Echo")
        taken = await call(b"a", metadata=[("authorization", "Bearer x"), ("some-bin", b"\0\1\2")])
        code, _ = await refusal(call(b"a", metadata=[(f"name-{n}", "x" * 200) for n in range(200)]))

        assert await call(b"b") == b"b"
    assert taken == b"a"
    assert code in (StatusCode.RESOURCE_EXHAUSTED, StatusCode.UNAVAILABLE, StatusCode.INTERNAL)


async def test_texts_of_errors_may_have_any_letters() -> None:
    async def refuses(_: bytes) -> bytes:
        raise Ended(5, "100 % ausverkauft … 売り切れ\n")

    async with serving(Buy=Method(refuses)) as address, address.channel() as channel:
        told = await refusal(channel.unary_unary("/shop.Shop/Buy")(b""))

    assert told == (StatusCode.NOT_FOUND, "100 % ausverkauft … 売り切れ\n")


async def test_an_error_after_some_answers_is_told_after_them() -> None:
    async def fails_late(_: bytes) -> AsyncIterator[bytes]:
        yield b"first"
        raise Ended(9, "not now")

    async with serving(Late=Method(fails_late, gives_many=True)) as address, address.channel() as channel:
        call = channel.unary_stream("/shop.Shop/Late")(b"")

        assert await call.read() == b"first"
        assert await refusal(call.read()) == (StatusCode.FAILED_PRECONDITION, "not now")


async def test_a_mistake_of_ours_is_unknown_to_the_caller_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_: bytes) -> bytes:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, "kizuna.match.serving"):
        async with serving(Break=Method(broken)) as address, address.channel() as channel:
            told = await refusal(channel.unary_unary("/shop.Shop/Break")(b""))

    assert told == (StatusCode.UNKNOWN, "")
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


async def test_work_that_somebody_else_cancels_leaves_nobody_waiting() -> None:
    async def cancelled(_: bytes) -> bytes:
        raise asyncio.CancelledError

    async with serving(Stop=Method(cancelled)) as address, address.channel() as channel:
        code, _ = await refusal(channel.unary_unary("/shop.Shop/Stop")(b"", timeout=20))

    assert code is StatusCode.UNAVAILABLE


async def test_however_calls_end_nothing_is_left_of_them() -> None:
    async def waits(_: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with serving(Wait=Method(waits)) as address, address.channel() as channel:
        echo, wait = channel.unary_unary("/shop.Shop/Echo"), channel.unary_unary("/shop.Shop/Wait")
        await asyncio.gather(*(echo(b"a") for _ in range(50)))
        late = asyncio.gather(*(refusal(wait(b"", timeout=0.3)) for _ in range(50)))
        left = [wait(b"") for _ in range(50)]
        await eventually(lambda: len(address.served._tasks) >= 50, within_s=20)
        for call in left:
            call.cancel()

        assert {code for code, _ in await late} == {StatusCode.DEADLINE_EXCEEDED}
        await eventually(lambda: not address.served._tasks, within_s=20)


# clients of another kind


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b":method", b"GET"), *POST[1:]], b"405"),
        ([*POST[:3], (b"content-type", b"application/json")], b"415"),
        ([*POST[:3], (b"content-type", b"application/grpc-web")], b"415"),
        (POST[:3], b"415"),
    ],
)
async def test_what_is_no_grpc_is_told_so_in_http(headers: list[tuple[bytes, bytes]], status: bytes) -> None:
    async with serving() as address, address.raw() as client:
        client.send(GREETING, request(1, b"", headers))
        [answer] = headers_of([await client.until(HEADERS, frames.END_STREAM)])

    assert answer[b":status"] == status


async def test_headers_that_do_not_say_what_is_asked_for_end_the_stream() -> None:
    async with serving() as address, address.raw() as client:
        client.send(GREETING, request(1, b"", [(b":method", b"POST")]))

        assert (await client.until(RST_STREAM)).payload == struct.pack(">I", PROTOCOL_ERROR)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", b"one message is due, and none came"),
        (message(b"a") + message(b"b"), b"one message is due, and more came"),
        (message(b"abc")[:-1], b"the request ends within a message"),
    ],
)
async def test_what_is_not_one_message_is_refused(body: bytes, text: bytes) -> None:
    async with serving() as address, address.raw() as client:
        client.send(GREETING, request(1, body, path("Echo")))
        [answer] = headers_of([await client.until(HEADERS, frames.END_STREAM)])

    assert (answer[b"grpc-status"], answer[b"grpc-message"]) == (b"13", text)


async def test_many_large_requests_at_once_are_refused_before_they_fill_the_memory() -> None:
    async with serving() as address, address.raw() as client:
        client.send(GREETING)
        part = message(b"x" * 3 * MEGABYTE)[: 3 * MEGABYTE]
        sending = asyncio.create_task(_send_parts(client, part, streams=8))
        [answer] = headers_of([await client.until(HEADERS, frames.END_STREAM)])
        sending.cancel()

    assert answer[b"grpc-status"] == b"8"


async def _send_parts(client: Raw, part: bytes, streams: int) -> None:
    """Of each stream a part; no window is heeded that the server would not give: it gives back what it takes."""
    for stream in range(1, streams * 2, 2):
        client.send(request(stream, None, path("Echo")))
        for at in range(0, len(part), 16_384):
            client.send(data(stream, part[at : at + 16_384], ends=False))
            await client.writer.drain()
            await asyncio.sleep(0)


async def test_a_call_that_is_dropped_at_once_is_never_worked_on(recwarn: pytest.WarningsRecorder) -> None:
    worked = []

    async def works(asked: bytes) -> bytes:
        worked.append(asked)
        return asked

    async with serving(Work=Method(works)) as address, address.raw() as client:
        drop = frame(RST_STREAM, 0, 1, struct.pack(">I", 8))
        client.send(GREETING, request(1, message(b"dropped"), path("Work")), drop)
        client.send(request(3, message(b"kept"), path("Work")))

        assert (await client.until(DATA)).payload == message(b"kept")
    assert worked == [b"kept"]
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]


async def test_a_client_that_does_not_read_stops_who_writes_and_nobody_else() -> None:
    written_bytes = 0

    async def pours(_: bytes) -> AsyncIterator[bytes]:
        nonlocal written_bytes
        while True:
            yield b"x" * 100_000
            written_bytes += 100_000

    async with serving(Pour=Method(pours, gives_many=True)) as address, address.raw() as client:
        allowed = frames.settings((frames.INITIAL_WINDOW_SIZE, 2**31 - 1)) + frames.window_update(0, 2**30)
        client.send(frames.PREFACE, allowed, request(1, message(b""), path("Pour")))
        before = -1

        async def has_stopped() -> bool:
            nonlocal before
            before, stopped = written_bytes, before == written_bytes > 0
            return stopped

        await eventually(has_stopped, within_s=30, every_s=0.3)
        async with address.channel() as channel:
            assert await channel.unary_unary("/shop.Shop/Echo")(b"a", timeout=20) == b"a"
    # What the two systems keep of it, and what we keep.
    assert written_bytes < 40 * MEGABYTE


async def test_who_asks_and_does_not_take_the_answers_is_not_kept() -> None:
    async def large(_: bytes) -> bytes:
        return b"x" * 3 * MEGABYTE

    async with serving(Large=Method(large)) as address, address.raw() as client, address.channel() as channel:
        client.send(frames.PREFACE, frames.settings((frames.INITIAL_WINDOW_SIZE, 0)))
        client.send(*(request(number, message(b""), path("Large")) for number in range(1, 61, 2)))
        goaway = await client.until(GOAWAY)

        assert struct.unpack_from(">II", goaway.payload)[1] == ENHANCE_YOUR_CALM
        assert await client.is_closed()
        assert await channel.unary_unary("/shop.Shop/Echo")(b"a") == b"a"


async def test_who_drops_streams_as_fast_as_it_opens_them_is_told_to_calm_down_and_others_are_served() -> None:
    async with serving() as address, address.raw() as client, address.channel() as channel:
        flood = b"".join(
            request(number, None, path("Echo")) + frame(RST_STREAM, 0, number, struct.pack(">I", 8))
            for number in range(1, 10_000, 2)
        )
        client.send(GREETING, flood)
        goaway = await client.until(GOAWAY)

        assert struct.unpack_from(">II", goaway.payload)[1] == ENHANCE_YOUR_CALM
        assert await client.is_closed()
        assert await channel.unary_unary("/shop.Shop/Echo")(b"a") == b"a"


async def test_nonsense_ends_its_own_connection_only() -> None:
    async with serving() as address, address.raw() as client, address.channel() as channel:
        client.send(GREETING, frame(PING, 0, 0, b"short"))

        assert await client.until(GOAWAY)
        assert await client.is_closed()
        assert await channel.unary_unary("/shop.Shop/Echo")(b"a") == b"a"


async def test_who_speaks_http1_is_told_what_is_spoken_here() -> None:
    async with serving() as address, address.raw() as client:
        client.send(b"GET / HTTP/1.1\r\nhost: example.org\r\n\r\n")
        answer = await asyncio.wait_for(client.reader.read(), 20)

    assert answer.startswith(b"HTTP/1.1 400")
    assert b"gRPC" in answer


async def test_who_speaks_http1_may_be_served_by_somebody_else_on_the_same_port() -> None:
    class Hello(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(b"hello " + data)
            self.transport.close()

    async with serving(http1=Hello) as address, address.raw() as client, address.channel() as channel:
        client.send(b"GET ")
        answer = await asyncio.wait_for(client.reader.read(), 20)

        assert answer == b"hello GET "
        assert await channel.unary_unary("/shop.Shop/Echo")(b"a") == b"a"


# clients who say nothing


async def test_who_does_not_say_a_word_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LOOK_EVERY_S", 0.05)
    async with serving() as address, address.raw() as client, address.raw() as half:
        half.send(frames.PREFACE)

        assert await client.is_closed()
        assert await half.is_closed()


async def test_who_does_not_answer_a_ping_is_gone_and_its_work_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def waits(_: bytes) -> AsyncIterator[bytes]:
        try:
            await asyncio.Event().wait()
            yield b""
        finally:
            ended.set()

    monkeypatch.setattr(server, "_LOOK_EVERY_S", 0.2)
    async with serving(Wait=Method(waits, gives_many=True)) as address, address.raw() as client:
        client.send(GREETING, request(1, message(b""), path("Wait")))

        assert await client.until(PING)
        await asyncio.wait_for(ended.wait(), 20)


async def test_who_answers_pings_may_wait_as_long_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LOOK_EVERY_S", 0.5)
    async with serving() as address, address.raw() as client:
        client.send(GREETING)
        for _ in range(2):
            asked = await client.until(PING)
            client.send(frame(PING, frames.ACK, 0, asked.payload))
        client.send(request(1, message(b"a"), path("Echo")))

        assert (await client.until(DATA)).payload == message(b"a")


async def test_who_asks_for_nothing_for_long_is_told_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(server, "_IDLE_AT_MOST_S", 0.1)
    async with serving() as address, address.raw() as client:
        client.send(GREETING)

        assert await client.until(GOAWAY)
        assert await client.is_closed()


# the end


async def test_whoever_is_there_is_told_and_let_go() -> None:
    ended = asyncio.Event()

    async def waits(_: bytes) -> AsyncIterator[bytes]:
        try:
            yield b"wait"
            await asyncio.Event().wait()
        finally:
            ended.set()

    method = Method(waits, gives_many=True, is_endless=True)
    async with one_that_stops(Wait=method) as (address, stop), address.raw() as client:
        client.send(GREETING, request(1, message(b""), path("Wait")))
        await client.until(DATA)
        stopping = asyncio.create_task(stop())

        assert await client.until(GOAWAY)
        [answer] = headers_of([await client.until(HEADERS, frames.END_STREAM)])
        assert (answer[b"grpc-status"], answer[b"grpc-message"]) == (b"14", b"we leave")
        assert await client.is_closed()
        await asyncio.wait_for(stopping, 20)
    assert ended.is_set()


@asynccontextmanager
async def one_that_stops(**methods: Method) -> AsyncIterator[tuple[Address, Any]]:
    paths = {f"/shop.Shop/{name}".encode(): method for name, method in methods.items()}
    served = Http2Server(paths, most_bytes=MEGABYTE, leaving="we leave")
    with await listen("127.0.0.1", 0, "nothing") as listener:
        served.start(listener)
        yield Address(listener.getsockname()[1], served), lambda: served.stop(600)
