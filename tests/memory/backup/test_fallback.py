"""While the server is away, the copy answers; when it is back, everything happens there."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.memory.backup.conftest import (
    WITHIN_S,
    Remember,
    backup_of,
    fallback_of,
    find,
    lose,
    until_complete,
    until_copied,
)

from kizuna.app import connect
from kizuna.errors import ContextExists, ItemExists, ItemMissing, OutcomeUnknown, Refused, Unreachable, VersionConflict
from kizuna.memory.backup import presence
from kizuna.memory.backup.replay import Replayer
from kizuna.memory.item import Item, NewItem
from kizuna.memory.memory import Memory
from kizuna.settings import MemorySettings, Settings, StoreSettings
from kizuna.testing import ChaosProxy, ServerProcess, eventually

# For a server, that takes a while; and it is so large that it answers this before it reads the next.
WORK = ("EVAL", "for i = 1, 10000000 do end", 1, "any", "x" * 200_000)

# -- reading ------------------------------------------------------------------------------------------------


async def test_reads_and_lists_are_served_from_the_copy_and_say_so(m: Memory, network: ChaosProxy) -> None:
    for number in range(5):
        await m.create("note", {"number": number}, id=f"n{number}", context="c", metadata={"by": "me"})
    there = await m.get("n3")
    await lose(network, m)

    item = await m.get("n3")
    page = await m.list(context="c", newest_first=True, limit=2)

    assert there is not None
    assert not there.from_backup
    assert item is not None
    assert item.as_dict() == there.as_dict() | {"from_backup": True}
    assert page.from_backup
    assert [one.id for one in page.items] == ["n4", "n3"]
    assert [one.content async for one in m.all(text='"NUMBER":2')] == [{"number": 2}]


async def test_what_others_wrote_is_in_the_copy_too(m: Memory, other: Memory, network: ChaosProxy) -> None:
    await other.create("note", 1, id="theirs")
    await other.create("note", 1, id="short-lived")
    await other.update("theirs", content=2)
    await until_copied(m, "theirs", 2)
    await other.delete("short-lived")
    await other.contexts.create("Work", "project", id="work")

    async def has_heard_of_it() -> bool:
        return (await backup_of(m).keeper.read_contexts(["work"]))[0] is not None

    await eventually(has_heard_of_it, within_s=WITHIN_S)
    await lose(network, m)

    item, context = await m.get("theirs"), await m.contexts.get("work")
    assert item is not None
    assert (item.content, item.version) == (2, 2)
    assert context is not None
    assert (context.name, context.from_backup) == ("Work", True)
    assert await m.get("short-lived") is None


async def test_a_miss_is_a_miss_while_the_server_is_there(m: Memory, server: ServerProcess, root: str) -> None:
    await m.create("note", 1, id="a")
    await until_copied(m, "a")
    server.call("DEL", f"{root}:memory:short:item:a")

    assert await m.get("a") is None


async def test_what_was_deleted_or_has_ended_never_comes_back(m: Memory, network: ChaosProxy) -> None:
    await m.create("note", 1, id="deleted")
    await m.create("note", 1, id="brief", ttl_s=0.3)
    await m.create("note", 1, id="ends-meanwhile", ttl_s=1.5)
    await m.delete("deleted")
    await asyncio.sleep(0.3)
    await lose(network, m)

    assert await m.get_many(["deleted", "brief"]) == [None, None]

    async def has_ended() -> bool:
        return await m.get("ends-meanwhile") is None

    await eventually(has_ended, within_s=WITHIN_S)
    assert [item.id for item in (await m.list()).items] == []
    await find(network, m)
    assert [item.id for item in (await m.list()).items] == []


async def test_a_list_that_was_begun_at_the_server_can_be_ended_at_the_copy(m: Memory, network: ChaosProxy) -> None:
    await m.create_many([{"type": "note", "content": number, "id": f"n{number}"} for number in range(7)])
    every = [item.id async for item in m.all()]
    first = await m.list(limit=3)
    await lose(network, m)
    second = await m.list(limit=3, cursor=first.cursor)
    await find(network, m)
    third = await m.list(limit=3, cursor=second.cursor)

    assert [item.id for page in (first, second, third) for item in page.items] == every
    assert (first.from_backup, second.from_backup, third.from_backup) == (False, True, False)


async def test_sealed_contents_stay_sealed_in_the_file_and_can_be_read(
    remember: Remember, copied: Settings, network: ChaosProxy
) -> None:
    pytest.importorskip("cryptography")
    keys = f"k1:{'A' * 43}="
    sealing = msgspec.structs.replace(copied.memory, sealed=True, seal_keys=type(copied.memory.seal_keys)(keys))
    m = await remember(msgspec.structs.replace(copied, memory=sealing))
    await until_complete(m)
    await m.create("note", "the treasure is below the oak", id="secret")
    await lose(network, m)
    await m.create("note", "the oak was felled", id="later")

    item = await m.get("secret")
    assert item is not None
    assert (item.content, item.is_sealed, item.from_backup) == ("the treasure is below the oak", True, True)
    files = backup_of(m).path.parent.iterdir()
    assert not any(b"oak" in file.read_bytes() for file in files)


# -- writing ------------------------------------------------------------------------------------------------


async def test_what_is_written_meanwhile_happens_on_the_server_with_the_same_versions(
    m: Memory, other: Memory, network: ChaosProxy
) -> None:
    await m.create("note", "as it was", id="old", ttl_s=100)
    await m.create("note", "as it was", id="doomed")
    await lose(network, m)
    versions = [
        (await m.update("old", content=1)).version,
        (await m.update("old", content=2, type="task", priority=9, expected_version=2)).version,
        (await m.create("note", 1, id="new", context="c", metadata={"by": "me"})).version,
        (await m.update("new", content=2)).version,
        (await m.put("new", "note", 3, context="c")).version,
        (await m.move("new", "d")).version,
    ]
    assert await m.delete("doomed")
    assert not await m.delete("doomed")
    touched = await m.touch("old", ttl_s=1000)
    assert versions == [2, 3, 1, 2, 3, 4]
    assert await backup_of(m).pending() == 8
    with pytest.raises(ItemExists):
        await m.create("note", 1, id="old")
    with pytest.raises(VersionConflict):
        await m.update("old", content=0, expected_version=2)
    with pytest.raises(ItemMissing):
        await m.update("doomed", content=0)

    await find(network, m)

    old, new, doomed = await other.get_many(["old", "new", "doomed"])
    assert old is not None
    assert (old.content, old.version, old.type, old.priority) == (2, 3, "task", 9)
    assert old.expires_at == pytest.approx(touched.expires_at, abs=1)
    assert new is not None
    assert (new.content, new.version, new.context) == (3, 4, "d")
    assert doomed is None
    assert await m.conflicts() == []
    assert await backup_of(m).pending() == 0
    mine = await m.get("new")
    assert mine is not None
    assert not mine.from_backup


async def test_many_at_once_are_taken_too(m: Memory, other: Memory, network: ChaosProxy) -> None:
    def many(*ids: str) -> list[dict[str, object]]:
        return [{"type": "note", "content": id_, "id": id_} for id_ in ids]

    await m.create_many(many("a", "b"))
    await lose(network, m)
    created = await m.create_many(many("c", "d", "e"))
    with pytest.raises(ExceptionGroup) as refused:
        await m.create_many(many("f", "a"))
    touched = await m.touch_many(["a", "unknown"], ttl_s=5_000)

    assert [item.from_backup for item in created] == [True] * 3
    assert [str(error) for error in refused.value.exceptions] == [str(ItemExists("a"))]
    assert await m.delete_many(["b", "c", "unknown"]) == 2
    assert touched[1] is None
    await find(network, m)
    assert sorted([item.id async for item in other.all()]) == ["a", "d", "e", "f"]
    assert await m.conflicts() == []


async def test_changes_by_a_function_go_on_through_an_outage(m: Memory, other: Memory, network: ChaosProxy) -> None:
    await m.create("counter", 0, id="n")
    for away in (False, True, False):
        if away:
            await lose(network, m)
        for _ in range(5):
            await m.change("n", lambda content: content + 1)
        if away:
            await find(network, m)

    item = await other.get("n")
    assert item is not None
    assert (item.content, item.version) == (15, 16)


async def test_contexts_are_kept_too_and_take_their_items_along(m: Memory, other: Memory, network: ChaosProxy) -> None:
    for id_ in ("left", "dropped", "kept"):
        await m.contexts.create(id_, "project", id=id_, at_end="leave" if id_ == "left" else "delete")
        await m.create("note", 1, id=f"in-{id_}", context=id_)
    await lose(network, m)
    assert await m.contexts.delete("left")
    assert await m.contexts.delete("dropped")
    await m.contexts.update("kept", name="Kept", expected_version=1)
    await m.contexts.create("New", "project", id="new", active=False)
    await m.update("in-left", content=2)
    with pytest.raises(ContextExists):
        await m.contexts.create("New", "project", id="new")
    expected = {"in-left": "global", "in-kept": "kept"}
    assert {item.id: item.context async for item in m.all()} == expected
    assert [(one.id, one.from_backup) async for one in m.contexts.all()] == [("kept", True), ("new", True)]

    await find(network, m)

    assert {item.id: item.context async for item in other.all()} == expected
    assert [(one.id, one.name, one.is_active) async for one in other.contexts.all()] == [
        ("kept", "Kept", True),
        ("new", "New", False),
    ]
    assert await m.conflicts() == []


async def test_items_of_a_context_that_ends_meanwhile_end_with_it(m: Memory, network: ChaosProxy) -> None:
    await m.contexts.create("brief", "project", id="delete", ttl_s=2, active=False)
    await m.contexts.create("brief", "project", id="leave", ttl_s=2, active=False, at_end="leave")
    await m.create("note", 1, id="gone", context="delete")
    await m.create("note", 1, id="left", context="leave")
    await lose(network, m)
    assert {item.id: item.context async for item in m.all()} == {"gone": "delete", "left": "leave"}

    async def have_ended() -> bool:
        return [one async for one in m.contexts.all()] == []

    await eventually(have_ended, within_s=WITHIN_S)
    assert {item.id: item.context async for item in m.all()} == {"left": "global"}
    await find(network, m)
    await until_complete(m)


async def test_who_replays_is_done_with_what_was_there_however_much_is_written_meanwhile(
    m: Memory, other: Memory, network: ChaosProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lose(network, m)
    for number in range(3):
        await m.create("note", number)
    write = other.server.write

    async def write_while_others_write(new: NewItem) -> Item:
        await m.create("note", "meanwhile")
        return await write(new)

    monkeypatch.setattr(other.server, "write", write_while_others_write)
    backup = backup_of(m)
    replayer = Replayer(other.server, backup.thread, backup.path.with_suffix(".replaying"))
    async with asyncio.timeout(WITHIN_S):
        replayed = await replayer.replay()

    assert (replayed.done, replayed.left) == (3, False)
    assert await backup.pending() == 3


async def test_who_writes_faster_than_it_can_be_replayed_is_made_to_wait_for_it(
    m: Memory, other: Memory, network: ChaosProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_OUTRUN_AFTER_S", 0.5)
    await m.create("count", 0, id="n")
    await until_copied(m, "n")
    await lose(network, m)
    # One item, so one change after the other: at most fifty in a second.
    network.delay_s = 0.005
    written, goes_on = 0, True

    async def write_on() -> None:
        nonlocal written
        while goes_on:
            await m.update("n", content=1)
            written += 1
            await asyncio.sleep(0.02)

    writing = [asyncio.create_task(write_on()) for _ in range(2)]
    await eventually(lambda: written > 20)
    await network.accept()
    await eventually(lambda: not fallback_of(m).is_away, within_s=2 * WITHIN_S)
    goes_on = False
    await asyncio.gather(*writing)
    item = await other.get("n")

    assert item is not None
    assert item.version == 1 + written
    assert await m.conflicts() == []


async def test_an_item_that_ended_before_the_server_came_back_is_not_written(
    m: Memory, other: Memory, network: ChaosProxy
) -> None:
    await m.create("note", 1, id="shortened")
    await lose(network, m)
    await m.create("note", 1, id="brief", ttl_s=4)
    await m.update("brief", content=2)
    await m.update("shortened", content=2, ttl_s=4)
    await m.create("note", 1, id="touched", ttl_s=4)
    await m.touch("touched", ttl_s=100)
    await asyncio.sleep(4.1)

    await find(network, m)

    assert [item.id async for item in other.all()] == ["touched"]
    assert await m.conflicts() == []
    assert backup_of(m).replayed.expired == 3


# -- conflicts ----------------------------------------------------------------------------------------------


async def test_what_others_changed_meanwhile_stays_and_the_conflict_is_told(
    m: Memory, other: Memory, network: ChaosProxy, caplog: pytest.LogCaptureFixture
) -> None:
    for id_ in ("changed", "recreated", "gone", "deleted", "fine"):
        await m.create("note", "before", id=id_)
    await lose(network, m)
    await m.update("changed", content="mine")
    await m.update("changed", content="mine too")
    await m.update("recreated", content="mine")
    await m.update("gone", content="mine")
    await m.delete("deleted")
    await m.create("note", "mine", id="taken")
    await m.update("fine", content="mine")
    # At the version that our second change was based on: only the first one tells that it is not the same.
    await other.update("changed", content="theirs")
    await other.delete("recreated")
    await other.create("note", "theirs", id="recreated")
    await other.delete("gone")
    await other.update("deleted", content="theirs")
    await other.create("note", "theirs", id="taken")

    await find(network, m)

    theirs = {item.id: item.content async for item in other.all()}
    assert theirs == dict.fromkeys(["changed", "recreated", "deleted", "taken"], "theirs") | {"fine": "mine"}
    conflicts = [(one.op, one.id, one.base_version) for one in await m.conflicts()]
    assert sorted(conflicts) == [
        ("change", "changed", 1),
        ("change", "changed", 2),
        ("change", "gone", 1),
        ("change", "recreated", 1),
        ("remove", "deleted", 1),
        ("write", "taken", 0),
    ]
    assert sum("conflict" in record.message for record in caplog.records) == 5
    assert (await backup_of(m).contents()).conflicts == 6
    # The copy has what the server has.
    await lose(network, m)
    assert {item.id: item.content async for item in m.all()} == theirs
    assert await backup_of(m).forget_conflicts() == 6
    assert await m.conflicts() == []


# -- what is in doubt -----------------------------------------------------------------------------------------


async def test_a_write_whose_answer_was_lost_happens_once(m: Memory, other: Memory, network: ChaosProxy) -> None:
    await m.create("counter", 0, id="n")
    await m.create("note", 0, id="doomed")
    for write in (
        lambda: m.update("n", content=1),
        lambda: m.create("note", 1, id="new"),
        lambda: m.delete("doomed"),
    ):
        # The server gets it and does it, and its answer is cut off; after that, nobody answers.
        network.refuse()
        network.drop_replies(then="cut")
        await write()
        assert fallback_of(m).is_away
        network.deliver_replies()
        await find(network, m)

    n, new, doomed = await other.get_many(["n", "new", "doomed"])
    assert n is not None
    assert (n.content, n.version) == (1, 2)
    assert new is not None
    assert (new.content, new.version) == (1, 1)
    assert doomed is None
    assert await m.conflicts() == []


async def lose_an_answer(m: Memory, network: ChaosProxy) -> None:
    """One change happens on the server, two only here."""
    for id_ in ("sent", "here"):
        await m.create("counter", 0, id=id_)
    network.refuse()
    network.drop_replies(then="cut")
    await m.update("sent", content=1)
    await m.update("sent", content=2)
    await m.update("here", content=1)


async def test_a_write_whose_answer_was_lost_happens_once_whoever_writes_next(
    m: Memory, other: Memory, network: ChaosProxy
) -> None:
    await lose_an_answer(m, network)
    for id_ in ("sent", "here"):
        await other.update(id_, content=10)
    network.deliver_replies()
    await find(network, m)

    assert [(one.id, one.base_version, one.may_have_happened) for one in await m.conflicts()] == [
        ("sent", 2, False),
        ("here", 1, False),
    ]
    assert await contents(other, "sent", "here") == [(10, 3), (10, 2)]


async def test_a_conflict_tells_whether_it_may_have_happened(
    remember: Remember, copied: Settings, other: Memory, network: ChaosProxy
) -> None:
    brief = msgspec.structs.replace(copied.memory, feed_length=1)
    m = await remember(msgspec.structs.replace(copied, memory=brief))
    await until_complete(m)
    await lose_an_answer(m, network)
    for id_ in ("sent", "here"):
        await other.update(id_, content=10)
    # By then, the feed has forgotten.
    await forget_events(other)
    network.deliver_replies()
    await find(network, m)

    assert [(one.id, one.base_version, one.may_have_happened) for one in await m.conflicts()] == [
        ("sent", 1, True),
        ("sent", 2, False),
        ("here", 1, False),
    ]
    assert await contents(other, "sent", "here") == [(10, 3), (10, 2)]


async def forget_events(m: Memory) -> None:
    await m.store.call("XTRIM", m.server.shards[0].feed, "MAXLEN", 1)


async def contents(m: Memory, *ids: str) -> list[tuple[Any, int]]:
    return [(item.content, item.version) for item in await m.get_many(ids) if item is not None]


@pytest.fixture
async def patient(remember: Remember, copied: Settings) -> Memory:
    """With more time than a busy machine needs to connect again."""
    patience = msgspec.structs.replace(copied.memory, fallback_after_s=4.0)
    store = msgspec.structs.replace(copied.store, timeout_s=5.0)
    return await remember(msgspec.structs.replace(copied, memory=patience, store=store))


@pytest.mark.parametrize("id_", ["chosen", None], ids=["its own id", "a new id"])
async def test_what_the_server_had_created_and_somebody_ended_does_not_come_back(
    m: Memory, other: Memory, network: ChaosProxy, id_: str | None
) -> None:
    await m.create("note", 1, id="before")
    # They get there, and nobody tells us so.
    network.refuse()
    network.drop_replies(then="cut")
    item = await m.create("note", 1, id=id_)
    assert item.from_backup
    await eventually(lambda: other.delete(item.id), within_s=WITHIN_S)
    network.deliver_replies()
    await find(network, m)

    assert await other.get(item.id) is None
    assert await m.get(item.id) is None
    assert await m.conflicts() == []


async def test_what_one_had_in_doubt_is_known_to_the_next_who_opens_the_file(
    remember: Remember, copied: Settings, other: Memory, network: ChaosProxy
) -> None:
    async with connect(copied) as k:
        await k.memory.get("anything")
        await until_complete(k.memory)
        await lose_an_answer(k.memory, network)
    for id_ in ("sent", "here"):
        await other.update(id_, content=10)
    network.deliver_replies()
    await network.accept()
    m = await remember()
    await find(network, m)

    assert [(one.id, one.base_version) for one in await m.conflicts()] == [("sent", 2), ("here", 1)]
    assert await contents(other, "sent", "here") == [(10, 3), (10, 2)]


async def test_a_cut_is_no_outage(patient: Memory, network: ChaosProxy) -> None:
    await patient.create("note", 1, id="a")
    for number in range(3):
        await network.cut()
        item = await patient.update("a", content=number)
        assert (item.from_backup, item.version) == (False, number + 2)

    assert not fallback_of(patient).is_away


async def test_a_server_that_is_slow_is_not_away(patient: Memory, network: ChaosProxy) -> None:
    await patient.create("note", 1)
    network.delay_s = 1.2
    item = await patient.create("note", 1)
    network.delay_s = 0

    assert not item.from_backup


async def test_the_first_call_of_a_program_may_come_while_the_server_is_away(
    m: Memory, copied: Settings, other: Memory, network: ChaosProxy
) -> None:
    await m.create("note", 1, id="a")
    await fallback_of(m).aclose()
    async with connect(copied) as k:
        network.refuse()
        await network.cut()
        item = await k.memory.update("a", content=2)
        assert (item.from_backup, item.version) == (True, 2)
        await find(network, k.memory)
        # What could not begin in the outage begins now: it sweeps.
        await k.memory.create("note", 1, id="brief", ttl_s=0.1)

        async def has_ended() -> bool:
            events = (await other.events_since("0")).events
            return any((event.kind, event.id) == ("item:expired", "brief") for event in events)

        await eventually(has_ended, within_s=WITHIN_S)
    changed = await other.get("a")
    assert changed is not None
    assert changed.content == 2


async def test_shards_make_no_difference(remember: Remember, copied: Settings, network: ChaosProxy) -> None:
    sharded = msgspec.structs.replace(copied, memory=msgspec.structs.replace(copied.memory, shards=3))
    m = await remember(sharded)
    await until_complete(m)
    for number in range(12):
        await m.create("note", number, id=f"n{number}", context=f"c{number % 5}")
    await m.contexts.create("c0", "project", id="c0")
    there = [item.id async for item in m.all()]
    await lose(network, m)
    assert [item.id async for item in m.all()] == there
    await m.move("n0", "c1")
    await m.update("n1", content="changed")
    await m.delete("n2")
    await m.create("note", 1, id="new", context="c4")
    await m.contexts.delete("c0")

    await find(network, m)

    expected = {f"n{number}": f"c{number % 5}" for number in range(12) if number not in (2, 5, 10)}
    assert {item.id: item.context async for item in m.all()} == expected | {"n0": "c1", "new": "c4"}
    assert await m.conflicts() == []


async def test_a_silent_server_is_left_after_the_time_that_was_set(
    m: Memory, other: Memory, network: ChaosProxy, copied: Settings
) -> None:
    await m.create("note", 1, id="a")
    network.stall()
    began = time.monotonic()
    items = await asyncio.gather(m.update("a", content=2), *(m.create("note", n, id=f"n{n}") for n in range(20)))
    first_s = time.monotonic() - began
    began = time.monotonic()
    await m.get("a")
    second_s = time.monotonic() - began
    network.resume()
    await find(network, m)

    assert all(item.from_backup for item in items)
    assert copied.memory.fallback_after_s / 2 < first_s
    assert second_s < first_s
    assert await m.conflicts() == []
    assert sorted([(item.id, item.version) async for item in other.all()]) == sorted(
        [("a", 2), *((f"n{n}", 1) for n in range(20))]
    )


async def test_what_the_server_says_goes_up_as_it_is(m: Memory, server: ServerProcess, root: str) -> None:
    server.call("SET", f"{root}:memory:short:idx:type:odd", "no set")
    with pytest.raises(Refused):
        await m.create("odd", 1)
    server.call("DEL", f"{root}:memory:short:idx:type:odd")

    with pytest.raises(ItemMissing):
        await m.update("nothing", content=1)
    assert not fallback_of(m).is_away


async def test_whoever_gives_up_waiting_is_let_go(m: Memory, network: ChaosProxy) -> None:
    network.stall()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await m.create("note", 1, id="never-mind")
    waiting = asyncio.create_task(m.create("note", 1, id="never-mind-either"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    network.resume()

    assert (await m.create("note", 1, id="after")).version == 1


async def test_what_a_copy_does_not_have_may_still_be_there_if_it_is_not_complete(
    m: Memory, network: ChaosProxy
) -> None:
    await lose(network, m)
    await backup_of(m).thread.do(lambda file: file.set_fact("dropped", 1), "note")

    for write in (m.update("unknown", content=1), m.delete("unknown"), m.touch("unknown")):
        with pytest.raises((Unreachable, OutcomeUnknown)):
            await write


async def test_a_server_with_very_much_to_answer_before_is_not_away(tmp_path: Path) -> None:
    """The question for a sign of life waits behind what it was asked before, for longer than we have patience; but all
    the while it answers."""
    with ServerProcess() as busy:
        settings = Settings(
            store=StoreSettings(url=busy.url, timeout_s=120), memory=MemorySettings(backup_folder=str(tmp_path))
        )
        async with connect(settings) as k:
            await k.memory.get("anything")
            began = time.monotonic()
            await k.store.call(*WORK)
            each_s = time.monotonic() - began
            patience_s = max(2.0, 15 * each_s)
            line = [k.store.call(*WORK) for _ in range(math.ceil(1.5 * patience_s / each_s))]

            await backup_of(k.memory).ask_time(patience_s)
            await asyncio.gather(*line)
            assert not fallback_of(k.memory).is_away
