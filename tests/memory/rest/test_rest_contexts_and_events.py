"""Contexts and events over HTTP, and what ends items; every answer is compared with its description."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.memory.rest.client import Client, wrong
from tests.memory.rest.serving import NOTE, on_a_free_port, serving

from kizuna.app import connect
from kizuna.memory.events import Event
from kizuna.memory.keys import CONTEXT
from kizuna.memory.rest import RestApi
from kizuna.service import running
from kizuna.settings import Settings
from kizuna.testing import ServerProcess, eventually

# -- contexts ----------------------------------------------------------------------------------------------------------


async def test_a_context_is_created_read_changed_and_deleted(api: Client) -> None:
    created = await api("POST", "/contexts", {"name": "Trip", "type": "travel", "id": "trip/7", "metadata": {"a": 1}})
    assert (created.status, created.headers["etag"]) == (201, '"1"')
    path = created.headers["location"]
    assert path == "/contexts/trip%2F7"
    assert (await api("GET", path)).body == created.body
    assert (await api("POST", "/contexts", {"name": "Trip", "type": "travel", "id": "trip/7"})).status == 409

    changed = await api("PATCH", path, {"name": "Journey", "at_end": "leave"}, If_Match='"1"')
    assert (changed.body["name"], changed.body["at_end"], changed.body["metadata"]) == ("Journey", "leave", {"a": 1})
    assert (await api("PATCH", path, {"name": "Trip"}, If_Match='"1"')).status == 412
    assert (await api("PATCH", path, {"name": "Trip", "expected_version": 1})).status == 409

    assert (await api("POST", f"{path}/deactivate")).body["active"] is False
    assert [context["id"] for context in (await api("GET", "/contexts?active=false")).body["contexts"]] == ["trip/7"]
    assert (await api("GET", "/contexts?active=true")).body["contexts"] == []
    assert (await api("POST", f"{path}/activate")).body["active"] is True
    assert (await api("POST", f"{path}/touch")).status == 200
    assert (await api("GET", "/contexts?type=travel&limit=1")).body["cursor"] == ""

    await api("PUT", "/items/n", NOTE | {"context": "trip/7"})
    assert (await api("DELETE", f"{path}?items=delete")).status == 204
    await eventually(lambda: is_gone(api, "/items/n"))
    for method, where in (("GET", path), ("DELETE", path), ("POST", f"{path}/touch")):
        missing = await api(method, where)
        assert (missing.status, missing.body["error"]) == (404, "ContextMissing")


async def test_a_context_that_cannot_be_read_does_not_spoil_the_list(
    api: Client, server: ServerProcess, root: str
) -> None:
    for id_ in ("spoilt", "whole"):
        await api("POST", "/contexts", {"name": "Trip", "type": "travel", "id": id_, "metadata": {"a": 1}})
    server.call("HSET", CONTEXT.build(root, context="spoilt"), "metadata", "{oops")

    spoilt, whole = (await api("GET", "/contexts")).body["contexts"]
    assert (spoilt["metadata"], whole["metadata"]) == ({}, {"a": 1})
    assert "is not the JSON it should be" in spoilt["problem"]
    assert (await api("GET", "/contexts/spoilt")).body == spoilt
    mended = await api("PATCH", "/contexts/spoilt", {"metadata": {"a": 2}})
    assert (mended.status, mended.body["metadata"]) == (200, {"a": 2})


async def is_gone(api: Client, path: str) -> bool:
    return (await api("GET", path)).status == 404


# -- what ends items, and what happened --------------------------------------------------------------------------------


async def test_changes_and_generations_end_items(api: Client) -> None:
    await api("PUT", "/items/a", NOTE | {"depends_on": ["weather"]})
    await api("PUT", "/items/b", NOTE | {"generation": "model"})

    assert (await api("POST", "/changed", {"names": ["weather", "none"]})).body == {"ended": 1}
    assert (await api("GET", "/items/a")).status == 404
    assert (await api("POST", "/generations/model")).body == {"generation": 1}
    assert (await api("GET", "/items/b")).status == 404


async def test_events_are_read_by_cursor(api: Client) -> None:
    await api("PUT", "/items/a", NOTE)
    first = (await api("GET", "/events?limit=1")).body
    await api("DELETE", "/items/a")
    rest = (await api("GET", f"/events?since={first['cursor']}")).body

    assert [(event["kind"], event["id"]) for event in first["events"]] == [("item:created", "a")]
    assert [(event["kind"], event["reason"]) for event in rest["events"]] == [("item:deleted", "deleted")]
    nothing = (await api("GET", f"/events?since={rest['cursor']}")).body
    assert nothing == {"events": [], "cursor": rest["cursor"]}
    assert (await api("GET", "/events?since=nonsense")).status == 422


class Stream:
    """Server-sent events, as a browser reads them."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def next(self) -> dict[str, str]:
        fields: dict[str, str] = {}
        async with asyncio.timeout(20):
            while line := (await self._reader.readline()).decode().rstrip("\r\n"):
                name, colon, value = line.partition(": ")
                if colon:
                    fields[name] = value
                elif fields and re.fullmatch("[0-9a-f]+", line):
                    continue  # the length of a chunk
            return fields or await self._end_or_next()

    async def _end_or_next(self) -> dict[str, str]:
        return {} if self._reader.at_eof() else await self.next()


@asynccontextmanager
async def streaming(api: Client, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    host, port = api.address.hostname or "", api.address.port
    reader, writer = await asyncio.open_connection(host, port)
    lines = [f"GET /events/stream{query} HTTP/1.0", f"Host: {host}:{port}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    try:
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode().lower()
        assert " 200 " in head.splitlines()[0]
        assert "content-type: text/event-stream" in head
        yield Stream(reader)
    finally:
        writer.close()


async def test_events_come_as_a_stream_that_goes_on_where_it_was_left(api: Client) -> None:
    async with streaming(api) as stream:
        begin = await stream.next()
        assert begin["retry"] == "1000"
        await api("PUT", "/items/a", NOTE)
        created = await stream.next()
        assert created["event"] == "item:created"
        assert json.loads(created["data"])["id"] == "a"
        assert wrong(json.loads(created["data"]), {"$ref": "#/components/schemas/Event"}) == []
        assert json.loads(created["data"])["cursor"] == created["id"]
    await api("PUT", "/items/b", NOTE)
    for query, headers in (("", {"Last_Event_ID": created["id"]}), (f"?since={created['id']}", {})):
        async with streaming(api, query, **headers) as stream:
            assert (await stream.next())["id"] == created["id"]
            assert json.loads((await stream.next())["data"])["id"] == "b"
    async with streaming(api, f"?since={begin['id']}", Last_Event_ID=created["id"]) as stream:
        await stream.next()
        assert json.loads((await stream.next())["data"])["id"] == "b"


async def test_a_stream_from_a_wrong_place_is_refused_with_a_status(settings: Settings) -> None:
    async with serving(settings, feed_length=1) as (_, api):
        assert (await api("GET", "/events/stream?since=nonsense")).status == 422
        first = (await api("PUT", "/items/a", NOTE), (await api("GET", "/events?limit=1")).body["cursor"])[1]
        # The server trims its feed roughly: some hundred at a time.
        await api("POST", "/batch/create", {"items": [NOTE for _ in range(500)]})
        gone = await api("GET", f"/events/stream?since={first}")
        assert (gone.status, gone.body["error"]) == (410, "EventsGone")
        assert (await api("GET", f"/events?since={first}")).status == 410


async def test_streams_end_when_the_service_stops(settings: Settings) -> None:
    async with connect(on_a_free_port(settings)) as k:
        api = RestApi(k)
        async with running(api, stop_timeout_s=40):
            connection = streaming(Client(api.url))
            stream = await connection.__aenter__()
            await stream.next()
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 8, "it had to be told twice"
        assert await stream.next() == {}
        await connection.__aexit__(None, None, None)


async def test_a_stream_that_cannot_go_on_ends_so_that_its_reader_comes_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: str) -> AsyncIterator[Event]:
        raise ZeroDivisionError
        yield

    async with serving(settings) as (k, api):
        monkeypatch.setattr(k.memory, "follow", broken)
        async with streaming(api) as stream:
            assert "retry" in await stream.next()
            assert await stream.next() == {}

    assert "stream of events failed" in caplog.messages


async def test_a_reader_that_goes_away_leaves_nothing(api: Client) -> None:
    def pumps() -> int:
        return sum(task.get_name() == "kizuna memory events" for task in asyncio.all_tasks())

    for _ in range(3):
        async with streaming(api) as stream:
            await stream.next()
            assert pumps() == 1
        await eventually(lambda: pumps() == 0, within_s=20)
