"""Typed messages for whoever listens now, in plain pub/sub."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kizuna.app import connect
from kizuna.codecs import MSGPACK, RAW, TEXT, Codec
from kizuna.coordination.channels import Channels, Garbled, Message, Missed
from kizuna.errors import IllegalName, PermissionDenied, WrongValue
from kizuna.settings import RootsSettings, Settings, StoreSettings
from kizuna.testing import ServerProcess, eventually

if TYPE_CHECKING:
    from kizuna.store.client import Store


@dataclass(frozen=True)
class Request:
    issue: int
    what: str = "check"


async def test_what_is_published_arrives_with_its_type(store: Store) -> None:
    requests = Channels(store).channel("mirin", "requests", type=Request)
    async with requests.subscribe() as messages:
        assert await requests.publish(Request(123)) == 1
        assert await requests.publish(Request(124, "close")) == 1

        heard = [await anext(aiter(messages)), await anext(aiter(messages))]
    assert heard == [Request(123), Request(124, "close")]


@pytest.mark.parametrize(
    ("codec", "value"), [(RAW, b"\0\xff"), (TEXT, "縁"), (MSGPACK, {"a": [1, 2.5]})], ids=["raw", "text", "msgpack"]
)
async def test_other_formats_can_be_chosen(store: Store, codec: Codec, value: object) -> None:
    channel = Channels(store).channel("mirin:requests", codec=codec)
    async with channel.subscribe() as messages:
        await channel.publish(value)

        assert await messages.next(timeout_s=5) == Message("mirin:requests", value)


async def test_others_take_part_with_plain_commands(store: Store, server: ServerProcess, root: str) -> None:
    requests = Channels(store).channel("mirin", "requests", type=Request)
    with server.connect() as outsider:
        outsider.call("SUBSCRIBE", f"{root}:channel:mirin:requests")
        async with requests.subscribe() as messages:
            assert await requests.publish(Request(1)) == 2
            server.call("PUBLISH", f"{root}:channel:mirin:requests", '{"what": "close", "issue": 2}')

            assert await messages.next(timeout_s=5) == Message("mirin:requests", Request(1))
            assert await messages.next(timeout_s=5) == Message("mirin:requests", Request(2, "close"))
        heard = [outsider._next_reply() for _ in range(2)]
    assert [message for _, _, message in heard] == [
        b'{"issue":1,"what":"check"}', b'{"what": "close", "issue": 2}',
    ]  # fmt: skip


async def test_a_pattern_hears_all_channels_that_fit_and_names_them(store: Store) -> None:
    channels = Channels(store)
    async with channels.matching("events", "*", type=int).subscribe() as messages:
        await channels.channel("events", "issue", "status").publish(1)
        await channels.channel("mirin", "requests").publish(2)
        await channels.channel("events", "lock").publish(3)

        assert await messages.next(timeout_s=5) == Message("events:issue:status", 1)
        assert await messages.next(timeout_s=5) == Message("events:lock", 3)


async def test_a_message_that_cannot_be_read_is_told_and_the_next_one_comes(
    store: Store, server: ServerProcess, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    requests = Channels(store).channel("mirin", "requests", type=Request)
    async with requests.subscribe() as messages, requests.subscribe() as everything:
        server.call("PUBLISH", f"{root}:channel:mirin:requests", "no JSON")
        server.call("PUBLISH", f"{root}:channel:mirin:requests", '{"issue": "no number"}')
        await requests.publish(Request(1))

        assert await anext(aiter(messages)) == Request(1)
        assert messages.garbled == 2
        told = [await everything.next(timeout_s=5) for _ in range(3)]
    assert [type(item) for item in told] == [Garbled, Garbled, Message]
    assert isinstance(told[0], Garbled)
    assert told[0].error.raw == b"no JSON"
    assert caplog.text.count("message not read") == 2


async def test_a_lost_connection_says_that_something_may_have_been_missed(fresh_server: ServerProcess) -> None:
    async with connect(Settings(store=StoreSettings(url=fresh_server.url))) as k:
        news = k.channels.channel("news")
        async with news.subscribe() as messages:
            fresh_server.call("CLIENT", "KILL", "TYPE", "pubsub")

            assert isinstance(await messages.next(timeout_s=5), Missed)
            assert messages.missed == 1
            await news.publish("again")
            assert await messages.next(timeout_s=5) == Message("news", "again")


async def test_plain_iteration_goes_on_after_a_lost_connection(
    fresh_server: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(Settings(store=StoreSettings(url=fresh_server.url))) as k:
        news = k.channels.channel("news")
        async with news.subscribe() as messages:
            fresh_server.call("CLIENT", "KILL", "TYPE", "pubsub")
            hearing = asyncio.ensure_future(anext(aiter(messages)))
            await eventually(lambda: messages.missed == 1)
            await news.publish("again")

            assert await hearing == "again"
    assert "messages may have been missed" in caplog.text


async def test_nobody_hears_what_is_published_before_or_after(store: Store) -> None:
    news = Channels(store).channel("news")
    assert await news.publish("before") == 0
    async with news.subscribe() as messages:
        assert await messages.next(timeout_s=0) is None

    async def nobody_hears() -> bool:
        return await news.publish("after") == 0

    # To listen and to publish are two connections: the server may see the publishing first.
    await eventually(nobody_hears)


async def test_a_message_that_is_too_long_is_refused_before_it_is_sent(store: Store) -> None:
    news = Channels(store).channel("news", codec=TEXT, longest_bytes=10)
    async with news.subscribe() as messages:
        await news.publish("x" * 10)
        with pytest.raises(WrongValue, match="a message on channel news cannot be 11 bytes long; expected 10 at most"):
            await news.publish("x" * 11)

        assert await messages.next(timeout_s=5) == Message("news", "x" * 10)
        assert await messages.next(timeout_s=0) is None


@pytest.mark.parametrize("name", ["", "a b", "a::b", "a:", "{a}"])
async def test_a_name_that_is_none_is_refused(store: Store, name: str) -> None:
    with pytest.raises(IllegalName):
        Channels(store).channel(name)
    with pytest.raises(IllegalName):
        Channels(store).matching(name)


async def test_only_patterns_may_have_wildcards(store: Store) -> None:
    with pytest.raises(IllegalName, match="not allowed in a name"):
        Channels(store).channel("events:*")


async def test_a_channel_that_is_denied_is_told(root: str) -> None:
    rules = f"on >secret ~* &{root}:channel:mine* &{root}:channel:mine:* &__keyspace* +@all"
    with ServerProcess(users={"one": rules}) as server:
        store = StoreSettings(url=server.url, username="one", password="secret")  # type: ignore[arg-type]
        async with connect(Settings(store=store, roots=RootsSettings(system=root, coordination=root))) as k:
            assert await k.channels.channel("mine").publish(1) == 0
            with pytest.raises(PermissionDenied):
                await k.channels.channel("yours").publish(1)
            with pytest.raises(PermissionDenied):
                async with k.channels.channel("yours").subscribe():
                    pass


async def test_channels_that_somebody_listens_to_are_listed(store: Store) -> None:
    channels = Channels(store)
    one, other = channels.channel("events", "issue"), channels.channel("mirin", "requests")
    async with one.subscribe(), other.subscribe():
        assert await channels.active() == {"events:issue": 1, "mirin:requests": 1}
    await eventually(lambda: _nobody(channels))


async def _nobody(channels: Channels) -> bool:
    return await channels.active() == {}


async def test_a_part_may_be_a_number_as_in_the_names_of_keys(store: Store, root: str) -> None:
    assert Channels(store).channel("issue", 7).full_name == f"{root}:channel:issue:7"
