"""The gateway as a service."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import trustme
from tests.match.gateway.scripted import Scripted, served
from tests.match.gateway.talking import ask, conversation

from kizuna.errors import CannotListen, SettingsError
from kizuna.match.gateway import Gateway, exchange
from kizuna.service import running
from kizuna.settings import MatchSettings
from kizuna.testing.services import assert_starts_and_stops
from kizuna.testing.waiting import eventually


async def test_it_starts_and_stops_again_and_again(scripted: Scripted) -> None:
    gateway = Gateway(scripted.rpcs(), MatchSettings(), port=0)

    async def works() -> bool:
        return (await ask(gateway.url, "GET", "/v1/things/a")).status == 200

    await assert_starts_and_stops(lambda: gateway, times=8, check_working=works)


async def test_told_to_stop_it_answers_what_was_asked(scripted: Scripted) -> None:
    gateway = Gateway(scripted.rpcs(), MatchSettings(), port=0)
    async with running(gateway, stop_timeout_s=60) as block:
        calling = asyncio.create_task(ask(gateway.url, "GET", "/v1/things/slow"))
        await eventually(lambda: any(count.open for count in gateway.app.counts.values()))

        async def let_go_on_once_it_stops() -> None:
            await eventually(lambda: block.phase == "stopping" and gateway.app._stopping.is_set())
            scripted.go_on.set()

        letting = asyncio.create_task(let_go_on_once_it_stops())
    await letting

    assert (await calling).json() == {"id": "slow"}


async def test_told_twice_to_stop_it_cuts_off_whoever_is_still_there(scripted: Scripted) -> None:
    gateway = Gateway(scripted.rpcs(), MatchSettings(), port=0)
    async with running(gateway, stop_timeout_s=0.2):
        talking = conversation(gateway.url)
        talk = await talking.__aenter__()
        await talk.request("GET", "/v1/things/slow")
        await eventually(lambda: any(count.open for count in gateway.app.counts.values()))

    assert await talk.is_over()
    assert not any(count.open for count in gateway.app.counts.values())
    await talking.__aexit__(None, None, None)


async def test_a_body_that_comes_in_drops_is_not_waited_for(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BODY_WITHIN_S", 0.1)
    async with conversation(gateway.url) as talk:
        await talk.send(b"POST /v1/things HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")

        assert await talk.status() == 408
        assert b'"code": 4' in await talk.whole_body()
        assert await talk.is_over()


async def test_a_port_that_is_taken_is_named_with_its_setting(gateway: Gateway, scripted: Scripted) -> None:
    second = Gateway(scripted.rpcs(), MatchSettings(), port=gateway.port, port_setting="match.query_http_port")

    with pytest.raises(CannotListen, match=rf"127\.0\.0\.1:{gateway.port} .*match\.query_http_port"):
        async with running(second):
            pass


async def test_several_can_listen_on_one_port(scripted: Scripted) -> None:
    async with served(scripted, reuse_port=True) as first:
        second = Gateway(scripted.rpcs(), MatchSettings(), port=first.port, reuse_port=True)
        async with running(second):
            answers = [await ask(first.url, "GET", "/v1/things/a") for _ in range(8)]

    assert {answer.status for answer in answers} == {200}


async def test_health_is_what_the_process_says_of_itself(scripted: Scripted) -> None:
    problems: list[str] = []

    async def ready() -> list[str]:
        return problems

    async with served(scripted, ready=ready) as gateway:
        well = await ask(gateway.url, "GET", "/healthz")
        assert (well.status, well.body) == (200, b"ok")

        problems.append("10.9.9.9 does not answer")
        ill = await ask(gateway.url, "GET", "/healthz")
        assert (ill.status, ill.body) == (503, b"not ready")


# connections that others accept


@asynccontextmanager
async def handing_over(gateway: Gateway) -> AsyncIterator[str]:
    """A server that hands every connection to the gateway, with its first bytes; at this URL."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Porter(gateway), "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Porter(asyncio.Protocol):
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        protocol = self._gateway.protocol()
        if protocol is None:
            self._transport.abort()
            return
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(data)


async def test_a_connection_that_somebody_else_has_accepted_is_served(scripted: Scripted) -> None:
    gateway = Gateway(scripted.rpcs(), MatchSettings(), port=None)
    async with running(gateway), handing_over(gateway) as url, conversation(url) as talk:
        assert gateway.url == ""
        for id_ in ("a", "b"):
            await talk.request("GET", f"/v1/things/{id_}")
            assert await talk.status() == 200
            assert json.loads(await talk.whole_body()) == {"id": id_}


async def test_such_a_connection_ends_with_the_gateway(scripted: Scripted) -> None:
    gateway = Gateway(scripted.rpcs(), MatchSettings(), port=None)
    async with handing_over(gateway) as url, conversation(url) as talk:
        async with running(gateway):
            await talk.request("GET", "/v1/things/a/watch")
            await eventually(lambda: scripted.watching == 1)
        assert await talk.status() == 503
        assert json.loads(await talk.whole_body())["error"]["code"] == 14
        assert await talk.is_over()

        assert gateway.protocol() is None
        with pytest.raises(ConnectionError):
            await ask(url, "GET", "/v1/things/a")


# TLS


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = authority.issue_cert("127.0.0.1")
    server.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    server.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    return authority


def get(url: str, context: ssl.SSLContext) -> int:
    with urllib.request.urlopen(url, context=context, timeout=30) as response:
        status: int = response.status
        return status


async def test_with_a_certificate_it_is_served_by_tls(
    scripted: Scripted, authority: trustme.CA, tmp_path: Path
) -> None:
    settings = MatchSettings(tls_cert_file=str(tmp_path / "cert.pem"), tls_key_file=str(tmp_path / "key.pem"))
    async with served(scripted, settings) as gateway:
        assert gateway.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

        assert await asyncio.to_thread(get, f"{gateway.url}/v1/things/a", trusting) == 200


async def test_who_has_no_certificate_is_turned_away_where_one_is_asked_for(
    scripted: Scripted, authority: trustme.CA, tmp_path: Path
) -> None:
    settings = MatchSettings(
        tls_cert_file=str(tmp_path / "cert.pem"),
        tls_key_file=str(tmp_path / "key.pem"),
        tls_client_ca_file=str(tmp_path / "ca.pem"),
    )
    async with served(scripted, settings) as gateway:
        nobody = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(get, f"{gateway.url}/v1/things/a", nobody)

        somebody = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        authority.issue_cert("game@example.org").configure_cert(somebody)
        assert await asyncio.to_thread(get, f"{gateway.url}/v1/things/a", somebody) == 200


async def test_files_that_are_no_certificates_are_named(scripted: Scripted, tmp_path: Path) -> None:
    settings = MatchSettings(tls_cert_file=str(tmp_path / "no.pem"), tls_key_file=str(tmp_path / "no.key"))

    with pytest.raises(SettingsError, match=r"match\.tls_cert_file = .*no\.pem"):
        async with served(scripted, settings):
            pass
