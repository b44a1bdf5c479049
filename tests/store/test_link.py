"""One link through everything that happens to a connection: it comes back, in order, and nobody waits too long."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kizuna.app import connect
from kizuna.errors import (
    NotPrimary,
    NotSent,
    OutcomeUnknown,
    Overloaded,
    SignInRefused,
    StoreError,
    Unreachable,
)
from kizuna.settings import Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.link import Link, backoff
from kizuna.testing import ChaosProxy, ServerProcess, eventually

MakeProxy = Callable[..., Awaitable[ChaosProxy]]


def at(url: str, **options: Any) -> Settings:
    return Settings(store=StoreSettings(url=url, **options))


def more_than(then: float, now: Callable[[], float]) -> Callable[[], bool]:
    return lambda: now() > then


def link_of(store: Store) -> Link:
    (link,) = store.topology.primaries()
    return link


@given(first_s=st.floats(0.001, 1.0), longest_s=st.floats(1.0, 60.0))
def test_pauses_double_up_to_a_cap_and_are_spread_over_their_upper_half(first_s: float, longest_s: float) -> None:
    for number, pause_s in enumerate(itertools.islice(backoff(first_s, longest_s), 20)):
        full_s = min(first_s * 2**number, longest_s)
        assert full_s / 2 <= pause_s <= full_s


def test_pauses_of_a_fleet_differ() -> None:
    assert len({next(backoff(1.0, 1.0)) for _ in range(50)}) > 40


async def test_commands_leave_in_the_order_in_which_they_were_called(server: ServerProcess, scratch: str) -> None:
    """Also when they must wait for room: here for that of 64 commands."""
    async with connect(at(server.url, in_flight_bytes=64 * 1024)) as k:
        filler = b"x" * 1024
        calls = [k.store.call("RPUSH", f"{scratch}list", b"%d %s" % (number, filler)) for number in range(1000)]
        lengths = await asyncio.gather(*calls)

        assert lengths == list(range(1, 1001))
        items = await k.store.call("LRANGE", f"{scratch}list", 0, -1)
        assert [int(item.split()[0]) for item in items] == list(range(1000))


async def test_order_is_kept_and_nothing_is_doubled_when_the_connection_breaks_again_and_again(
    proxy: MakeProxy, scratch: str
) -> None:
    through = await proxy()
    key, numbers = f"{scratch}list", itertools.count()
    done: dict[int, str] = {}

    async def push(number: int, call: Awaitable[Any]) -> None:
        try:
            await call
            done[number] = "acknowledged"
        except StoreError as error:
            done[number] = error.outcome

    async with connect(at(through.url, reconnect_first_s=0.01, in_flight_bytes=64 * 1024)) as k:

        async def caller() -> None:
            for _ in range(100):
                number = next(numbers)
                await push(number, k.store.call("RPUSH", key, b"%d %s" % (number, b"x" * 2000)))

        async def saboteur() -> None:
            for _ in range(5):
                begun = through.connections
                await eventually(lambda: link_of(k.store).wire is not None)
                await through.cut()
                await eventually(more_than(begun, lambda: through.connections))

        await asyncio.gather(saboteur(), *(caller() for _ in range(50)))
        items = [int(item.split()[0]) for item in await k.store.call("LRANGE", key, 0, -1)]

    assert items == sorted(set(items))
    assert len(done) == 5000
    assert {number for number, outcome in done.items() if outcome == "acknowledged"} <= set(items)
    assert not {number for number, outcome in done.items() if outcome == "not sent"} & set(items)
    assert "unknown" in done.values()


async def test_callers_wait_no_longer_than_their_deadline_while_the_link_tries_on(proxy: MakeProxy) -> None:
    through = await proxy()
    async with connect(at(through.url, reconnect_first_s=0.01, reconnect_longest_s=0.05)) as k:
        through.refuse()
        await through.cut()
        await eventually(lambda: link_of(k.store).wire is None)

        began = time.monotonic()
        hasty = k.store.call("PING", timeout_s=0.2)
        patient = k.store.call("ECHO", "patient", timeout_s=20)
        with pytest.raises(Unreachable) as unreachable:
            await hasty
        assert 0.15 < time.monotonic() - began < 2
        assert unreachable.value.outcome == "not sent"
        assert str(unreachable.value) == (
            f"no connection (Connection refused) at {through.address} (not sent); "
            "is the server running there? `kizuna server start` runs the embedded one"
        )

        await through.accept()
        assert await patient == b"patient"


async def test_those_who_gave_up_are_not_kept_while_the_server_is_away(proxy: MakeProxy) -> None:
    through = await proxy()
    async with connect(at(through.url)) as k:
        through.refuse()
        await through.cut()
        await eventually(lambda: link_of(k.store).wire is None)

        calls = [k.store.call("ECHO", b"x" * 1000, timeout_s=0.05) for _ in range(500)]
        replies = await asyncio.gather(*calls, return_exceptions=True)

        assert all(isinstance(reply, Unreachable) for reply in replies)
        assert not link_of(k.store)._queue


async def test_above_the_bytes_in_flight_callers_wait_and_are_refused_at_their_deadline(proxy: MakeProxy) -> None:
    through = await proxy()
    async with connect(at(through.url, in_flight_bytes=64 * 1024)) as k:
        through.stall()
        sent = [k.store.call("ECHO", b"x" * 1024, timeout_s=30) for _ in range(64)]
        waiting = [k.store.call("ECHO", b"x" * 1024, timeout_s=0.1) for _ in range(500)]
        patient = k.store.call("ECHO", "patient", timeout_s=30)
        replies = await asyncio.gather(*waiting, return_exceptions=True)

        refused = [reply for reply in replies if isinstance(reply, Overloaded)]
        assert len(refused) >= 495
        assert refused[0].outcome == "not sent"
        assert str(refused[0]) == (
            f"too much is waiting for an answer at {through.address} (not sent); "
            "send less at once, or raise store.in_flight_bytes"
        )
        wire = link_of(k.store).wire
        assert wire is not None
        assert wire.in_flight < 70 * 1024

        through.resume()
        assert await asyncio.gather(*sent) == [b"x" * 1024] * 64
        assert await patient == b"patient"


async def test_an_argument_that_cannot_be_sent_is_its_callers_trouble_alone(proxy: MakeProxy) -> None:
    through = await proxy()
    async with connect(at(through.url, reconnect_first_s=0.01)) as k:
        await through.cut()
        await eventually(lambda: link_of(k.store).wire is None)
        before = k.store.call("ECHO", "before")
        bad = k.store.call("ECHO", None)  # type: ignore[arg-type]
        after = k.store.call("ECHO", "after")

        assert await before == b"before"
        with pytest.raises(TypeError):
            await bad
        assert await after == b"after"
        assert link_of(k.store).connections == 2


async def test_a_refused_sign_in_is_not_repeated_until_somebody_asks(proxy: MakeProxy) -> None:
    with ServerProcess(users={"app": "on >right ~* &* +@all"}) as guarded:
        through = await proxy(guarded)
        options = at(through.url, username="app", password="right", reconnect_first_s=0.001, reconnect_longest_s=0.002)
        async with connect(options) as k:
            link = link_of(k.store)
            guarded.call("ACL", "SETUSER", "app", "resetpass", ">changed")
            await through.cut()

            await eventually(lambda: link.was_refused)
            assert through.connections == 2
            for attempts in (3, 4):
                with pytest.raises(SignInRefused) as refused:
                    await k.store.call("PING")
                assert refused.value.outcome == "not sent"
                assert "right" not in str(refused.value)
                assert through.connections == attempts

            guarded.call("ACL", "SETUSER", "app", "resetpass", ">right")
            assert await k.store.call("PING") == b"PONG"


async def test_a_server_that_drops_us_at_once_is_not_besieged(proxy: MakeProxy) -> None:
    through = await proxy()
    async with connect(at(through.url, reconnect_first_s=0.05, reconnect_longest_s=5.0)) as k:
        link = link_of(k.store)
        began, first = time.monotonic(), through.connections
        for _ in range(4):
            made = link.connections
            await through.cut()
            await eventually(more_than(made, lambda: link.connections))

        assert through.connections == first + 4
        # The pauses: at least half of 0.05, 0.1, 0.2 and 0.4 s.
        assert time.monotonic() - began > 0.37


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed_under_load(fresh_server: ServerProcess) -> None:
    """And everybody is back within two seconds of its return."""
    acknowledged, unknown = [0] * 32, [0] * 32
    running = True

    async with connect(at(fresh_server.url, timeout_s=2.0)) as k:

        async def caller(me: int) -> None:
            while running:
                try:
                    await k.store.call("INCR", f"count-{me}")
                    acknowledged[me] += 1
                except OutcomeUnknown:
                    unknown[me] += 1
                except NotSent:
                    pass

        callers = [asyncio.create_task(caller(me)) for me in range(32)]
        returns_s = []
        for _ in range(3):
            goal = sum(acknowledged) + 2000
            await eventually(more_than(goal, lambda: sum(acknowledged)))
            await asyncio.to_thread(fresh_server.kill)
            await asyncio.to_thread(fresh_server.start)
            back, counts = time.monotonic(), list(acknowledged)
            for me in range(32):
                await eventually(more_than(counts[me], partial(acknowledged.__getitem__, me)))
            returns_s.append(time.monotonic() - back)
        running = False
        await asyncio.gather(*callers)

        assert max(returns_s) < 2
        for me in range(32):
            stored = int(await k.store.call("GET", f"count-{me}"))
            assert acknowledged[me] <= stored <= acknowledged[me] + unknown[me]


async def test_a_server_that_pauses_fails_calls_in_time_and_answers_again_after_it(fresh_server: ServerProcess) -> None:
    async with connect(at(fresh_server.url, timeout_s=2, connect_timeout_s=2)) as k:
        fresh_server.pause()
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            await k.store.call("PING")
        with pytest.raises(Unreachable, match=r"no connection within 2s|no connection in time"):
            await k.store.call("PING")
        assert time.monotonic() - began < 6

        fresh_server.resume()
        assert await k.store.call("PING", timeout_s=20) == b"PONG"


async def test_a_server_without_room_for_another_client_is_waited_for() -> None:
    with ServerProcess(config={"maxclients": 2}) as crowded:
        guests = [crowded.connect() for _ in range(2)]
        for guest in guests:
            guest.call("PING")
        with pytest.raises(Unreachable) as unreachable:
            async with connect(at(crowded.url, timeout_s=2)):
                pass
        assert str(unreachable.value) == (
            f"ERR max number of clients reached at {crowded.address} (not sent); "
            "raise maxclients, or close connections that nobody uses"
        )

        for guest in guests:
            guest.close()
        async with connect(at(crowded.url)) as k:
            assert await k.store.call("PING") == b"PONG"


async def test_a_server_that_reads_its_data_is_waited_for_up_to_the_deadline() -> None:
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
        async with connect(at(server.url, reconnect_first_s=0.01, reconnect_longest_s=0.05)) as k:
            await asyncio.to_thread(server.kill)
            starting = asyncio.create_task(asyncio.to_thread(server.start))
            await eventually(lambda: link_of(k.store).wire is not None)

            async def refusal() -> NotPrimary | None:
                try:
                    await k.store.call("GET", "key-1", timeout_s=0.2)
                except NotPrimary as error:
                    return error
                except OutcomeUnknown:
                    pass  # between two of its looks at the network, a server that loads is silent
                return None

            loading = await eventually(refusal)
            assert loading is not None
            assert loading.code == "LOADING"
            assert loading.outcome == "refused"
            assert "still reading its data from disk; wait" in str(loading)
            assert await k.store.call("GET", "key-1", timeout_s=20) == b"x" * 100
            await starting


async def test_a_closed_link_fails_whoever_waits_and_whoever_comes(proxy: MakeProxy) -> None:
    through = await proxy()
    k = await connect(at(through.url))
    through.refuse()
    await through.cut()
    await eventually(lambda: link_of(k.store).wire is None)
    waiting = k.store.call("PING", timeout_s=30)

    await k.aclose()

    with pytest.raises(Unreachable, match="the store was closed"):
        await waiting
    with pytest.raises(Unreachable, match=r"the store was closed at .* \(not sent\); connect again"):
        await k.store.call("PING")
