from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kizuna.app import Kizuna, connect
from kizuna.coordination.locks import Held
from kizuna.coordination.locks.holders import read_value
from kizuna.coordination.locks.waiting import pause_s
from kizuna.errors import (
    IllegalName,
    LockHeld,
    LockLost,
    OutcomeUnknown,
    OutOfMemory,
    PermissionDenied,
    WrongValue,
)
from kizuna.settings import ProcessesSettings, RootsSettings, Settings, StoreSettings
from kizuna.testing import ServerProcess, eventually
from kizuna.testing.fixtures import MakeProxy

BRIEF_S = 0.3
"""A lease that a test can see the end of."""
LONG_S = 60.0


@pytest.fixture
async def k(settings: Settings) -> AsyncIterator[Kizuna]:
    async with connect(named(settings, "ours")) as kizuna:
        yield kizuna


@pytest.fixture
async def other(settings: Settings) -> AsyncIterator[Kizuna]:
    """Another process, as far as the server can tell."""
    async with connect(named(settings, "theirs")) as kizuna:
        yield kizuna


def named(settings: Settings, process: str) -> Settings:
    return msgspec.structs.replace(settings, processes=ProcessesSettings(id=process))


def waiting_for(server: ServerProcess, root: str, lock: str) -> int:
    return int(server.call("ZCARD", f"{root}:locks:line:{lock}"))


def keys_of(server: ServerProcess, root: str) -> set[str]:
    return {key.decode().removeprefix(f"{root}:") for key in server.call("KEYS", f"{root}:lock*")}


NOTHING_LEFT = {"locks:fence"}


# -- holding ------------------------------------------------------------------------------------------------


async def test_a_lock_is_one_key_with_an_end_that_says_who_and_which_number(
    k: Kizuna, server: ServerProcess, root: str
) -> None:
    async with k.locks.hold("issue:123", lease_s=LONG_S) as held:
        assert server.call("GET", f"{root}:lock:issue:123") == f"{held.fence}:{held.token}".encode()
        assert held.token.startswith("ours/")
        assert LONG_S - 5 < server.call("PTTL", f"{root}:lock:issue:123") / 1000 <= LONG_S
        held.check()
        await held.verify()

    assert keys_of(server, root) == NOTHING_LEFT


async def test_who_only_tries_is_refused_and_told_for_how_long(k: Kizuna, other: Kizuna) -> None:
    async with k.locks.hold("nightly", lease_s=LONG_S):
        with pytest.raises(LockHeld) as refused:
            await other.locks.acquire("nightly", wait_s=0)

    assert refused.value.name == "nightly"
    assert LONG_S - 5 < refused.value.free_in_s <= LONG_S
    assert "held by someone else for up to" in str(refused.value)


async def test_two_locks_do_not_know_each_other(k: Kizuna, other: Kizuna) -> None:
    async with k.locks.hold("a"), other.locks.hold("b", wait_s=0), k.locks.hold("a:b", wait_s=0):
        assert [holder.lock for holder in await k.locks.ls()] == ["a", "a:b", "b"]


async def test_it_is_free_after_an_error_in_the_block_which_goes_up(k: Kizuna) -> None:
    with pytest.raises(ZeroDivisionError):
        async with k.locks.hold("nightly"):
            _ = 1 / 0

    await (await k.locks.acquire("nightly", wait_s=0)).release()


async def test_it_is_free_after_the_block_was_cancelled(k: Kizuna, other: Kizuna) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with k.locks.hold("nightly"):
            inside.set()
            await asyncio.Event().wait()

    working = asyncio.create_task(work())
    await inside.wait()
    working.cancel()
    await asyncio.wait([working])

    assert working.cancelled()
    async with other.locks.hold("nightly", wait_s=0):
        pass


async def test_releasing_twice_is_harmless_and_no_other_holder_suffers(k: Kizuna, other: Kizuna) -> None:
    held = await k.locks.acquire("nightly")
    await held.release()
    theirs = await other.locks.acquire("nightly", wait_s=0)
    await held.release()

    await theirs.verify()
    with pytest.raises(LockLost, match="it was released"):
        held.check()
    await theirs.release()


async def test_fencing_numbers_rise_whoever_takes_whichever_lock(k: Kizuna, other: Kizuna) -> None:
    fences = []
    for number in range(20):
        async with (k, other)[number % 2].locks.hold(f"lock-{number % 3}") as held:
            fences.append(held.fence)

    assert fences == sorted(set(fences))


async def test_fencing_numbers_rise_even_over_a_server_that_forgot_the_last_one(
    k: Kizuna, server: ServerProcess, root: str
) -> None:
    async with k.locks.hold("nightly") as before:
        pass
    server.call("DEL", f"{root}:locks:fence")
    async with k.locks.hold("nightly") as after:
        pass
    server.call("SET", f"{root}:locks:fence", 2**52)  # a clock that was far ahead
    async with k.locks.hold("nightly") as last:
        assert (await k.locks.holder("nightly")).fence == last.fence  # type: ignore[union-attr]

    assert before.fence < after.fence < last.fence == 2**52 + 1


@pytest.mark.parametrize("lease_s", [0, -1, 0.01, 100_000, float("nan"), float("inf")])
async def test_a_lease_that_makes_no_sense_is_refused(k: Kizuna, lease_s: float) -> None:
    with pytest.raises(WrongValue, match=r"lease_s cannot be .*; expected 0\.05 to 86,400 seconds"):
        await k.locks.acquire("nightly", lease_s=lease_s)


@pytest.mark.parametrize("wait_s", [-1, float("nan")])
async def test_a_wait_that_makes_no_sense_is_refused(k: Kizuna, wait_s: float) -> None:
    with pytest.raises(WrongValue, match="wait_s cannot be"):
        await k.locks.acquire("nightly", wait_s=wait_s)


@pytest.mark.parametrize("name", ["", "a::b", "a b", "*", "{a}", "a\n"])
async def test_a_name_that_could_leave_its_place_is_refused(k: Kizuna, name: str) -> None:
    with pytest.raises(IllegalName):
        await k.locks.acquire(name)


@given(name=st.lists(st.text(max_size=12), min_size=1, max_size=4).map(":".join))
@hypothesis_settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_name_is_refused_or_held_and_listed_as_it_is(k: Kizuna, name: str) -> None:
    try:
        held = await k.locks.acquire(name, wait_s=0)
    except IllegalName:
        return
    try:
        (listed,) = await k.locks.ls()
        assert (listed.lock, listed.fence, listed.token) == (name, held.fence, held.token)
    finally:
        await held.release()


# -- waiting ------------------------------------------------------------------------------------------------


async def test_fifty_waiters_get_it_in_the_order_in_which_they_came(
    k: Kizuna, server: ServerProcess, root: str
) -> None:
    order: list[tuple[int, int]] = []
    holders = 0

    async def work(number: int) -> None:
        nonlocal holders
        async with k.locks.hold("nightly", wait_s=30) as held:
            holders += 1
            assert holders == 1
            await asyncio.sleep(0)
            order.append((number, held.fence))
            holders -= 1

    def in_line(number: int) -> bool:
        return waiting_for(server, root, "nightly") == number

    async with k.locks.hold("nightly"):
        waiting = []
        for number in range(50):
            waiting.append(asyncio.create_task(work(number)))
            await eventually(partial(in_line, number + 1), every_s=0.001)
    await asyncio.gather(*waiting)

    # On a machine that stands still for longer than a turn lasts, one may be overtaken by the next, but by no more.
    assert sorted(number for number, _ in order) == list(range(50))
    assert max(abs(place - number) for place, (number, _) in enumerate(order)) <= 3
    assert [fence for _, fence in order] == sorted(fence for _, fence in order)
    assert keys_of(server, root) == NOTHING_LEFT


async def test_a_newcomer_does_not_overtake_who_waits(
    k: Kizuna, other: Kizuna, server: ServerProcess, root: str
) -> None:
    held = await k.locks.acquire("nightly")
    waiting = asyncio.create_task(k.locks.acquire("nightly"))
    await eventually(lambda: waiting_for(server, root, "nightly") == 1)
    releasing = asyncio.create_task(held.release())
    refused = 0
    while not waiting.done():
        try:
            await (await other.locks.acquire("nightly", wait_s=0)).release()
        except LockHeld:
            refused += 1
    await releasing

    assert refused > 0
    await (await waiting).verify()
    await (await waiting).release()


async def test_waiting_costs_the_server_next_to_nothing_and_the_release_wakes(fresh_server: ServerProcess) -> None:
    async with connect(fresh_server.url) as k:
        held = await k.locks.acquire("nightly", lease_s=LONG_S)
        waiting = [asyncio.create_task(k.locks.acquire("nightly", wait_s=30)) for _ in range(20)]
        await eventually(lambda: waiting_for(fresh_server, "poppo", "nightly") == 20)
        before, began = evals_of(fresh_server), time.monotonic()
        await asyncio.sleep(1)
        asked, passed_s = evals_of(fresh_server) - before, time.monotonic() - began

        # The first looks once a second, those behind it more rarely.
        assert asked <= 20 * (passed_s + 1)
        began = time.monotonic()
        for task in waiting:
            await held.release()
            held = await task
        await held.release()
        # Nobody waited for a lease to end, nor for the seconds between two looks: they were told.
        assert time.monotonic() - began < 10


def evals_of(server: ServerProcess) -> int:
    stats = server.info("commandstats")
    calls = [stats[name] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats]
    return sum(int(dict(fact.split("=") for fact in call.split(","))["calls"]) for call in calls)


async def test_who_waits_too_long_is_refused_and_leaves_no_trace(
    k: Kizuna, other: Kizuna, server: ServerProcess, root: str
) -> None:
    async with k.locks.hold("nightly", lease_s=LONG_S):
        before = keys_of(server, root)
        with pytest.raises(LockHeld):
            await other.locks.acquire("nightly", wait_s=0.1)

        assert keys_of(server, root) == before


async def test_who_is_cancelled_while_waiting_leaves_no_trace(
    k: Kizuna, other: Kizuna, server: ServerProcess, root: str
) -> None:
    async with k.locks.hold("nightly", lease_s=LONG_S):
        before = keys_of(server, root)
        waiting = asyncio.create_task(other.locks.acquire("nightly", wait_s=None))
        await eventually(lambda: waiting_for(server, root, "nightly") == 1)
        waiting.cancel()
        await asyncio.wait([waiting])

        assert waiting.cancelled()
        await eventually(lambda: keys_of(server, root) == before)


async def test_a_cancellation_at_any_moment_leaks_no_lock(k: Kizuna, other: Kizuna) -> None:
    for turns in range(40):
        taking = asyncio.create_task(k.locks.acquire("nightly", lease_s=LONG_S))
        for _ in range(turns):
            await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait([taking])
        if not taking.cancelled():
            await taking.result().release()
        # A forgotten one would be held for longer than this waits.
        await (await other.locks.acquire("nightly", wait_s=20)).release()
    assert await k.locks.holder("nightly") is None
    assert await k.locks.line("nightly") == []


async def test_who_gives_up_in_its_turn_passes_it_on(
    k: Kizuna, other: Kizuna, server: ServerProcess, root: str
) -> None:
    held = await k.locks.acquire("nightly", lease_s=LONG_S)
    first = asyncio.create_task(k.locks.acquire("nightly", wait_s=None))
    await eventually(lambda: waiting_for(server, root, "nightly") == 1)
    second = asyncio.create_task(other.locks.acquire("nightly", wait_s=20))
    await eventually(lambda: waiting_for(server, root, "nightly") == 2)
    releasing = asyncio.create_task(held.release())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    await releasing
    if not first.cancelled():
        await first.result().release()

    await (await second).release()
    assert keys_of(server, root) == NOTHING_LEFT


async def test_a_lease_that_ends_without_a_release_is_noticed(k: Kizuna, other: Kizuna) -> None:
    held = await k.locks.acquire("nightly", lease_s=BRIEF_S, renew=False)
    theirs = await other.locks.acquire("nightly", wait_s=20)

    assert theirs.fence > held.fence
    assert held.lost.is_set()
    await theirs.release()


async def test_the_dead_in_line_are_skipped(
    k: Kizuna, other: Kizuna, settings: Settings, server: ServerProcess, root: str
) -> None:
    """Also many of them in a row, as a killed process with many tasks leaves them: nobody hears for them."""
    held = await k.locks.acquire("nightly", lease_s=LONG_S)
    for number in range(10):
        server.call("ZADD", f"{root}:locks:line:nightly", number, f"dead/abc-{number}")
    waiting = asyncio.create_task(other.locks.acquire("nightly", wait_s=30))
    await eventually(lambda: waiting_for(server, root, "nightly") == 11)
    await held.release()
    released_at = time.monotonic()

    theirs = await waiting
    # Had it not been told, it would have looked after more than three seconds.
    assert time.monotonic() - released_at < 3
    await theirs.release()
    assert keys_of(server, root) == NOTHING_LEFT


async def test_one_who_hears_and_does_not_come_loses_its_turn(
    k: Kizuna, other: Kizuna, server: ServerProcess, root: str
) -> None:
    """A process that is stopped still hears, as far as the server knows."""
    held = await k.locks.acquire("nightly", lease_s=LONG_S)
    async with k.store.events.listen(f"{root}:locks:freed:stopped") as heard:
        server.call("ZADD", f"{root}:locks:line:nightly", 1, "stopped/abc-1")
        waiting = asyncio.create_task(other.locks.acquire("nightly", wait_s=30))
        await eventually(lambda: waiting_for(server, root, "nightly") == 2)
        await held.release()

        message: Any = await heard.next(timeout_s=5)
        assert message.payload == b"turn:stopped/abc-1"
        await (await waiting).release()
    await eventually(lambda: keys_of(server, root) == NOTHING_LEFT)


async def test_a_line_of_the_dead_alone_keeps_nobody_out_for_long(k: Kizuna, server: ServerProcess, root: str) -> None:
    server.call("ZADD", f"{root}:locks:line:nightly", 1, "dead/abc-1")
    server.call("PEXPIRE", f"{root}:locks:line:nightly", 60_000)

    async with k.locks.hold("nightly", wait_s=20):
        pass
    await eventually(lambda: keys_of(server, root) == NOTHING_LEFT)


@given(free_in_s=st.floats(0, 1e9) | st.just(float("inf")), place=st.integers(0, 10_000))
def test_who_waits_asks_neither_all_the_time_nor_never(free_in_s: float, place: int) -> None:
    assert 0.001 <= pause_s(free_in_s, place) <= 10
    assert pause_s(free_in_s, place) <= pause_s(free_in_s, place + 1)


# -- outsiders ----------------------------------------------------------------------------------------------


async def test_a_lock_that_was_taken_by_hand_is_respected(k: Kizuna, server: ServerProcess, root: str) -> None:
    key = f"{root}:lock:issue:123"
    server.call("SET", key, "me", "NX", "PX", 300_000)

    with pytest.raises(LockHeld) as refused:
        await k.locks.acquire("issue:123", wait_s=0.05)
    assert 290 < refused.value.free_in_s <= 300
    assert server.call("GET", key) == b"me"


async def test_who_takes_it_by_hand_is_kept_out(k: Kizuna, server: ServerProcess, root: str) -> None:
    async with k.locks.hold("issue:123"):
        assert server.call("SET", f"{root}:lock:issue:123", "me", "NX", "PX", 300_000) is None


async def test_one_that_was_given_back_by_hand_is_found(k: Kizuna, server: ServerProcess, root: str) -> None:
    server.call("SET", f"{root}:lock:nightly", "me")
    with pytest.raises(LockHeld, match="without an end"):
        await k.locks.acquire("nightly", wait_s=0)
    waiting = asyncio.create_task(k.locks.acquire("nightly", wait_s=30))
    await eventually(lambda: waiting_for(server, root, "nightly") == 1)
    server.call("DEL", f"{root}:lock:nightly")

    await (await waiting).release()


async def test_one_that_was_deleted_by_hand_is_lost_and_the_holder_told(
    k: Kizuna, server: ServerProcess, root: str
) -> None:
    async def work() -> None:
        async with k.locks.hold("nightly", lease_s=5):
            server.call("DEL", f"{root}:lock:nightly")
            await asyncio.sleep(30)

    with pytest.raises(LockLost, match="not ours on the server") as lost:
        await work()
    assert lost.value.name == "nightly"
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_one_that_another_took_meanwhile_is_not_released_for_him(
    k: Kizuna, server: ServerProcess, root: str
) -> None:
    with pytest.raises(LockLost):
        async with k.locks.hold("nightly", lease_s=LONG_S):
            server.call("SET", f"{root}:lock:nightly", "me", "PX", 60_000)

    assert server.call("GET", f"{root}:lock:nightly") == b"me"


# -- losing -------------------------------------------------------------------------------------------------


async def test_a_block_that_wants_only_to_be_told_goes_on_to_its_end(
    k: Kizuna, server: ServerProcess, root: str
) -> None:
    went_on = False

    async def work() -> None:
        nonlocal went_on
        async with k.locks.hold("nightly", lease_s=BRIEF_S, cancel_when_lost=False) as held:
            server.call("DEL", f"{root}:lock:nightly")
            await held.lost.wait()
            with pytest.raises(LockLost):
                held.check()
            went_on = True

    with pytest.raises(LockLost):
        await work()
    assert went_on


async def test_an_error_of_the_block_goes_up_with_a_note_about_the_loss(
    k: Kizuna, server: ServerProcess, root: str
) -> None:
    async def work() -> None:
        async with k.locks.hold("nightly"):
            server.call("DEL", f"{root}:lock:nightly")
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as raised:
        await work()
    assert "besides: lock 'nightly' was lost" in raised.value.__notes__[0]


async def test_a_cancellation_by_somebody_else_stays_one_although_the_lock_is_lost_too(
    k: Kizuna, server: ServerProcess, root: str
) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with k.locks.hold("nightly", lease_s=3) as held:
            server.call("DEL", f"{root}:lock:nightly")
            inside.set()
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                await held.lost.wait()
                raise

    working = asyncio.create_task(work())
    await inside.wait()
    working.cancel()
    await asyncio.wait([working])

    assert working.cancelled()


async def test_the_server_can_be_asked(k: Kizuna, server: ServerProcess, root: str) -> None:
    held = await k.locks.acquire("nightly", lease_s=LONG_S)
    server.call("DEL", f"{root}:lock:nightly")
    held.check()

    with pytest.raises(LockLost):
        await held.verify()
    with pytest.raises(LockLost):
        held.check()
    with pytest.raises(LockLost):
        await held.release()


async def test_who_finds_out_for_itself_is_told_once(k: Kizuna, server: ServerProcess, root: str) -> None:
    async def lose() -> None:
        async with k.locks.hold("nightly") as held:
            server.call("DEL", f"{root}:lock:nightly")
            await held.verify()

    with pytest.raises(LockLost):
        await lose()
    # Here a cancellation that was meant for the block would come out.
    await asyncio.sleep(0)


async def test_a_busy_event_loop_does_not_lose_its_locks(k: Kizuna, other: Kizuna) -> None:
    async with k.locks.hold("nightly", lease_s=3) as held:
        time.sleep(4.5)  # noqa: ASYNC251 - this is the point
        await held.verify()
        with pytest.raises(LockHeld):
            await other.locks.acquire("nightly", wait_s=0)


async def test_locks_with_all_kinds_of_leases_are_renewed(k: Kizuna) -> None:
    async with AsyncExitStack() as stack:
        leases_s = [6.0, 3.0, 1.5, 4.0, 30.0]
        held = [
            await stack.enter_async_context(k.locks.hold(f"lock-{number}", lease_s=lease_s))
            for number, lease_s in enumerate(leases_s)
        ]
        ended_at = [one.ends_at for one in held]
        await eventually(lambda: all(one.ends_at > then for one, then in zip(held[:4], ended_at, strict=False)))
        for one in held:
            await one.verify()


async def test_a_lock_that_is_not_to_be_renewed_ends_with_its_lease(k: Kizuna) -> None:
    began = time.monotonic()
    with pytest.raises(LockLost, match="its lease ended"):
        async with k.locks.hold("nightly", lease_s=BRIEF_S, renew=False):
            await asyncio.sleep(30)

    assert time.monotonic() - began >= BRIEF_S


async def test_a_holder_whose_connection_is_cut_is_told_before_anybody_else_can_have_the_lock(
    proxy: MakeProxy, other: Kizuna, root: str
) -> None:
    between = await proxy()
    roots = RootsSettings(system=root, coordination=root)
    async with connect(Settings(store=StoreSettings(url=between.url, timeout_s=2), roots=roots)) as k:
        told = asyncio.Event()

        async def work() -> None:
            try:
                async with k.locks.hold("nightly", lease_s=3.0):
                    between.refuse()
                    await between.cut()
                    await asyncio.sleep(30)
            finally:
                told.set()

        working = asyncio.create_task(work())
        await eventually(lambda: other.locks.holder("nightly"))
        theirs = await other.locks.acquire("nightly", wait_s=20)
        assert told.is_set()
        with pytest.raises(LockLost, match="its lease ended"):
            await working
        await theirs.release()
        await between.accept()


async def test_a_short_cut_of_the_connection_costs_nobody_a_lock(proxy: MakeProxy, root: str) -> None:
    between = await proxy()
    roots = RootsSettings(system=root, coordination=root)
    through = Settings(store=StoreSettings(url=between.url), roots=roots)
    async with connect(through) as k, k.locks.hold("nightly", lease_s=3) as held:
        ended_at = held.ends_at
        await between.cut()
        await eventually(lambda: held.ends_at > ended_at + 0.5)
        await held.verify()


# -- what may have happened ---------------------------------------------------------------------------------


async def test_a_take_whose_answer_was_lost_is_asked_again_and_is_ours(proxy: MakeProxy, root: str) -> None:
    between = await proxy()
    roots = RootsSettings(system=root, coordination=root)
    async with connect(Settings(store=StoreSettings(url=between.url), roots=roots)) as k:
        await (await k.locks.acquire("warm")).release()
        between.drop_replies(1, then="cut")
        held = await k.locks.acquire("nightly", lease_s=LONG_S, wait_s=0)

        await held.verify()
        await held.release()


async def test_a_take_of_which_nothing_is_known_leaves_no_orphan(
    proxy: MakeProxy, server: ServerProcess, root: str
) -> None:
    between = await proxy()
    roots = RootsSettings(system=root, coordination=root)
    async with connect(Settings(store=StoreSettings(url=between.url, timeout_s=2), roots=roots)) as k:
        await (await k.locks.acquire("warm", renew=False)).release()
        between.drop_replies(then="cut")
        with pytest.raises(OutcomeUnknown):
            await k.locks.acquire("nightly", lease_s=LONG_S, renew=False)
        assert "lock:nightly" in keys_of(server, root)

        between.deliver_replies()
        await eventually(lambda: keys_of(server, root) == NOTHING_LEFT)


async def test_a_release_whose_answer_was_lost_is_repeated_and_no_loss(
    proxy: MakeProxy, server: ServerProcess, root: str
) -> None:
    between = await proxy()
    roots = RootsSettings(system=root, coordination=root)
    async with connect(Settings(store=StoreSettings(url=between.url), roots=roots)) as k:
        held = await k.locks.acquire("nightly", renew=False)
        between.drop_replies(1, then="cut")
        await held.release()

        assert keys_of(server, root) == NOTHING_LEFT


async def test_a_release_that_cannot_be_sent_is_logged_and_no_error(
    proxy: MakeProxy, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    between = await proxy()
    roots = RootsSettings(system=root, coordination=root)
    async with connect(Settings(store=StoreSettings(url=between.url, timeout_s=2), roots=roots)) as k:
        async with k.locks.hold("nightly", lease_s=5, renew=False):
            between.refuse()
            await between.cut()
        await between.accept()

    (logged,) = [record for record in caplog.records if record.message == "lock not released"]
    assert vars(logged)["lock"] == "nightly"


async def test_a_full_server_refuses_takers_keeps_holders_and_lets_them_go(fresh_server: ServerProcess) -> None:
    async with connect(fresh_server.url) as k:
        async with k.locks.hold("held", lease_s=5) as held:
            waiting = asyncio.create_task(k.locks.acquire("held", wait_s=30))
            await eventually(lambda: waiting_for(fresh_server, "poppo", "held") == 1)
            before = keys_of(fresh_server, "poppo")
            fresh_server.call("CONFIG", "SET", "maxmemory", 1)
            with pytest.raises(OutOfMemory):
                await k.locks.acquire("nightly")
            assert keys_of(fresh_server, "poppo") == before
            ended_at = held.ends_at
            await eventually(lambda: held.ends_at > ended_at)
        # Let go, and the next one told; it cannot take it as long as the server is full.
        with pytest.raises(OutOfMemory):
            await waiting
        fresh_server.call("CONFIG", "SET", "maxmemory", 0)
        async with k.locks.hold("held"):
            pass


async def test_who_may_not_touch_a_key_is_told_and_nothing_is_half_done() -> None:
    users = {
        "elsewhere": "on >secret ~poppo:lock:* &* +@all",
        "no-zadd": "on >secret ~poppo:lock* &* +@all -zadd -zrem",
        "mute": "on >secret ~poppo:* resetchannels +@all",
    }
    with ServerProcess(users=users) as server:
        for user in ("elsewhere", "no-zadd"):
            async with connect(f"redis://{user}:secret@{server.address}") as k:
                with pytest.raises(PermissionDenied):
                    await k.locks.acquire("nightly")
                assert keys_of(server, "poppo") <= NOTHING_LEFT
        mute = connect(f"redis://mute:secret@{server.address}")
        async with mute as k, connect(server.url) as other, other.locks.hold("nightly"):
            with pytest.raises(PermissionDenied):
                await k.locks.acquire("nightly", wait_s=5)
            assert waiting_for(server, "poppo", "nightly") == 0


# -- looking after locks ------------------------------------------------------------------------------------


async def test_all_holders_are_listed_by_name(k: Kizuna, other: Kizuna, server: ServerProcess, root: str) -> None:
    server.call("SET", f"{root}:lock:by-hand", "me")
    server.call("SET", f"{root}:lock:odd", b"\xff\x00", "PX", 60_000)
    async with k.locks.hold("issue:1", lease_s=LONG_S) as first, other.locks.hold("issue:2") as second:
        waiting = asyncio.create_task(other.locks.acquire("issue:1"))
        await eventually(lambda: waiting_for(server, root, "issue:1") == 1)
        listed = await k.locks.ls()

        assert [(one.lock, one.process, one.fence, one.waiting) for one in listed] == [
            ("by-hand", "", 0, 0),
            ("issue:1", "ours", first.fence, 1),
            ("issue:2", "theirs", second.fence, 0),
            ("odd", "", 0, 0),
        ]
        assert (listed[0].token, listed[0].ends_in_s) == ("me", float("inf"))
        assert LONG_S - 5 < listed[1].ends_in_s <= LONG_S
        assert [one.lock for one in await k.locks.ls("issue:*")] == ["issue:1", "issue:2"]
        assert await k.locks.line("issue:1") == ["theirs"]
        assert await k.locks.holder("free") is None
    await (await waiting).release()
    server.call("DEL", f"{root}:lock:by-hand")


@given(value=st.binary())
def test_any_value_of_a_lock_can_be_read(value: bytes) -> None:
    fence, token = read_value(value)

    assert fence >= 0
    assert token or not value


async def test_a_lock_can_be_broken_and_the_next_one_gets_it(
    k: Kizuna, other: Kizuna, server: ServerProcess, root: str
) -> None:
    async def work() -> None:
        async with k.locks.hold("nightly", lease_s=5):
            await asyncio.sleep(30)

    working = asyncio.create_task(work())
    await eventually(lambda: other.locks.holder("nightly"))
    waiting = asyncio.create_task(other.locks.acquire("nightly", wait_s=30))
    await eventually(lambda: waiting_for(server, root, "nightly") == 1)

    broken = await other.locks.break_lock("nightly")
    assert broken is not None
    assert broken.process == "ours"
    theirs = await waiting
    with pytest.raises(LockLost):
        await working
    await theirs.verify()
    await theirs.release()


async def test_a_lock_taken_by_hand_can_be_broken_too(k: Kizuna, server: ServerProcess, root: str) -> None:
    for value in ("me", b"\xff\xfe", "1:me", "", "a/b"):
        server.call("SET", f"{root}:lock:nightly", value)
        assert await k.locks.break_lock("nightly") is not None
        assert await k.locks.break_lock("nightly") is None
    assert keys_of(server, root) == set()


async def test_what_a_dead_process_held_is_given_back_and_nothing_else(
    k: Kizuna, other: Kizuna, server: ServerProcess, root: str
) -> None:
    dead = [await k.locks.acquire(f"issue:{number}", lease_s=LONG_S) for number in range(5)]
    retaken = await k.locks.acquire("retaken", lease_s=LONG_S)
    server.call("SET", f"{root}:lock:retaken", "me", "PX", 60_000)
    alive = await other.locks.acquire("theirs", lease_s=LONG_S)
    waiting = asyncio.create_task(other.locks.acquire("issue:3", wait_s=30))
    await eventually(lambda: waiting_for(server, root, "issue:3") == 1)

    await other.locks.give_back("ours")
    await other.locks.give_back("ours")
    await other.locks.give_back("nobody")

    theirs = await waiting
    assert {one.lock for one in await other.locks.ls()} == {"issue:3", "retaken", "theirs"}
    assert server.call("GET", f"{root}:lock:retaken") == b"me"
    for held in (*dead, retaken):
        with pytest.raises(LockLost):
            await held.verify()
    for held in (alive, theirs):
        await held.release()


async def test_locks_that_were_never_released_are_forgotten_when_they_have_ended(
    k: Kizuna, server: ServerProcess, root: str
) -> None:
    for number in range(30):
        await k.locks.acquire(f"lock-{number}", lease_s=0.05, renew=False)
    await eventually(lambda: not server.call("KEYS", f"{root}:lock:*"))

    async def forgotten() -> bool:
        async with k.locks.hold("another"):
            return int(server.call("ZCARD", f"{root}:locks:held:ours")) == 1

    await eventually(forgotten, every_s=0)


# -- numbers ------------------------------------------------------------------------------------------------


async def test_a_resource_refuses_a_number_lower_than_it_has_seen(k: Kizuna, other: Kizuna) -> None:
    late = await k.locks.acquire("nightly", lease_s=3, renew=False)
    await late.guard("report")
    await late.guard("report")
    newer = await other.locks.acquire("nightly", wait_s=20)
    await newer.guard("report")

    with pytest.raises(LockLost, match=f"number {late.fence} is refused, for number {newer.fence} was here already"):
        await late.guard("report")
    with pytest.raises(LockLost):
        await k.locks.refuse_older("report", late.fence)
    await k.locks.refuse_older("report", newer.fence)
    await late.guard("another-report")
    await newer.release()


@given(fences=st.lists(st.integers(0, 2**53 - 1), min_size=1, max_size=8))
@hypothesis_settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_exactly_those_numbers_pass_that_are_not_below_an_earlier_one(k: Kizuna, fences: list[int]) -> None:
    resource = f"resource-{time.monotonic_ns()}"
    highest = -1
    for fence in fences:
        try:
            await k.locks.refuse_older(resource, fence)
            passed = True
        except LockLost:
            passed = False
        assert passed == (fence >= highest)
        highest = max(highest, fence)


@pytest.mark.parametrize("fence", [-1, 2**53])
async def test_what_is_no_fencing_number_is_refused(k: Kizuna, fence: int) -> None:
    with pytest.raises(WrongValue):
        await k.locks.refuse_older("report", fence)


async def test_held_says_what_it_is(k: Kizuna) -> None:
    async with k.locks.hold("nightly", lease_s=5) as held:
        assert isinstance(held, Held)
        assert (held.name, held.lease_s) == ("nightly", 5)
        assert not held.lost.is_set()
