"""Streams over HTTP: seen message by message while they are open, ended by whoever ends them."""

from __future__ import annotations

import base64
import json
import struct

import pytest
from tests.match.gateway.scripted import SERVICE, Scripted, served
from tests.match.gateway.talking import Conversation, ask, conversation

from kizuna.match.gateway import Gateway
from kizuna.match.openmatch import frontend_pb2
from kizuna.service import running
from kizuna.settings import MatchSettings
from kizuna.testing.waiting import eventually

LEAVING = "this server is about to end; connect again"


def framed(payload: bytes, flags: int = 0) -> bytes:
    return struct.pack(">BI", flags, len(payload)) + payload


def unframed(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    while data:
        flags, length = struct.unpack_from(">BI", data)
        found.append((flags, data[5 : 5 + length]))
        data = data[5 + length :]
    return found


def request_for(id_: str) -> bytes:
    return frontend_pb2.WatchAssignmentsRequest(ticket_id=id_).SerializeToString()


def told(connection: str) -> bytes:
    return frontend_pb2.WatchAssignmentsResponse(assignment={"connection": connection}).SerializeToString()


async def watch(talk: Conversation, scripted: Scripted, id_: str = "a") -> None:
    before = scripted.watching
    await talk.request("GET", f"/v1/things/{id_}/watch")
    await eventually(lambda: scripted.watching == before + 1)


async def open_named(talk: Conversation, content_type: str, body: bytes, **headers: str) -> None:
    """The status of these comes before the first message does."""
    await talk.request("POST", f"/{SERVICE}/Watch", body, content_type=content_type, **headers)
    assert await talk.status() == 200
    assert talk.headers["content-type"] == content_type


# line by line


async def test_each_message_is_a_line_that_comes_while_the_stream_is_open(gateway: Gateway, scripted: Scripted) -> None:
    async with conversation(gateway.url) as talk:
        await watch(talk, scripted)
        scripted.says.put_nowait("one")

        assert await talk.status() == 200
        assert talk.headers["content-type"] == "application/json"
        assert await talk.chunk() == b'{"result":{"assignment": {"connection": "one"}}}\n'
        assert scripted.watching == 1

        scripted.says.put_nowait("two")
        assert json.loads(await talk.chunk()) == {"result": {"assignment": {"connection": "two"}}}

        scripted.says.put_nowait("gone")
        assert json.loads(await talk.chunk()) == {"error": {"code": 5, "message": "ticket id: a not found"}}
        assert await talk.chunk() == b""

        # And the connection is as good as new.
        await talk.request("GET", "/v1/things/a")
        assert await talk.status() == 200


async def test_an_error_before_the_first_message_has_a_status(gateway: Gateway) -> None:
    answer = await ask(gateway.url, "GET", "/v1/things/missing/watch")

    assert answer.status == 404
    assert answer.json() == {"error": {"code": 5, "message": "ticket id: missing not found"}}


async def test_a_stream_can_be_empty(gateway: Gateway) -> None:
    answer = await ask(gateway.url, "POST", "/v1/things/0:list", b"{}")

    assert (answer.status, answer.body) == (200, b"")


async def test_a_stream_that_breaks_says_so_and_no_more(gateway: Gateway) -> None:
    answer = await ask(gateway.url, "POST", "/v1/things/2-boom:list", b"{}")

    *results, error = [json.loads(line) for line in answer.body.splitlines()]
    assert results == [{"result": {"assignment": {"connection": each}}} for each in ("0", "1")]
    assert (answer.status, error["error"]["code"]) == (200, 13)
    assert b"secret" not in answer.body


async def test_a_long_stream_comes_whole(gateway: Gateway) -> None:
    answer = await ask(gateway.url, "POST", "/v1/things/3000:list")

    connections = [json.loads(line)["result"]["assignment"]["connection"] for line in answer.body.splitlines()]
    assert connections == [str(each) for each in range(3000)]


async def test_a_body_that_is_none_is_refused_as_a_stream_is(gateway: Gateway) -> None:
    answer = await ask(gateway.url, "POST", "/v1/things/1:list", b"{")

    assert (answer.status, answer.json()["error"]["code"]) == (400, 3)


async def test_the_time_that_a_client_gives_ends_the_stream(gateway: Gateway, scripted: Scripted) -> None:
    async with conversation(gateway.url) as talk:
        await talk.request("GET", "/v1/things/a/watch", grpc_timeout="10m")

        assert await talk.status() == 504
        assert json.loads(await talk.whole_body())["error"]["code"] == 4
    assert scripted.watching == 0


# who leaves


async def test_a_client_that_leaves_ends_its_watch_and_no_other(gateway: Gateway, scripted: Scripted) -> None:
    async with conversation(gateway.url) as leaving, conversation(gateway.url) as staying:
        await watch(leaving, scripted)
        await watch(staying, scripted)

        leaving.leave()
        await eventually(lambda: scripted.watching == 1)

        scripted.says.put_nowait("one")
        assert await staying.status() == 200
        assert b"one" in await staying.chunk()


async def test_a_hundred_who_leave_at_once_leave_nothing(gateway: Gateway, scripted: Scripted) -> None:
    for _ in range(4):
        talks = []
        for _ in range(25):
            opening = conversation(gateway.url)
            talks.append((opening, await opening.__aenter__()))
        for _, talk in talks:
            await talk.request("GET", "/v1/things/a/watch")
        await eventually(lambda: scripted.watching == 25)
        for opening, talk in talks:
            talk.leave()
            await opening.__aexit__(None, None, None)
        await eventually(lambda: scripted.watching == 0)

    await eventually(lambda: open_calls(gateway) == 0)


def open_calls(gateway: Gateway) -> float:
    return sum(count.open for count in gateway.app.counts.values())


async def test_watches_are_counted_by_how_they_ended(gateway: Gateway, scripted: Scripted) -> None:
    async with conversation(gateway.url) as talk:
        await watch(talk, scripted)
        talk.leave()
    await ask(gateway.url, "GET", "/v1/things/missing/watch")
    await ask(gateway.url, "GET", "/v1/things/a")

    def counted() -> dict[tuple[str, str], object]:
        measures = [each for each in gateway.measures() if each.name == "kizuna_match_http_rpcs_total"]
        return {(each.labels["method"], each.labels["code"]): each.value for each in measures}

    expected = {("Watch", "CANCELLED"): 1, ("Watch", "NOT_FOUND"): 1, ("Get", "OK"): 1}
    await eventually(lambda: counted() == expected)


async def test_a_server_that_stops_ends_watches_with_a_word_and_waits_for_the_rest(scripted: Scripted) -> None:
    gateway = Gateway(scripted.rpcs(), MatchSettings(), port=0)
    async with running(gateway):
        url = gateway.url
        async with conversation(url) as watching, conversation(url) as listing, conversation(url) as calling:
            await watch(watching, scripted)
            scripted.says.put_nowait("one")
            assert await watching.status() == 200
            await watching.chunk()
            await listing.request("POST", "/v1/things/1-slow:list", b"{}")
            assert await listing.status() == 200
            await calling.request("GET", "/v1/things/slow")
            await eventually(lambda: open_calls(gateway) == 3)

            gateway.app._stopping.set()
            assert json.loads(await watching.chunk()) == {"error": {"code": 14, "message": LEAVING}}
            assert (await ask(url, "GET", "/healthz")).status == 503
            scripted.go_on.set()
            assert await calling.status() == 200
            assert b'"0"' in await listing.whole_body()


# framed


@pytest.mark.parametrize("kind", ["proto", "json"])
async def test_connect_frames_each_message_and_ends_with_an_object(
    gateway: Gateway, scripted: Scripted, kind: str
) -> None:
    request = request_for("a") if kind == "proto" else b'{"ticketId":"a"}'
    expected = told("one") if kind == "proto" else b'{"assignment": {"connection": "one"}}'
    async with conversation(gateway.url) as talk:
        await open_named(talk, f"application/connect+{kind}", framed(request), connect_protocol_version="1")
        scripted.says.put_nowait("one")
        assert await talk.chunk() == framed(expected)

        scripted.says.put_nowait("gone")
        ((flags, end),) = unframed(await talk.chunk())
        assert flags == 2
        assert json.loads(end) == {"error": {"code": "not_found", "message": "ticket id: a not found"}}
        assert await talk.chunk() == b""


async def test_connect_ends_well_with_an_empty_object(gateway: Gateway) -> None:
    headers = {"Content-Type": "application/connect+proto"}

    answer = await ask(gateway.url, "POST", f"/{SERVICE}/List", framed(request_for("1")), headers=headers)

    assert unframed(answer.body) == [(0, told("0")), (2, b"{}")]


async def test_the_time_of_connect_ends_a_stream(gateway: Gateway, scripted: Scripted) -> None:
    async with conversation(gateway.url) as talk:
        await open_named(talk, "application/connect+proto", framed(request_for("a")), connect_timeout_ms="20")

        ((_, end),) = unframed(await talk.whole_body())
        assert json.loads(end)["error"]["code"] == "deadline_exceeded"
    assert scripted.watching == 0


async def test_what_cannot_be_read_ends_the_stream_at_once(gateway: Gateway) -> None:
    broken = {
        "nothing": b"",
        "short": b"\0\0\0",
        "cut off": framed(b"abc")[:-1],
        "two messages": framed(b"") + framed(b""),
        "flags": framed(b"", 4),
        "no message": framed(b"\xff\xff"),
        "not in gzip": framed(b"abc", 1),
        "a length beyond all": b"\0\xff\xff\xff\xff",
    }
    headers = {"Content-Type": "application/connect+proto", "Connect-Content-Encoding": "gzip"}
    for name, body in broken.items():
        answer = await ask(gateway.url, "POST", f"/{SERVICE}/Watch", body, headers=headers)
        ((flags, end),) = unframed(answer.body)
        assert (answer.status, flags, json.loads(end)["error"]["code"]) == (200, 2, "invalid_argument"), name


@pytest.mark.parametrize("content_type", ["application/grpc-web+proto", "application/grpc-web-text"])
async def test_grpc_web_ends_with_trailers(gateway: Gateway, scripted: Scripted, content_type: str) -> None:
    is_text = "text" in content_type

    def sent(data: bytes) -> bytes:
        return base64.b64encode(data) if is_text else data

    async with conversation(gateway.url) as talk:
        await open_named(talk, content_type, sent(framed(request_for("a"))))
        scripted.says.put_nowait("one")
        assert await talk.chunk() == sent(framed(told("one")))

        scripted.says.put_nowait("gone")
        trailers = b"grpc-status: 5\r\ngrpc-message: ticket id: a not found\r\n"
        assert await talk.chunk() == sent(framed(trailers, 0x80))


async def test_a_framed_stream_is_told_of_the_end_of_its_server(scripted: Scripted) -> None:
    async with served(scripted) as gateway, conversation(gateway.url) as talk:
        await open_named(talk, "application/connect+proto", framed(request_for("a")))
        gateway.app._stopping.set()

        ((_, end),) = unframed(await talk.whole_body())
        assert json.loads(end)["error"] == {"code": "unavailable", "message": LEAVING}
