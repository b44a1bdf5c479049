"""The state that units share: set and read, replaced only if it is what was expected, listed."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kizuna.app import connect
from kizuna.codecs import JSON, RAW, TEXT, Codec, json_of
from kizuna.errors import IllegalName, TooLarge, Undecodable, ValueChanged, WrongValue
from kizuna.settings import Settings
from kizuna.store.client import Store
from kizuna.testing import ServerProcess, eventually
from kizuna.units.state import Keep


def keep_of(store: Store, unit: str = "sensor", *, codec: Codec = RAW, ttl_s: float = 60, largest: int = 1000) -> Keep:
    return Keep(store, unit, ttl_s, codec, largest, store.settings.roots.units)


@pytest.fixture
def keep(store: Store) -> Keep:
    return keep_of(store)


# -- values -----------------------------------------------------------------------------------------------


async def test_a_value_stands_in_its_path_as_it_is_and_ends(keep: Keep, store: Store, root: str) -> None:
    await keep.set("temp", b"21.5")

    assert await keep.get("temp") == b"21.5"
    assert await store.call("GET", f"{root}/sensor/keep/temp") == b"21.5"
    assert 50_000 < await store.call("PTTL", f"{root}/sensor/keep/temp") <= 60_000
    assert 50 < (await keep.ends_in_s("temp") or 0) <= 60


async def test_what_an_outsider_sets_is_read_the_same(keep: Keep, server: ServerProcess, root: str) -> None:
    server.call("SET", f"{root}/sensor/keep/temp", "21.5", "EX", 60)

    assert await keep.get("temp") == b"21.5"
    assert await keep.with_codec(JSON).get("temp") == 21.5
    assert await keep.with_codec(TEXT).get("temp") == "21.5"


async def test_names_that_differ_in_case_only_are_the_same(store: Store, root: str) -> None:
    await keep_of(store, "SENSOR").set("Temp", b"21.5")

    assert await keep_of(store, "sensor").get("TEMP") == b"21.5"
    assert await store.call("EXISTS", f"{root}/sensor/keep/temp") == 1
    assert [id_ async for id_ in keep_of(store, "Sensor").ids("T*")] == ["temp"]


async def test_units_do_not_see_the_state_of_each_other_under_their_own_name(store: Store) -> None:
    await keep_of(store, "a").set("x", b"1")

    assert await keep_of(store, "b").get("x") is None
    assert await keep_of(store, "a").get("x") == b"1"


async def test_what_is_not_there_is_the_default(keep: Keep) -> None:
    assert await keep.get("temp") is None
    assert await keep.get("temp", b"0") == b"0"
    assert await keep.ends_in_s("temp") is None
    assert not await keep.touch("temp")


async def test_many_are_read_at_once_by_their_ids_in_lower_case(keep: Keep) -> None:
    await asyncio.gather(*(keep.set(f"t{number}", b"%d" % number) for number in range(200)))

    assert await keep.get_many([]) == {}
    assert await keep.get_many(["t7", "T8", "t8", "none"]) == {"t7": b"7", "t8": b"8"}
    assert len(await keep.get_many(f"t{number}" for number in range(300))) == 200


async def test_fractions_of_a_second_are_kept_and_then_it_is_gone(keep: Keep) -> None:
    await keep.set("temp", b"21.5", ttl_s=0.25)

    assert 0 < (await keep.ends_in_s("temp") or 0.1) <= 0.25
    await eventually(lambda: is_gone(keep, "temp"))


async def is_gone(keep: Keep, id_: str) -> bool:
    return await keep.get(id_) is None


async def test_touching_keeps_it_as_long_again(keep: Keep) -> None:
    await keep.set("temp", b"21.5", ttl_s=5)

    assert await keep.touch("temp")
    assert (await keep.ends_in_s("temp") or 0) > 50
    assert await keep.touch("temp", ttl_s=10)
    assert (await keep.ends_in_s("temp") or math.inf) <= 10


async def test_what_somebody_set_without_an_end_is_said_to_have_none(
    keep: Keep, server: ServerProcess, root: str
) -> None:
    server.call("SET", f"{root}/sensor/keep/temp", "21.5")

    assert await keep.ends_in_s("temp") == math.inf
    assert await keep.touch("temp")


@pytest.mark.parametrize("ttl_s", [0, -1, math.inf, math.nan, 1e12])
async def test_a_time_that_is_none_is_refused_before_anything_is_written(keep: Keep, ttl_s: float) -> None:
    with pytest.raises(WrongValue, match="expected seconds, above 0 and at most ten years"):
        await keep.set("temp", b"21.5", ttl_s=ttl_s)
    with pytest.raises(WrongValue):
        await keep.replace("temp", b"21.5", expected=None, ttl_s=ttl_s)
    assert await keep.get("temp") is None


async def test_what_is_too_large_is_refused_before_it_is_sent(keep: Keep, root: str) -> None:
    await keep.set("temp", bytes(1000))
    with pytest.raises(TooLarge, match=f"{root}/sensor/keep/temp has 1,001 bytes, and 1,000 are the most"):
        await keep.set("temp", bytes(1001))
    with pytest.raises(TooLarge):
        await keep.replace("temp", bytes(1001), expected=bytes(1000))
    with pytest.raises(TooLarge):
        await keep.update("temp", lambda old: old + b"x")

    assert await keep.get("temp") == bytes(1000)


async def test_ids_and_patterns_that_could_leave_their_place_are_refused(keep: Keep) -> None:
    for id_ in ("", "a b", "a/b", "*", "{a}", "x" * 257):
        with pytest.raises(IllegalName):
            await keep.set(id_, b"")
        with pytest.raises(IllegalName):
            await keep.get(id_)
        with pytest.raises(IllegalName):
            await keep.get_many(["a", id_])
    for pattern in ("", "a b", "a/b", "a/*", "{a}"):
        with pytest.raises(IllegalName):
            [id_ async for id_ in keep.ids(pattern)]
        with pytest.raises(IllegalName):
            keep.watch(pattern)


async def test_a_unit_name_that_could_leave_its_place_is_refused(store: Store) -> None:
    for unit in ("", "a/b", "*"):
        with pytest.raises(IllegalName):
            await keep_of(store, unit).get("a")
        with pytest.raises(IllegalName):
            keep_of(store, unit).watch()


async def test_a_value_of_another_format_is_said_to_be_one(keep: Keep) -> None:
    await keep.set("temp", b"\xff")

    with pytest.raises(Undecodable):
        await keep.with_codec(JSON).get("temp")
    with pytest.raises(Undecodable):
        await keep.with_codec(json_of(int)).get_many(["temp"])


async def test_a_key_that_is_no_string_holds_no_value_however_it_is_read(keep: Keep, store: Store, root: str) -> None:
    await store.call("HSET", f"{root}/sensor/keep/temp", "f", "v")
    await keep.set("other", b"1")

    assert await keep.get("temp", b"none") == b"none"
    assert list(await asyncio.gather(keep.get("temp"), keep.get("other"))) == [None, b"1"]
    assert await keep.get_many(["temp"]) == {}
    assert await keep.get_many(["temp", "other"]) == {"other": b"1"}
    assert [id_ async for id_ in keep.ids()] == ["other"]
    with pytest.raises(ValueChanged, match="keep/temp is a hash now, which was not expected, and stays so"):
        await keep.replace("temp", b"new", expected=None)
    assert await store.call("HGET", f"{root}/sensor/keep/temp", "f") == b"v"
    await keep.set("temp", b"a value again")


@hypothesis_settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.binary(max_size=100))
async def test_any_bytes_come_back_as_they_were(keep: Keep, value: bytes) -> None:
    await keep.set("any", value)

    assert await keep.get("any") == value
    await keep.replace("any", b"x" + value, expected=value)
    assert await keep.get("any") == b"x" + value


# -- listing ----------------------------------------------------------------------------------------------


async def test_ids_are_listed_by_pattern_each_once_and_only_those_that_can_be_got(
    keep: Keep, server: ServerProcess, root: str
) -> None:
    for id_ in ("temp.in", "temp.out", "wind", "claim.a.1", "presence.p"):
        await keep.set(id_, b"1")
    for key in ("sensor/keep/UPPER", "sensor/keep/a/b", "sensor/req/x", "sensor2/keep/x", "sensor/keep/\xff"):
        server.call("SET", f"{root}/{key}", "1", "EX", 60)

    assert sorted([id_ async for id_ in keep.ids()]) == ["temp.in", "temp.out", "wind", "ÿ"]
    assert sorted([id_ async for id_ in keep.ids("temp.*")]) == ["temp.in", "temp.out"]
    assert [id_ async for id_ in keep.ids("presence.*")] == []
    assert [id_ async for id_ in keep.ids("presence.*", internals=True)] == ["presence.p"]
    server.call("DEL", f"{root}/sensor/keep/a/b")


# -- replacing --------------------------------------------------------------------------------------------


async def test_a_value_is_replaced_if_it_is_what_was_expected(keep: Keep) -> None:
    await keep.replace("mode", b"idle", expected=None)
    await keep.replace("mode", b"busy", expected=b"idle", ttl_s=5)

    assert await keep.get("mode") == b"busy"
    assert 0 < (await keep.ends_in_s("mode") or 0) <= 5


async def test_otherwise_nothing_is_written_and_it_is_said_what_is_there(keep: Keep, root: str) -> None:
    await keep.set("mode", b"busy", ttl_s=5)
    with pytest.raises(ValueChanged) as changed:
        await keep.replace("mode", b"idle", expected=None)
    assert (changed.value.name, changed.value.now) == (f"{root}/sensor/keep/mode", "busy")
    with pytest.raises(ValueChanged):
        await keep.replace("mode", b"busy", expected=b"idle")
    with pytest.raises(ValueChanged, match="keep/none is not set now"):
        await keep.replace("none", b"new", expected=b"")

    assert await keep.get("mode") == b"busy"
    assert (await keep.ends_in_s("mode") or 99) <= 5
    assert await keep.get("none") is None


async def test_of_many_who_expect_the_same_one_succeeds(keep: Keep) -> None:
    tries = [keep.replace("leader", b"%d" % number, expected=None) for number in range(50)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)

    assert outcomes.count(None) == 1
    assert await keep.get("leader") == b"%d" % outcomes.index(None)


async def test_values_are_compared_as_they_are_written(store: Store) -> None:
    keep = keep_of(store, codec=JSON)
    await keep.set("mode", {"a": 1, "b": [2]})
    await keep.replace("mode", {"a": 2}, expected={"a": 1, "b": [2]})

    with pytest.raises(ValueChanged):
        await keep.replace("mode", {}, expected={"a": 2.0})


# -- updating ---------------------------------------------------------------------------------------------


async def test_an_update_makes_a_new_value_of_the_old_one(store: Store) -> None:
    keep = keep_of(store, codec=JSON)

    assert await keep.update("count", lambda count: (count or 0) + 1) == 1
    assert await keep.update("count", lambda count: (count or 0) + 1, ttl_s=5) == 2
    assert await keep.get("count") == 2
    assert (await keep.ends_in_s("count") or 99) <= 5


async def test_no_update_of_many_is_lost(store: Store, settings: Settings) -> None:
    async def more(count: int | None) -> int:
        await asyncio.sleep(0)
        return (count or 0) + 1

    async with connect(settings) as k:
        keeps = [keep_of(store, codec=JSON), keep_of(k.store, codec=JSON)]
        await asyncio.gather(*(keeps[number % 2].update("count", more) for number in range(20)))

    assert await keeps[0].get("count") == 20


async def test_an_update_works_on_what_others_wrote_in_their_own_way(
    store: Store, server: ServerProcess, root: str
) -> None:
    server.call("SET", f"{root}/sensor/keep/mode", '{ "a" : 1 }', "EX", 60)

    await keep_of(store, codec=JSON).update("mode", lambda mode: mode | {"b": 2})
    assert await keep_of(store).get("mode") == b'{"a":1,"b":2}'


async def test_an_update_that_never_comes_first_gives_up(keep: Keep) -> None:
    async def too_slow(_: bytes | None) -> bytes:
        await keep.update("mode", lambda old: (old or b"") + b"x")
        return b"mine"

    with pytest.raises(ValueChanged, match="keep/mode is xxx now"):
        await keep.update("mode", too_slow, attempts=3)


# -- of a unit ----------------------------------------------------------------------------------------------


async def test_a_unit_has_its_own_state_and_reads_that_of_others(settings: Settings, root: str) -> None:
    async with connect(settings) as k:
        sensor, other = k.unit("Sensor", codec=JSON, keep_s=30), k.unit("other", codec=JSON)
        await sensor.keep.set("Temp", 21.5)
        async with other.keep_of("SENSOR").watch() as changes:
            found = await changes.next(timeout_s=10)

        assert found is not None
        assert (found.id, found.value, found.found) == ("temp", 21.5, True)
        assert 0 < (await other.keep_of("sensor").ends_in_s("temp") or 0) <= 30
        await other.keep.set("temp", 5)
        assert 3500 < (await other.keep.ends_in_s("temp") or 0) <= 3600
        assert await k.store.call("GET", f"{root}/other/keep/temp") == b"5"
        assert [id_ async for id_ in other.keep.ids()] == ["temp"]
