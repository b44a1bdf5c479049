"""Watching the state of a unit: what is there, and then each change."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterable, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kizuna.app import connect
from kizuna.codecs import JSON, RAW, Codec
from kizuna.errors import Undecodable, Unreachable
from kizuna.settings import EventsSettings, Settings
from kizuna.store.client import Store
from kizuna.testing import ServerProcess, eventually
from kizuna.units.state import Changes, Keep, StateChange
from kizuna.units.state.changes import Told


def keep_of(store: Store, unit: str = "sensor", *, codec: Codec = RAW) -> Keep:
    return Keep(store, unit, 60, codec, 1_000_000, store.settings.roots.units)


@pytest.fixture
def keep(store: Store) -> Keep:
    return keep_of(store)


async def told(changes: Changes) -> tuple[str, str, bytes | None]:
    change = await changes.next(timeout_s=10)
    assert change is not None, "nothing was told"
    return change.id, change.kind, change.raw


async def nothing_but(changes: Changes, keep: Keep, marker: str = "marker") -> None:
    """The next that is told is what we set now: there was nothing before it."""
    await keep.set(marker, marker.encode())
    assert await told(changes) == (marker, "set", marker.encode())


# -- what is there, and each change -------------------------------------------------------------------------


async def test_first_comes_what_is_there_and_then_each_change(keep: Keep) -> None:
    await keep.set("temp", b"21.5")
    async with keep.watch() as changes:
        await keep.set("wind", b"3")
        first, second = [await changes.next(timeout_s=10) for _ in range(2)]
        await keep.set("temp", b"22")
        third = await changes.next(timeout_s=10)

    assert first == StateChange("temp", "set", b"21.5", found=True, codec=RAW)
    assert second == StateChange("wind", "set", b"3", codec=RAW)
    assert third == StateChange("temp", "set", b"22", codec=RAW)


async def test_it_can_be_iterated_over_as_it_is(keep: Keep, server: ServerProcess) -> None:
    await keep.set("temp", b"1")
    await eventually(lambda: server.call("PUBSUB", "NUMPAT") == 0)  # those of earlier tests
    seen = []
    async with asyncio.timeout(10):
        async for change in keep.watch("t*"):
            seen.append(change.value)
            assert server.call("PUBSUB", "NUMPAT") == 1
            if len(seen) == 3:
                break
            await keep.set("temp", b"%d" % (len(seen) + 1))

    assert seen == [b"1", b"2", b"3"]
    # Who leaves the loop is no longer subscribed.
    await eventually(lambda: server.call("PUBSUB", "NUMPAT") == 0)


async def test_one_watch_can_be_begun_again(keep: Keep) -> None:
    watch = keep.watch()
    await keep.set("temp", b"1")
    for _ in range(2):
        async with watch as changes:
            assert await told(changes) == ("temp", "set", b"1")
        async with asyncio.timeout(10):
            async for change in watch:
                assert change.found
                break


async def test_who_wants_changes_only_is_not_told_what_was_there_when_it_began(keep: Keep) -> None:
    await asyncio.gather(*(keep.set(f"t{number}", b"old") for number in range(200)))
    async with keep.watch(changes_only=True) as changes:
        await keep.set("t7", b"new")
        assert await told(changes) == ("t7", "set", b"new")
        await nothing_but(changes, keep)


async def test_only_what_fits_the_pattern_is_told(keep: Keep, store: Store) -> None:
    await keep.set("wind", b"0")
    async with keep.watch("TEMP.*") as several, keep.watch("temp.in") as one:
        await keep.set("wind", b"1")
        await keep_of(store, "other").set("temp.in", b"1")
        await keep.set("temp.out", b"2")
        await keep.set("temp.in", b"3")

        assert [await told(several), await told(several)] == [("temp.out", "set", b"2"), ("temp.in", "set", b"3")]
        assert await told(one) == ("temp.in", "set", b"3")


async def test_the_end_of_a_value_is_told_as_what_it_is(keep: Keep, server: ServerProcess, root: str) -> None:
    async with keep.watch() as changes:
        await keep.set("temp", b"1")
        assert await told(changes) == ("temp", "set", b"1")
        await keep.touch("temp", ttl_s=0.2)
        assert await told(changes) == ("temp", "expired", None)
        await keep.set("temp", b"2")
        assert await told(changes) == ("temp", "set", b"2")
        server.call("DEL", f"{root}/sensor/keep/temp")
        ended = await changes.next(timeout_s=10)

    assert ended == StateChange("temp", "deleted", None, codec=RAW)
    assert ended.value is None


async def test_what_is_gone_before_it_was_told_is_not_told_at_all(keep: Keep, server: ServerProcess, root: str) -> None:
    async with keep.watch() as changes:
        await keep.set("temp", b"1")
        server.call("DEL", f"{root}/sensor/keep/temp")
        await nothing_but(changes, keep)


async def test_whatever_changes_a_string_is_told(keep: Keep, server: ServerProcess, root: str) -> None:
    at = f"{root}/sensor/keep/"
    await keep.set("n", b"1")
    async with keep.watch(changes_only=True) as changes:
        for command, value in (
            (("INCRBY", f"{at}n", 4), b"5"),
            (("INCRBYFLOAT", f"{at}n", "0.5"), b"5.5"),
            (("APPEND", f"{at}n", "0"), b"5.50"),
            (("SETRANGE", f"{at}n", 0, "6"), b"6.50"),
            (("GETSET", f"{at}n", "7"), b"7"),
        ):
            server.call(*command)
            assert await told(changes) == ("n", "set", value)
        server.call("PEXPIRE", f"{at}n", 60_000)
        server.call("COPY", f"{at}n", f"{at}m")
        assert await told(changes) == ("m", "set", b"7")
        server.call("RENAME", f"{at}m", f"{at}o")
        assert {await told(changes), await told(changes)} == {("m", "deleted", None), ("o", "set", b"7")}
        server.call("RESTORE", f"{at}p", 60_000, server.call("DUMP", f"{at}o"))
        assert await told(changes) == ("p", "set", b"7")


async def test_the_same_value_again_is_no_change(keep: Keep) -> None:
    async with keep.watch() as changes:
        await keep.set("temp", b"1")
        assert await told(changes) == ("temp", "set", b"1")
        await keep.set("temp", b"1", ttl_s=30)
        await keep.touch("temp")
        await nothing_but(changes, keep)


async def test_of_a_quick_succession_the_last_one_is_told_and_nothing_older_after_it(keep: Keep) -> None:
    seen: list[StateChange] = []
    async with keep.watch() as changes:
        seeing = asyncio.create_task(gather_into(seen, changes))
        for number in range(500):
            await keep.set("n", b"%d" % number)
        await eventually(lambda: seen and seen[-1].raw == b"499")
    # With its `async with`, it ends.
    await asyncio.wait_for(seeing, 10)

    numbers = [int(change.value) for change in seen]
    assert numbers == sorted(set(numbers))


async def gather_into(seen: list[StateChange], changes: AsyncIterable[StateChange]) -> None:
    """While it goes on, unlike a comprehension."""
    async for change in changes:
        seen += [change]


async def test_a_slow_reader_is_told_the_last_of_each(keep: Keep, settings: Settings) -> None:
    """Of more changes than are kept for anybody."""
    few = Settings(store=settings.store, roots=settings.roots, events=EventsSettings(buffer=10))
    async with connect(few) as k, keep_of(k.store).watch() as changes:
        for round_ in range(3):
            await asyncio.gather(*(keep.set(f"n{number}", b"%d" % round_) for number in range(100)))
        seen = dict([(await told(changes))[::2] for _ in range(100)])

        assert seen == {f"n{number}": b"2" for number in range(100)}
        await nothing_but(changes, keep)


# -- ends -----------------------------------------------------------------------------------------------------


@pytest.fixture
def late_server() -> Iterator[ServerProcess]:
    """Removes nothing by itself when it is due, so that it is announced when somebody looks, and not before."""
    with ServerProcess(config={"notify-keyspace-events": "AKE", "enable-debug-command": "yes"}) as server:
        server.call("DEBUG", "SET-ACTIVE-EXPIRE", 0)
        yield server


async def test_an_end_is_told_when_it_is_due_though_the_server_announces_it_late(late_server: ServerProcess) -> None:
    async with connect(late_server.url) as k:
        keep = keep_of(k.store)
        await keep.set("found", b"1", ttl_s=4)
        async with keep.watch() as changes:
            assert await told(changes) == ("found", "set", b"1")
            await keep.set("heard", b"1")
            assert await told(changes) == ("heard", "set", b"1")
            await keep.touch("heard", ttl_s=0.3)

            assert await told(changes) == ("heard", "expired", None)
            assert await told(changes) == ("found", "expired", None)


async def test_an_end_that_was_moved_is_told_when_it_comes(keep: Keep) -> None:
    async with keep.watch() as changes:
        await keep.set("later", b"1", ttl_s=5)
        await keep.set("sooner", b"1", ttl_s=60)
        assert {(await told(changes))[0], (await told(changes))[0]} == {"later", "sooner"}
        await keep.touch("later", ttl_s=60)
        await keep.touch("sooner", ttl_s=0.3)

        assert await told(changes) == ("sooner", "expired", None)
        await nothing_but(changes, keep)


# -- what is none ---------------------------------------------------------------------------------------------


async def test_what_units_note_for_themselves_is_told_to_those_who_ask(keep: Keep) -> None:
    await keep.set("presence.p", b"{}")
    async with keep.watch() as changes, keep.watch(internals=True) as everything:
        await keep.set("claim.a.1", b"token")
        await nothing_but(changes, keep)
        assert {(await told(everything))[0] for _ in range(3)} == {"presence.p", "claim.a.1", "marker"}


async def test_foreign_keys_confuse_nobody(keep: Keep, server: ServerProcess, root: str) -> None:
    at = f"{root}/sensor/keep/"
    server.call("HSET", f"{at}hash", "f", "v")
    async with keep.watch() as changes:
        server.call("SET", f"{at}UPPER", "1", "EX", 60)
        server.call("SET", f"{at}a/b", "1", "EX", 60)
        server.call("SET", at.encode() + b"\xff", "1", "EX", 60)
        server.call("LPUSH", f"{at}list", "1")
        server.call("EXPIRE", f"{at}list", 60)
        await nothing_but(changes, keep)
        # One that was a value, and is a list now, is none any more.
        await keep.set("x", b"1")
        assert await told(changes) == ("x", "set", b"1")
        server.call("DEL", f"{at}x")
        server.call("LPUSH", f"{at}x", "1")
        assert await told(changes) == ("x", "deleted", None)
    server.call("DEL", f"{at}hash", f"{at}list", f"{at}x", f"{at}a/b", at.encode() + b"\xff")


async def test_a_value_of_another_format_does_not_end_the_watch(store: Store, server: ServerProcess, root: str) -> None:
    keep = keep_of(store, codec=JSON)
    async with keep.watch() as changes:
        server.call("SET", f"{root}/sensor/keep/temp", "no json", "EX", 60)
        change = await changes.next(timeout_s=10)
        assert change is not None
        assert change.raw == b"no json"
        with pytest.raises(Undecodable):
            _ = change.value
        server.call("SET", f"{root}/sensor/keep/temp", "21.5", "EX", 60)
        change = await changes.next(timeout_s=10)

    assert change is not None
    assert change.value == 21.5


# -- beginning and ending -------------------------------------------------------------------------------------


async def test_a_hundred_watches_share_one_subscription(keep: Keep, store: Store, server: ServerProcess) -> None:
    watches = [keep.watch() for _ in range(100)]
    await eventually(lambda: server.call("PUBSUB", "NUMPAT") == 0)  # those of earlier tests
    entered = await asyncio.gather(*(watch.__aenter__() for watch in watches))
    assert server.call("PUBSUB", "NUMPAT") == 1

    await keep.set("temp", b"1")
    assert await asyncio.gather(*map(told, entered)) == [("temp", "set", b"1")] * 100
    await asyncio.gather(*(watch.__aexit__() for watch in watches))
    await eventually(lambda: server.call("PUBSUB", "NUMPAT") == 0)


async def test_it_ends_with_the_store_for_who_iterates_and_for_who_waits(settings: Settings) -> None:
    seen: list[StateChange] = []
    async with connect(settings) as k:
        keep = keep_of(k.store)
        await keep.set("temp", b"1")
        iterating = asyncio.create_task(gather_into(seen, keep.watch()))
        changes = await keep.watch(changes_only=True).__aenter__()
        waiting = asyncio.create_task(changes.next())
        await eventually(lambda: seen)

    await asyncio.wait_for(iterating, 10)
    with pytest.raises(Unreachable, match="this watch is closed"):
        await asyncio.wait_for(waiting, 10)
    await changes.aclose()
    assert [change.id for change in seen] == ["temp"]


async def test_who_gives_up_waiting_misses_nothing(keep: Keep) -> None:
    async with keep.watch() as changes:
        assert await changes.next(timeout_s=0) is None
        await keep.set("temp", b"1")
        waiting = asyncio.create_task(changes.next())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])

        assert await told(changes) == ("temp", "set", b"1")
        await nothing_but(changes, keep)


# -- what was told, for all inputs ----------------------------------------------------------------------------

VALUES = st.sampled_from([None, b"", b"a", b"b" * 63, b"b" * 64, b"c" * 200])


@given(readings=st.lists(VALUES))
def test_each_change_of_a_value_is_told_once_and_nothing_else(readings: list[bytes | None]) -> None:
    memory = Told()
    kinds = [memory.take(b"k", raw, due=math.inf, now=0) for raw in readings]

    assert kinds == [expected_kind(*pair) for pair in zip([None, *readings], readings, strict=False)]


def expected_kind(before: bytes | None, now: bytes | None) -> str | None:
    if now == before:
        return None
    return "deleted" if now is None else "set"


@given(dues=st.dictionaries(st.binary(min_size=1, max_size=2), st.floats(0, 100)), now=st.floats(0, 100))
def test_exactly_those_are_overdue_whose_time_has_come(dues: dict[bytes, float], now: float) -> None:
    memory = Told()
    for key, due in dues.items():
        memory.take(key, b"", due=due, now=0)
    assert memory.soonest == min(dues.values(), default=math.inf)

    overdue = {key for key, due in dues.items() if due <= now}
    assert set(memory.overdue(now)) == overdue
    assert memory.soonest == min(not_in(dues, overdue), default=math.inf)
    assert {memory.take(key, None, due=None, now=now) for key in overdue} <= {"expired"}
    assert {memory.take(key, None, due=None, now=now) for key in dues.keys() - overdue} <= {"deleted"}


def not_in(dues: dict[bytes, float], overdue: set[bytes]) -> Iterable[float]:
    return [due for key, due in dues.items() if key not in overdue]
