from __future__ import annotations

import pytest

from kizuna.settings import Settings, StoreSettings
from kizuna.store.health import checks
from kizuna.store.health.checks import Check, ServerFacts
from kizuna.store.health.examination import examine, merged
from kizuna.store.health.info import Info
from kizuna.testing import ClusterSetup, MovableClock, SentinelSetup, ServerProcess

FINE = {"notify-keyspace-events": "AK", "save": "900 1", "appendfsync": "everysec"}
VALKEY_9_1 = {"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "9.1.2"}


def facts(address: str = "db:6379", cluster: Info | None = None, **info: str) -> ServerFacts:
    return ServerFacts(
        address=address,
        info={"role": "master", **info},
        config=FINE,
        latencies_ms=[1.0],
        skew_s=0.0,
        cluster=cluster or {},
    )


# latency, clock, version


def test_latency_is_told_as_p50_and_p99() -> None:
    quick = checks.latency([*[0.1] * 98, 0.2, 40.0])

    assert quick == Check("latency", "pass", "PING takes 0.10 ms (p50), 40.00 ms (p99)")
    assert checks.latency([7.0]).verdict == "warn"
    assert checks.latency([*[0.1] * 98, 60.0, 60.0]).verdict == "warn"


@pytest.mark.parametrize(
    ("skew_s", "verdict", "found"),
    [
        (0.0034, "pass", "3 ms apart from this machine's"),
        (-0.9, "pass", "900 ms apart from this machine's"),
        (2.5, "warn", "the server's clock is 2.5s ahead of this machine's"),
        (-3600.0, "fail", "the server's clock is 3600.0s behind this machine's"),
    ],
)
def test_clocks_that_are_apart(skew_s: float, verdict: str, found: str) -> None:
    check = checks.clock(skew_s)

    assert (check.verdict, check.found) == (verdict, found)
    assert bool(check.mend) == (verdict != "pass")


def test_a_server_that_is_too_old_fails() -> None:
    assert checks.version({"redis_version": "6.0.16"}) == Check(
        "version", "fail", "Redis 6.0.16 is too old", "use Redis 6.2, Valkey 7.2 or newer"
    )
    assert checks.version(VALKEY_9_1) == Check("version", "pass", "Valkey 9.1.2")


# topology


def test_replicas_that_are_not_in_sync_are_named() -> None:
    server = facts(
        slave0="ip=10.0.0.2,port=6379,state=online,offset=1,lag=0",
        slave1="ip=10.0.0.3,port=6379,state=wait_bgsave,offset=0,lag=0",
    )
    check = checks.topology("sentinel", server)

    assert check.verdict == "warn"
    assert check.found == ("sentinel, primary db:6379, 1 of 2 replicas in sync; not in sync: 10.0.0.3:6379")


def test_sentinels_without_a_replica_have_nobody_to_promote() -> None:
    assert checks.topology("sentinel", facts()).verdict == "warn"
    assert checks.topology("single", facts()) == Check("topology", "pass", "single, primary db:6379, no replica")


@pytest.mark.parametrize(
    ("server", "found", "mend"),
    [
        (
            facts(role="slave", master_host="a", master_port="1"),
            "db:6379 is a replica of a:1",
            "point store.url at the primary",
        ),
        (
            facts(redis_mode="sentinel"),
            "db:6379 is a sentinel, not a server",
            "use redis+sentinel://host:port,host:port/name as store.url",
        ),
        (
            facts(cluster={"cluster_state": "fail", "cluster_slots_assigned": "16383", "cluster_slots_ok": "16383"}),
            "cluster, primary db:6379, 16383 of 16384 slots served, no replica",
            "give the others away as well: valkey-cli --cluster fix <host:port>",
        ),
        (
            facts(cluster={"cluster_state": "fail", "cluster_slots_assigned": "16384", "cluster_slots_ok": "10923"}),
            "cluster, primary db:6379, 10923 of 16384 slots served, no replica",
            "bring back the nodes that failed: CLUSTER NODES shows them",
        ),
    ],
)
def test_a_server_that_cannot_take_every_write_fails(server: ServerFacts, found: str, mend: str) -> None:
    assert checks.topology("single", server) == Check("topology", "fail", found, mend)


def test_a_cluster_behind_a_plain_url_is_noticed() -> None:
    whole = {"cluster_state": "ok", "cluster_slots_assigned": "16384", "cluster_slots_ok": "16384"}

    assert checks.topology("cluster", facts(cluster=whole)).verdict == "pass"
    assert checks.topology("single", facts(cluster=whole)).mend.startswith("use redis+cluster:// as store.url")


# persistence


@pytest.mark.parametrize(
    ("info", "config", "verdict", "mend"),
    [
        ({"aof_enabled": "1"}, {"appendfsync": "everysec"}, "pass", ""),
        ({"aof_enabled": "1"}, {"appendfsync": "always"}, "pass", ""),
        ({"aof_enabled": "1"}, {"appendfsync": "no"}, "warn", "CONFIG SET appendfsync everysec"),
        ({"aof_enabled": "0"}, {"save": "900 1"}, "warn", "CONFIG SET appendonly yes"),
        ({"aof_enabled": "0"}, {"save": ""}, "fail", "CONFIG SET appendonly yes"),
        ({"aof_enabled": "1"}, None, "warn", "allow it to see: ACL SETUSER <user> +config|get"),
        ({"aof_enabled": "0"}, None, "warn", "allow it to see: ACL SETUSER <user> +config|get"),
        ({"rdb_last_bgsave_status": "err"}, {}, "fail", "see the server's log for the reason, then: BGSAVE"),
        (
            {"aof_enabled": "1", "aof_last_write_status": "err"},
            {},
            "fail",
            "make room on the server's disk; it takes writes again by itself",
        ),
    ],
)
def test_what_a_crash_or_a_power_cut_would_cost(
    info: Info, config: dict[str, str] | None, verdict: str, mend: str
) -> None:
    check = checks.persistence(info, config)

    assert (check.verdict, check.mend) == (verdict, mend)


# memory, clients, eviction, notifications


@pytest.mark.parametrize(("used", "verdict"), [(800, "pass"), (801, "warn"), (900, "warn"), (901, "fail")])
def test_memory_is_measured_against_its_limit(used: int, verdict: str) -> None:
    check = checks.memory({"used_memory": str(used), "maxmemory": "1000", "total_system_memory": "99999"})

    assert check.verdict == verdict
    assert check.mend == ("" if verdict == "pass" else f"CONFIG SET maxmemory {2 * used}")


def test_without_maxmemory_the_machine_is_the_limit_and_the_mend() -> None:
    check = checks.memory({"used_memory": "950", "maxmemory": "0", "total_system_memory": "1000"})

    assert check.found == "950 B of 1000 B used (95%; the machine's memory, since maxmemory is 0)"
    assert (check.verdict, check.mend) == ("fail", "give the machine more memory, or let data end sooner")
    assert checks.memory({"used_memory": "1536"}).found == "1.5 KiB used; the server tells no limit"


@pytest.mark.parametrize(("connected", "verdict"), [(80, "pass"), (81, "warn"), (91, "fail")])
def test_room_for_more_clients(connected: int, verdict: str) -> None:
    assert checks.clients({"connected_clients": str(connected), "maxclients": "100"}).verdict == verdict


@pytest.mark.parametrize(
    ("policy", "verdict"), [("noeviction", "pass"), ("volatile-lru", "warn"), ("allkeys-lru", "fail")]
)
def test_only_a_server_that_evicts_nothing_passes(policy: str, verdict: str) -> None:
    assert checks.eviction({"maxmemory_policy": policy}).verdict == verdict


@pytest.mark.parametrize(
    ("flags", "missing", "command"),
    [
        ("", "$Kgx", "CONFIG SET notify-keyspace-events K$gx"),
        ("Ex", "$Kg", "CONFIG SET notify-keyspace-events KE$gx"),
        ("A", "K", "CONFIG SET notify-keyspace-events AK"),
    ],
)
def test_missing_notification_flags_are_named_and_those_of_others_kept(flags: str, missing: str, command: str) -> None:
    check = checks.notifications({"notify-keyspace-events": flags}, None, 0.25)

    assert check.verdict == "warn"
    assert f"{missing} missing" in check.found
    assert "units look every 0.25 s instead of being told" in check.found
    assert check.mend == command


@pytest.mark.parametrize("config", [None, {"notify-keyspace-events": "AKE"}])
def test_changes_that_do_not_reach_us_are_a_warning_whatever_the_flags_say(config: dict[str, str] | None) -> None:
    check = checks.notifications(config, checks.Unheard("no permission", "grant it"), 0.25)

    assert (check.verdict, check.mend) == ("warn", "grant it")
    assert "do not reach this user (no permission): units look every 0.25 s" in check.found


def test_changes_that_reach_us_are_enough_where_the_flags_are_not_seen() -> None:
    assert checks.notifications(None, None, 0.25).verdict == "pass"


# slow subscribers, security


@pytest.mark.parametrize(
    ("info", "config", "mend"),
    [
        (VALKEY_9_1, {"min-string-size-avoid-copy-reply": "2147483647"}, ""),
        (VALKEY_9_1, {"min-string-size-avoid-copy-reply": "16384"},
         "CONFIG SET min-string-size-avoid-copy-reply 2147483647"),
        (VALKEY_9_1 | {"valkey_version": "9.0.1"}, {"min-string-size-avoid-copy-reply": "16384"}, ""),
        ({"redis_version": "8.0.0"}, {"client-output-buffer-limit": "normal 0 0 0 pubsub 33554432 8388608 60"}, ""),
        ({"redis_version": "8.0.0"}, {"client-output-buffer-limit": "normal 0 0 0 pubsub 0 0 0"},
         'CONFIG SET client-output-buffer-limit "pubsub 33554432 8388608 60"'),
    ],
)  # fmt: skip
def test_slow_subscribers_must_be_bounded(info: Info, config: dict[str, str], mend: str) -> None:
    check = checks.slow_subscribers(info, config)

    assert (check.verdict, check.mend) == ("warn" if mend else "pass", mend)


@pytest.mark.parametrize(
    ("hosts", "tls", "password", "found"),
    [
        ([], False, False, "the server is on this machine"),
        (["127.0.0.1", "::1", "localhost", "/run/valkey.sock"], False, False, "the server is on this machine"),
        (["10.0.0.1"], True, True, "TLS and a password"),
        (["db.example"], True, False, "no password over the network"),
        (["127.0.0.1", "10.0.0.1"], False, True, "no TLS over the network"),
        (["10.0.0.1"], False, False, "no TLS and no password over the network"),
    ],
)
def test_what_crosses_the_network_should_be_protected(hosts: list[str], tls: bool, password: bool, found: str) -> None:
    check = checks.security(hosts, tls=tls, password=password)

    assert check.found == found
    assert (check.verdict == "pass") == (check.mend == "")


# several servers


def test_what_all_primaries_share_is_said_once_and_what_is_wrong_with_one_is_said_of_it() -> None:
    servers = [facts("a:1"), facts("b:2")]
    good, bad = Check("x", "pass", "fine"), Check("x", "fail", "broken", "mend it")

    assert merged(servers, [good, good]) == [good]
    assert merged(servers, [good, bad]) == [Check("x", "fail", "b:2: broken", "mend it")]
    assert merged(servers, [good, Check("x", "pass", "good")]) == [Check("x", "pass", "a:1: fine; b:2: good")]


# on real servers


def settings_for(url: str) -> Settings:
    return Settings(store=StoreSettings(url=url, timeout_s=20))


async def verdicts(url: str, clock: MovableClock | None = None) -> dict[str, str]:
    return {check.check: check.verdict for check in await examine(settings_for(url), clock)}


async def test_a_healthy_cluster_passes_on_all_primaries(cluster: ClusterSetup) -> None:
    found = {check.check: check for check in await examine(settings_for(cluster.url))}

    assert found["topology"].verdict == "pass"
    assert found["topology"].found.count("16384 of 16384 slots served") == 3
    assert found["notifications"].verdict == "pass"


async def test_a_node_of_a_cluster_that_is_set_up_otherwise_is_named(fresh_cluster: ClusterSetup) -> None:
    odd = fresh_cluster.servers[2]
    odd.call("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")

    (check,) = [check for check in await examine(settings_for(fresh_cluster.url)) if check.check == "eviction"]

    assert check.verdict == "warn"
    assert check.found.startswith(f"{odd.address}: volatile-ttl")


async def test_behind_sentinels_the_replica_is_in_sync(sentinel: SentinelSetup) -> None:
    found = {check.check: check for check in await examine(settings_for(sentinel.url))}

    assert found["topology"] == Check(
        "topology", "pass", f"sentinel, primary {sentinel.primary.address}, 1 of 1 replicas in sync"
    )


async def test_a_replica_behind_a_plain_url_fails(sentinel: SentinelSetup) -> None:
    assert (await verdicts(sentinel.replica.url))["topology"] == "fail"


async def test_the_skew_is_measured_against_this_machines_clock(server: ServerProcess) -> None:
    server_s, _ = server.call("TIME")

    assert (await verdicts(server.url, MovableClock(float(server_s) - 30)))["clock"] == "warn"
    assert (await verdicts(server.url, MovableClock(float(server_s) + 3600)))["clock"] == "fail"
    assert (await verdicts(server.url))["clock"] == "pass"


async def test_a_user_who_may_not_see_the_configuration_gets_the_other_checks() -> None:
    with ServerProcess(users={"app": "on >secret ~* &* +@all -config"}, persistent=True) as server:
        found = await verdicts(f"redis://app:secret@{server.address}")

    found.pop("latency")  # of a busy machine
    assert [name for name, verdict in found.items() if verdict == "warn"] == [
        "persistence",
        "notifications",
        "slow subscribers",
    ]
    assert "fail" not in found.values()


async def test_a_user_who_may_not_see_info_is_told_what_to_grant() -> None:
    with ServerProcess(users={"app": "on >secret ~* &* +@all -info"}) as server:
        (check,) = await examine(settings_for(f"redis://app:secret@{server.address}"))

    assert (check.check, check.verdict, check.mend) == (
        "permissions",
        "fail",
        "allow it: ACL SETUSER app +info",
    )
