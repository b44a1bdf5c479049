"""What comes to the port of gRPC over HTTP/2 and is none: Connect, gRPC-Web, REST."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.match.serving.http2.talking import GREETING, Frame, data, headers_of, message, request
from tests.match.serving.http2.test_server import MEGABYTE, Raw, path, serving

from kizuna.app import connect
from kizuna.match.gateway import Gateway
from kizuna.match.serving.frontend_calls import FrontendCalls
from kizuna.match.serving.grpc_server import GrpcServer
from kizuna.match.serving.http2 import frames
from kizuna.match.serving.http2.frames import DATA, END_STREAM, HEADERS, RST_STREAM
from kizuna.match.serving.http2.web_calls import STOPPING
from kizuna.service import running
from kizuna.settings import Settings

JSON = "application/json"


def asking(path: str, method: str = "POST", **more: str) -> list[tuple[bytes, bytes]]:
    told = {":method": method, ":scheme": "http", ":path": path, "content-type": JSON}
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in (told | more).items()]


async def answer_of(client: Raw) -> tuple[dict[bytes, bytes], bytes]:
    """The headers and the body, once it has ended."""
    found: list[Frame] = []
    async with asyncio.timeout(20):
        async for frame in client._frames:
            if frame.kind in (HEADERS, DATA):
                found.append(frame)
                if frame.flags & END_STREAM:
                    break
    [headers] = headers_of(found)
    return dict(headers), b"".join(frame.payload for frame in found if frame.kind == DATA)


async def body_of(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        told = await receive()
        body, more = body + told["body"], told["more_body"]
    return body


async def begin(send: Any, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = await body_of(receive)
    known = {name: scope[name] for name in ("method", "path", "http_version")}
    told = json.dumps({**known, "query": scope["query_string"].decode(), "size": len(body)}).encode()
    await begin(send, (b"content-type", b"application/json"), (b"connection", b"close"))
    await send({"type": "http.response.body", "body": told, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def test_an_application_is_asked_and_its_answer_is_sent() -> None:
    async with serving(web=echo) as address, address.raw() as client:
        client.send(GREETING, request(1, None, asking("/a%20b?c=d")), data(1, b"12", ends=False), data(1, b"3"))
        headers, body = await answer_of(client)

    assert headers == {b":status": b"200", b"content-type": b"application/json"}
    assert json.loads(body) == {"method": "POST", "path": "/a b", "http_version": "2", "query": "c=d", "size": 3}


async def test_without_a_body_it_is_asked_as_well() -> None:
    async with serving(web=echo) as address, address.raw() as client:
        head = request(1, None, asking("/x", "GET"))
        client.send(GREETING, head[:4] + bytes([head[4] | END_STREAM]) + head[5:])
        _, body = await answer_of(client)

    assert json.loads(body)["size"] == 0


async def test_grpc_is_answered_beside_it() -> None:
    async with serving(web=echo) as address, address.raw() as client, address.channel() as channel:
        client.send(GREETING, request(1, b"", asking("/x")))

        assert (await answer_of(client))[0][b":status"] == b"200"
        assert await channel.unary_unary("/shop.Shop/Echo")(b"a") == b"a"


async def test_a_large_body_and_a_large_answer_go_through_small_windows() -> None:
    async def large(_: Any, receive: Any, send: Any) -> None:
        size = len(await body_of(receive))
        await begin(send)
        for _ in range(4):
            await send({"type": "http.response.body", "body": b"x" * (size // 4), "more_body": True})
        await send({"type": "http.response.body"})

    async with serving(web=large) as address, address.raw() as client:
        client.send(GREETING, request(1, None, asking("/x")))
        for at in range(64):
            # Half a window at a time, each when the one before was taken: then there is room for it.
            if at and at % 8 == 0:
                while (await client.until(frames.WINDOW_UPDATE)).stream != 1:
                    pass
            client.send(data(1, b"y" * 16_384, ends=at == 63))
        client.send(frames.window_update(0, 2 * MEGABYTE), frames.window_update(1, 2 * MEGABYTE))
        _, body = await answer_of(client)

    assert body == b"x" * MEGABYTE


async def test_a_request_that_fails_is_answered_so_and_the_next_one_is_served() -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/late":
            await begin(send)
        if scope["path"] != "/well":
            raise RuntimeError("a mistake")
        await echo(scope, receive, send)

    async with serving(web=fails) as address, address.raw() as client:
        client.send(GREETING, request(1, b"", asking("/early")))
        assert (await answer_of(client))[0] == {b":status": b"500"}
        client.send(request(3, b"", asking("/late")))
        assert (await client.until(RST_STREAM)).stream == 3
        client.send(request(5, b"", asking("/well")))
        assert (await answer_of(client))[0][b":status"] == b"200"


async def test_an_application_hears_that_the_client_has_left_and_that_the_server_stops() -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await body_of(receive)
        await begin(send)
        heard.put_nowait("begun")
        if scope["path"] == "/stays":
            await scope[STOPPING].wait()
            heard.put_nowait("stopped")
        else:
            heard.put_nowait((await receive())["type"])

    async with asyncio.timeout(20), serving(web=waits) as address, address.raw() as client:
        client.send(GREETING, request(1, b"", asking("/leaves")))
        assert await heard.get() == "begun"
        client.send(frames.rst_stream(1, 8))
        assert await heard.get() == "http.disconnect"
        client.send(request(3, b"", asking("/stays")))
        assert await heard.get() == "begun"
        await address.served.stop(20)
        assert await heard.get() == "stopped"


@pytest.mark.parametrize("length", ["abc", "-1"])
async def test_a_length_that_is_none_does_not_count(length: str) -> None:
    seen: list[Any] = []

    async def keeps(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(name for name, _ in scope["headers"])
        await echo(scope, receive, send)

    async with serving(web=keeps) as address, address.raw() as client:
        client.send(GREETING, request(1, b"12", asking("/x", content_length=length)))
        _, body = await answer_of(client)

    assert (json.loads(body)["size"], seen) == (2, [b"content-type"])


async def test_without_an_application_it_is_refused() -> None:
    async with serving() as address, address.raw() as client:
        client.send(GREETING, request(1, message(b"a"), path("Echo", content_type=JSON)))

        assert (await answer_of(client))[0] == {b":status": b"415"}


async def test_clients_of_minimatch_speak_connect_over_http2_to_the_port_of_grpc(settings: Settings) -> None:
    async def is_ready() -> list[str]:
        return []

    async with connect(settings) as k:
        rpcs = FrontendCalls(k.match).rpcs()
        gateway = Gateway(rpcs, settings.match, port=None)
        server = GrpcServer(rpcs, settings.match, port=0, ready=is_ready, web=gateway.app)
        async with running(gateway, server):
            client = Raw(*await asyncio.open_connection("127.0.0.1", server.port))
            create = asking("/openmatch.FrontendService/CreateTicket")
            client.send(GREETING, request(1, b'{"ticket": {"searchFields": {"tags": ["a"]}}}', create))
            _, body = await answer_of(client)
            client.send(request(3, b'{"ticketId": "nope"}', asking("/openmatch.FrontendService/GetTicket")))
            headers, refused = await answer_of(client)
            client.writer.close()

        assert (await k.match.get_ticket(json.loads(body)["id"])).tags == ["a"]
        assert headers[b":status"] == b"404"
        assert json.loads(refused) == {"code": "not_found", "message": "ticket id: nope not found"}
