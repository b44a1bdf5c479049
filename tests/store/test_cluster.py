"""On a cluster: to the node that holds the key, wherever it has moved to."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from kizuna.app import connect
from kizuna.errors import Refused, SignInRefused, StoreError, Unreachable
from kizuna.settings import Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.cluster import Cluster, _redirection
from kizuna.store.dialing import Address
from kizuna.store.keys import key_slot
from kizuna.store.scripts import Script
from kizuna.store.topology import Topology
from kizuna.testing import ClusterSetup, ServerProcess, eventually
from kizuna.testing.servers import free_port

PUT = Script(
    "put", "-- Set a key.\n--\n-- KEYS place  where\n-- ARGV what   what\n\nreturn redis.call('SET', place, what)\n"
)


def at(url: str, **options: Any) -> Settings:
    return Settings(store=StoreSettings(url=url, **options))


@pytest.fixture
async def store(cluster: ClusterSetup) -> AsyncIterator[Store]:
    """Empty at the beginning, whatever other tests have left on the cluster that all share."""
    async with connect(at(cluster.url)) as k:
        await k.store.call_each_primary("FLUSHALL")
        yield k.store
        await k.store.call_each_primary("FLUSHALL")


def table_of(store: Store) -> list[Address | None]:
    assert isinstance(store.topology, Cluster)
    return store.topology._slots


def other_than(cluster: ClusterSetup, owner: ServerProcess) -> ServerProcess:
    return next(server for server in cluster.servers if server is not owner)


async def test_keys_are_found_on_all_primaries(store: Store, cluster: ClusterSetup) -> None:
    names = [f"key-{number}" for number in range(300)]
    await asyncio.gather(*(store.call("SET", name, name) for name in names))

    assert await asyncio.gather(*(store.get(name) for name in names)) == [name.encode() for name in names]
    sizes = await store.call_each_primary("DBSIZE")
    assert sizes.keys() == {server.address for server in cluster.servers}
    assert all(size > 50 for size in sizes.values())
    assert sum(sizes.values()) == 300


async def test_one_node_is_enough_to_find_the_others(cluster: ClusterSetup) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    async with connect(at(f"redis+cluster://{nobody},{cluster.servers[1].address}", connect_timeout_s=0.2)) as k:
        assert (await k.store.call_each_primary("PING")).keys() == {server.address for server in cluster.servers}


async def test_keys_with_one_hash_tag_stand_in_one_command(store: Store) -> None:
    await store.call("MSET", "{user}a", 1, "{user}b", 2)

    assert await store.call("MGET", "{user}a", "{user}b") == [b"1", b"2"]
    assert await store.call("EVAL", "return redis.call('GET', KEYS[2])", 2, "{user}a", "{user}b") == b"2"


async def test_keys_of_several_slots_in_one_command_are_refused(store: Store) -> None:
    with pytest.raises(Refused) as refused:
        await store.call("MGET", "a", "b")

    assert refused.value.outcome == "refused"
    assert refused.value.code == "CROSSSLOT"
    assert str(refused.value).endswith("(refused); keys that are touched together must share a hash tag on a cluster")


async def test_a_slot_that_has_moved_is_followed_and_remembered(store: Store, cluster: ClusterSetup) -> None:
    slot = key_slot("{moved}")
    await store.call("SET", "{moved}a", "before")
    owner = cluster.owner_of(slot)
    target = other_than(cluster, owner)
    await asyncio.to_thread(cluster.move_slot, slot, target)

    assert table_of(store)[slot] == Address(owner.host, owner.port)
    assert await store.get("{moved}a") == b"before"
    assert await store.call("SET", "{moved}b", "after") == b"OK"
    assert table_of(store)[slot] == Address(target.host, target.port)
    assert target.call("GET", "{moved}b") == b"after"


async def test_commands_that_find_their_slot_moved_keep_their_order(store: Store, cluster: ClusterSetup) -> None:
    slot = key_slot("{ordered}")
    await store.call("RPUSH", "{ordered}", "first")
    await asyncio.to_thread(cluster.move_slot, slot, other_than(cluster, cluster.owner_of(slot)))

    lengths = await asyncio.gather(*(store.call("RPUSH", "{ordered}", number) for number in range(200)))

    assert lengths == list(range(2, 202))
    items = await store.call("LRANGE", "{ordered}", 1, -1)
    assert [int(item) for item in items] == list(range(200))


async def test_a_slot_that_is_half_moved_is_asked_for_on_both_sides(store: Store, cluster: ClusterSetup) -> None:
    slot = key_slot("{half}")
    names = [f"{{half}}{number}" for number in range(20)]
    await asyncio.gather(*(store.call("SET", name, name) for name in names))
    owner = cluster.owner_of(slot)
    target = other_than(cluster, owner)
    await asyncio.to_thread(cluster.start_moving, slot, target)
    await asyncio.to_thread(cluster.move_keys, slot, target, at_most=10)

    replies = await asyncio.gather(*(store.call("GET", name) for name in names))
    assert replies == [name.encode() for name in names]
    assert await store.call("SET", "{half}new", "x") == b"OK"
    assert table_of(store)[slot] == Address(owner.host, owner.port)

    # Of several keys in one command, some are here and some there: it waits until all are in one place.
    pair = store.call("MGET", *names, timeout_s=10)
    await eventually(lambda: b"errorstat_TRYAGAIN" in owner.call("INFO", "errorstats"))
    await asyncio.to_thread(cluster.move_keys, slot, target)
    await asyncio.to_thread(cluster.finish_moving, slot, target)
    assert await pair == [name.encode() for name in names]
    # It may have been led there by ASK, before the slot had moved: then it is the next one who learns it.
    assert await store.call("GET", names[0]) == names[0].encode()
    assert table_of(store)[slot] == Address(target.host, target.port)


async def test_nothing_is_lost_or_doubled_while_slots_move(store: Store, cluster: ClusterSetup) -> None:
    slot = key_slot("{busy}")
    running, counts = True, [0] * 20

    async def count(me: int) -> None:
        while running:
            assert await store.call("INCR", f"{{busy}}{me}", timeout_s=20) == counts[me] + 1
            counts[me] += 1

    def reached(goal: int) -> bool:
        return sum(counts) > goal

    counting = [asyncio.create_task(count(me)) for me in range(20)]
    for _ in range(2):
        goal = sum(counts) + 200
        await eventually(partial(reached, goal))
        await asyncio.to_thread(cluster.move_slot, slot, other_than(cluster, cluster.owner_of(slot)))
    running = False
    await asyncio.gather(*counting)

    assert sum(counts) > 400


async def test_scripts_run_on_every_node_and_survive_script_flush(store: Store) -> None:
    names = [f"script-{number}" for number in range(30)]
    for _ in range(2):
        replies = await asyncio.gather(*(PUT(store, place=name, what="x") for name in names))
        assert replies == [b"OK"] * 30
        await store.call_each_primary("SCRIPT", "FLUSH")
    assert await asyncio.gather(*(PUT(store, place=name, what="y") for name in names)) == [b"OK"] * 30


async def test_commands_without_keys_go_to_whoever_is_there(store: Store) -> None:
    assert await store.call("PING") == b"PONG"
    assert await store.call("PUBLISH", f"channel-{secrets.token_hex(4)}", "x") == 0


async def test_calls_recover_when_a_replica_takes_over() -> None:
    with ClusterSetup(replicas_each=1, node_timeout_ms=800) as setup:
        async with connect(at(setup.url, timeout_s=10, connect_timeout_s=0.5, reconnect_longest_s=0.2)) as k:
            key = "{taken over}"
            await k.store.call("SET", key, "before")
            owner = setup.owner_of(key_slot(key))
            await asyncio.to_thread(owner.kill)

            async def answered() -> bool:
                try:
                    return bool(await k.store.get(key) in (b"before", None))
                except StoreError:
                    return False

            assert await eventually(answered, within_s=15)
            assert await k.store.call("SET", key, "after") == b"OK"
            new_owner = await asyncio.to_thread(setup.owner_of, key_slot(key))
            assert new_owner is not owner
            await eventually(lambda: owner.address not in _addresses(k.store.topology))
            replies = await k.store.call_each_primary("PING")
            assert new_owner.address in replies
            assert len(replies) == 3

            # And without anybody calling: the next one to go is replaced as well, and then nobody is asked any more.
            topology = k.store.topology
            assert isinstance(topology, Cluster)
            second = next(server for server in setup.servers if server.alive and server is not new_owner)
            await asyncio.to_thread(second.kill)
            await eventually(lambda: second.address not in _addresses(topology), within_s=15)
            await eventually(lambda: topology._following is not None and topology._following.done())
            assert all(link.wire is not None for link in topology.primaries())


def _addresses(topology: Topology) -> set[str]:
    return {link.describe() for link in topology.primaries()}


async def test_a_server_that_is_no_cluster_says_so(server: ServerProcess) -> None:
    with pytest.raises(Unreachable) as unreachable:
        async with connect(at(f"redis+cluster://{server.address}", timeout_s=2)):
            pass

    assert str(unreachable.value) == (
        f"no node of the cluster tells its slots [{server.address}: ERR This instance has cluster support disabled] "
        f"at {server.address} (not sent); is it a cluster, and are its nodes running? (CLUSTER INFO)"
    )


async def test_a_cluster_that_does_not_answer_fails_in_time() -> None:
    with ServerProcess(config={"cluster-enabled": "yes"}) as node:
        node.pause()
        with pytest.raises(Unreachable, match="no node"):
            async with connect(at(f"redis+cluster://{node.address}", timeout_s=0.4, connect_timeout_s=2)):
                pass
        node.resume()


async def test_a_wrong_password_is_refused_at_once() -> None:
    with ServerProcess(password="right", config={"cluster-enabled": "yes"}) as node:
        with pytest.raises(SignInRefused, match="WRONGPASS") as refused:
            async with connect(at(f"redis+cluster://:wrong@{node.address}")):
                pass
        assert node.address in str(refused.value)


async def test_a_closed_store_answers_and_leaves_nothing(cluster: ClusterSetup) -> None:
    k = await connect(at(cluster.url))
    await k.aclose()

    with pytest.raises(Unreachable, match="the store was closed"):
        await k.store.call("GET", "a")
    with pytest.raises(Unreachable, match="the store was closed"):
        await k.store.topology.refresh()
    assert isinstance(k.store.topology, Cluster)
    k.store.topology._node_lost()  # as a link would say that breaks while the others are being closed
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    ("text", "server", "expected"),
    [
        ("MOVED 3999 127.0.0.1:6381", "10.0.0.1:6379", (3999, Address("127.0.0.1", 6381))),
        ("ASK 3999 ::1:6381", "10.0.0.1:6379", (3999, Address("::1", 6381))),
        ("MOVED 1 :6381", "10.0.0.1:6379", (1, Address("10.0.0.1", 6381))),
        ("MOVED 1 ?:6381", "10.0.0.1:6379", (1, Address("10.0.0.1", 6381))),
        ("MOVED 1 :6381", "[::1]:6379", (1, Address("::1", 6381))),
    ],
)
def test_where_a_redirection_leads(text: str, server: str, expected: tuple[int, Address]) -> None:
    assert _redirection(Refused(text, server, "")) == expected
