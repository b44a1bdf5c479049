"""Few units of a process hear each on its own; many share one subscription, and hear what they would hear alone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.settings import Settings
from kizuna.testing import eventually
from kizuna.testing.servers import ServerProcess
from kizuna.units.ears import ON_THEIR_OWN
from kizuna.units.executions import Request
from kizuna.units.unit import Unit

MANY = ON_THEIR_OWN + 10


async def name_of_itself(_: bytes, request: Request) -> bytes:
    return request.path.split("/")[-1].partition(".")[0].encode()


def patterns(k: Kizuna, status: str) -> list[bytes]:
    """What this process has subscribed to, of keys with this status."""
    names = [subscription.name for subscription in k.store.events._subscriptions]
    return [name for name in names if name.startswith(b"__keyspace@") and f"/{status}/".encode() in name]


async def serve_all(k: Kizuna, stack: AsyncExitStack, number: int) -> list[Unit]:
    units = [k.unit(f"unit-{each}") for each in range(number)]
    await asyncio.gather(*(stack.enter_async_context(unit.serving(name_of_itself)) for unit in units))
    return units


async def test_many_units_share_one_subscription_and_each_serves_its_own(k: Kizuna, settings: Settings) -> None:
    async with AsyncExitStack() as stack, connect(settings) as other:
        await serve_all(k, stack, MANY)

        assert len(patterns(k, "req")) == ON_THEIR_OWN + 1
        camera = other.unit("camera")
        replies = await asyncio.gather(*(camera.request(f"unit-{each}") for each in range(MANY)))
        assert replies == [f"unit-{each}".encode() for each in range(MANY)]
    assert patterns(k, "req") == []


async def test_many_units_that_ask_share_theirs_and_each_gets_its_own_reply(k: Kizuna) -> None:
    async def who_asks(_: bytes, request: Request) -> bytes:
        return request.caller.encode()

    async with k.unit("detector").serving(who_asks):
        asking = (k.unit(f"unit-{each}").request("detector") for each in range(MANY))
        assert await asyncio.gather(*asking) == [f"unit-{each}".encode() for each in range(MANY)]

    assert len(patterns(k, "res")) == len(patterns(k, "err")) == ON_THEIR_OWN + 1


async def test_the_last_who_shared_takes_the_subscription_along_and_the_next_begins_it_anew(k: Kizuna) -> None:
    async with AsyncExitStack() as stack:
        await serve_all(k, stack, ON_THEIR_OWN)
        for _ in range(2):
            async with k.unit("late").serving(name_of_itself):
                assert len(patterns(k, "req")) == ON_THEIR_OWN + 1
                assert await k.unit("camera").request("late") == b"late"
            assert len(patterns(k, "req")) == ON_THEIR_OWN


async def test_who_shares_finds_what_was_written_while_it_was_cut_off(
    settings: Settings, fresh_server: ServerProcess
) -> None:
    store = msgspec.structs.replace(settings.store, url=fresh_server.url)
    async with connect(msgspec.structs.replace(settings, store=store)) as k, AsyncExitStack() as stack:
        await serve_all(k, stack, MANY)
        root = k.units.root
        with fresh_server.connect() as outsider:
            outsider.call("CLIENT", "KILL", "TYPE", "pubsub")
            outsider.call("SET", f"{root}/me/req/unit-{MANY - 1}.1", "", "EX", 10)

            await eventually(lambda: outsider.call("GET", f"{root}/me/res/unit-{MANY - 1}.1"))


@pytest.fixture
def tight_server(fresh_server: ServerProcess, root: str) -> ServerProcess:
    """Its user `narrow` may subscribe to the requests to each unit, and not to all requests."""
    channels = [f"&__keyspace@0__:{root}/*/req/unit-{each}.*" for each in range(MANY)]
    rights = ["+@all", f"~{root}*", f"&__keyspace@0__:{root}:canary:{{*}}:*", f"&{root}/*", *channels]
    fresh_server.call("ACL", "SETUSER", "narrow", "reset", "on", ">secret", *rights)
    return fresh_server


async def test_who_may_not_hear_everything_hears_on_its_own(settings: Settings, tight_server: ServerProcess) -> None:
    store = msgspec.structs.replace(settings.store, url=tight_server.url, username="narrow", password="secret")
    async with connect(msgspec.structs.replace(settings, store=store)) as k, AsyncExitStack() as stack:
        await serve_all(k, stack, MANY)

        assert len(patterns(k, "req")) == MANY
        assert k.units.announcing.polling() == set()
