"""Lists: by everything that items have, in one order, page after page, whatever happens in between."""

from __future__ import annotations

import itertools
import math
from typing import Any

import msgspec
import pytest
from tests.memory.finding import rest_of_list

from kizuna.app import Kizuna, connect
from kizuna.errors import WrongValue
from kizuna.memory.memory import Memory
from kizuna.settings import MemorySettings, Settings
from kizuna.testing import ServerProcess


async def listed(m: Memory, **query: Any) -> list[str]:
    return [item.id async for item in m.all(**query)]


async def fill(m: Memory, number: int, *, first: int = 0) -> None:
    """Of three types, in four contexts, of ten priorities; in the order of their ids."""
    await m.create_many(
        [
            {
                "id": f"i{n:04}",
                "type": f"t{n % 3}",
                "context": f"c{n % 4}",
                "priority": n % 10 + 1,
                "content": {"text": f"Number {n}", "odd": bool(n % 2)},
                "ttl_s": 100 + n,
            }
            for n in range(first, first + number)
        ]
    )


def ids(numbers: Any) -> list[str]:
    return [f"i{n:04}" for n in numbers]


async def test_all_that_was_asked_for_has_to_be_true(m: Memory) -> None:
    await fill(m, 60)
    types: list[str | None] = [None, "t1"]
    contexts: list[str | None] = [None, "c2"]
    priorities: list[Any] = [None, 3, (3, 7), (8, 10)]
    for type_, context, priority in itertools.product(types, contexts, priorities):
        low, high = priority if isinstance(priority, tuple) else (priority or 1, priority or 10)
        expected = ids(
            n
            for n in range(60)
            if (type_ is None or n % 3 == 1) and (context is None or n % 4 == 2) and low <= n % 10 + 1 <= high
        )
        query = {"type": type_, "context": context, "priority": priority}
        assert await listed(m, **query) == expected, query
        assert await listed(m, **query, limit=4) == expected, query
        assert await listed(m, **query, newest_first=True, limit=7) == expected[::-1], query


async def test_items_are_found_by_when_they_end(k: Kizuna, m: Memory) -> None:
    await fill(m, 40)
    now = await k.store.time_s()
    # Item n ends 100 + n seconds after it was created, which is less than a second ago… or a little more.
    item = await m.get("i0020")
    assert item is not None
    middle = item.expires_at
    later = await listed(m, ends_after=middle)
    sooner = await listed(m, ends_before=middle)
    assert set(ids(range(21, 40))) <= set(later) <= set(ids(range(20, 40)))
    assert set(ids(range(20))) <= set(sooner) <= set(ids(range(21)))
    assert await listed(m, ends_after=now + 110.5, ends_before=now + 115.5, type="t0") == ids([12, 15])
    assert await listed(m, ends_after=now + 1000) == []


async def test_text_is_found_in_the_content_in_small_letters_or_large(m: Memory) -> None:
    await m.create("note", {"text": "Grüße aus KYŌTO"}, id="a")
    await m.create("note", ["京都 へ"], id="b")
    await m.create("fact", "kyōto", id="c", metadata={"x": "hidden"})

    assert await listed(m, text="kyōto") == ["a", "c"]
    assert await listed(m, text="GRÜSSE") == ["a"]
    assert await listed(m, text="GRÜßE") == ["a"]
    assert await listed(m, text="京都") == ["b"]
    assert await listed(m, text="kyōto", type="fact") == ["c"]
    assert await listed(m, text="hidden") == []
    assert await listed(m, text="nowhere") == []


@pytest.mark.parametrize("text", ['said "Go"', "C:\\temp", "one\ntwo", "a\tb"], ids=repr)
async def test_text_that_json_writes_otherwise_is_found_in_whatever_holds_it(m: Memory, text: str) -> None:
    for id_, content in {
        "a": f"x{text}x",
        "b": {"deep": [f"x{text}x"]},
        "c": {f"x{text}x": 1},
        "d": {"other": 1},
    }.items():
        await m.create("note", content, id=id_)

    assert await listed(m, text=text.upper()) == ["a", "b", "c"]


async def test_pages_hold_what_was_asked_for_and_the_last_one_says_so(m: Memory) -> None:
    await fill(m, 25)
    sizes, cursor = [], ""
    while True:
        page = await m.list(limit=10, cursor=cursor)
        sizes.append(len(page.items))
        assert not page.from_backup
        cursor = page.cursor
        if not cursor:
            break
    assert sum(sizes) == 25
    assert max(sizes) == 10
    assert len((await m.list()).items) == 25


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("query", [{}, {"type": "t1"}, {"context": "c1"}, {"priority": (1, 10)}], ids=str)
async def test_pages_show_each_item_once_whatever_comes_and_goes_in_between(
    m: Memory, query: dict[str, Any], newest_first: bool
) -> None:
    await fill(m, 120)
    stays = [id_ for id_ in await listed(m, **query) if int(id_[1:]) % 5]
    seen: list[str] = []
    cursor, new, going = "", 1000, iter(ids(range(0, 120, 5)))
    while True:
        page = await m.list(**query, newest_first=newest_first, limit=7, cursor=cursor)
        seen += [item.id for item in page.items]
        if not page.cursor:
            break
        cursor = page.cursor
        await fill(m, 3, first=new)
        new += 3
        # Also the one that the cursor stands on.
        await m.delete_many([id_ for id_ in (next(going, ""), next(going, "")) if id_])
        if page.items and int(page.items[-1].id[1:]) % 5 == 0:
            await m.delete(page.items[-1].id)

    old = [id_ for id_ in seen if int(id_[1:]) < 1000 and int(id_[1:]) % 5]
    assert old == (stays[::-1] if newest_first else stays)
    assert len(seen) == len(set(seen))


async def test_a_change_does_not_move_an_item_in_the_order(m: Memory) -> None:
    await fill(m, 12)
    await m.update("i0003", priority=9, type="t7", content="x")
    await m.touch("i0000")
    await m.move("i0005", "c9")
    assert await listed(m) == ids(range(12))
    assert await listed(m, type="t7") == ["i0003"]
    assert await listed(m, context="c9") == ["i0005"]


async def test_items_are_counted(m: Memory) -> None:
    await fill(m, 30)
    assert await m.count(type="t0") == 10
    assert await m.count(context="c0") == 8
    assert await m.count(type="t9") == 0
    assert await m.count() == 30
    both = [item async for item in m.all(type="t0", context="c0")]
    assert await m.count(type="t0", context="c0") == len(both) > 0
    assert await m.count(type="t9", context="c0") == 0


async def test_items_are_counted_by_older_servers_too() -> None:
    # Between quotes, in its configuration: a command that it does not have.
    with ServerProcess(config={"rename-command": 'SINTERCARD" "'}) as older:
        async with connect(older.url) as k:
            await fill(k.memory, 30)
            assert await k.memory.count(type="t0", context="c0") == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": 1001},
        {"limit": "10"},
        {"limit": None},
        {"cursor": "nonsense"},
        {"cursor": 5},
        {"priority": (9, 1)},
        {"priority": (1, 2, 3)},
        {"priority": 1.5},
        {"priority": math.nan},
        {"ends_after": math.nan},
        {"ends_before": math.inf},
        {"ends_before": "tomorrow"},
        {"text": 5},
        {"newest_first": "no"},
    ],
    ids=str,
)
async def test_what_cannot_be_asked_is_refused(m: Memory, wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongValue):
        await m.list(**wrong)


DEAD = 100_000


async def test_a_hundred_thousand_dead_members_hide_nothing(settings: Settings, root: str) -> None:
    """What outsiders' items leave behind in the indexes when they end, as their protocol has it."""
    # Nobody sweeps: it is the lists that have to find their way.
    async with connect(msgspec.structs.replace(settings, memory=MemorySettings(sweep_every_s=3600))) as k:
        await plant_dead(k, root, round(await k.store.time_s() * 1000))
        await k.memory.create_many(
            [{"id": f"i{n:03}", "type": "t", "context": "c", "priority": 3, "content": n} for n in range(60)]
        )
        queries: list[dict[str, Any]] = [{}, {"priority": 3}, {"context": "c"}, {"type": "t"}]
        for query in queries:
            page = await k.memory.list(**query)
            shown = [*(item.id for item in page.items), *await rest_of_list(k.memory, page.cursor, **query)]
            assert shown == [f"i{n:03}" for n in range(60)], query


async def plant_dead(k: Kizuna, root: str, now_ms: int) -> None:
    """In five scripts, none of which holds the server up for long."""
    plant = """
    for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do
      local id = "dead-" .. n
      redis.call("SADD", KEYS[1], id)
      redis.call("SADD", KEYS[2], id)
      redis.call("ZADD", KEYS[3], ARGV[3], id)
      redis.call("ZADD", KEYS[4], ARGV[3], id)
    end
    """
    below = f"{root}:memory:short:idx"
    keys = [f"{below}:type:t", f"{below}:context:c", f"{below}:priority:3", f"{below}:expiry"]
    for first in range(0, DEAD, 20_000):
        await k.store.call("EVAL", plant, 4, *keys, first, first + 19_999, now_ms - 60_000, timeout_s=20)
