"""Keys are found wherever they are, and told apart."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from kizuna.app import connect
from kizuna.errors import Refused
from kizuna.settings import Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.keys import Key, Roots
from kizuna.store.scanning import batches_of_names, glob_of, members, names_in, names_of_all
from kizuna.testing import ClusterSetup

THING = Key("thing:<name...>", "string", "expires", "something")
OTHER = Key("nothing:<name...>", "string", "expires", "something else")


async def test_the_names_of_a_family_are_found_and_nothing_else(store: Store, scratch: str) -> None:
    roots, names = Roots(scratch.rstrip(":")), [f"n:{number}" for number in range(1500)]
    await asyncio.gather(*(store.call("SET", THING.build(roots.root, name=name), "", "PX", 20_000) for name in names))
    # In the family's place, but of another type; and in another place.
    await store.call("SADD", THING.build(roots.root, name="set"), "member")
    await store.call("SET", f"{roots.root}:other:thing:1", "")

    assert {found["name"] async for found in names_of_all(store, roots, THING)} == set(names)
    assert [batch async for batch in batches_of_names(store, roots, OTHER)] == []


async def test_on_a_cluster_all_primaries_are_gone_through(cluster: ClusterSetup) -> None:
    roots, names = Roots(f"t-{secrets.token_hex(4)}", 6), [f"{number}" for number in range(100)]
    async with connect(Settings(store=StoreSettings(url=cluster.url))) as k:
        keys = [THING.build(roots.of(name), name=name) for name in names]
        await asyncio.gather(*(k.store.call("SET", key, "", "PX", 20_000) for key in keys))

        assert {found["name"] async for found in names_of_all(k.store, roots, THING)} == set(names)


async def test_the_members_of_a_set_come_in_batches(store: Store, scratch: str) -> None:
    names = {f"member-{number}" for number in range(2000)}
    await store.call("SADD", scratch, *names)

    batches = [batch async for batch in members(store, scratch)]

    assert {name for batch in batches for name in batch} == names
    assert max(map(len, batches)) < len(names)
    assert [batch async for batch in members(store, f"{scratch}-nothing")] == []


async def test_what_names_no_key_is_asked_of_the_server_that_holds_one(cluster: ClusterSetup) -> None:
    async with connect(Settings(store=StoreSettings(url=cluster.url))) as k:
        keys = [f"{{{number}}}" for number in range(20)]
        asked = [await k.store.call_beside(key, "CLUSTER", "MYID") for key in keys]
        holders = [await k.store.call_at(k.store.topology.route(("GET", key)), "CLUSTER", "MYID") for key in keys]

        assert asked == holders
        assert len(set(asked)) == 3


async def test_what_is_asked_of_one_server_is_not_taken_to_another(cluster: ClusterSetup) -> None:
    async with connect(Settings(store=StoreSettings(url=cluster.url))) as k:
        answers = [await k.store.call_at(link, "CLUSTER", "MYID") for link in k.store.topology.primaries()]
        assert len(set(answers)) == 3
        asked = [k.store.call_at(link, "GET", "one-key") for link in k.store.topology.primaries()]
        replies = await asyncio.gather(*asked, return_exceptions=True)
        assert sorted(reply.code for reply in replies if isinstance(reply, Refused)) == ["MOVED", "MOVED"]


@pytest.mark.parametrize("roots", [Roots("poppo"), Roots("poppo", 3)])
def test_one_glob_covers_all_shards_and_names_are_read_below_each(roots: Roots) -> None:
    assert glob_of(THING, roots) == ("poppo:thing:*" if roots.shards == 1 else "{poppo:*}:thing:*")
    for root in roots.all:
        key = THING.build(root, name="a:b")
        assert names_in(THING, roots, key) == {"name": "a:b"}
        assert names_in(THING, roots, key.encode()) == {"name": "a:b"}


@pytest.mark.parametrize("roots", [Roots("mm1:"), Roots("mm1:", 3)])
def test_also_where_something_stands_before_the_root(roots: Roots) -> None:
    lock = Key("lock:<name>", "string", "expires", "", joined_by="", before_root="by:0:")

    assert glob_of(lock, roots) == ("by:0:mm1:lock:*" if roots.shards == 1 else "by:0:{mm1::*}lock:*")
    for root in roots.all:
        assert names_in(lock, roots, lock.build(root, name="a")) == {"name": "a"}
    assert names_in(lock, roots, "by:1:{mm1::0}lock:a") is None


@pytest.mark.parametrize(
    "key", ["poppo:thing:a", "{poppo:3}:thing:a", "{poppo:0}:other:a", "{poppo:0:thing:a", "", b"\xff"]
)
def test_a_key_of_another_root_or_family_is_none(key: str | bytes) -> None:
    assert names_in(THING, Roots("poppo", 3), key) is None
