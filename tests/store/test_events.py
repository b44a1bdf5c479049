"""What is heard, by whom, and in which order, while everything works."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kizuna.app import connect
from kizuna.errors import Unreachable
from kizuna.settings import EventsSettings, RootsSettings, Settings, StoreSettings
from kizuna.store.events import Change, LookAgain, Message
from kizuna.testing import ServerProcess, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kizuna.store.client import Store
    from kizuna.store.events import Feed


async def test_only_the_kinds_asked_for_are_heard(store: Store, scratch: str) -> None:
    async with store.events.watch(f"{scratch}*", kinds=("set", "del")) as feed:
        await store.call("SET", f"{scratch}a", "1", "EX", 100)
        await store.call("HSET", f"{scratch}h", "field", "1")
        await store.call("EXPIRE", f"{scratch}a", 200)
        await store.call("DEL", f"{scratch}a")

        assert await feed.next(timeout_s=5) == Change(f"{scratch}a", "set")
        assert await feed.next(timeout_s=5) == Change(f"{scratch}a", "del")
        assert await feed.next(timeout_s=0) is None


async def test_kinds_of_every_type_are_heard_by_their_names(store: Store, scratch: str) -> None:
    kinds = ("hset", "lpush", "sadd", "zadd", "xadd", "incrby", "expire", "expired", "persist")
    commands: list[tuple[str | int, ...]] = [
        ("HSET", f"{scratch}h", "f", 1), ("LPUSH", f"{scratch}l", 1), ("SADD", f"{scratch}s", 1),
        ("ZADD", f"{scratch}z", 1, "m"), ("XADD", f"{scratch}x", "*", "f", 1), ("INCR", f"{scratch}n"),
        ("EXPIRE", f"{scratch}n", 9), ("PERSIST", f"{scratch}n"), ("SET", f"{scratch}e", "", "PX", 1),
    ]  # fmt: skip
    async with store.events.watch(f"{scratch}*", kinds=kinds) as feed:
        for command in commands:
            await store.call(*command)
        heard = [event.kind async for event in _first(feed, 10) if isinstance(event, Change)]

    assert heard == ["hset", "lpush", "sadd", "zadd", "xadd", "incrby", "expire", "persist", "expire", "expired"]


async def test_one_key_is_watched_without_hearing_of_its_neighbours(store: Store, scratch: str) -> None:
    async with store.events.watch(f"{scratch}a") as feed:
        await store.call("SET", f"{scratch}ab", "1")
        await store.call("SET", f"{scratch}a", "1")

        assert await feed.next(timeout_s=5) == Change(f"{scratch}a", "set")


async def test_nothing_written_after_entering_is_missed(store: Store, scratch: str) -> None:
    for number in range(200):
        key = f"{scratch}{number}"
        async with store.events.watch(f"{scratch}{number}*") as feed:
            await store.call("SET", key, "1")
            assert await feed.next(timeout_s=5) == Change(key, "set")


async def test_readers_of_one_pattern_share_one_subscription_until_the_last_leaves(
    store: Store, server: ServerProcess, scratch: str
) -> None:
    def subscriptions() -> int:
        # The canary's own channel is not a pattern, and other tests' stores are closed, or will be in a moment.
        return int(server.call("PUBSUB", "NUMPAT"))

    async with store.events.watch(f"{scratch}*") as first:
        async with store.events.watch(f"{scratch}*", kinds=("del",)) as second:
            await eventually(lambda: subscriptions() == 1)
            await store.call("SET", f"{scratch}a", "1")
            await store.call("DEL", f"{scratch}a")

            assert await first.next(timeout_s=5) == Change(f"{scratch}a", "set")
            assert await second.next(timeout_s=5) == Change(f"{scratch}a", "del")
        assert subscriptions() == 1
        await store.call("SET", f"{scratch}b", "1")
        assert await first.next(timeout_s=5) == Change(f"{scratch}b", "set")

    await eventually(lambda: subscriptions() == 0)


async def test_all_readers_use_one_connection(store: Store, server: ServerProcess, scratch: str) -> None:
    async with (
        store.events.watch(f"{scratch}a*"),
        store.events.watch(f"{scratch}b"),
        store.events.listen(f"{scratch}c"),
        store.events.waiters(f"{scratch}d*"),
    ):
        # Those of earlier tests are closed, and gone in a moment.
        await eventually(lambda: len(listening(server)) == 1)
        assert "name=kizuna-events:" in listening(server)[0]


def listening(server: ServerProcess) -> list[str]:
    clients: bytes = server.call("CLIENT", "LIST", "TYPE", "PUBSUB")
    return clients.decode().splitlines()


async def test_published_messages_arrive_with_channel_and_payload(store: Store, scratch: str) -> None:
    async with store.events.listen(f"{scratch}news") as news, store.events.listen(f"{scratch}*") as everything:
        await store.call("PUBLISH", f"{scratch}news", b"\xff\x00")
        await store.call("PUBLISH", f"{scratch}other", "x")

        assert await news.next(timeout_s=5) == Message(f"{scratch}news", b"\xff\x00")
        assert await everything.next(timeout_s=5) == Message(f"{scratch}news", b"\xff\x00")
        assert await everything.next(timeout_s=5) == Message(f"{scratch}other", b"x")
        assert await news.next(timeout_s=0) is None


async def test_a_key_that_is_no_text_is_heard_and_is_none_of_ours(store: Store, scratch: str) -> None:
    async with store.events.watch(f"{scratch}*") as feed:
        await store.call("SET", scratch.encode() + b"\xff", "1")
        change = await feed.next(timeout_s=5)

    assert isinstance(change, Change)
    assert change.key.encode(errors="surrogateescape") == scratch.encode() + b"\xff"


async def test_only_the_database_of_the_url_is_heard(settings: Settings, server: ServerProcess, scratch: str) -> None:
    third = Settings(store=StoreSettings(url=f"redis://{server.address}/3"), roots=settings.roots)
    async with connect(third) as kizuna, kizuna.store.events.watch(f"{scratch}*") as feed:
        server.call("SET", f"{scratch}a", "in database 0")
        await kizuna.store.call("SET", f"{scratch}b", "in database 3", "PX", 10_000)

        assert await feed.next(timeout_s=5) == Change(f"{scratch}b", "set")


async def test_canaries_wake_nobody(store: Store, root: str) -> None:
    async with store.events.watch(f"{root}:*") as feed:
        for listener in store.events._listeners.values():
            await listener.prove()

        assert await feed.next(timeout_s=0) is None


async def test_of_twenty_thousand_events_none_is_lost(settings: Settings, scratch: str) -> None:
    roomy = Settings(store=settings.store, roots=settings.roots, events=EventsSettings(buffer=20_000))
    async with connect(roomy) as kizuna, kizuna.store.events.watch(f"{scratch}*") as feed:
        for start in range(0, 20_000, 1000):
            calls = (kizuna.store.call("SET", f"{scratch}{i}", "") for i in range(start, start + 1000))
            await asyncio.gather(*calls)
        heard = [event async for event in _first(feed, 20_000)]

    assert heard == [Change(f"{scratch}{i}", "set") for i in range(20_000)]


async def test_a_slow_reader_loses_what_it_had_not_read_and_is_told_so(settings: Settings, scratch: str) -> None:
    narrow = Settings(store=settings.store, roots=settings.roots, events=EventsSettings(buffer=10))
    async with connect(narrow) as kizuna:
        store = kizuna.store
        async with store.events.watch(f"{scratch}*") as slow, store.events.watch(f"{scratch}*") as quick:
            for i in range(14):
                await store.call("SET", f"{scratch}{i}", "")
                assert await quick.next(timeout_s=5) == Change(f"{scratch}{i}", "set")

            told = await slow.next(timeout_s=5)
            assert told == LookAgain("the reader was slow: more than 10 events waited for it, and were dropped")
            rest = [await slow.next(timeout_s=5) for _ in range(3)]
            assert rest == [Change(f"{scratch}{i}", "set") for i in (11, 12, 13)]
            assert store.events.counts.dropped == 11


async def test_a_thousand_tasks_wait_for_a_key_each(store: Store, scratch: str) -> None:
    async with store.events.waiters(f"{scratch}*") as waiters:
        waiting = {f"{scratch}{i}": waiters.waiter(f"{scratch}{i}") for i in range(1000)}
        await asyncio.gather(*(store.call("SET", key, "") for key in waiting))
        async with asyncio.timeout(5):
            heard = await asyncio.gather(*waiting.values())

        assert heard == [Change(key, "set") for key in waiting]
        assert len(waiters) == 0


async def test_who_stops_waiting_is_forgotten_and_disturbs_nobody_else(store: Store, scratch: str) -> None:
    async with store.events.waiters(f"{scratch}*") as waiters:
        patient, impatient = waiters.waiter(f"{scratch}a"), waiters.waiter(f"{scratch}a")
        alone = waiters.waiter(f"{scratch}b")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await alone
        impatient.cancel()
        await store.call("SET", f"{scratch}b", "")
        await store.call("SET", f"{scratch}a", "")

        async with asyncio.timeout(5):
            assert await patient == Change(f"{scratch}a", "set")
        assert len(waiters) == 0


async def test_waiting_for_a_key_outside_of_the_pattern_is_refused(store: Store, scratch: str) -> None:
    async with store.events.waiters(f"{scratch}res/*") as waiters:
        with pytest.raises(ValueError, match="is outside of what was subscribed to"):
            waiters.waiter(f"{scratch}req/1")


async def test_a_feed_ends_with_its_block(store: Store, scratch: str) -> None:
    async with store.events.watch(f"{scratch}*") as feed:
        await store.call("SET", f"{scratch}a", "")
        await eventually(lambda: store.events.counts.received)

    assert [event async for event in feed] == [Change(f"{scratch}a", "set")]
    with pytest.raises(Unreachable, match="this reader is closed"):
        await feed.next()


async def test_closing_the_store_ends_every_iteration_and_every_wait(settings: Settings, scratch: str) -> None:
    kizuna = await connect(settings)
    events = kizuna.store.events
    async with events.watch(f"{scratch}*") as feed, events.waiters(f"{scratch}*") as waiters:
        waiter = waiters.waiter(f"{scratch}a")
        iteration = asyncio.create_task(_all(feed))
        await asyncio.sleep(0)  # the iteration has begun
        await kizuna.aclose()

        async with asyncio.timeout(5):
            assert await iteration == []
        with pytest.raises(Unreachable, match="this reader is closed"):
            await waiter
    with pytest.raises(Unreachable, match="the store was closed"):
        async with events.watch(f"{scratch}*"):
            pass


async def test_nothing_is_left_after_fifty_stores_that_listened(
    settings: Settings, fresh_server: ServerProcess, root: str
) -> None:
    before = asyncio.all_tasks()
    for _ in range(50):
        own = Settings(store=StoreSettings(url=fresh_server.url), roots=RootsSettings(system=root))
        async with connect(own) as kizuna, kizuna.store.events.watch("a*"):
            pass

    assert asyncio.all_tasks() == before
    await eventually(lambda: fresh_server.info("clients")["connected_clients"] == "1")


async def test_without_a_reader_there_is_no_connection(store: Store, server: ServerProcess) -> None:
    assert store.events.seconds_since_canary is None
    await eventually(lambda: b"kizuna-events" not in server.call("CLIENT", "LIST"))


async def test_the_canary_leaves_no_key_that_stays(store: Store, server: ServerProcess, root: str) -> None:
    async with store.events.watch("a"):
        (key,) = server.call("KEYS", f"{root}:canary:*")

    assert 0 < server.call("PTTL", key) <= 12_000
    assert store.events.seconds_since_canary is not None
    assert store.events.seconds_since_canary < 5


async def test_no_kinds_at_all_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="kinds is empty"):
        async with store.events.watch("a", kinds=()):
            pass


async def _first(feed: Feed[Change], count: int) -> AsyncIterator[Change | LookAgain]:
    for _ in range(count):
        event = await feed.next(timeout_s=10)
        assert event is not None
        yield event


async def _all(feed: Feed[Change]) -> list[Change | LookAgain]:
    return [event async for event in feed]
