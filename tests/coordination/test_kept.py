"""Values for an hour, and sessions for a month."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kizuna.app import connect
from kizuna.codecs import RAW, json_of
from kizuna.coordination.kept import sessions, temporary
from kizuna.errors import IllegalName, OutOfMemory, Undecodable, WrongValue
from kizuna.settings import KeptSettings, RootsSettings, Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.testing import ServerProcess, eventually

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


async def test_a_temporary_value_is_there_for_an_hour_and_a_session_for_a_month(store: Store, root: str) -> None:
    await temporary(store).set("report:42", {"pages": 3})
    await sessions(store).set("user-7", ["admin"])

    assert await temporary(store).get("report:42") == {"pages": 3}
    assert await sessions(store).get("user-7") == ["admin"]
    assert 3_500_000 < await store.call("PTTL", f"{root}:temp:report:42") <= 3_600_000
    assert 2_591_000_000 < await store.call("PTTL", f"{root}:session:user-7") <= 2_592_000_000
    assert await store.call("GET", f"{root}:temp:report:42") == b'{"pages":3}'


async def test_the_settings_and_each_call_may_say_how_long(settings: Settings) -> None:
    shorter = Settings(store=settings.store, roots=settings.roots, kept=KeptSettings(temp_s=60, session_s=70))
    async with connect(shorter) as k:
        await k.temp.set("a", 1)
        await k.sessions.set("a", 1)
        await k.sessions.set("b", 1, ttl_s=0.5)

        assert 50 < (await k.temp.ends_in_s("a") or 0) <= 60
        assert 60 < (await k.sessions.ends_in_s("a") or 0) <= 70
        assert 0 < (await k.sessions.ends_in_s("b") or 0.1) <= 0.5


async def test_what_has_ended_is_gone(store: Store) -> None:
    kept = temporary(store)
    await kept.set("a", 1, ttl_s=0.001)

    async def is_gone() -> bool:
        return await kept.get("a") is None

    await eventually(is_gone)
    assert await kept.get("a", default="none") == "none"
    assert await kept.ends_in_s("a") is None
    assert not await kept.touch("a")
    assert not await kept.delete("a")


async def test_touching_keeps_it_as_long_again(store: Store) -> None:
    kept = temporary(store)
    await kept.set("a", 1, ttl_s=5)

    assert await kept.touch("a")
    assert (await kept.ends_in_s("a") or 0) > 3000
    assert await kept.touch("a", ttl_s=100)
    assert (await kept.ends_in_s("a") or math.inf) <= 100


async def test_a_deleted_value_is_gone_at_once(store: Store) -> None:
    await temporary(store).set("a", 1)

    assert await temporary(store).delete("a")
    assert await temporary(store).get("a") is None


async def test_names_are_listed_by_pattern_each_once(store: Store) -> None:
    kept, others = sessions(store), temporary(store)
    for name in ("user:1", "user:2", "user:2:cart", "guest"):
        await kept.set(name, name)
    await others.set("user:3", 1)

    assert sorted([name async for name in kept.names()]) == ["guest", "user:1", "user:2", "user:2:cart"]
    assert sorted([name async for name in kept.names("user:*")]) == ["user:1", "user:2", "user:2:cart"]


async def test_other_formats_are_for_those_who_ask(store: Store) -> None:
    kept = temporary(store)
    await kept.with_codec(RAW).set("raw", b"\xff\x00")
    await kept.set("text", "five")

    assert await kept.with_codec(RAW).get("raw") == b"\xff\x00"
    with pytest.raises(Undecodable):
        await kept.get("raw")
    with pytest.raises(Undecodable):
        await kept.with_codec(json_of(int)).get("text")


@pytest.mark.parametrize("ttl_s", [0, -1, math.inf, math.nan, 1e12])
async def test_a_time_that_is_none_is_refused_before_anything_is_written(store: Store, ttl_s: float) -> None:
    with pytest.raises(WrongValue, match="expected seconds, above 0 and at most ten years"):
        await temporary(store).set("a", 1, ttl_s=ttl_s)
    assert await temporary(store).get("a") is None


async def test_a_name_that_could_leave_its_place_is_refused(store: Store) -> None:
    for name in ("", "a b", "a:", "*"):
        with pytest.raises(IllegalName):
            await temporary(store).set(name, 1)


async def test_a_full_server_says_so_and_keeps_what_it_had(fresh_server: ServerProcess) -> None:
    settings = Settings(store=StoreSettings(url=fresh_server.url), roots=RootsSettings(coordination="t-kept"))
    async with connect(settings) as k:
        await k.temp.set("a", "old")
        fresh_server.call("CONFIG", "SET", "maxmemory", 1)

        with pytest.raises(OutOfMemory):
            await k.temp.set("a", "new")
        assert await k.temp.get("a") == "old"


@hypothesis_settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON_VALUES)
async def test_any_json_value_comes_back_as_it_was(store: Store, value: object) -> None:
    await temporary(store).set("any", value)

    assert await temporary(store).get("any") == value
