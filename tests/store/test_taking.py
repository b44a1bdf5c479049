"""Replies without a future for each: whoever takes them is told once, in order, and of what became of his own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kizuna.app import connect
from kizuna.errors import NotPrimary, OutcomeUnknown, Refused, StoreError, Unreachable
from kizuna.settings import Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.keys import key_slot
from kizuna.store.taking import Taker, Together
from kizuna.testing import ChaosProxy, ClusterSetup, ServerProcess, eventually

MakeProxy = Callable[..., Awaitable[ChaosProxy]]


class Noting(Taker):
    """Notes whatever it is told."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.told: list[Any] = []
        self.wanted = wanted

    def done(self) -> bool:
        return not self.wanted

    def set_result(self, reply: Any) -> None:
        self.told.append(reply)

    def set_exception(self, error: BaseException) -> None:
        self.told.append(error)


def at(url: str, **options: Any) -> Settings:
    return Settings(store=StoreSettings(url=url, **options))


def kinds(told: list[Any]) -> list[type]:
    return [type(reply) for reply in told]


# -- together -----------------------------------------------------------------------------------------------


@given(order=st.permutations(range(6)), twice=st.sets(st.integers(0, 5)))
def test_when_all_have_come_they_are_handed_on_once_and_in_their_places(order: list[int], twice: set[int]) -> None:
    handed_on: list[list[Any]] = []
    together = Together(6, handed_on.append)
    places = [together.place(number) for number in range(6)]

    for number in order:
        assert not handed_on
        assert not places[number].done()
        places[number].set_result(number)
        assert places[number].done()
        if number in twice:
            # Too late to be news: a reply that comes after its deadline.
            places[number].set_exception(ValueError())

    assert handed_on == [[0, 1, 2, 3, 4, 5]]


async def test_replies_stand_in_the_order_of_the_commands_and_errors_in_their_place(store: Store, root: str) -> None:
    key = f"{root}:lock:taking"
    replies = await store.call_all([("SET", key, "x", "PX", 60_000), ("LPUSH", key, "y"), ("GET", key), ("PTTL", key)])

    assert replies[0] == b"OK"
    assert isinstance(replies[1], Refused)
    assert replies[1].code == "WRONGTYPE"
    assert replies[2] == b"x"
    assert replies[3] > 0


async def test_no_commands_are_answered_at_once_and_leave_everybody_elses_replies_alone(store: Store) -> None:
    handed_on: list[list[Any]] = []
    store.post_all([], handed_on.append)

    assert await store.call_all([]) == []
    assert await store.call("ECHO", "mine") == b"mine"
    assert handed_on == [[]]


async def test_what_is_posted_keeps_its_order_among_what_is_called(server: ServerProcess, scratch: str) -> None:
    """Also when they must wait for room: here for that of 64 commands."""
    key, filler = f"{scratch}list", b"x" * 1024
    async with connect(at(server.url, in_flight_bytes=64 * 1024)) as k:
        ways = random.Random(7).choices(["call", "post", "post_all", "call_all"], k=300)
        calls: list[Awaitable[Any]] = []
        takers: list[Noting] = []
        for number, way in enumerate(ways):
            command = ("RPUSH", key, b"%d %s" % (number, filler))
            if way == "call":
                calls.append(k.store.call(*command))
            elif way == "call_all":
                calls.append(k.store.call_all([command, ("ECHO", "between")]))
            else:
                takers.append(Noting())
                if way == "post":
                    k.store.post(takers[-1], *command)
                else:
                    k.store.post_all([command], takers[-1].set_result)
        await asyncio.gather(*calls)
        await eventually(lambda: all(taker.told for taker in takers))

        items = await k.store.call("LRANGE", key, 0, -1)
        assert [int(item.split()[0]) for item in items] == list(range(300))
        assert [len(taker.told) for taker in takers] == [1] * len(takers)


async def test_what_waits_in_a_batch_leaves_before_what_is_posted_about_the_same_key(store: Store, root: str) -> None:
    key = f"{root}:lock:taking"
    reading = store.get(key)
    store.post_all([("SET", key, "later", "PX", 60_000)], lambda _: None)

    assert await reading is None
    assert await store.get(key) == b"later"


# -- what the server did not run ----------------------------------------------------------------------------


async def test_of_several_commands_those_that_were_not_run_are_followed_and_the_others_are_not(
    fresh_server: ServerProcess,
) -> None:
    fresh_server.call("SET", "a", "read")
    async with connect(at(fresh_server.url)) as k:
        fresh_server.call("REPLICAOF", "127.0.0.1", 1)
        handed_on: list[list[Any]] = []
        k.store.post_all([("GET", "a"), ("SET", "b", "written"), ("GET", "a")], handed_on.append)
        alone = Noting()
        k.store.post(alone, "SET", "c", "written")
        await eventually(lambda: len(k.store._follower._tasks) == 2)
        assert not handed_on
        fresh_server.call("REPLICAOF", "NO", "ONE")

        await eventually(lambda: handed_on and alone.told)
        assert handed_on == [[b"read", b"OK", b"read"]]
        assert alone.told == [b"OK"]
        assert fresh_server.call("MGET", "b", "c") == [b"written", b"written"]


async def test_when_the_time_of_what_is_followed_is_up_it_has_what_the_server_said(fresh_server: ServerProcess) -> None:
    fresh_server.call("SET", "a", "read")
    pause_beyond_the_deadline_s = 3600.0
    longest = {"reconnect_first_s": pause_beyond_the_deadline_s, "reconnect_longest_s": pause_beyond_the_deadline_s}
    async with connect(at(fresh_server.url, **longest)) as k:
        fresh_server.call("REPLICAOF", "127.0.0.1", 1)
        replies = await k.store.call_all([("SET", "b", ""), ("GET", "a")])

        assert isinstance(replies[0], NotPrimary)
        assert replies[1] == b"read"


async def test_a_server_that_loads_is_waited_for() -> None:
    slow_to_load: dict[str, str | int] = {
        "key-load-delay": 1000,
        "loading-process-events-interval-bytes": 1024,
        "rdbcompression": "no",
    }
    with ServerProcess(config=slow_to_load) as server:
        with server.connect() as conversation:
            for number in range(1500):
                conversation.call("SET", f"key-{number}", "x" * 100)
            conversation.call("SAVE")
        async with connect(at(server.url, timeout_s=30, reconnect_first_s=0.01, reconnect_longest_s=0.05)) as k:
            (link,) = k.store.topology.primaries()
            await asyncio.to_thread(server.kill)
            await eventually(lambda: link.wire is None)
            starting = asyncio.create_task(asyncio.to_thread(server.start))
            await eventually(lambda: link.wire is not None)
            alone = Noting()
            k.store.post(alone, "STRLEN", "key-1")
            together = k.store.call_all([("GET", "key-1"), ("SET", "key-2", "")])
            await eventually(lambda: k.store._follower._tasks)

            assert await together == [b"x" * 100, b"OK"]
            await eventually(lambda: alone.told == [100])
            await starting


async def test_on_a_cluster_each_command_goes_to_its_own_node_and_follows_its_own_slot(
    cluster: ClusterSetup, root: str
) -> None:
    keys = [f"{root}:{number}" for number in range(30)]
    async with connect(at(cluster.url)) as k:
        assert await k.store.call_all([("SET", key, key, "PX", 60_000) for key in keys]) == [b"OK"] * 30
        slot = key_slot(keys[7])
        owner = cluster.owner_of(slot)
        await asyncio.to_thread(cluster.move_slot, slot, next(s for s in cluster.servers if s is not owner))
        try:
            alone = Noting()
            k.store.post(alone, "STRLEN", keys[7])
            assert await k.store.call_all([("GET", key) for key in keys]) == [key.encode() for key in keys]
            await eventually(lambda: alone.told == [len(keys[7])])
        finally:
            await asyncio.to_thread(cluster.move_slot, slot, owner)


# -- what never came ----------------------------------------------------------------------------------------


async def test_who_was_told_that_his_time_is_up_is_not_told_again_when_the_reply_comes(
    proxy: MakeProxy, scratch: str
) -> None:
    through = await proxy()
    async with connect(at(through.url, timeout_s=30)) as k:
        alone, together = Noting(), Noting()
        through.stall()
        k.store.post(alone, "SET", f"{scratch}a", "", timeout_s=0.1)
        k.store.post_all([("SET", f"{scratch}b", ""), ("GET", f"{scratch}b")], together.set_result, timeout_s=0.1)
        await eventually(lambda: alone.told and together.told)
        # Another deadline passes: that is no news for those of the first.
        with pytest.raises(OutcomeUnknown):
            await k.store.call("PING", timeout_s=0.1)
        through.resume()

        # The replies to all of these have come before this one.
        assert await k.store.call("ECHO", "through") == b"through"
        assert kinds(alone.told) == [OutcomeUnknown]
        (replies,) = together.told
        assert kinds(replies) == [OutcomeUnknown, OutcomeUnknown]


async def test_what_was_told_as_not_sent_is_not_sent_later(
    proxy: MakeProxy, server: ServerProcess, scratch: str
) -> None:
    through = await proxy()
    async with connect(at(through.url, reconnect_first_s=0.01, reconnect_longest_s=0.05)) as k:
        through.refuse()
        await through.cut()
        (link,) = k.store.topology.primaries()
        await eventually(lambda: link.wire is None)
        first, alone, together = k.store.call("PING", timeout_s=20), Noting(), Noting()
        k.store.post(alone, "SET", f"{scratch}a", "", timeout_s=0.1)
        k.store.post_all([("SET", f"{scratch}b", ""), ("SET", f"{scratch}c", "")], together.set_result, timeout_s=0.1)
        await eventually(lambda: alone.told and together.told)
        await through.accept()

        assert await first == b"PONG"
        assert await k.store.call("ECHO", "through") == b"through"
        assert kinds(alone.told) == [Unreachable]
        (replies,) = together.told
        assert kinds(replies) == [Unreachable, Unreachable]
        assert server.call("EXISTS", f"{scratch}a", f"{scratch}b", f"{scratch}c") == 0


async def test_who_waits_when_the_connection_breaks_is_told_so_once(proxy: MakeProxy, scratch: str) -> None:
    through = await proxy()
    async with connect(at(through.url, reconnect_first_s=0.01)) as k:
        through.stall()
        alone, together = Noting(), Noting()
        k.store.post(alone, "SET", f"{scratch}a", "")
        k.store.post_all([("GET", f"{scratch}a"), ("GET", f"{scratch}b")], together.set_result)
        await asyncio.sleep(0)
        await through.cut()
        through.resume()

        assert await eventually(lambda: succeeded(k.store)) == b"PONG"
        assert kinds(alone.told) == [OutcomeUnknown]
        (replies,) = together.told
        assert kinds(replies) == [OutcomeUnknown, OutcomeUnknown]


async def succeeded(store: Store) -> Any:
    try:
        return await store.call("PING")
    except StoreError:
        return None


async def test_who_no_longer_wants_it_is_told_nothing_and_nobody_else_notices(proxy: MakeProxy, scratch: str) -> None:
    through = await proxy()
    async with connect(at(through.url)) as k:
        through.stall()
        gone, waits = Noting(), Noting()
        k.store.post(gone, "SET", f"{scratch}a", "written")
        k.store.post(waits, "GET", f"{scratch}a")
        cancelled = k.store.call_all([("ECHO", "one"), ("ECHO", "two")])
        cancelled.cancel()
        gone.wanted = False
        through.resume()

        await eventually(lambda: waits.told == [b"written"])
        assert await k.store.call("ECHO", "mine") == b"mine"
        assert gone.told == []


async def test_an_argument_that_cannot_be_sent_is_refused_at_the_call(store: Store) -> None:
    taker = Noting()
    with pytest.raises(TypeError):
        store.post(taker, "SET", object())  # type: ignore[arg-type]

    assert await store.call("ECHO", "mine") == b"mine"
    assert taker.told == []
