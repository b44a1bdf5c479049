from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kizuna.app import connect
from kizuna.settings import RootsSettings, Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.inspection.backup import back_up
from kizuna.store.inspection.cleaning import remove
from kizuna.store.inspection.looking import look_at, together
from kizuna.store.inspection.names import first_names
from kizuna.store.inspection.restore import Restore
from kizuna.store.scanning import Scan
from kizuna.store.scanning.pacing import FEWEST, MOST, Pace
from kizuna.testing import ClusterSetup, SentinelSetup


async def write(store: Store, at: str, count: int) -> list[bytes]:
    names = [f"{at}{number:05}" for number in range(count)]
    await asyncio.gather(*(store.call("SET", name, "x") for name in names))
    return [name.encode() for name in names]


async def test_every_key_is_found_in_bounded_steps(store: Store, scratch: str) -> None:
    names = await write(store, scratch, 5_000)
    scan = Scan(store, [scratch + "*"])
    await scan.begin()
    batches = [keys async for keys in scan]

    assert {key for keys in batches for key in keys} == set(names)
    assert max(map(len, batches)) < 3 * MOST
    assert scan.total >= 5_000
    assert 0 < scan.passed <= scan.total


async def test_several_patterns_are_one_way_through_the_keys(store: Store, scratch: str) -> None:
    await write(store, scratch + "a:", 50)
    await write(store, scratch + "b:", 50)
    await write(store, scratch + "c:", 50)
    found = [key async for keys in Scan(store, [scratch + "a:*", scratch + "b:*", scratch + "*00"]) for key in keys]

    assert len(set(found)) == 101


async def test_the_first_names_come_in_order_and_without_the_rest(store: Store, scratch: str) -> None:
    names = await write(store, scratch, 3_000)

    first = await first_names(store, [scratch + "*"], 10)
    assert (first.first, first.total) == (names[:10], 3_000)
    rest = await first_names(store, [scratch + "*"], 10, after=names[2_994])
    assert (rest.first, rest.total) == (names[2_995:], 5)


async def test_what_keys_are_is_told_of_those_that_are_there(store: Store, scratch: str) -> None:
    await store.call("RPUSH", scratch + "list", 1, 2)
    await store.call("SET", scratch + "string", 1, "PX", 60_000)
    keys = [f"{scratch}{name}".encode() for name in ("list", "string", "gone")]

    facts = {one.key: one for one in await look_at(store, keys)}
    assert facts.keys() == set(keys[:2])
    assert (facts[keys[0]].type, facts[keys[0]].ttl_ms) == ("list", None)
    assert facts[keys[1]].type == "string"
    assert 0 < (facts[keys[1]].ttl_ms or 0) <= 60_000
    assert all((one.bytes or 0) > 0 for one in facts.values())
    assert [one.bytes for one in await look_at(store, keys[:1], measure=False)] == [None]


async def test_removing_takes_what_matches_and_nothing_beside_it(store: Store, scratch: str) -> None:
    await write(store, scratch + "a:", 1_500)
    beside = await write(store, scratch + "ab:", 20)

    assert await remove(store, [scratch + "a:*"]) == 1_500
    assert await remove(store, [scratch + "a:*"]) == 0
    assert sorted([key async for keys in Scan(store, [scratch + "*"]) for key in keys]) == beside


async def test_keys_are_put_together_only_where_one_command_may_have_them(cluster: ClusterSetup) -> None:
    async with connect(Settings(store=StoreSettings(url=cluster.url))) as k:
        keys = [b"{a}%d" % number for number in range(5)] + [b"{b}1", b"c"]
        groups = list(together(k.store, keys, 2))

    assert sorted(key for group in groups for key in group) == sorted(keys)
    assert all(len({key[:3] for key in group}) == 1 and len(group) <= 2 for group in groups)


async def test_a_command_reaches_the_very_primary_it_is_for(cluster: ClusterSetup) -> None:
    async with connect(Settings(store=StoreSettings(url=cluster.url))) as k:
        for link in k.store.topology.primaries():
            told = await k.store.call_at(link, "INFO", "server")
            assert f"tcp_port:{link.describe().rpartition(':')[2]}\r\n".encode() in told


async def test_behind_sentinels_it_works_the_same(sentinel: SentinelSetup, root: str, tmp_path: Path) -> None:
    settings = Settings(store=StoreSettings(url=sentinel.url), roots=RootsSettings(system=root, coordination=root))
    async with connect(settings) as k:
        names = await write(k.store, f"{root}:temp:", 300)
        footer = await back_up(k.store, tmp_path / "b", [f"{root}:*"])
        assert await remove(k.store, [f"{root}:*"]) == 300
        assert (await Restore(k.store, tmp_path / "b").run()).restored == footer.keys == 300
        assert {key async for keys in Scan(k.store, [f"{root}:*"]) for key in keys} == set(names)
        await remove(k.store, [f"{root}:*"])


# pacing


@given(answers=st.lists(st.floats(0, 2), max_size=100))
def test_steps_stay_within_their_limits_however_the_server_answers(answers: list[float]) -> None:
    pace = Pace()
    for took_s in answers:
        pace.learn(took_s)
        assert FEWEST <= pace.count <= MOST
        assert 0 <= pace.rest_s <= 0.1


def test_a_slow_server_is_asked_for_less_and_given_rest() -> None:
    pace = Pace()
    for _ in range(10):
        pace.learn(0.0005)
    assert (pace.count, pace.rest_s) == (MOST, 0.0)
    pace.learn(0.03)
    assert (pace.count, pace.rest_s) == (MOST // 2, 0.03)
    for _ in range(10):
        pace.learn(0.03)
    assert pace.count == FEWEST
