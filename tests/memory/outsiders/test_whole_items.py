"""What somebody else wrote whole is as good as ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.memory.finding import ids, what_was_told
from tests.memory.outsiders.outsider import Outsider

from kizuna.app import connect
from kizuna.memory.memory import Memory
from kizuna.settings import Settings
from kizuna.testing import eventually


async def test_a_whole_item_is_read_found_and_counted_at_once(outsider: Outsider, unswept: Memory) -> None:
    fields = outsider.create("a", type="todo", contextId="chat", priority=8)
    item = await unswept.get("a")

    assert item is not None
    assert (item.type, item.context, item.priority, item.version) == ("todo", "chat", 8, 1)
    assert item.content == {"from": "outside"}
    assert (item.created_at, item.expires_at) == (int(fields["createdAt"]) / 1000, int(fields["expiresAt"]) / 1000)
    for asked in (
        {"type": "todo"},
        {"context": "chat"},
        {"priority": 8},
        {"priority": (7, 9)},
        {"text": "OUTSIDE"},
        {},
    ):
        assert await ids(unswept, **asked) == ["a"]
    assert await unswept.count(type="todo") == await unswept.count(context="chat") == 1


async def test_its_indexes_become_exact_by_themselves(outsider: Outsider, m: Memory, exact: Callable[[], bool]) -> None:
    await m.create("note", 1)
    for number in range(10):
        outsider.create(f"n{number}", contextId=f"c{number % 3}", priority=number % 10 + 1)

    await eventually(exact)
    assert await m.count(type="note") == 11


async def test_one_that_comes_while_another_goes_is_noticed(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    """Then everything has as many members as before."""
    await m.create("note", 1, id="ours")
    outsider.delete("ours")
    outsider.create("theirs")

    assert await ids(m, type="note") == ["theirs"]
    assert await ids(m, context="global") == ["theirs"]
    assert await ids(m) == ["theirs"]
    assert await m.count(type="note") == 1
    await eventually(exact)


async def test_one_that_comes_while_another_goes_ends_in_time_and_is_told_of_whole(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    since = await m.now_cursor()
    await m.create("note", 1, id="ours")
    outsider.delete("ours")
    outsider.create("theirs", ttl_s=1, type="todo", contextId="chat")

    await eventually(exact)
    outsider_end = "item:expired", "theirs"

    async def is_told() -> bool:
        return outsider_end in await what_was_told(m, since)

    await eventually(is_told)
    [event] = [event for event in (await m.events_since(since)).events if (event.kind, event.id) == outsider_end]
    assert (event.type, event.context) == ("todo", "chat")
    await eventually(exact)


async def test_what_ended_before_anybody_saw_it_is_told_of_and_leaves_nothing(
    outsider: Outsider, settings: Settings, exact: Callable[[], bool]
) -> None:
    """Nobody of ours was there while it lived."""
    outsider.create("a", ttl_s=0.05)
    await eventually(lambda: outsider.call("EXISTS", "memory:short:item:a") == 0)

    async with connect(settings) as k:
        await k.memory.begin()

        async def is_told() -> bool:
            return await what_was_told(k.memory, "0") == [("item:expired", "a")]

        assert await k.memory.get("a") is None
        assert await ids(k.memory) == []
        await eventually(is_told)
        # Where it stood, nobody can know any more; whoever looks there puts it away.
        assert await ids(k.memory, type="note") == await ids(k.memory, context="global") == []
        await eventually(exact)


async def test_a_new_item_of_an_id_that_just_ended_is_not_taken_for_the_old_one(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    for number in range(5):
        id_ = f"n{number}"
        await m.create("note", "old", id=id_, context="chat", ttl_s=0.05)
        await eventually(lambda id_=id_: outsider.call("EXISTS", f"memory:short:item:{id_}") == 0, every_s=0.001)  # type: ignore[misc]
        outsider.create(id_, type="todo", contextId="work", priority=9)

    for asked in ({"type": "todo"}, {"context": "work"}, {"priority": 9}):
        assert sorted(await ids(m, **asked)) == [f"n{number}" for number in range(5)]
    assert await ids(m, type="note") == await ids(m, context="chat") == []
    await eventually(exact)
    assert all(item is not None and item.type == "todo" for item in await m.get_many([f"n{n}" for n in range(5)]))


async def test_one_of_ours_that_was_rewritten_whole_is_where_it_says(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    await m.create("note", 1, id="a", context="chat", priority=3)
    outsider.create("a", type="todo", contextId="work", priority=9)

    item = await m.get("a")
    assert item is not None
    assert (item.type, item.context, item.priority) == ("todo", "work", 9)
    assert await ids(m, type="todo") == await ids(m, context="work") == ["a"]
    assert await ids(m, type="note") == await ids(m, context="chat") == []
    await m.verify(repair=True)
    await eventually(exact)
    assert (await m.update("a", content=2)).type == "todo"


REWRITTEN: dict[str, Callable[[Memory], Awaitable[object]]] = {
    "nothing": lambda m: m.get("a"),
    "deleted": lambda m: m.delete("a"),
    "replaced": lambda m: m.put("a", "plan", 1, context="trip", priority=1),
    "moved": lambda m: m.move("a", "trip"),
    "of another type": lambda m: m.update("a", type="plan"),
    "listed": lambda m: ids(m, type="note"),
    "listed by what it was": lambda m: ids(m, type="note", priority=(1, 10)),
    "ended by what it depends on": lambda m: m.changed("weather"),
}


@pytest.mark.parametrize("then", REWRITTEN.values(), ids=REWRITTEN.keys())
async def test_one_of_ours_that_was_rewritten_whole_leaves_nothing_where_it_was(
    outsider: Outsider, m: Memory, exact: Callable[[], bool], then: Callable[[Memory], Awaitable[object]]
) -> None:
    await m.create("note", 1, id="a", context="chat", priority=3, depends_on=["weather"])
    outsider.create("a", type="todo", contextId="work", priority=9)

    assert await then(m) != ["a"]
    await eventually(exact, within_s=10)
