from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import msgspec
import pytest

from kizuna.app import connect
from kizuna.errors import PermissionDenied, UnsafeServer
from kizuna.metrics import build_info
from kizuna.settings import EventsSettings, Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.health.info import (
    check_health,
    check_server,
    collect_metrics,
    health_of,
    memory_limit,
    memory_pressure,
    metrics_of,
    parse_info,
    read_info,
    reasons_not_ready,
    refuse_unsafe,
    summed,
)
from kizuna.store.health.versions import version_of
from kizuna.store.health.watch import ServerWatch
from kizuna.testing import ChaosProxy, ClusterSetup, SentinelSetup, ServerProcess, eventually

# As Redis 6.0 writes it, cut down to what is read.
OLD_REDIS = b"""# Server\r
redis_version:6.0.16\r
redis_mode:standalone\r
uptime_in_seconds:86400\r
\r
# Clients\r
connected_clients:12\r
blocked_clients:3\r
\r
# Memory\r
used_memory:943718400\r
used_memory_human:900.00M\r
used_memory_peak:1073741824\r
used_memory_peak_human:1.00G\r
total_system_memory:8589934592\r
maxmemory:2147483648\r
maxmemory_human:2.00G\r
maxmemory_policy:noeviction\r
mem_fragmentation_ratio:1.25\r
mem_not_counted_for_evict:0\r
\r
# Stats\r
total_commands_processed:1000\r
total_net_input_bytes:20000\r
total_net_output_bytes:30000\r
expired_keys:40\r
evicted_keys:5\r
keyspace_hits:90\r
keyspace_misses:10\r
"""
INFO = parse_info(OLD_REDIS)


def settings_for(url: str) -> Settings:
    return Settings(store=StoreSettings(url=url, timeout_s=2))


# from INFO


def test_info_is_read_by_name_and_headings_are_left_out() -> None:
    assert INFO["maxmemory_policy"] == "noeviction"
    assert parse_info(OLD_REDIS.decode()) == INFO
    assert parse_info(b"# Cluster Info: none\r\n\r\nlistener0:name=tcp,bind=::1\r\n") == {
        "listener0": "name=tcp,bind=::1"
    }


def test_metrics_have_the_documented_names_and_numbers() -> None:
    assert json.loads(msgspec.json.encode(metrics_of(INFO, 1_700_000_000_000))) == {
        "timestamp": 1_700_000_000_000,
        "memory": {"used": 943718400, "peak": 1073741824, "fragmentation": 1.25},
        "clients": {"connected": 12, "blocked": 3},
        "operations": {"commandsProcessed": 1000, "inputBytes": 20000, "outputBytes": 30000},
        "keys": {"expired": 40, "evicted": 5},
        "performance": {"hitRate": 0.9, "keyspaceHits": 90, "keyspaceMisses": 10},
    }


def test_health_has_the_documented_names_and_numbers() -> None:
    assert json.loads(msgspec.json.encode(health_of([INFO], 0.25))) == {
        "status": "healthy",
        "responseTime": 0.25,
        "memoryUsage": 900.0,
        "uptime": 86400,
        "connectedClients": 12,
    }


def test_a_server_that_was_asked_nothing_has_a_hit_rate_of_zero() -> None:
    assert metrics_of({}, 0).performance.hit_rate == 0.0


def test_several_primaries_are_summed_and_the_worst_ratio_counts() -> None:
    busier = INFO | {"mem_fragmentation_ratio": "4.0", "keyspace_hits": "0", "keyspace_misses": "100"}

    metrics = metrics_of(summed([INFO, busier]), 0)
    health = health_of([INFO, INFO | {"uptime_in_seconds": "7"}], 1.0)

    assert metrics.memory.used == 2 * 943718400
    assert metrics.memory.fragmentation == 4.0
    assert metrics.performance.hit_rate == 90 / 200
    assert (health.uptime, health.connected_clients, health.memory_usage) == (7, 24, 1800.0)


def test_pressure_is_a_share_of_maxmemory_and_the_human_texts_play_no_part() -> None:
    assert memory_pressure(INFO) == 943718400 / 2147483648
    assert memory_pressure(INFO | {"used_memory_human": "1.90G", "maxmemory_human": "1K"}) == memory_pressure(INFO)


def test_without_maxmemory_the_limit_is_the_memory_of_the_machine() -> None:
    unlimited = INFO | {"maxmemory": "0"}

    assert memory_limit(unlimited) == 8589934592
    assert memory_pressure(unlimited) == 943718400 / 8589934592
    assert memory_pressure(unlimited | {"total_system_memory": "0"}) == 0.0


def test_what_the_server_does_not_count_when_it_is_full_is_not_counted() -> None:
    assert memory_pressure(INFO | {"mem_not_counted_for_evict": "943718400"}) == 0.0


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"loading": "1"}, "the server is still reading its data from disk"),
        ({"role": "slave"}, "the server is a replica and takes no writes"),
        ({"aof_last_write_status": "err"}, "the server cannot write to its append-only file"),
        ({"used_memory": "2040109466"}, "the server's memory is 95% full"),
    ],
)
def test_a_server_that_takes_no_writes_is_not_ready(facts: dict[str, str], reason: str) -> None:
    assert reasons_not_ready(INFO | facts) == [reason]
    assert reasons_not_ready(INFO) == []


# what is refused


@pytest.mark.parametrize(
    ("info", "what"),
    [
        (b"redis_version:6.0.16\r\n", "Redis 6.0.16"),
        (b"redis_version:5.0.14\r\n", "Redis 5.0.14"),
        (b"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.1.0\r\n", "Valkey 7.1.0"),
    ],
)
def test_an_old_server_is_refused(info: bytes, what: str) -> None:
    with pytest.raises(UnsafeServer) as refused:
        refuse_unsafe(parse_info(info), "db:6379")

    assert str(refused.value) == f"{what} is too old at db:6379; Redis 6.2, Valkey 7.2 or newer is needed"


@pytest.mark.parametrize(
    ("info", "name"),
    [
        (b"redis_version:6.2.0\r\n", "Redis 6.2.0"),
        (b"redis_version:8.2.1\r\n", "Redis 8.2.1"),
        (b"redis_version:255.255.255\r\n", "Redis 255.255.255"),
        (b"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.2.9\r\n", "Valkey 7.2.9"),
        (b"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:10.0.0-rc1\r\n", "Valkey 10.0.0-rc1"),
        (b"used_memory:1\r\n", "Redis of an unknown version"),
    ],
)
def test_a_new_server_is_not_refused(info: bytes, name: str) -> None:
    refuse_unsafe(parse_info(info), "db:6379")

    assert version_of(parse_info(info)) == name


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
async def test_we_do_not_connect_to_a_server_that_throws_any_key_away(policy: str, fresh_server: ServerProcess) -> None:
    fresh_server.call("CONFIG", "SET", "maxmemory-policy", policy)

    with pytest.raises(UnsafeServer) as refused:
        await connect(settings_for(fresh_server.url))

    assert str(refused.value) == (
        f"maxmemory-policy is {policy}: when its memory is full, the server throws away keys that are in use"
        f" at {fresh_server.address}; run there: CONFIG SET maxmemory-policy noeviction"
    )
    fresh_server.call(*refused.value.hint.removeprefix("run there: ").split())
    async with connect(settings_for(fresh_server.url)) as kizuna:
        await check_server(kizuna.store)


async def test_one_node_that_evicts_makes_the_cluster_unsafe(fresh_cluster: ClusterSetup) -> None:
    unsafe = fresh_cluster.servers[1]
    unsafe.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")

    with pytest.raises(UnsafeServer) as refused:
        await connect(settings_for(fresh_cluster.url))

    assert refused.value.server == unsafe.address


async def test_a_user_who_may_not_see_info_connects_unchecked_and_the_log_says_what_to_grant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ServerProcess(users={"app": "on >secret ~app:* &* +@all -@dangerous"}) as server:
        async with connect(settings_for(f"redis://app:secret@{server.address}")) as kizuna:
            assert await kizuna.store.call("SET", "app:key", "1") == b"OK"
            with pytest.raises(PermissionDenied) as refused:
                await read_info(kizuna.store)

    assert refused.value.hint == "allow it: ACL SETUSER app +info"
    (record,) = [record for record in caplog.records if record.message == "server not checked"]
    assert "ACL SETUSER app +info" in vars(record)["reason"]


# asking


async def test_metrics_and_health_of_a_real_server_agree_with_what_was_done(fresh_server: ServerProcess) -> None:
    async with connect(settings_for(fresh_server.url)) as kizuna:
        await kizuna.store.call("SET", "here", "1")
        await kizuna.store.call("GET", "here")
        await kizuna.store.call("GET", "nowhere")

        metrics, health = await collect_metrics(kizuna.store), await check_health(kizuna.store)

    assert (metrics.performance.keyspace_hits, metrics.performance.keyspace_misses) == (1, 1)
    assert metrics.performance.hit_rate == 0.5
    assert 0 < metrics.memory.used <= metrics.memory.peak
    assert metrics.operations.commands_processed > 3
    assert metrics.clients.connected == 1
    assert health.status == "healthy"
    assert isinstance(health.response_time, float)
    assert 0 < health.response_time < 2000


async def test_of_a_cluster_every_primary_is_asked(cluster: ClusterSetup) -> None:
    async with connect(settings_for(cluster.url)) as kizuna:
        infos = await read_info(kizuna.store)

        assert set(infos) == {server.address for server in cluster.servers}
        metrics = await collect_metrics(kizuna.store)
        assert metrics.memory.used > max(int(info["used_memory"]) for info in infos.values())


async def test_behind_sentinels_the_primary_is_asked(sentinel: SentinelSetup) -> None:
    async with connect(settings_for(sentinel.url)) as kizuna:
        assert set(await read_info(kizuna.store)) == {sentinel.primary.address}


async def test_a_server_that_is_gone_is_unhealthy_and_the_error_says_why(fresh_server: ServerProcess) -> None:
    settings = Settings(store=StoreSettings(url=fresh_server.url, timeout_s=2))
    async with connect(settings) as kizuna:
        fresh_server.kill()

        health = await check_health(kizuna.store)

    assert health.status == "unhealthy"
    assert fresh_server.address in str(health.error)
    assert set(msgspec.to_builtins(health)) == {"status", "error"}


# the watch


async def test_looks_at_the_same_time_ask_the_server_once(fresh_server: ServerProcess) -> None:
    async with connect(settings_for(fresh_server.url)) as kizuna:
        before = _infos_asked(fresh_server)
        watch = ServerWatch(kizuna.store)

        assert await asyncio.gather(*(watch.problems() for _ in range(20))) == [[]] * 20

    # One by the watch, one by ourselves.
    assert _infos_asked(fresh_server) - before == 2


def _infos_asked(server: ServerProcess) -> int:
    stats = server.info("commandstats").get("cmdstat_info", "calls=0,").split(",")
    return int(stats[0].removeprefix("calls="))


async def test_a_process_is_not_ready_while_the_server_is_away_and_ready_again_soon_after(
    fresh_server: ServerProcess,
) -> None:
    async with connect(settings_for(fresh_server.url)) as kizuna:
        watch = ServerWatch(kizuna.store)
        fresh_server.kill()

        (problem,) = await watch.problems()
        assert fresh_server.address in problem
        assert [m.value for m in watch.measures() if m.name == "kizuna_server_up"] == [0]

        fresh_server.start()
        await eventually(lambda: _is_ready(watch))
        assert [m.value for m in watch.measures() if m.name == "kizuna_server_up"] == [1]
        assert [m.value for m in watch.measures() if m.name == "kizuna_store_connections_total"] == [2]


async def _is_ready(watch: ServerWatch) -> bool:
    return await watch.problems() == []


async def test_a_process_that_does_not_hear_of_changes_is_not_ready(server: ServerProcess, root: str) -> None:
    async with ChaosProxy(server.host, server.port) as between:
        settings = Settings(
            store=StoreSettings(url=between.url, timeout_s=2),
            events=EventsSettings(canary_every_s=0.05, canary_timeout_s=1.5),
        )
        async with connect(settings) as kizuna, kizuna.store.events.watch(f"{root}:*"):
            watch = ServerWatch(kizuna.store)
            await eventually(lambda: _is_ready(watch))
            between.stall()

            async def deaf() -> bool:
                return any("that changes are heard of" in problem for problem in await watch.problems())

            await eventually(deaf)


async def test_a_store_is_opened_without_the_check_when_asked_for(fresh_server: ServerProcess) -> None:
    fresh_server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    store = Store(settings_for(fresh_server.url))
    await store.open()
    try:
        assert (await check_health(store)).status == "healthy"
    finally:
        await store.aclose()


async def test_every_metric_is_documented(store: Store, root: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    watch = ServerWatch(store)
    async with store.events.watch(f"{root}:*"):
        await watch.look()
        names = {measure.name for measure in [*build_info(), *watch.measures()]}

    assert names == set(re.findall(r"^\| `(kizuna_\w+)` \|", text, re.MULTILINE))


async def test_of_a_cluster_with_a_dead_node_the_others_are_still_measured(fresh_cluster: ClusterSetup) -> None:
    async with connect(settings_for(fresh_cluster.url)) as kizuna:
        watch = ServerWatch(kizuna.store)
        assert await watch.problems() == []
        dead, *others = fresh_cluster.servers
        dead.kill()

        async def told() -> bool:
            return any(dead.address in problem for problem in await watch.problems())

        await eventually(told)
        measured = {m.labels["server"] for m in watch.measures() if m.name == "kizuna_server_memory_used_bytes"}
        assert measured == {server.address for server in others}
        assert [m.value for m in watch.measures() if m.name == "kizuna_server_up"] == [0]
