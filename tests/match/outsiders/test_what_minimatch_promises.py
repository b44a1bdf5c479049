"""What minimatch's own tests hold it to, held here by what can be seen of it.

Elsewhere: a thousand tickets and a hundred who fetch them, a player who leaves before the assignment, shutdown in the
middle of a tick (test_backend.py); a read replica (test_other_servers.py); create, get and delete (test_matchmaking.py,
serving/); watching (test_watching.py); what a backend remembers (test_lessons.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import pytest
from tests.match.pairing import at_once, connections, pairing, pairs

from kizuna.app import connect
from kizuna.errors import TicketMissing, TickFailed
from kizuna.match import Assignment, Group, Match, Pool, Profile
from kizuna.match.matchmaking import Matchmaking
from kizuna.settings import MatchSettings, Settings
from kizuna.testing import eventually
from kizuna.testing.resp import Conversation


async def create(mm: Matchmaking, *tags: str) -> str:
    return (await mm.create_ticket(tags=tags)).id


async def fetch(mm: Matchmaking, backend: str = "b") -> set[str]:
    """Those that wait and that nobody is matching, which are being matched from now on."""
    shard = mm.shards[0]
    return set((await shard.take(await shard.indexed(), backend, begins=True)).ids)


async def is_missing(mm: Matchmaking, id_: str) -> bool:
    try:
        await mm.get_ticket(id_)
    except TicketMissing:
        return True
    return False


async def test_who_was_fetched_is_not_fetched_again_until_released(mm: Matchmaking) -> None:
    first, second = await create(mm), await create(mm)

    assert await fetch(mm) == {first, second}
    assert await fetch(mm) == set()
    await mm.release_tickets([first])
    assert await fetch(mm) == {first}


async def test_who_was_fetched_and_forgotten_is_fetched_again_after_a_while(settings: Settings) -> None:
    async with connect(msgspec.structs.replace(settings, match=MatchSettings(pending_s=1))) as k:
        id_ = await create(k.match)
        assert await fetch(k.match) == {id_}

        async def is_fetched_again() -> bool:
            return await fetch(k.match) == {id_}

        await eventually(is_fetched_again, within_s=20)


async def test_assignments_can_be_read_again_and_again_until_they_end_with_their_tickets(
    mm: Matchmaking, outside: Conversation, prefix: str
) -> None:
    ids = [await create(mm), await create(mm)]
    assert await fetch(mm) == set(ids)
    assert await connections(mm, *ids) == [None, None]

    assert await mm.assign_tickets([Group(ids, Assignment("test-assign"))]) == {}

    for _ in range(3):
        assert await connections(mm, *ids) == ["test-assign"] * 2
    keys = [prefix + name for id_ in ids for name in (id_, f"assign:{id_}")]
    assert all(0 < outside.call("TTL", key) <= 60 for key in keys)
    outside.call("DEL", *keys)  # a minute later
    for id_ in ids:
        with pytest.raises(TicketMissing):
            await mm.get_ticket(id_)
        with pytest.raises(TicketMissing):
            await mm.assignment(id_, timeout_s=20)


async def test_a_ticket_that_has_ended_is_matched_no_more_and_leaves_the_index(mm: Matchmaking) -> None:
    ended = (await mm.create_ticket(ttl_s=0.1)).id
    await eventually(lambda: is_missing(mm, ended), within_s=20)
    lives = await create(mm)
    backend = pairing(mm)
    assert await mm.count() == 2

    async def has_left() -> bool:
        tick = await backend.tick()
        assert (tick.fetched, tick.assigned) == (1, 0)
        return await mm.count() == 1

    await eventually(has_left, within_s=20)
    assert await fetch(mm) == {lives}


async def test_a_hundred_who_fetch_and_assign_the_half_of_it_assign_nobody_twice(mm: Matchmaking) -> None:
    tickets = await asyncio.gather(*(create(mm) for _ in range(1_000)))
    given: Counter[str] = Counter()

    async def fetch_and_assign(number: int) -> None:
        ids = list(await fetch(mm, f"backend-{number}"))
        half = ids[: len(ids) // 2]
        groups = [Group(list(pair), Assignment(f"{number}")) for pair in zip(half[::2], half[1::2], strict=False)]
        assert await mm.assign_tickets(groups) == {}
        given.update(id_ for group in groups for id_ in group.ticket_ids)

    await asyncio.gather(*map(fetch_and_assign, range(100)))

    assert set(given.values()) == {1}
    assert 0 < len(given) <= 500
    assert await mm.count() == len(tickets) - len(given)


async def test_to_assign_nobody_is_fine(mm: Matchmaking) -> None:
    assert await mm.assign_tickets([]) == {}
    assert await mm.assign_tickets([Group([], Assignment("a:1"))]) == {}


async def test_a_deindexed_ticket_can_be_read_and_a_deleted_one_cannot(mm: Matchmaking) -> None:
    first, second = await create(mm), await create(mm)
    assert await fetch(mm) == {first, second}
    await mm.release_tickets([first, second])

    await mm.deindex_ticket(first)
    assert await fetch(mm) == {second}
    assert [(await mm.get_ticket(id_)).id for id_ in (first, second)] == [first, second]

    await mm.delete_ticket(first)
    assert await is_missing(mm, first)


async def test_who_found_no_match_finds_one_in_a_later_tick(mm: Matchmaking) -> None:
    backend = pairing(mm)
    first = [await create(mm), await create(mm)]
    await backend.tick()
    together = await connections(mm, *first)
    assert together[0] == together[1] is not None

    third = await create(mm)
    assert (await backend.tick()).released == 1
    fourth = await create(mm)
    await backend.tick()

    later = await connections(mm, third, fourth)
    assert later[0] == later[1] not in (None, together[0])


async def test_only_tickets_of_one_pool_meet(mm: Matchmaking) -> None:
    profile = Profile("rank", [Pool("bronze", tags=["bronze"]), Pool("silver", tags=["silver"])])
    backend = pairing(mm, profile=profile)
    first, second = await create(mm, "bronze"), await create(mm, "silver")
    await backend.tick()
    assert await connections(mm, first, second) == [None, None]

    third = await create(mm, "bronze")
    await backend.tick()
    bronze = await connections(mm, first, third)
    assert bronze[0] == bronze[1] is not None
    assert await connections(mm, second) == [None]

    fourth = await create(mm, "silver")
    await backend.tick()
    silver = await connections(mm, second, fourth)
    assert silver[0] == silver[1] not in (None, bronze[0])


async def test_what_an_evaluator_drops_is_matched_in_the_next_tick(mm: Matchmaking) -> None:
    def prefer_foo(matches: Sequence[Match]) -> Iterable[str]:
        taken: set[str] = set()
        for match in sorted(matches, key=lambda match: match.profile != "foo"):
            if taken.isdisjoint(match.ticket_ids):
                taken.update(match.ticket_ids)
                yield match.id

    backend = mm.backend(at_once, evaluator=prefer_foo)
    for name in ("bar", "foo"):
        backend.add(Profile(name, [Pool(name, tags=[name])]), pairs)
    both, foo, bar = await create(mm, "foo", "bar"), await create(mm, "foo"), await create(mm, "bar")
    await backend.tick()
    told = await connections(mm, both, foo, bar)
    assert told[0] == told[1] is not None
    assert told[2] is None

    second_bar = await create(mm, "bar")
    await backend.tick()
    later = await connections(mm, bar, second_bar)
    assert later[0] == later[1] not in (None, told[0])


async def test_when_an_assigner_fails_another_backend_finds_the_tickets_at_once(
    mm: Matchmaking, settings: Settings
) -> None:
    def fail(_: Sequence[Match]) -> Iterable[Group]:
        raise RuntimeError("no server to be had")

    ids = [await create(mm), await create(mm)]
    with pytest.raises(TickFailed, match="no server to be had"):
        await pairing(mm, fail).tick()
    assert await connections(mm, *ids) == [None, None]

    async with connect(settings) as other:
        assert (await pairing(other.match).tick()).assigned == 2
    told = await connections(mm, *ids)
    assert told[0] == told[1] is not None
