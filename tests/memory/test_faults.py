"""A server that is full, breaks off, forgets its scripts or says no: a clear error, and nothing half done."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from tests.memory.exactness import assert_indexes_exact

from kizuna.app import Kizuna, connect
from kizuna.errors import NotPrimary, OutcomeForgotten, OutcomeUnknown, OutOfMemory, Refused, StoreError
from kizuna.memory.memory import Memory
from kizuna.settings import MemorySettings, RootsSettings, Settings, StoreSettings
from kizuna.testing import ChaosProxy, ServerProcess, eventually

MakeProxy = Callable[..., Awaitable[ChaosProxy]]
# Nothing is done but what the test does.
ALONE = MemorySettings(sweep_every_s=3600, pressure_every_s=3600)


def at(url: str, root: str, **options: Any) -> Settings:
    roots = RootsSettings(system=root, coordination=root, memory=root)
    return Settings(store=StoreSettings(url=url, **options), roots=roots, memory=ALONE)


def everything(server: ServerProcess) -> dict[bytes, object]:
    with server.connect() as conversation:
        return {key: conversation.call("DUMP", key) for key in conversation.call("KEYS", "*")}


async def events_of(m: Memory) -> list[tuple[str, str, int | None]]:
    return [(event.kind, event.id, event.version) for event in (await m.events_since("0", limit=1000)).events]


# -- broken off -----------------------------------------------------------------------------------------------------


async def test_a_write_whose_answer_is_lost_is_repeated_and_counts_once(
    settings: Settings, proxy: MakeProxy, server: ServerProcess, root: str
) -> None:
    between = await proxy()
    through = msgspec.structs.replace(settings, store=StoreSettings(url=between.url), memory=ALONE)
    async with connect(through) as k:
        m = k.memory
        await m.create("note", 0, id="warm")
        await m.update("warm", content=1)
        await m.contexts.create("Chat", "chat", id="c")
        before = len(await events_of(m))

        async def lost(step: Callable[[], Awaitable[Any]]) -> Any:
            between.drop_replies(1, then="cut")
            return await step()

        item = await lost(lambda: m.create("note", 1, id="a", context="c"))
        assert (item.version, item.content) == (1, 1)
        assert (await lost(lambda: m.update("a", content=2))).version == 2
        assert (await lost(lambda: m.update("a", content=3, expected_version=2))).version == 3
        assert (await lost(lambda: m.put("a", "note", 4, context="c"))).version == 4
        assert (await lost(lambda: m.move("a", "global"))).version == 5
        assert (await lost(lambda: m.contexts.update("c", name="Talk"))).version == 2
        assert (await lost(lambda: m.contexts.create("Chat", "chat", id="d"))).version == 1
        many = await lost(lambda: m.create_many([{"type": "note", "content": n, "id": f"i{n}"} for n in range(10)]))
        assert [item.version for item in many] == [1] * 10
        assert await lost(lambda: m.raise_generation("model")) == 1

        events = (await events_of(m))[before:]
        assert events == [
            ("item:created", "a", 1),
            ("item:updated", "a", 2),
            ("item:updated", "a", 3),
            ("item:updated", "a", 4),
            ("item:updated", "a", 5),
            ("ctx:updated", "c", 2),
            ("ctx:created", "d", 1),
            *(("item:created", f"i{n}", 1) for n in range(10)),
        ]
        read = await m.get("a")
        assert read is not None
        assert (read.content, read.version, read.context) == (4, 5, "global")
        await m.sweep()
        assert_indexes_exact(server, root)


async def test_a_write_whose_answer_is_lost_happens_once_also_if_others_write_before_it_is_repeated(
    settings: Settings, proxy: MakeProxy, server: ServerProcess, root: str
) -> None:
    between = await proxy()
    through = StoreSettings(url=between.url, reconnect_longest_s=0.1, timeout_s=20)
    async with (
        connect(msgspec.structs.replace(settings, store=through, memory=ALONE)) as k,
        connect(msgspec.structs.replace(settings, memory=ALONE)) as elsewhere,
    ):
        m, others = k.memory, elsewhere.memory
        await m.create("counter", 0, id="n")
        await m.put("n", "counter", 0)
        await m.change("n", lambda content: content)

        def lose_the_next_answer() -> None:
            between.refuse()
            between.drop_replies(1, then="cut")

        async def overtaken(step: Awaitable[Any], other_step: Callable[[], Awaitable[Any]]) -> Any:
            events = len(await events_of(others))
            writing = asyncio.ensure_future(step)

            async def has_happened() -> bool:
                return len(await events_of(others)) > events

            await eventually(has_happened)
            await other_step()
            between.deliver_replies()
            await between.accept()
            return await writing

        async def now(id_: str) -> tuple[Any, int] | None:
            item = await others.get(id_)
            return None if item is None else (item.content, item.version)

        def plus_one() -> Awaitable[Any]:
            return others.change("n", lambda content: content + 1)

        given: list[int] = []

        def one_more(content: int) -> int:
            # What it was given has been read: the next answer is that to the write.
            if not given:
                lose_the_next_answer()
            given.append(content)
            return content + 1

        lose_the_next_answer()
        updated = await overtaken(m.update("n", content=10), plus_one)
        assert (updated.content, updated.version, await now("n")) == (10, 4, (11, 5))
        changed = await overtaken(m.change("n", one_more), plus_one)
        assert (changed.content, changed.version, await now("n"), given) == (12, 6, (13, 7), [11])
        lose_the_next_answer()
        replaced = await overtaken(m.put("n", "counter", 20), plus_one)
        assert (replaced.content, replaced.version, await now("n")) == (20, 8, (21, 9))
        lose_the_next_answer()
        created = await overtaken(m.create("note", 1, id="a"), lambda: others.update("a", content=2))
        assert (created.content, created.version, await now("a")) == (1, 1, (2, 2))
        lose_the_next_answer()
        ended = await overtaken(m.create("note", 1, id="b"), lambda: others.delete("b"))
        assert (ended.content, ended.version, await now("b")) == (1, 1, None)
        lose_the_next_answer()
        trip = await overtaken(m.contexts.create("Trip", "travel", id="c"), lambda: others.contexts.delete("c"))
        assert (trip.name, trip.version, await others.contexts.get("c")) == ("Trip", 1, None)
        await m.contexts.create("Chat", "chat", id="d")
        lose_the_next_answer()
        await overtaken(m.contexts.update("d", name="Talk"), lambda: others.contexts.update("d", name="Debate"))
        chat = await others.contexts.get("d")
        assert chat is not None
        assert (chat.name, chat.version) == ("Debate", 3)
        notes: list[dict[str, Any]] = [{"type": "note", "content": number} for number in range(3)]
        lose_the_next_answer()
        [first, *_] = await overtaken(m.create_many(notes), lambda: delete_all(others, "note"))
        assert (first.content, first.version, await others.count(type="note")) == (0, 1, 0)
        assert_indexes_exact(server, root)


async def delete_all(m: Memory, type_: str) -> None:
    await m.delete_many([item.id async for item in m.all(type=type_)])


async def test_what_the_feed_has_forgotten_is_not_written_a_second_time(settings: Settings, proxy: MakeProxy) -> None:
    between = await proxy()
    through = StoreSettings(url=between.url, reconnect_longest_s=0.1, timeout_s=20)
    brief = msgspec.structs.replace(ALONE, feed_length=1)
    async with (
        connect(msgspec.structs.replace(settings, store=through, memory=brief)) as k,
        connect(msgspec.structs.replace(settings, memory=ALONE)) as others,
    ):
        await k.memory.create("counter", 0, id="n")
        between.refuse()
        between.drop_replies(1, then="cut")
        writing = asyncio.ensure_future(k.memory.update("n", content=1))

        async def is_written() -> bool:
            item = await others.memory.get("n")
            return item is not None and item.version == 2

        await eventually(is_written)
        await others.memory.update("n", content=2)
        await others.store.call("XTRIM", others.memory.server.shards[0].feed, "MAXLEN", 1)
        between.deliver_replies()
        await between.accept()
        with pytest.raises(OutcomeForgotten, match="item 'n' may have been written, or not"):
            await writing
        item = await others.memory.get("n")
        assert item is not None
        assert (item.content, item.version) == (2, 3)


async def test_a_delete_whose_answer_is_lost_deletes_once_and_says_so(settings: Settings, proxy: MakeProxy) -> None:
    between = await proxy()
    async with connect(msgspec.structs.replace(settings, store=StoreSettings(url=between.url), memory=ALONE)) as k:
        m = k.memory
        await m.create("note", 0, id="a")
        await m.delete("none")
        between.drop_replies(1, then="cut")
        # Whether it was there cannot be known any more; that it is gone, can.
        with suppress(OutcomeUnknown):
            await m.delete("a")
        assert await m.get("a") is None
        assert [kind for kind, _, _ in await events_of(m)] == ["item:created", "item:deleted"]


async def test_a_write_that_the_server_never_got_is_made_when_it_is_back(settings: Settings, proxy: MakeProxy) -> None:
    between = await proxy()
    through = msgspec.structs.replace(
        settings, store=StoreSettings(url=between.url, reconnect_longest_s=0.1), memory=ALONE
    )
    async with connect(through) as k:
        m = k.memory
        await m.create("note", 0, id="warm")
        between.refuse()
        await between.cut()
        writing = asyncio.create_task(m.create("note", 1, id="a"))
        await asyncio.sleep(0.05)
        await between.accept()
        assert (await writing).version == 1
        assert [id_ for _, id_, _ in await events_of(m)] == ["warm", "a"]


async def test_a_write_into_silence_ends_with_an_error_and_may_be_repeated_by_hand(
    settings: Settings, proxy: MakeProxy
) -> None:
    between = await proxy()
    impatient = StoreSettings(url=between.url, timeout_s=2, reconnect_longest_s=0.1)
    async with connect(msgspec.structs.replace(settings, store=impatient, memory=ALONE)) as k:
        m = k.memory
        await m.create("count", 0, id="a")
        between.drop_replies()
        with pytest.raises(StoreError) as unknown:
            await m.update("a", content=1, expected_version=1)
        assert unknown.value.outcome == "unknown"
        between.deliver_replies()
        await eventually(lambda: answers(k), within_s=20)
        item = await m.get("a")
        assert item is not None
        assert (item.version, item.content) == (2, 1)


async def test_changes_over_a_connection_that_breaks_all_the_time_count_once_each(
    settings: Settings, proxy: MakeProxy
) -> None:
    between = await proxy()
    through = msgspec.structs.replace(settings, store=StoreSettings(url=between.url, reconnect_longest_s=0.05))
    async with connect(through) as k:
        m = k.memory
        await m.create("count", 0, id="a")

        async def break_it() -> None:
            for number in range(15):
                await asyncio.sleep(0.03)
                if number % 2:
                    await between.cut()
                else:
                    between.drop_replies(1, then="cut")

        breaking = asyncio.create_task(break_it())
        made = 0
        while not breaking.done() or made < 20:
            await m.change("a", lambda content: content + 1, within_s=30)
            made += 1
        await breaking
        item = await m.get("a")
        assert item is not None
        assert (item.content, item.version) == (made, made + 1)


async def answers(k: Kizuna) -> bool:
    try:
        return bool(await k.store.call("PING"))
    except StoreError:
        return False


# -- forgotten ------------------------------------------------------------------------------------------------------


async def test_a_server_that_forgot_its_scripts_gets_them_again(fresh_server: ServerProcess, root: str) -> None:
    async with connect(at(fresh_server.url, root)) as k:
        m = k.memory
        await m.contexts.create("Chat", "chat", id="c")
        await m.create("note", 1, id="a")

        async def forgetting(step: Awaitable[Any]) -> Any:
            fresh_server.call("SCRIPT", "FLUSH")
            return await step

        assert (await forgetting(m.create("note", 1, id="b"))).version == 1
        assert (await forgetting(m.update("a", content=2))).version == 2
        assert (await forgetting(m.touch("a"))).version == 2
        assert (await forgetting(m.move("a", "c"))).version == 3
        assert [item.id for item in (await forgetting(m.list())).items] == ["a", "b"]
        assert await forgetting(m.changed("x")) == 0
        assert await forgetting(m.delete("b"))
        assert await forgetting(m.contexts.delete("c"))
        assert_indexes_exact(fresh_server, root)


# -- full -----------------------------------------------------------------------------------------------------------


async def test_a_full_server_takes_nothing_half_and_lets_go_of_what_it_has(
    fresh_server: ServerProcess, root: str
) -> None:
    async with connect(at(fresh_server.url, root)) as k:
        m = k.memory
        await m.contexts.create("Chat", "chat", id="c")
        for number in range(6):
            await m.create("note", number, id=f"i{number}", context="c" if number > 3 else "global")
        await m.create("sum", 1, id="dependent", depends_on=["i0"])
        await m.list()
        fresh_server.call("CONFIG", "SET", "maxmemory", 1)
        before = everything(fresh_server)
        for refused in (
            m.create("note", 1),
            m.put("i1", "other", 2),
            m.put("new", "other", 2),
            m.update("i1", content="x" * 1000),
            m.update("i1", type="other", priority=9),
            m.move("i1", "c"),
            m.copy("i1", "c"),
            m.change("i1", lambda content: content + 1),
            m.contexts.create("Chat", "chat", id="d"),
            m.contexts.update("c", type="talk"),
        ):
            with pytest.raises(OutOfMemory):
                await refused
            assert everything(fresh_server) == before

        # Reading and ending need no room.
        assert [item and item.content for item in await m.get_many(["i1", "i2"])] == [1, 2]
        assert len((await m.list(type="note")).items) == 6
        assert await m.delete("i0")
        assert await m.get("dependent") is None
        assert await m.delete_many(["i1", "i2"]) == 2
        assert await m.contexts.delete("c")
        fresh_server.call("CONFIG", "SET", "maxmemory", 0)
        assert [item.id for item in (await m.list()).items] == ["i3"]
        assert_indexes_exact(fresh_server, root)


async def test_of_many_at_once_a_full_server_takes_none(fresh_server: ServerProcess, root: str) -> None:
    async with connect(at(fresh_server.url, root)) as k:
        m = k.memory
        await m.create("note", 1, id="a")
        await m.create("note", 1, id="b")
        fresh_server.call("CONFIG", "SET", "maxmemory", 1)
        before = everything(fresh_server)
        with pytest.raises(ExceptionGroup) as refusals:
            await m.create_many([{"type": "note", "content": n} for n in range(3)])
        assert {type(refusal) for refusal in refusals.value.exceptions} == {OutOfMemory}
        assert everything(fresh_server) == before
        # In one turn of the loop they go as one call as well.
        updates = [m.update(id_, type="other") for id_ in ("a", "b")]
        outcomes = await asyncio.gather(*updates, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [OutOfMemory, OutOfMemory]
        assert everything(fresh_server) == before


# -- no primary -----------------------------------------------------------------------------------------------------


async def test_a_replica_is_read_from_and_refuses_writes(fresh_server: ServerProcess, root: str) -> None:
    async with connect(at(fresh_server.url, root)) as k:
        await k.memory.create("note", 1, id="a")
        with ServerProcess(config={"replicaof": f"{fresh_server.host} {fresh_server.port}"}) as replica:
            await eventually(lambda: replica.call("EXISTS", f"{root}:memory:short:item:a") == 1, within_s=20)
            async with connect(at(replica.url, root, timeout_s=2)) as other:
                m = other.memory
                found = await m.get("a")
                assert found is not None
                assert found.content == 1
                for refused in (m.create("note", 2), m.update("a", content=2), m.delete("a")):
                    with pytest.raises(NotPrimary):
                        await refused
        assert (await k.memory.update("a", content=3)).version == 2


async def test_of_many_at_once_only_those_are_refused_whose_index_is_none(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    server.call("SET", f"{root}:memory:short:idx:type:bad", "no set")
    async with connect(settings) as k:
        with pytest.raises(ExceptionGroup) as refused:
            await k.memory.create_many([{"type": type_, "content": 1} for type_ in ("good", "bad", "good", "bad")])

        assert [type(error) for error in refused.value.exceptions] == [Refused, Refused]
        assert await k.memory.count() == 2
        assert [item.type async for item in k.memory.all()] == ["good", "good"]
    server.call("DEL", f"{root}:memory:short:idx:type:bad")


async def test_a_version_that_somebody_spoilt_spoils_no_other_change_of_that_moment(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    async with connect(settings) as k:
        items = [await k.memory.create("note", 0) for _ in range(4)]
        server.call("HSET", f"{root}:memory:short:item:{items[1].id}", "version", "many")

        changed = await asyncio.gather(*(k.memory.update(item.id, content=1) for item in items))

        assert [item.content for item in changed] == [1, 1, 1, 1]
        assert [changed[at].version for at in (0, 2, 3)] == [2, 2, 2]
        assert [await k.memory.get(item.id) is not None for item in items] == [True] * 4


async def test_who_gives_up_creating_many_at_whichever_moment_leaves_nothing_unawaited(m: Memory) -> None:
    many = [{"type": "note", "content": number} for number in range(300)]
    await m.create_many(many)
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        for turns in range(15):
            creating = asyncio.ensure_future(m.create_many(many))
            for _ in range(turns):
                await asyncio.sleep(0)
            creating.cancel()
            await asyncio.wait([creating])
            gc.collect()
    assert [str(complaint.message) for complaint in complaints] == []
    assert await m.verify()
