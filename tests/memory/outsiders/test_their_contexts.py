"""Contexts that somebody else wrote, whole or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.memory.finding import what_was_told
from tests.memory.outsiders.outsider import Outsider

from kizuna.memory.memory import Memory
from kizuna.testing import eventually


async def test_their_contexts_are_read_listed_and_ended_with_their_items(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    since = await m.now_cursor()
    outsider.create_context("c", ttl_s=1)
    outsider.create("theirs", contextId="c")
    context = await m.contexts.get("c")
    assert context is not None
    assert (context.name, context.type, context.is_active, context.version) == ("Talk", "chat", True, 1)
    assert [found.id for found in (await m.contexts.list(type="chat")).contexts] == ["c"]
    assert [found.id for found in (await m.contexts.list(active=True)).contexts] == ["c"]

    async def both_ended() -> bool:
        return await what_was_told(m, since) == [("ctx:expired", "c"), ("item:expired", "theirs")]

    await eventually(both_ended)
    await eventually(exact)
    assert outsider.call("SISMEMBER", "memory:ctx:idx:active", "c") == 0


async def test_a_context_that_was_deleted_by_its_key_alone_leaves_nothing(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    await m.contexts.create("Talk", "chat", id="c")
    outsider.call("DEL", "memory:context:c")

    assert await m.contexts.get("c") is None
    assert (await m.contexts.list(type="chat")).contexts == []
    assert (await m.contexts.list(active=True)).contexts == []
    await m.verify(repair=True)
    await eventually(exact)


async def test_nonsense_in_a_context_spoils_nothing(outsider: Outsider, m: Memory) -> None:
    for field in ("name", "type", "createdAt", "updatedAt", "expiresAt", "metadata"):
        said: dict[str, Any] = {field: "nonsense"}
        outsider.create_context(f"c-{field}", **said)
        outsider.create_context(f"without-{field}")
        outsider.call("HDEL", f"memory:context:without-{field}", field)
    outsider.call("SET", "memory:context:wrong", "no hash")
    outsider.call("ZADD", "memory:ctx:idx:expiry", 1, "wrong")
    await m.contexts.create("Ours", "chat", id="ours")

    assert "ours" in [found.id async for found in m.contexts.all(type="chat")]
    assert "ours" in [found.id async for found in m.contexts.all()]
    await m.contexts.create("Brief", "chat", id="brief", ttl_s=0.05, active=False)
    await eventually(lambda: outsider.call("ZSCORE", "memory:ctx:idx:expiry", "brief") is None)


@pytest.mark.parametrize("nonsense", ["", "delete", b"\x93\xa6delete"], ids=["nothing", "text", "cut off"])
async def test_nonsense_about_a_context_that_is_ending_stops_no_sweeper(
    outsider: Outsider, m: Memory, nonsense: str | bytes
) -> None:
    outsider.call("HSET", "memory:ctx:ending", "gone", nonsense)
    await m.create("note", "stays", id="a", context="gone")
    await m.create("note", "brief", id="b", ttl_s=0.05)

    await eventually(lambda: outsider.call("ZSCORE", "memory:short:idx:expiry", "b") is None)
    await eventually(lambda: outsider.call("EXISTS", "memory:ctx:ending") == 0)
    assert await m.get("a") is not None
    assert await m.verify()
