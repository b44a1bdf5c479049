"""What the REST API refuses, and whom; and what it says while the server is away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.memory.rest.client import Client
from tests.memory.rest.serving import NOTE, on_a_free_port, serving

from kizuna import errors
from kizuna.app import connect
from kizuna.errors import CannotListen, SettingsError
from kizuna.memory.rest import RestApi
from kizuna.memory.rest.problems import status_of
from kizuna.service import running
from kizuna.settings import MemorySettings, Secret, Settings
from kizuna.testing import eventually
from kizuna.testing.fixtures import MakeProxy

# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "detail"),
    [
        ("POST", "/items", b"{no", 400, "the body is no JSON: "),
        ("POST", "/items", b"\xff", 400, "the body is no JSON: "),
        ("POST", "/items", b"", 400, "the body is no JSON: "),
        ("POST", "/items", b'{"type":"n","content":"\\ud800"}', 400, "the body is no JSON: "),
        ("POST", "/items", b'{"type":"n","content":' + b"[" * 100_000, 400, "the body is no JSON: "),
        ("POST", "/items", [], 422, "the body is not what is expected here: Expected `object`, got `array`"),
        ("POST", "/items", {"type": "note"}, 422, "the body is not what is expected here: Object missing required"),
        ("POST", "/items", NOTE | {"prio": 1}, 422, "the body is not what is expected here: Object contains unknown"),
        ("POST", "/items", NOTE | {"priority": "1"}, 422, "the body is not what is expected here: Expected `int`"),
        ("POST", "/items", NOTE | {"priority": 11}, 422, "priority cannot be 11"),
        ("POST", "/items", NOTE | {"id": "a b"}, 422, "'a b' cannot be the item of a key"),
        ("POST", "/items", NOTE | {"kind": "other"}, 422, "the body is not what is expected here: Invalid enum value"),
        ("POST", "/items", {"type": "n", "content": {"_encrypted": True}}, 422, "content cannot be a dictionary whose"),
        ("PUT", "/items/n", NOTE | {"id": "n"}, 422, "the id of what is put is in the path"),
        ("PATCH", "/items/none", {"content": 1}, 404, "there is no item 'none', or it has ended"),
        ("PATCH", "/items/none", {"type": None}, 422, "the body is not what is expected here: Expected `str`"),
        ("POST", "/items/none/touch", None, 404, "there is no item 'none', or it has ended"),
        ("DELETE", "/items/none", None, 404, "there is no item 'none', or it has ended"),
        ("GET", "/items?limit=many", None, 422, "the query is not what is expected here: Expected `int`"),
        ("GET", "/items?limit=0", None, 422, "limit cannot be 0"),
        ("GET", "/items?prio=1", None, 422, "the query is not what is expected here: Object contains unknown field"),
        ("GET", "/items?cursor=nonsense", None, 422, "cursor cannot be 'nonsense'"),
        ("GET", "/items?priority=1&priority_from=2", None, 422, "ask for a priority, or for those from priority_from"),
        ("DELETE", "/contexts/x?items=eat", None, 422, "the query is not what is expected here: Invalid enum value"),
        ("POST", "/contexts", {"name": "", "type": "t"}, 422, "name cannot be ''"),
        ("POST", "/contexts", {"name": "n", "type": "t", "id": "global"}, 422, "'global' cannot be the context"),
        ("POST", "/changed", {"names": ["a b"]}, 422, "'a b' cannot be the name"),
    ],
)
async def test_bad_calls_are_told_what_is_wrong(
    api: Client, method: str, path: str, body: Any, status: int, detail: str
) -> None:
    answer = await api(method, path, body)

    assert (answer.status, answer.detail[: len(detail)]) == (status, detail)
    assert answer.headers["content-type"] == "application/problem+json"


async def test_other_paths_and_methods_are_told_as_problems(api: Client) -> None:
    nowhere = await api("GET", "/nowhere", check=False)
    assert (nowhere.status, nowhere.detail) == (404, "there is no /nowhere; /openapi.json lists what there is")
    wrong_method = await api("DELETE", "/items", check=False)
    assert (wrong_method.status, wrong_method.detail) == (405, "DELETE cannot be done with /items")
    assert set(wrong_method.headers["allow"].replace(",", " ").split()) >= {"POST"}


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_that_is_too_large_is_refused(settings: Settings, declared: bool) -> None:
    async with serving(settings, largest_bytes=1000) as (_, api):
        within = await api("POST", "/items", {"type": "note", "content": "x" * 2000})
        assert (within.status, within.body["error"], within.body["facts"]["largest"]) == (413, "TooLarge", 1000)
        reader, writer = await asyncio.open_connection(api.address.hostname, api.address.port)
        length = "Content-Length: 10000000" if declared else "Transfer-Encoding: chunked"
        head = f"POST /items HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
        writer.write(head.encode() + b"" if declared else head.encode() + b"2000\r\n" + b"x" * 0x2000)
        answer = await asyncio.wait_for(reader.readuntil(b"}"), 20)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"the body has more than 8,000 bytes" in answer


async def test_what_a_web_page_could_send_unasked_is_refused(api: Client) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert (await api("POST", "/items", NOTE, Content_Type=content_type)).status == 415
    foreign = await api("POST", "/changed", {"names": ["a"]}, Origin="https://example.org")
    assert (foreign.status, foreign.detail) == (
        403,
        "without a token web pages are not served here; set memory.rest_token",
    )
    renamed = await api("GET", "/items", Host="evil.example.org:3712")
    assert (renamed.status, renamed.detail) == (
        421,
        "without a token only localhost is served here; set memory.rest_token",
    )
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:3712", "[::1]:3712"):
        assert (await api("GET", "/items", Host=host)).status == 200


# -- who may call ------------------------------------------------------------------------------------------------------


async def test_with_a_token_only_those_who_know_it_may_call(settings: Settings) -> None:
    async with serving(settings, rest_token=Secret("sésame")) as (_, api):
        stranger = Client(api.address.geturl())
        for given in ("", "Bearer", "Bearer wrong", "Bearer sesame", "Basic sésame", "bearer"):
            headers: dict[str, Any] = {"Authorization": given} if given else {}
            refused = await stranger("GET", "/items", **headers)
            assert refused.status == 401
            assert refused.headers["www-authenticate"] == 'Bearer realm="kizuna memory"'
        assert (await stranger("POST", "/items", NOTE)).status == 401
        assert (await stranger("GET", "/health")).status == 200
        assert (await stranger("GET", "/openapi.json")).status == 200


async def test_the_right_token_opens_from_anywhere(settings: Settings) -> None:
    async with serving(settings, rest_token=Secret("open"), rest_host="0.0.0.0") as (_, api):
        client = Client(api.address.geturl().replace("0.0.0.0", "127.0.0.1"), "open")
        answer = await client("GET", "/items", Host="memory.example.org", Origin="https://example.org")
        assert answer.status == 200


async def test_a_token_in_a_file_counts(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    async with serving(settings, rest_token_file=str(tmp_path / "token")) as (_, api):
        assert (await api("GET", "/items")).status == 401
        assert (await api("GET", "/items", Authorization="Bearer from a file")).status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_without_a_token_it_listens_to_nobody_but_this_machine(settings: Settings, host: str) -> None:
    async with connect(on_a_free_port(settings, rest_host=host)) as k:
        with pytest.raises(SettingsError) as refused:
            async with running(RestApi(k)):
                pass
    assert str(refused.value) == (
        f"memory.rest_host = {host!r} lets others in than this machine, and there is no token; "
        "set memory.rest_token_file, or listen on 127.0.0.1"
    )


async def test_an_address_that_cannot_be_had_is_told(settings: Settings) -> None:
    async with serving(settings) as (k, api):
        taken = msgspec.structs.replace(k.settings.memory, rest_port=api.address.port)
        async with connect(msgspec.structs.replace(settings, memory=taken)) as other:
            with pytest.raises(CannotListen, match=r"Address already in use.*memory\.rest_host"):
                async with running(RestApi(other)):
                    pass
    nowhere = MemorySettings(rest_host="nowhere.invalid", rest_port=0)
    async with connect(msgspec.structs.replace(settings, memory=nowhere)) as k:
        with pytest.raises(CannotListen, match="there is no such host"):
            async with running(RestApi(k)):
                pass


# -- when the server is away -------------------------------------------------------------------------------------------


async def test_while_the_server_is_away_it_says_so(settings: Settings, proxy: MakeProxy) -> None:
    between = await proxy()
    store = msgspec.structs.replace(settings.store, url=between.url, timeout_s=2)
    async with serving(msgspec.structs.replace(settings, store=store)) as (k, api):
        assert (await api("GET", "/health")).body["status"] == "healthy"
        between.refuse()
        await between.cut()
        (link,) = k.store.topology.primaries()
        await eventually(lambda: link.wire is None)
        away = await api("GET", "/items/n")
        assert (away.status, away.body["facts"]["outcome"]) == (503, "not sent")
        assert away.headers["retry-after"] == "1"
        health = await api("GET", "/health")
        assert (health.status, health.body["status"]) == (503, "unhealthy")


def test_every_error_has_a_status() -> None:
    lost = errors.OutcomeUnknown("no answer", "somewhere", "look")
    assert status_of(lost) == 504
    assert status_of(errors.Unreachable("nobody", "there", "wait")) == 503
    assert status_of(errors.OutOfMemory("OOM", "there", "make room")) == 507
    assert status_of(errors.CannotOpen("n", "it was changed")) == 500
