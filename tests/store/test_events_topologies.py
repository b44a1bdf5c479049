"""Hearing goes on when the primary, or the primaries, become others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kizuna.app import connect
from kizuna.settings import EventsSettings, RootsSettings, Settings, StoreSettings
from kizuna.store.events import Change, LookAgain, Message
from kizuna.testing import ClusterSetup, SentinelSetup, ServerProcess, eventually
from kizuna.testing.waiting import blocking_until

if TYPE_CHECKING:
    from kizuna.store.events import Feed

QUICK = EventsSettings(canary_every_s=0.2, canary_timeout_s=1.5)


def quick(url: str, root: str = "t-topologies") -> Settings:
    store = StoreSettings(url=url, timeout_s=5, connect_timeout_s=1, reconnect_longest_s=0.2)
    return Settings(store=store, events=QUICK, roots=RootsSettings(system=root))


# -- Sentinel ---------------------------------------------------------------------------------------------


async def test_a_failover_is_followed_and_everybody_looks_again(fresh_sentinel: SentinelSetup) -> None:
    async with connect(quick(fresh_sentinel.url)) as kizuna, kizuna.store.events.watch("a*") as feed:
        former = await asyncio.to_thread(fresh_sentinel.kill_primary)
        promoted = await asyncio.to_thread(fresh_sentinel.wait_for_failover, former)

        assert isinstance(await feed.next(timeout_s=5), LookAgain)
        promoted.call("SET", "a1", "")
        assert await _next_change(feed) == Change("a1", "set")


async def test_a_primary_that_was_demoted_and_lives_on_is_left(fresh_sentinel: SentinelSetup) -> None:
    async with connect(quick(fresh_sentinel.url)) as kizuna, kizuna.store.events.watch("a*") as feed:
        promoted = await asyncio.to_thread(fresh_sentinel.change_roles)

        assert isinstance(await feed.next(timeout_s=5), LookAgain)
        await eventually(lambda: _listens_at(promoted, "a*"))
        promoted.call("SET", "a1", "")
        assert await _next_change(feed) == Change("a1", "set")


# -- Cluster ----------------------------------------------------------------------------------------------


async def test_changes_on_every_primary_are_heard_once(cluster: ClusterSetup, root: str) -> None:
    keys = [f"{root}:{i}" for i in range(60)]
    async with connect(quick(cluster.url, root)) as kizuna, kizuna.store.events.watch(f"{root}:*") as feed:
        assert len({cluster.owner_of(cluster.slot_of(key)).port for key in keys[:20]}) == 3
        for key in keys:
            await kizuna.store.call("SET", key, "", "PX", 10_000)
        heard = [await feed.next(timeout_s=5) for _ in keys]

        assert set(heard) == {Change(key, "set") for key in keys}
        assert await feed.next(timeout_s=0) is None
        assert all(_listens_at(server, f"{root}:*") for server in cluster.servers)


async def test_a_published_message_is_heard_once_whichever_node_it_was_given_to(
    cluster: ClusterSetup, root: str
) -> None:
    async with connect(quick(cluster.url, root)) as kizuna, kizuna.store.events.listen(f"{root}:news") as news:
        for number, server in enumerate(cluster.servers):
            server.call("PUBLISH", f"{root}:news", number)
        heard = {await news.next(timeout_s=5) for _ in cluster.servers}

        assert heard == {Message(f"{root}:news", b"%d" % number) for number in range(3)}
        assert await news.next(timeout_s=0) is None


async def test_every_canary_sings_on_its_own_primary(cluster: ClusterSetup, root: str) -> None:
    async with connect(quick(cluster.url, root)) as kizuna, kizuna.store.events.watch(f"{root}:*"):
        assert [len(server.call("KEYS", f"{root}:canary:*")) for server in cluster.servers] == [1, 1, 1]
        assert kizuna.store.events.counts.canary_failures == 0


async def test_a_slot_that_moves_takes_its_canary_and_its_events_along(cluster: ClusterSetup, root: str) -> None:
    first, second = cluster.servers[0], cluster.servers[1]
    async with connect(quick(cluster.url, root)) as kizuna, kizuna.store.events.watch(f"{root}:*") as feed:
        (canary,) = first.call("KEYS", f"{root}:canary:*")
        slot = cluster.slot_of(canary)
        await asyncio.to_thread(cluster.move_slot, slot, second)
        try:
            # The first one's canary sings in another slot of its own now.
            await eventually(lambda: set(first.call("KEYS", f"{root}:canary:*")) - {canary})

            tag = canary.decode().split("{")[1].split("}")[0]
            await kizuna.store.call("SET", f"{root}:{{{tag}}}:moved", "", "PX", 10_000)
            assert await feed.next(timeout_s=5) == Change(f"{root}:{{{tag}}}:moved", "set")
        finally:
            await asyncio.to_thread(cluster.move_slot, slot, first)


async def test_a_new_primary_is_listened_to_and_everybody_looks_again() -> None:
    with ClusterSetup(primaries=1) as cluster:
        async with connect(quick(cluster.url)) as kizuna, kizuna.store.events.watch("a*") as feed:
            added = await asyncio.to_thread(_join_another, cluster)
            slot = cluster.slot_of("a1")
            await asyncio.to_thread(cluster.move_slot, slot, added)

            told = await feed.next(timeout_s=5)
            assert told == LookAgain(f"listening at {added.address} began anew")
            await asyncio.to_thread(cluster.wait_until_settled)
            added.call("SET", "a1", "")
            assert await _next_change(feed) == Change("a1", "set")


async def test_a_failover_in_a_cluster_is_followed_by_changes_and_messages() -> None:
    with ClusterSetup(replicas_each=1, node_timeout_ms=1000) as cluster:
        async with connect(quick(cluster.url)) as kizuna:
            events = kizuna.store.events
            async with events.watch("a*") as feed, events.listen("news") as news:
                (former,) = [server for server in cluster.servers[:3] if _listens_at(server, channel="news")]
                key = next(f"a{i}" for i in range(1000) if cluster.owner_of(cluster.slot_of(f"a{i}")) is former)
                former.kill()

                # What is published is heard from another node long before the failover.
                assert isinstance(await news.next(timeout_s=10), LookAgain)
                cluster.servers[-1].call("PUBLISH", "news", "on")
                assert await news.next(timeout_s=5) == Message("news", b"on")

                assert isinstance(await feed.next(timeout_s=10), LookAgain)
                await eventually(lambda: kizuna.store.call("SET", key, ""), within_s=10)
                assert await _next_change(feed) == Change(key, "set")


async def test_nothing_is_left_of_listening_to_a_cluster(cluster: ClusterSetup, root: str) -> None:
    before = asyncio.all_tasks()
    for _ in range(10):
        async with connect(quick(cluster.url, root)) as kizuna, kizuna.store.events.watch(f"{root}:*"):
            pass

    assert asyncio.all_tasks() == before
    for server in cluster.servers:
        await eventually(lambda: b"kizuna" not in server.call("CLIENT", "LIST"))  # noqa: B023 - awaited here


async def _next_change(feed: Feed[Change]) -> Change:
    """The next one after however many LookAgains: a failover may cut the connection more than once."""
    async with asyncio.timeout(10):
        async for event in feed:
            if isinstance(event, Change):
                return event
    raise AssertionError("the feed ended")


def _listens_at(server: ServerProcess, pattern: str = "", *, channel: str = "") -> bool:
    """Whether a connection of ours at this server has subscribed to that pattern, or that channel."""
    if channel:
        return bool(server.call("PUBSUB", "NUMSUB", channel)[1])
    return bool(pattern and server.call("PUBSUB", "NUMPAT"))


def _join_another(cluster: ClusterSetup) -> ServerProcess:
    server = cluster._cleanup.enter_context(ServerProcess(config=cluster._config))
    server.call("CLUSTER", "MEET", cluster.servers[0].host, cluster.servers[0].port)
    cluster.servers.append(server)
    blocking_until(cluster._everybody_knows_everybody, within_s=10)
    return server
