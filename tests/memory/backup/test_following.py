"""The copy stays complete, whoever changes what."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.memory.backup.conftest import WITHIN_S, Remember, backup_of, fallback_of, find, lose, until_complete
from tests.memory.outsiders.outsider import Outsider

from kizuna.app import connect
from kizuna.memory.context import ContextQuery
from kizuna.memory.memory import Memory
from kizuna.memory.query import Query
from kizuna.settings import Settings
from kizuna.testing import ChaosProxy, ServerProcess, eventually


async def copied_ids(m: Memory) -> list[str]:
    return [item.id for item in (await backup_of(m).keeper.list(Query(limit=1000))).items]


async def until_copied_ids(m: Memory, ids: list[str]) -> None:
    async def are_copied() -> bool:
        assert sorted(await copied_ids(m)) == sorted(ids)
        return True

    await eventually(are_copied, within_s=WITHIN_S)


async def test_what_there_was_before_is_copied_at_the_start(remember: Remember, other: Memory) -> None:
    ids = [f"n{number}" for number in range(30)]
    await other.create_many([{"type": "note", "content": 1, "id": id_} for id_ in ids])
    m = await remember()
    await until_complete(m)

    assert sorted(await copied_ids(m)) == sorted(ids)


async def test_what_changed_while_nobody_followed_is_caught_up_without_looking_at_everything(
    copied: Settings, other: Memory
) -> None:
    for id_ in ("stays", "changes", "goes"):
        await other.create("note", 1, id=id_)
    async with connect(copied) as k:
        await k.memory.get("anything")
        await until_complete(k.memory)
    await other.update("changes", content=2)
    await other.delete("goes")
    await other.create("note", 1, id="comes")

    async with connect(copied) as k:
        await k.memory.get("anything")
        await until_copied_ids(k.memory, ["stays", "changes", "comes"])
        (changed,) = await backup_of(k.memory).keeper.read(["changes"])
        assert changed is not None
        assert changed.content == 2
        assert backup_of(k.memory).following.passes == 0


async def test_when_events_are_gone_everything_is_looked_at_again(copied: Settings, settings: Settings) -> None:
    forgetful = msgspec.structs.replace(settings, memory=msgspec.structs.replace(settings.memory, feed_length=1))
    async with connect(forgetful) as k:
        await k.memory.create("note", 1, id="goes")
        await k.memory.create("note", 1, id="stays")
    async with connect(copied) as k:
        await k.memory.get("anything")
        await until_complete(k.memory)
    async with connect(forgetful) as k:
        await k.memory.delete("goes")
        # The feed is cut by whole nodes, of a hundred entries.
        for number in range(300):
            await k.memory.update("stays", content=number)

    async with connect(copied) as k:
        await k.memory.get("anything")
        await eventually(lambda: backup_of(k.memory).following.passes == 1, within_s=WITHIN_S)
        await until_copied_ids(k.memory, ["stays"])


async def test_one_of_several_follows_and_another_takes_over(
    copied: Settings, remember: Remember, other: Memory
) -> None:
    async with connect(copied) as k:
        await k.memory.get("anything")
        await until_complete(k.memory)
        second = await remember()
        assert backup_of(k.memory).following.is_following
        assert not backup_of(second).following.is_following
        await other.create("note", 1, id="a")
        await until_copied_ids(second, ["a"])
    await eventually(lambda: backup_of(second).following.is_following, within_s=WITHIN_S)
    await other.create("note", 1, id="b")
    await until_copied_ids(second, ["a", "b"])


async def test_two_who_share_a_file_see_each_others_writes_while_the_server_is_away(
    m: Memory, remember: Remember, other: Memory, network: ChaosProxy
) -> None:
    second = await remember()
    await m.create("note", 0, id="n")
    await lose(network, m)
    await lose(network, second)
    for _ in range(5):
        await m.change("n", lambda content: content + 1)
        await second.change("n", lambda content: content + 1)
    await second.create("note", 1, id="theirs")
    await m.update("theirs", content=2)

    await find(network, m, second)

    n, theirs = await other.get_many(["n", "theirs"])
    assert n is not None
    assert (n.content, n.version) == (10, 11)
    assert theirs is not None
    assert (theirs.content, theirs.version) == (2, 2)
    assert await m.conflicts() == []


async def test_what_one_leaves_behind_another_replays(
    m: Memory, remember: Remember, other: Memory, network: ChaosProxy
) -> None:
    second = await remember()
    await lose(network, m)
    await lose(network, second)
    await m.create("note", 1, id="a")
    await fallback_of(m).aclose()
    assert await backup_of(second).pending() == 1

    await find(network, second)

    assert await other.get("a") is not None
    assert await backup_of(second).pending() == 0


async def test_an_outage_in_which_contexts_ended_is_followed_by_a_look_at_everything(
    m: Memory, other: Memory, network: ChaosProxy
) -> None:
    """The copy has ended them by its own clock; on the server, somebody may have used them meanwhile."""
    await m.contexts.create("work", "project", id="work", ttl_s=4)
    await m.create("note", 1, id="a", context="work")
    await lose(network, m)

    async def has_ended() -> bool:
        await other.touch("a")
        return await m.get("a") is None

    await eventually(has_ended, within_s=WITHIN_S, every_s=0.1)
    assert await other.get("a") is not None
    await find(network, m)
    await until_copied_ids(m, ["a"])


async def test_what_nobody_can_read_or_ask_for_keeps_nothing_else_from_the_copy(
    m: Memory, other: Memory, server: ServerProcess, settings: Settings, outsider: Outsider
) -> None:
    await other.contexts.create("Trip", "travel", id="trip", at_end="leave")
    for id_ in ("spoilt", "whole"):
        await other.create("note", 1, id=id_)
        await other.contexts.create("Talk", "chat", id=id_)
    await until_copied_ids(m, ["spoilt", "whole"])
    outsider.create("an odd id", contextId="trip")
    for key in ("memory:short:item:spoilt", "memory:context:spoilt"):
        outsider.call("SET", key, "no hash")
    root = settings.roots.memory
    for kind in ("item", "ctx"):
        told = ("event", f"{kind}:updated", "id", "spoilt", "type", "", "contextId", "", "version", "2", "reason", "")
        server.call("XADD", f"{root}:memory:feed", "*", *told)
    # What its context leaves behind is told of, and has an id that no key of ours can have.
    await other.contexts.delete("trip")
    await other.create("note", 1, id="later")

    await until_copied_ids(m, ["whole", "an odd id", "later"])
    assert [context.id for context in (await backup_of(m).keeper.list_contexts(ContextQuery())).contexts] == ["whole"]
    for key in ("memory:short:item:spoilt", "memory:context:spoilt"):
        outsider.call("DEL", key)
    outsider.delete("an odd id")
    await other.verify(repair=True)


@pytest.fixture
def outsider(server: ServerProcess, settings: Settings) -> Iterator[Outsider]:
    with server.connect() as conversation:
        yield Outsider(conversation, settings.roots.memory)
