"""How long each kind lives: what it was told, or the usual, longer by a rule, and always within bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.memory.exactness import assert_indexes_exact

from kizuna.app import connect
from kizuna.errors import SettingsError
from kizuna.memory.memory import Memory
from kizuna.settings import MemorySettings, Settings, load_settings
from kizuna.testing import ServerProcess, eventually

# Seconds: the least, the usual, the most; and how much longer at the most.
LIVES = {
    "item": (60.0, 900.0, 86_400.0, 3.0),
    "result": (60.0, 300.0, 1_800.0, 5.0),
    "state": (300.0, 1_800.0, 43_200.0, 23.0),
}


def due_life(kind: str, ttl_s: float | None, level: float) -> float:
    """The rule, said once more."""
    least, usual, most, stretch = LIVES[kind]
    wanted = usual * (1 + stretch * level) if ttl_s is None else ttl_s
    return min(max(wanted, least), most)


async def life_of(m: Memory, **options: Any) -> float:
    item = await m.create("note", 1, **options)
    read = await m.get(item.id)
    assert read is not None
    assert read.expires_at == item.expires_at
    assert item.ttl_s == pytest.approx(item.expires_at - item.created_at, abs=0.002)
    return item.expires_at - item.created_at


@pytest.mark.parametrize(
    ("options", "life_s"),
    [
        ({}, 900),
        ({"priority": 1}, 900),
        ({"priority": 6}, 1_440),
        ({"priority": 10}, 3_600),
        ({"priority": 10, "ttl_s": 100}, 100),
        ({"ttl_s": 1}, 60),
        ({"ttl_s": 10**8}, 86_400),
        ({"kind": "result"}, 300),
        ({"kind": "result", "cost_s": 0}, 300),
        ({"kind": "result", "cost_s": 30}, 1_050),
        ({"kind": "result", "cost_s": 60}, 1_800),
        ({"kind": "result", "cost_s": 6_000}, 1_800),
        ({"kind": "result", "priority": 10}, 300),
        ({"kind": "result", "ttl_s": 1}, 60),
        ({"kind": "result", "ttl_s": 10**8}, 1_800),
        ({"kind": "state"}, 1_800),
        ({"kind": "state", "importance": 0.5}, 22_500),
        ({"kind": "state", "importance": 1}, 43_200),
        ({"kind": "state", "ttl_s": 1}, 300),
        ({"kind": "state", "ttl_s": 10**8}, 43_200),
    ],
    ids=str,
)
async def test_a_life_is_as_documented(m: Memory, options: dict[str, Any], life_s: float) -> None:
    assert await life_of(m, **options) == pytest.approx(life_s, abs=0.002)


def test_any_life_follows_the_rule_and_stays_within_its_bounds(settings: Settings) -> None:
    kinds = st.sampled_from(sorted(LIVES))
    ttls = st.none() | st.floats(0.001, 10**7)

    with asyncio.Runner() as runner:
        k = runner.run(_opened(settings))

        @hypothesis_settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            kind=kinds, ttl_s=ttls, priority=st.integers(1, 10), cost_s=st.floats(0, 200), importance=st.floats(0, 1)
        )
        def follows(kind: str, ttl_s: float | None, priority: int, cost_s: float, importance: float) -> None:
            level = {"item": max(0, priority - 5) / 5, "result": min(1, cost_s / 60), "state": importance}[kind]
            own = {"item": {}, "result": {"cost_s": cost_s}, "state": {"importance": importance}}[kind]
            life_s = runner.run(life_of(k.memory, kind=kind, ttl_s=ttl_s, priority=priority, **own))
            assert life_s == pytest.approx(due_life(kind, ttl_s, level), abs=0.002)

        try:
            follows()
        finally:
            runner.run(k.aclose())


async def _opened(settings: Settings) -> Any:
    return await connect(settings)


@pytest.mark.parametrize(("ttl_s", "life_s"), [(None, 3_600), (1, 900), (1_000, 1_000), (10**8, 604_800)])
async def test_a_context_lives_within_its_bounds(m: Memory, ttl_s: float | None, life_s: float) -> None:
    context = await m.contexts.create("Chat", "chat", ttl_s=ttl_s)
    assert context.expires_at - context.created_at == pytest.approx(life_s, abs=0.002)
    assert context.ttl_s == pytest.approx(life_s, abs=0.002)


async def test_every_way_to_give_a_life_is_clamped(m: Memory, server: ServerProcess, root: str) -> None:
    await m.create("note", 1, id="a", ttl_s=100)
    for wanted, life_s in ((1, 60), (10**8, 86_400)):
        item = await m.update("a", ttl_s=wanted)
        assert item.expires_at - item.updated_at == pytest.approx(life_s, abs=0.002)
        item = await m.put("a", "note", 1, ttl_s=wanted)
        assert item.expires_at - item.updated_at == pytest.approx(life_s, abs=0.002)
        item = await m.touch("a", ttl_s=wanted)
        assert item.ttl_s <= 86_400
        assert_indexes_exact(server, root)
    await m.contexts.create("Chat", "chat", id="c")
    for wanted, life_s in ((1, 900), (10**8, 604_800)):
        context = await m.contexts.update("c", ttl_s=wanted)
        assert context.expires_at - context.updated_at == pytest.approx(life_s, abs=0.002)
        assert_indexes_exact(server, root)


async def test_a_kind_keeps_its_bounds_when_it_is_changed(m: Memory) -> None:
    await m.create("sum", 1, id="a", kind="result", cost_s=1)
    item = await m.update("a", ttl_s=10**8)
    assert item.kind == "result"
    assert item.expires_at - item.updated_at == pytest.approx(1_800, abs=0.002)


async def test_all_of_it_can_be_set(settings: Settings) -> None:
    memory = MemorySettings(
        item_s=10,
        item_least_s=5,
        item_most_s=20,
        item_stretch=0.5,
        result_s=7,
        result_least_s=7,
        result_stretch=1,
        costly_s=1,
    )
    async with connect(msgspec.structs.replace(settings, memory=memory)) as k:
        lives = [
            await life_of(k.memory),
            await life_of(k.memory, priority=10),
            await life_of(k.memory, ttl_s=1),
            await life_of(k.memory, ttl_s=100),
            await life_of(k.memory, kind="result", cost_s=5),
        ]
    assert lives == [pytest.approx(life_s, abs=0.002) for life_s in (10, 15, 5, 20, 14)]


def test_a_usual_life_outside_its_bounds_is_refused() -> None:
    for wrong in ({"item_s": 1}, {"context_s": 10**7}, {"result_least_s": 301}, {"state_most_s": 1_000}):
        with pytest.raises(SettingsError, match="is not between"):
            load_settings({"memory": wrong}, environ={}, cwd="/")


async def test_what_has_ended_is_not_shown_not_even_before_it_is_swept(settings: Settings) -> None:
    memory = MemorySettings(item_least_s=0.05, context_least_s=0.05, sweep_every_s=3600)
    async with connect(msgspec.structs.replace(settings, memory=memory)) as k:
        m = k.memory
        for number in range(5):
            await m.create("note", number, id=f"i{number}", context="chat", ttl_s=0.05 if number % 2 else 600)
        await eventually(lambda: _missing(m, "i3"))

        assert [item and item.id for item in await m.get_many([f"i{n}" for n in range(5)])] == [
            "i0",
            None,
            "i2",
            None,
            "i4",
        ]
        for query in ({"type": "note"}, {"context": "chat"}, {"priority": 5}, {}, {"type": "note", "context": "chat"}):
            assert [item.id for item in (await m.list(**query)).items] == ["i0", "i2", "i4"]
        assert [item.id async for item in m.all(context="chat")] == ["i0", "i2", "i4"]
        assert not await m.delete("i1")
        await m.delete_many([f"i{number}" for number in range(5)])


async def _missing(m: Memory, id_: str) -> bool:
    return await m.get(id_) is None
