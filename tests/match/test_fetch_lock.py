from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from tests.match.outsiders.go_lock import GoLock, lock_keys

from kizuna.app import connect
from kizuna.errors import TicketsLocked
from kizuna.match.fetch_lock import FetchLock
from kizuna.settings import RootsSettings, Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.testing import ClusterSetup, ServerProcess, eventually
from kizuna.testing.fixtures import MakeProxy
from kizuna.testing.resp import Conversation

CONTENDER = Path(__file__).with_name("fetch_lock_contender.py")
LONG_S = 60.0
PATIENT_S = 30.0


@pytest.fixture
def prefix(settings: Settings) -> str:
    return settings.roots.match


@pytest.fixture
def keys(prefix: str) -> list[str]:
    return lock_keys(prefix)


@pytest.fixture
def lock(store: Store, prefix: str) -> FetchLock:
    return FetchLock(store, prefix, LONG_S)


@pytest.fixture
def other(store: Store, prefix: str) -> FetchLock:
    """Another process, as far as the server can tell."""
    return FetchLock(store, prefix, LONG_S)


@pytest.fixture
def outside(server: ServerProcess) -> Iterator[Conversation]:
    with server.connect() as conversation:
        yield conversation


def values(outside: Conversation, keys: list[str]) -> list[bytes | None]:
    return [outside.call("GET", key) for key in keys]


# -- on the server ------------------------------------------------------------------------------------------


async def test_its_keys_are_those_of_minimatch_with_24_bytes_and_an_end(
    lock: FetchLock, prefix: str, outside: Conversation
) -> None:
    keys = [f"rueidislock:{number}:{prefix}fetchTicketsLock" for number in (0, 1, 2)]

    async with lock.hold(wait_s=PATIENT_S) as token:
        assert len(token) == 24
        assert values(outside, keys) == [token] * 3
        assert [outside.call("TYPE", key) for key in keys] == [b"string"] * 3
        assert all(0 < outside.call("PTTL", key) <= LONG_S * 1000 for key in keys)
        assert outside.call("EXISTS", f"{prefix}fetchTicketsLock") == 0

    assert values(outside, keys) == [None] * 3


async def test_without_a_prefix_the_name_stands_alone(fresh_server: ServerProcess, root: str) -> None:
    settings = Settings(store=StoreSettings(url=fresh_server.url), roots=RootsSettings(system=root))
    async with connect(settings) as k, FetchLock(k.store, "", LONG_S).hold(wait_s=PATIENT_S) as token:
        names = {bytes(key).decode() for key in fresh_server.call("KEYS", "*fetchTicketsLock")}
        assert names == {f"rueidislock:{number}:fetchTicketsLock" for number in (0, 1, 2)}
        assert fresh_server.call("GET", "rueidislock:1:fetchTicketsLock") == token


async def test_each_holder_has_a_token_of_its_own(lock: FetchLock) -> None:
    tokens = set()
    for _ in range(5):
        async with lock.hold(wait_s=PATIENT_S) as token:
            tokens.add(token)

    assert len(tokens) == 5


async def test_it_works_on_a_cluster_below_a_hash_tag(cluster: ClusterSetup, root: str) -> None:
    prefix = f"{{{root}}}."
    async with connect(Settings(store=StoreSettings(url=cluster.url), roots=RootsSettings(system=root))) as k:
        lock, other = FetchLock(k.store, prefix, LONG_S), FetchLock(k.store, prefix, LONG_S)
        async with lock.hold(wait_s=PATIENT_S) as token:
            assert [await k.store.call("GET", key) for key in lock_keys(prefix)] == [token] * 3
            with pytest.raises(TicketsLocked):
                await taken_and_given_back(other, wait_s=0)
        await taken_and_given_back(other, wait_s=PATIENT_S)
        assert [await k.store.call("GET", key) for key in lock_keys(prefix)] == [None] * 3


# -- one at a time ------------------------------------------------------------------------------------------


async def taken_and_given_back(lock: FetchLock, *, wait_s: float) -> None:
    async with lock.hold(wait_s=wait_s):
        pass


async def counted(store: Store, lock: FetchLock, counter: str) -> None:
    async with lock.hold(wait_s=PATIENT_S):
        read = int(await store.call("GET", counter) or 0)
        await asyncio.sleep(0)
        await store.call("SET", counter, read + 1, "EX", 60)


async def test_tasks_that_read_and_write_in_two_steps_lose_nothing(store: Store, prefix: str, root: str) -> None:
    locks = [FetchLock(store, prefix, LONG_S) for _ in range(4)]

    await asyncio.gather(*(counted(store, lock, f"{root}:temp:counter") for lock in locks * 10))

    assert await store.call("GET", f"{root}:temp:counter") == b"40"


async def test_nor_do_processes_and_an_outsider_who_knows_the_protocol_only(
    lock: FetchLock, store: Store, server: ServerProcess, prefix: str, root: str
) -> None:
    counter = f"{root}:temp:counter"
    with started(server.url, root, prefix, "15", "3") as contenders:
        theirs = asyncio.create_task(asyncio.to_thread(count_as_an_outsider, server, prefix, counter, 30))
        for _ in range(30):
            await counted(store, lock, counter)
        await theirs
        assert await asyncio.to_thread(contenders.wait, 40) == 0

    assert await store.call("GET", counter) == b"105"


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Killed at the end of the block, and all that it has forked."""
    line = [sys.executable, str(CONTENDER), *arguments]
    with subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def count_as_an_outsider(server: ServerProcess, prefix: str, counter: str, times: int) -> None:
    with server.connect() as conversation:
        lock = GoLock(conversation, prefix)
        for _ in range(times):
            with lock.hold():
                read = int(conversation.call("GET", counter) or 0)
                conversation.call("SET", counter, read + 1, "EX", 60)


async def test_callers_in_one_process_get_it_in_the_order_in_which_they_came(lock: FetchLock) -> None:
    came: list[int] = []

    async def hold(number: int) -> None:
        async with lock.hold(wait_s=PATIENT_S):
            came.append(number)

    await asyncio.gather(*map(hold, range(8)))

    assert came == list(range(8))


async def test_an_outsider_is_kept_out_while_it_is_held_and_gets_it_then(
    lock: FetchLock, outside: Conversation, prefix: str
) -> None:
    theirs = GoLock(outside, prefix)

    async with lock.hold(wait_s=PATIENT_S):
        assert theirs.try_once() is None

    token = theirs.try_once()
    assert token is not None
    theirs.release(token)


async def test_while_an_outsider_holds_it_we_are_refused_and_told_for_how_long_we_waited(
    lock: FetchLock, outside: Conversation, prefix: str, keys: list[str]
) -> None:
    with GoLock(outside, prefix).hold() as token:
        with pytest.raises(TicketsLocked) as refused:
            await taken_and_given_back(lock, wait_s=0.05)
        assert values(outside, keys) == [token] * 3

    assert (refused.value.prefix, refused.value.waited_s) == (prefix, 0.05)
    await taken_and_given_back(lock, wait_s=0)


async def test_who_waits_in_this_process_is_refused_after_the_same_time(lock: FetchLock) -> None:
    async with lock.hold(wait_s=PATIENT_S):
        with pytest.raises(TicketsLocked):
            await taken_and_given_back(lock, wait_s=0.05)
    await taken_and_given_back(lock, wait_s=PATIENT_S)


async def test_who_waits_gets_it_once_it_is_given_back(
    lock: FetchLock, outside: Conversation, prefix: str, keys: list[str]
) -> None:
    with GoLock(outside, prefix).hold():
        waiting = asyncio.create_task(taken_and_given_back(lock, wait_s=PATIENT_S))
        await asyncio.sleep(0.05)
        assert not waiting.done()

    await waiting
    assert values(outside, keys) == [None] * 3


async def test_the_plain_key_of_the_same_name_keeps_us_out_as_well(
    lock: FetchLock, outside: Conversation, prefix: str, keys: list[str]
) -> None:
    outside.call("SET", f"{prefix}fetchTicketsLock", "node1-token-123", "NX", "PX", 60_000)
    with pytest.raises(TicketsLocked):
        await taken_and_given_back(lock, wait_s=0)
    assert values(outside, keys) == [None] * 3

    outside.call("DEL", f"{prefix}fetchTicketsLock")
    await taken_and_given_back(lock, wait_s=0)


async def test_a_blocked_waiter_asks_a_hundred_times_in_a_second_at_most(
    lock: FetchLock, outside: Conversation, prefix: str
) -> None:
    with GoLock(outside, prefix).hold():
        began, before = time.monotonic(), scripts_run(outside)
        with pytest.raises(TicketsLocked):
            await taken_and_given_back(lock, wait_s=0.5)
        asked, took_s = scripts_run(outside) - before, time.monotonic() - began

    # The first pauses are shorter.
    assert 1 <= asked <= 8 + took_s * 100


def scripts_run(outside: Conversation) -> int:
    stats = outside.call("INFO", "commandstats").decode()
    lines = [line for line in stats.splitlines() if line.startswith(("cmdstat_eval:", "cmdstat_evalsha:"))]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


# -- a part of it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_who_has_one_key_does_not_have_the_lock_and_keeps_its_key(
    lock: FetchLock, outside: Conversation, keys: list[str], number: int
) -> None:
    outside.call("SET", keys[number], "theirs", "PX", 60_000)

    async with lock.hold(wait_s=0) as token:
        expected = [token] * 3
        expected[number] = b"theirs"
        assert values(outside, keys) == expected

    assert values(outside, keys) == [b"theirs" if number == each else None for each in range(3)]


@pytest.mark.parametrize("free", [0, 1, 2])
@pytest.mark.parametrize("holders", [("theirs", "theirs"), ("theirs", "of a third")])
async def test_two_keys_in_the_hands_of_others_keep_us_out_and_we_leave_nothing_in_the_third(
    lock: FetchLock, outside: Conversation, keys: list[str], free: int, holders: tuple[str, str]
) -> None:
    taken = [key for key in keys if key != keys[free]]
    for key, holder in zip(taken, holders, strict=True):
        outside.call("SET", key, holder, "PX", 60_000)

    with pytest.raises(TicketsLocked):
        await taken_and_given_back(lock, wait_s=0.02)

    assert outside.call("EXISTS", keys[free]) == 0
    assert [outside.call("GET", key).decode() for key in taken] == list(holders)


# -- its end ------------------------------------------------------------------------------------------------


async def test_it_is_extended_while_it_is_held(
    store: Store, prefix: str, outside: Conversation, keys: list[str]
) -> None:
    async with FetchLock(store, prefix, 1.0).hold(wait_s=PATIENT_S) as token:
        # So that a slow machine does not lose it meanwhile; the extension sets the end back to what it should be.
        for key in keys:
            assert outside.call("PEXPIRE", key, 90_000) == 1
        await eventually(lambda: all(outside.call("PTTL", key) <= 1_000 for key in keys), within_s=30)
        assert values(outside, keys) == [token] * 3

    assert values(outside, keys) == [None] * 3


async def test_what_is_not_extended_in_time_is_lost_and_what_the_next_one_has_is_left_alone(
    store: Store, prefix: str, outside: Conversation, keys: list[str]
) -> None:
    theirs = GoLock(outside, prefix)
    async with FetchLock(store, prefix, 0.05).hold(wait_s=PATIENT_S):
        time.sleep(0.1)  # noqa: ASYNC251 - nothing of ours can be extended meanwhile
        assert values(outside, keys) == [None] * 3
        token = theirs.try_once()
        assert token is not None
        await asyncio.sleep(0.1)

    assert values(outside, keys) == [token] * 3
    theirs.release(token)


async def test_a_lock_whose_majority_was_taken_away_is_no_longer_extended(
    store: Store, prefix: str, outside: Conversation, keys: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with FetchLock(store, prefix, 1.0).hold(wait_s=PATIENT_S):
        for key in keys[:2]:
            outside.call("SET", key, "theirs", "PX", 90_000)
        await eventually(lambda: "lock lost" in caplog.text, within_s=30)
        assert all(outside.call("PTTL", key) > 1_000 for key in keys[:2])

    assert values(outside, keys) == [b"theirs", b"theirs", None]


async def test_a_holder_that_was_killed_keeps_nobody_for_longer_than_the_lock_lasts(
    lock: FetchLock, server: ServerProcess, outside: Conversation, prefix: str, root: str, keys: list[str]
) -> None:
    with started(server.url, root, prefix, "0", "1") as holder:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"held\n"

    assert all(outside.call("PTTL", key) <= 1_000 for key in keys)
    await taken_and_given_back(lock, wait_s=PATIENT_S)


async def test_it_is_given_back_after_an_error_in_the_block_which_goes_up(lock: FetchLock, other: FetchLock) -> None:
    with pytest.raises(ZeroDivisionError):
        async with lock.hold(wait_s=PATIENT_S):
            _ = 1 / 0

    await taken_and_given_back(other, wait_s=0)


async def test_a_cancellation_at_any_moment_leaves_no_lock(
    lock: FetchLock, other: FetchLock, outside: Conversation, keys: list[str]
) -> None:
    for turns in range(30):
        holding = asyncio.create_task(taken_and_given_back(lock, wait_s=PATIENT_S))
        for _ in range(turns):
            await asyncio.sleep(0)
        holding.cancel()
        await asyncio.wait([holding])
        # A forgotten one would be held for longer than this waits.
        await taken_and_given_back(other, wait_s=PATIENT_S)
    assert values(outside, keys) == [None] * 3


# -- a bad connection ---------------------------------------------------------------------------------------


async def test_an_answer_that_was_lost_does_not_lock_us_out_of_our_own_lock(
    settings: Settings, proxy: MakeProxy, outside: Conversation, keys: list[str], prefix: str
) -> None:
    network = await proxy()
    store = StoreSettings(url=network.url, reconnect_longest_s=0.05)
    async with connect(msgspec.structs.replace(settings, store=store)) as k:
        lock = FetchLock(k.store, prefix, LONG_S)
        await taken_and_given_back(lock, wait_s=PATIENT_S)
        network.drop_replies(1, then="cut")

        async with lock.hold(wait_s=PATIENT_S) as token:
            assert values(outside, keys) == [token] * 3
        assert values(outside, keys) == [None] * 3


async def test_if_it_cannot_be_given_back_the_block_is_no_failure_and_the_lock_ends_by_itself(
    settings: Settings, proxy: MakeProxy, outside: Conversation, keys: list[str], prefix: str
) -> None:
    network = await proxy()
    store = StoreSettings(url=network.url, reconnect_longest_s=0.05, timeout_s=2.0)
    async with connect(msgspec.structs.replace(settings, store=store)) as k:
        async with FetchLock(k.store, prefix, LONG_S).hold(wait_s=PATIENT_S) as token:
            network.refuse()
            await network.cut()

        assert values(outside, keys) == [token] * 3
        assert all(0 < outside.call("PTTL", key) <= LONG_S * 1000 for key in keys)
