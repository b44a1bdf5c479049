"""What somebody else took away, kept, shortened or lengthened, without a word."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.memory.finding import ids, what_was_told
from tests.memory.outsiders.outsider import Outsider

from kizuna.app import connect
from kizuna.errors import ItemMissing
from kizuna.memory.events import Event
from kizuna.memory.memory import Memory
from kizuna.settings import Settings
from kizuna.testing import eventually


async def test_an_item_whose_hash_was_deleted_leaves_nothing(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    await m.create("note", 1, id="a", context="chat", depends_on=["prices"], generation="model")
    await m.create("note", 2, id="b", context="chat")
    outsider.call("DEL", "memory:short:item:a")

    assert await m.get("a") is None
    assert await m.delete("a") is False
    with pytest.raises(ItemMissing):
        await m.update("a", content=1)
    assert await ids(m, type="note") == await ids(m, context="chat") == await ids(m, priority=5) == ["b"]
    await eventually(exact)


async def test_an_item_whose_hash_was_deleted_and_that_nobody_asks_for_is_gone_from_all_lists(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    await m.create("note", 1, id="a", ttl_s=1)
    outsider.call("DEL", "memory:short:item:a")

    assert await ids(m) == []
    await eventually(exact)


async def test_a_member_of_an_index_whose_item_never_was_is_never_shown(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    ours = await m.create("note", 1)
    outsider.call("SADD", "memory:short:idx:type:note", "ghost")
    outsider.call("SADD", "memory:short:idx:context:global", "ghost")
    outsider.call("ZADD", "memory:short:idx:priority:5", 1, "ghost")

    for asked in ({"type": "note"}, {"context": "global"}, {"priority": 5}, {}):
        assert await ids(m, **asked) == [ours.id]
    assert await m.get("ghost") is None
    await m.verify(repair=True)
    await eventually(exact)


async def test_an_item_that_was_made_to_stay_ends_when_it_says(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    since = await m.now_cursor()
    item = await m.create("note", 1, id="a", ttl_s=3)
    assert outsider.call("PERSIST", "memory:short:item:a") == 1

    async def is_told() -> bool:
        return ("item:expired", "a") in await what_was_told(m, since)

    await eventually(is_told)
    assert outsider.now_ms() >= round(item.expires_at * 1000)
    assert outsider.call("EXISTS", "memory:short:item:a") == 0
    await eventually(exact)


async def test_an_item_that_was_made_to_stay_is_in_no_list_after_its_end(outsider: Outsider, unswept: Memory) -> None:
    outsider.create("a", ttl_s=3)
    outsider.call("PERSIST", "memory:short:item:a")
    ends_ms = int(outsider.call("HGET", "memory:short:item:a", "expiresAt"))
    await eventually(lambda: outsider.now_ms() > ends_ms)

    assert await ids(unswept, type="note") == await ids(unswept, context="global") == await ids(unswept) == []


async def test_a_life_that_was_shortened_is_over_when_its_key_is_whatever_else_is_said_about_it(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    """As the specification shortens: the key and the index know of it, and the item does not."""
    since = await m.now_cursor()
    for number, early_ms in enumerate((0, 1, 200)):
        await m.create("note", 1, id=f"n{number}", priority=1)
        ends = outsider.now_ms() + 2_000
        outsider.call("PEXPIREAT", f"memory:short:item:n{number}", ends)
        outsider.call("ZADD", "memory:short:idx:expiry", ends - early_ms, f"n{number}")

    async def all_told() -> bool:
        return sorted((await what_was_told(m, since))[3:]) == [("item:expired", f"n{number}") for number in range(3)]

    await eventually(all_told, within_s=20)
    await eventually(exact)


async def test_who_only_listens_hears_of_the_end_of_what_others_wrote(outsider: Outsider, settings: Settings) -> None:
    """Also if nobody of ours ever wrote anything."""
    async with connect(settings) as k, k.memory.watch("item:expired") as events:
        outsider.create("a", ttl_s=0.5)
        event = await events.next(timeout_s=10)

    assert isinstance(event, Event)
    assert (event.id, event.type, event.context) == ("a", "note", "global")


async def test_a_life_that_was_lengthened_whole_is_lived(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    await m.create("note", 1, id="a", ttl_s=2)
    later = outsider.now_ms() + 100_000
    outsider.call("HSET", "memory:short:item:a", "expiresAt", later)
    outsider.call("PEXPIREAT", "memory:short:item:a", later)
    await m.create("note", 1, id="b", ttl_s=2)

    await eventually(lambda: outsider.call("ZSCORE", "memory:short:idx:expiry", "b") is None, within_s=20)
    assert await ids(m) == ["a"]
    await eventually(exact)
