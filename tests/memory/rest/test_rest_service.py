"""The REST API as a service."""

from __future__ import annotations

import asyncio

from tests.memory.rest.client import Client
from tests.memory.rest.serving import on_a_free_port

from kizuna.app import connect
from kizuna.memory.rest import RestApi
from kizuna.service import running
from kizuna.settings import Settings
from kizuna.testing.services import assert_starts_and_stops


async def test_it_starts_and_stops_again_and_again(settings: Settings) -> None:
    async with connect(on_a_free_port(settings)) as k:
        await k.memory.begin()
        last: list[RestApi] = []

        def make() -> RestApi:
            last[:] = [RestApi(k)]
            return last[0]

        async def works() -> bool:
            return (await Client(last[0].url)("GET", "/health")).status == 200

        await assert_starts_and_stops(make, times=8, check_working=works)


async def test_told_twice_to_stop_it_cuts_off_whoever_is_still_there(settings: Settings) -> None:
    async with connect(on_a_free_port(settings)) as k:
        api = RestApi(k)
        async with running(api, stop_timeout_s=0.2):
            client = Client(api.url)
            reader, writer = await asyncio.open_connection(client.address.hostname, client.address.port)
            # A request whose body never comes.
            writer.write(b"POST /items HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
            await asyncio.sleep(0.1)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
