"""Messages that wait for their readers: none is missed silently, whatever happens to whom."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kizuna.app import connect
from kizuna.coordination.channels import Channels, Log, Message
from kizuna.coordination.channels.durable import DurableChannel, Published
from kizuna.coordination.channels.log_readers import Reader, advance_cursor
from kizuna.errors import IllegalName, MessagesGone, OutOfMemory, PermissionDenied, Undecodable, WrongValue
from kizuna.settings import RootsSettings, Settings, StoreSettings
from kizuna.testing import ServerProcess, eventually

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.testing.fixtures import MakeProxy


# A machine that is busy is not what is tested.
PATIENT = hypothesis_settings(deadline=None, max_examples=50)


def quick(url: str, root: str, **options: Any) -> Settings:
    store = StoreSettings(url=url, reconnect_longest_s=0.1, **options)
    return Settings(store=store, roots=RootsSettings(system=root, coordination=root))


@pytest.fixture
def log(store: Store) -> DurableChannel[int]:
    return Channels(store).durable("mirin", "requests", type=int)


async def read(reader: Reader[int], count: int) -> list[int]:
    """That many values, without saying that they are done."""
    entries = [await reader.next(timeout_s=10) for _ in range(count)]
    return [entry.value for entry in entries if entry is not None]


# publishing


async def test_a_message_is_in_the_log_and_heard_by_those_who_listen(log: DurableChannel[int], root: str) -> None:
    async with log.live.subscribe() as messages:
        published = await log.publish(7, id="first")

        assert await messages.next(timeout_s=5) == Message("mirin:requests", 7)
    assert published == Published(published.entry, heard=1, repeated=False)
    [entry] = await log.entries()
    assert (entry.entry, entry.id, entry.number, entry.value) == (published.entry, "first", 1, 7)
    assert entry.at_s > 1_600_000_000


async def test_an_id_that_is_known_is_not_published_again(log: DurableChannel[int]) -> None:
    async with log.live.subscribe() as messages:
        first = await log.publish(1, id="order-7")
        again = await log.publish(1, id="order-7")
        other = await log.publish(2, id="order-8")

        assert again == Published(first.entry, heard=0, repeated=True)
        assert not other.repeated
        assert [await messages.next(timeout_s=5) for _ in range(2)] == [
            Message("mirin:requests", 1), Message("mirin:requests", 2),
        ]  # fmt: skip
        assert await messages.next(timeout_s=0) is None
    assert [entry.value for entry in await log.entries()] == [1, 2]


async def test_a_known_id_whose_message_has_left_the_log_is_still_known(store: Store) -> None:
    log = Channels(store).durable("news", type=int, keep=1)
    await log.publish(1, id="one")
    await log.publish_many(list(range(300)))
    length = await log.length()

    assert await log.publish(1, id="one") == Published("", heard=0, repeated=True)
    assert await log.length() == length


async def test_many_are_published_in_their_order(log: DurableChannel[int]) -> None:
    published = await log.publish_many(list(range(1200)))
    entries = await log.entries(most=2000)

    assert [entry.value for entry in entries] == list(range(1200))
    assert [entry.number for entry in entries] == list(range(1, 1201))
    assert [one.entry for one in published] == [entry.entry for entry in entries]


async def test_what_is_published_at_once_shares_few_calls_and_keeps_its_order(log: DurableChannel[int]) -> None:
    await asyncio.gather(*(log.publish(number) for number in range(100)))

    assert [entry.value for entry in await log.entries(most=200)] == list(range(100))


async def test_the_log_keeps_the_newest(store: Store) -> None:
    log = Channels(store).durable("news", type=int, keep=50)
    await log.publish_many(list(range(500)))
    await log.publish(500)

    assert 50 <= await log.length() <= 151
    assert (await log.entries(most=1000))[-1].value == 500


@pytest.mark.parametrize("then", ["cut", "silence"])
async def test_a_lost_answer_leaves_exactly_one_entry(
    proxy: MakeProxy, store: Store, root: str, log: DurableChannel[int], then: Any
) -> None:
    chaos = await proxy()
    async with connect(quick(chaos.url, root, timeout_s=2)) as k:
        through = k.channels.durable("mirin", "requests", type=int)
        await through.publish(0)
        chaos.drop_replies(1, then=then)
        published = await through.publish(1)

    assert published.repeated
    entries = await log.entries()
    assert [(entry.value, entry.entry) for entry in entries][1:] == [(1, published.entry)]


async def test_a_message_that_is_too_long_is_refused_before_it_is_sent(store: Store) -> None:
    log = Channels(store).durable("news", type=str, longest_bytes=10)
    with pytest.raises(WrongValue, match="a message on channel news cannot be 13 bytes long"):
        await log.publish("x" * 11)

    assert await log.length() == 0


# reading


async def test_a_reader_goes_on_where_it_was(log: DurableChannel[int]) -> None:
    async with log.reader("billing", start="beginning") as reader:
        await log.publish_many([1, 2, 3])
        first = await reader.next(timeout_s=5)
        assert first is not None
        assert first.value == 1
        assert await reader.done(first)
        assert await read(reader, 1) == [2]  # and not done

    async with log.reader("billing") as reader:
        assert await read(reader, 2) == [2, 3]


async def test_each_reader_has_its_own_place(log: DurableChannel[int]) -> None:
    await log.publish_many([1, 2])
    async with (
        log.reader("from-now") as late,
        log.reader("all", start="beginning") as early,
        log.reader("after-first", start=(await log.entries())[0].entry) as middle,
    ):
        await log.publish(3)

        assert await read(late, 1) == [3]
        assert await read(early, 3) == [1, 2, 3]
        assert await read(middle, 2) == [2, 3]


async def test_where_to_start_is_for_new_readers_only(log: DurableChannel[int]) -> None:
    await log.publish(1)
    async with log.reader("billing"):
        pass
    await log.publish(2)
    async with log.reader("billing", start="beginning") as reader:
        assert await read(reader, 1) == [2]


async def test_a_new_reader_that_dies_at_once_misses_nothing_from_then_on(log: DurableChannel[int]) -> None:
    async with log.reader("billing"):
        pass
    await log.publish(1)

    async with log.reader("billing") as reader:
        assert await read(reader, 1) == [1]


async def test_two_under_one_name_both_get_everything(log: DurableChannel[int]) -> None:
    async with log.reader("billing") as one, log.reader("billing") as other:
        await log.publish_many([1, 2])
        entries = [await anext(one), await anext(one)]
        assert await one.done(entries[-1])

        assert await read(other, 2) == [1, 2]
        assert not await other.done(entries[0])


async def test_a_reader_waits_without_asking_again_and_again(store: Store, log: DurableChannel[int]) -> None:
    async with log.reader("billing") as reader:
        waiting = asyncio.create_task(reader.next(timeout_s=30))
        before = await _commands(store)
        await asyncio.sleep(0.5)
        assert await _commands(store) - before < 10
        await log.publish(1)
        entry = await waiting

        assert entry is not None
        assert entry.value == 1


async def _commands(store: Store) -> int:
    info = await store.call("INFO", "commandstats")
    ranges = [line for line in info.decode().splitlines() if line.startswith("cmdstat_xrange:")]
    return int(ranges[0].partition("calls=")[2].partition(",")[0]) if ranges else 0


async def test_batches_hold_what_is_there(log: DurableChannel[int]) -> None:
    await log.publish_many(list(range(10)))
    async with log.reader("billing", start="beginning", batch=4) as reader:
        assert await read(reader, 1) == [0]
        sizes = []
        async for batch in reader.batches():
            sizes.append([entry.value for entry in batch])
            await reader.done(batch[-1])
            if batch[-1].value == 9:
                break
        assert sizes == [[1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert await reader.look() == []
    assert await log.lag("billing") == 0


async def test_lag_is_told(log: DurableChannel[int]) -> None:
    assert await log.lag("billing") is None
    async with log.reader("billing") as reader:
        assert await reader.lag() == 0
        await log.publish_many([1, 2, 3])
        entry = await reader.next(timeout_s=5)
        assert entry is not None

        assert (await reader.lag(), await log.lag("billing")) == (2, 3)
        await reader.done(entry)
        assert await log.lag("billing") == 2


async def test_the_cursor_never_goes_back(store: Store, log: DurableChannel[int]) -> None:
    await log.publish_many([1, 2, 3])
    async with log.reader("billing", start="beginning") as reader:
        first, second, third = [await anext(reader) for _ in range(3)]
        assert await reader.done(second)
        assert not await reader.done(first)
        assert not await reader.done(second)
        assert await reader.done(third)

    assert (await store.get(log.cursor_key("billing")) or b"").decode() == f"{third.entry} 3"


# Ids are compared as the server does, also where floats would not tell them apart.
HALVES = st.one_of(st.integers(0, 30), st.integers(2**53 - 3, 2**53 + 3), st.integers(2**63 - 3, 2**63))


@PATIENT
@given(ids=st.lists(st.tuples(HALVES, HALVES), min_size=1, max_size=10), key=st.uuids())
def test_whatever_is_said_to_be_done_the_cursor_is_at_the_greatest(
    server: ServerProcess, ids: list[tuple[int, int]], key: UUID
) -> None:
    cursor, greatest = f"scratch-{key}:cursor", (-1, -1)
    with server.connect() as outsider:
        for place, (ms, sequence) in enumerate(ids):
            arguments = (f"{ms}-{sequence}", place, 1000)
            outcome = outsider.call("EVAL", advance_cursor.source, 1, cursor, *arguments)
            assert outcome == (b"advanced" if (ms, sequence) > greatest else b"behind")
            greatest = max(greatest, (ms, sequence))
            assert outsider.call("GET", cursor).split()[0].decode() == "{}-{}".format(*greatest)
        outsider.call("DEL", cursor)


async def test_a_message_that_cannot_be_read_can_be_done(store: Store, root: str, log: DurableChannel[int]) -> None:
    await Channels(store).durable("mirin", "requests").publish("no number")
    await log.publish(2)
    async with log.reader("billing", start="beginning") as reader:
        garbled = await anext(reader)
        with pytest.raises(Undecodable, match="no number"):
            _ = garbled.value
        assert await reader.done(garbled)
        assert await read(reader, 1) == [2]


async def test_entries_that_others_add_are_read_and_counted(store: Store, root: str, log: DurableChannel[int]) -> None:
    async with log.reader("billing") as reader:
        await log.publish(1)
        for value in (2, 3):
            await store.call("XADD", f"{root}:log:mirin:requests", "*", "message", value)
        await log.publish(4)

        assert await read(reader, 4) == [1, 2, 3, 4]
        assert (await log.entries())[-1].number == 4


async def test_a_reader_starts_behind_an_entry_of_others_and_is_not_told_of_a_gap(
    store: Store, root: str, log: DurableChannel[int]
) -> None:
    await log.publish(1)
    await store.call("XADD", f"{root}:log:mirin:requests", "*", "message", 2)
    async with log.reader("billing") as reader:
        await log.publish_many([3, 4, 5])
        assert await read(reader, 1) == [3]
        await reader.done((await log.entries(most=3))[-1])

    # From then on, numbers are known again.
    await log.trim(1)
    async with log.reader("billing") as reader:
        with pytest.raises(MessagesGone) as gone:
            await reader.next(timeout_s=5)
        assert gone.value.how_many == 1
        assert await read(reader, 1) == [5]


# what is gone


async def test_messages_that_are_gone_are_told_with_their_number(log: DurableChannel[int]) -> None:
    async with log.reader("billing") as reader:
        await log.publish_many(list(range(10)))
        assert await log.trim(4) == 6
        with pytest.raises(MessagesGone, match="6 of the messages of channel 'mirin:requests' ended") as gone:
            await reader.next(timeout_s=5)
        assert gone.value.how_many == 6
        assert await read(reader, 4) == [6, 7, 8, 9]

    # Nothing was said to be done, so whoever comes next is told as well.
    async with log.reader("billing") as reader:
        with pytest.raises(MessagesGone):
            await reader.next(timeout_s=5)
        await reader.done(await anext(reader))
    async with log.reader("billing") as reader:
        assert await read(reader, 3) == [7, 8, 9]


async def test_a_gap_in_the_middle_is_told_in_its_place(store: Store, root: str, log: DurableChannel[int]) -> None:
    await log.publish_many([1, 2, 3, 4])
    async with log.reader("billing", start="beginning") as reader:
        second = (await log.entries())[1].entry
        await store.call("XDEL", f"{root}:log:mirin:requests", second)
        assert await read(reader, 1) == [1]
        with pytest.raises(MessagesGone) as gone:
            await anext(reader)
        assert gone.value.how_many == 1
        assert await read(reader, 2) == [3, 4]


async def test_who_starts_at_the_beginning_of_a_trimmed_log_has_missed_nothing(log: DurableChannel[int]) -> None:
    await log.publish_many([1, 2, 3])
    await log.trim(1)
    async with log.reader("new", start="beginning") as reader:
        assert await read(reader, 1) == [3]


async def test_a_log_that_was_begun_anew_is_told(store: Store, root: str, log: DurableChannel[int]) -> None:
    async with log.reader("billing") as reader:
        await log.publish_many([1, 2, 3])
        assert await read(reader, 3) == [1, 2, 3]
        await store.call("DEL", f"{root}:log:mirin:requests")
        # Entries are numbered by the millisecond: what is added within the same one could stand before the others.
        await asyncio.sleep(0.01)
        await log.publish(4)
        with pytest.raises(MessagesGone, match="an unknown number"):
            await reader.next(timeout_s=5)
        assert await read(reader, 1) == [4]


@pytest.mark.parametrize("keep", [0, -1])
async def test_at_least_one_message_stays(store: Store, log: DurableChannel[int], keep: int) -> None:
    with pytest.raises(WrongValue, match="at least one message"):
        await log.trim(keep)
    with pytest.raises(WrongValue, match="at least one message"):
        Channels(store).durable("news", keep=keep)


# crashes and lost connections


READ_AND_STALL = """
import asyncio, sys
from kizuna.app import connect
from kizuna.settings import RootsSettings, Settings, StoreSettings

async def main(url, root):
    settings = Settings(store=StoreSettings(url=url), roots=RootsSettings(system=root, coordination=root))
    async with connect(settings) as k:
        async with k.channels.durable("mirin:requests", type=int).reader("billing", start="beginning") as reader:
            await reader.done(await anext(reader))
            entry = await anext(reader)
            print(entry.value, flush=True)
            await asyncio.sleep(60)
            await reader.done(entry)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_what_a_killed_reader_had_not_done_is_read_again(
    server: ServerProcess, root: str, log: DurableChannel[int]
) -> None:
    await log.publish_many([1, 2, 3])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", READ_AND_STALL, server.url, root, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"2\n"
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()

    async with log.reader("billing") as reader:
        assert await read(reader, 2) == [2, 3]


async def test_killed_connections_lose_nothing(fresh_server: ServerProcess, root: str) -> None:
    async with connect(quick(fresh_server.url, root)) as k:
        log = k.channels.durable("mirin", "requests", type=int)
        async with log.reader("billing") as reader:

            async def publish() -> None:
                for number in range(200):
                    await log.publish(number)
                    if number % 50 == 25:
                        for kind in ("pubsub", "normal"):
                            fresh_server.call("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")

            publishing = asyncio.create_task(publish())
            heard = []
            for _ in range(200):
                entry = await reader.next(timeout_s=20)
                assert entry is not None
                heard.append(entry.value)
                await reader.done(entry)
            await publishing
    assert heard == list(range(200))


async def test_a_network_that_is_cut_again_and_again_loses_nothing(
    proxy: MakeProxy, root: str, log: DurableChannel[int]
) -> None:
    chaos = await proxy()
    async with (
        connect(quick(chaos.url, root)) as k,
        k.channels.durable("mirin", "requests", type=int).reader("billing") as reader,
    ):
        for number in range(5):
            await log.publish(number)
            await chaos.cut()
        assert await read(reader, 5) == list(range(5))
        chaos.refuse()
        await chaos.cut()
        waiting = asyncio.create_task(reader.next(timeout_s=30))
        await log.publish(5)
        await chaos.accept()
        entry = await waiting

        assert entry is not None
        assert entry.value == 5
        assert await reader.done(entry)


async def test_a_restarted_server_is_waited_for(fresh_server: ServerProcess, root: str) -> None:
    async with connect(quick(fresh_server.url, root, timeout_s=2)) as k:
        log = k.channels.durable("mirin", "requests", type=int)
        async with log.reader("billing") as reader:
            await log.publish(1)
            await asyncio.to_thread(fresh_server.stop)
            waiting = asyncio.create_task(read(reader, 2))
            # Longer than any call waits.
            await asyncio.sleep(2.5)
            await asyncio.to_thread(fresh_server.start)
            await eventually(lambda: fresh_server.call("PING"))
            async with connect(quick(fresh_server.url, root)) as other:
                await other.channels.durable("mirin", "requests", type=int).publish(2)

            assert await waiting == [1, 2]


# trouble


async def test_a_full_server_says_so_and_has_nothing_half_done(fresh_server: ServerProcess, root: str) -> None:
    async with connect(quick(fresh_server.url, root)) as k:
        log = k.channels.durable("news", type=int)
        async with log.live.subscribe() as messages:
            await k.store.call("CONFIG", "SET", "maxmemory", "1mb")
            with pytest.raises(OutOfMemory):
                await log.publish(1, id="one")
            await k.store.call("CONFIG", "SET", "maxmemory", "0")

            assert await k.store.call("DBSIZE") - len(await k.store.call("KEYS", f"{root}:canary:*")) == 0
            assert await messages.next(timeout_s=0) is None
            assert not (await log.publish(1, id="one")).repeated


async def test_who_may_not_publish_leaves_nothing_in_the_log(root: str) -> None:
    rules = f"on >secret ~* &{root}:channel:mine &__keyspace* +@all"
    with ServerProcess(users={"one": rules}) as server:
        store = StoreSettings(url=server.url, username="one", password="secret")  # type: ignore[arg-type]
        async with connect(Settings(store=store, roots=RootsSettings(system=root, coordination=root))) as k:
            await k.channels.durable("mine").publish(1)
            for messages in ([1], [1, 2]):
                with pytest.raises(PermissionDenied):
                    await k.channels.durable("yours").publish_many(messages)
            with pytest.raises(PermissionDenied):
                await k.channels.durable("yours").publish(1)

            keys = await k.store.call("KEYS", f"{root}:log*")
            assert sorted(keys) == [f"{root}:log-ids:mine".encode(), f"{root}:log:mine".encode()]


@pytest.mark.parametrize("start", ["", "yesterday", "5", "-", "5-0-0"])
async def test_a_start_that_is_none_is_refused(log: DurableChannel[int], start: str) -> None:
    with pytest.raises(WrongValue, match="now, beginning, or an entry"):
        async with log.reader("billing", start=start):
            pass


async def test_a_reader_needs_a_name(log: DurableChannel[int]) -> None:
    for name in ("", "a:b", "*"):
        with pytest.raises(IllegalName):
            async with log.reader(name):
                pass


async def test_a_cursor_lives_on_while_its_reader_waits(store: Store, log: DurableChannel[int]) -> None:
    key = log.cursor_key("billing")
    async with log.reader("billing", kept_s=10) as reader:
        await store.call("PEXPIRE", key, 5_000)
        waiting = asyncio.create_task(reader.next(timeout_s=30))

        async def renewed() -> bool:
            return bool(await store.call("PTTL", key) > 5_000)

        await eventually(renewed)
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_a_cursor_is_kept_for_a_month(store: Store, log: DurableChannel[int]) -> None:
    async with log.reader("billing"):
        pass

    assert 2_591_000 < await store.call("TTL", log.cursor_key("billing")) <= 2_592_000


async def test_logs_are_listed_with_their_readers(store: Store) -> None:
    channels = Channels(store)
    await channels.durable("news").publish_many([1, 2])
    requests = channels.durable("mirin", "requests")
    async with requests.reader("audit"), requests.reader("billing", start="beginning") as billing:
        await requests.publish_many([1, 2, 3])
        await billing.done(await anext(billing))

    assert await channels.logs() == [Log("mirin:requests", 3, {"audit": 3, "billing": 2}), Log("news", 2, {})]
