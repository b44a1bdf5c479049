from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import UNAVAILABLE
from kizuna.cli.status import duration, persistence
from kizuna.testing import ClusterSetup, ServerProcess
from kizuna.testing.servers import free_port


def kizuna(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_machines_get_the_documented_names(server: ServerProcess) -> None:
    ended = kizuna("--url", server.url, "status", "--json")
    facts = json.loads(ended.stdout)

    assert ended.exit_code == 0
    assert set(facts["memory"]) == {"used", "peak", "fragmentation"}
    assert set(facts["clients"]) == {"connected", "blocked"}
    assert set(facts["operations"]) == {"commandsProcessed", "inputBytes", "outputBytes"}
    assert set(facts["keys"]) == {"expired", "evicted"}
    assert set(facts["performance"]) == {"hitRate", "keyspaceHits", "keyspaceMisses"}
    assert set(facts["health"]) == {"status", "responseTime", "memoryUsage", "uptime", "connectedClients"}
    assert facts["health"]["status"] == "healthy"
    assert facts["memoryLimit"] == int(server.info("memory")["total_system_memory"])
    assert facts["primaries"] == [server.address]


def test_people_get_one_screen(server: ServerProcess) -> None:
    ended = kizuna("--url", server.url, "status")
    lines = dict(line.split("  ", 1) for line in ended.stdout.splitlines())

    assert (ended.exit_code, ended.stderr) == (0, "")
    assert len(lines) < 20
    assert lines["server"].strip() == server.url
    assert "Valkey" in lines["version"]
    assert f"primary {server.address}" in lines["topology"]
    assert "healthy, answers in" in lines["health"]


def test_a_password_in_the_url_is_not_shown() -> None:
    with ServerProcess(password="secret") as server:
        ended = kizuna("--url", f"redis://:secret@{server.address}", "status", "--json")

    assert ended.exit_code == 0
    assert "secret" not in ended.output
    assert json.loads(ended.stdout)["url"] == f"redis://:***@{server.address}"


def test_of_a_cluster_all_primaries_are_told(cluster: ClusterSetup) -> None:
    facts = json.loads(kizuna("--url", cluster.url, "status", "--json").stdout)

    assert sorted(facts["primaries"]) == sorted(server.address for server in cluster.servers)
    assert facts["topology"] == "cluster"


def test_a_server_that_we_would_refuse_is_shown_all_the_same(fresh_server: ServerProcess) -> None:
    fresh_server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")

    assert kizuna("--url", fresh_server.url, "status").exit_code == 0


def test_where_nobody_answers_it_ends_with_69_and_a_sentence() -> None:
    port = free_port()
    ended = kizuna("--url", f"redis://127.0.0.1:{port}", "--set", "store.timeout_s=1", "status")

    assert ended.exit_code == UNAVAILABLE
    assert ended.stdout == ""
    assert ended.stderr == (
        f"Error: no connection (Connection refused) at 127.0.0.1:{port} (not sent);"
        " is the server running there? `kizuna server start` runs the embedded one\n"
    )


def test_looking_does_not_start_an_embedded_server(server_folder: Path) -> None:
    ended = kizuna("--set", f"embedded.folder={server_folder}", "status")

    assert ended.exit_code == UNAVAILABLE
    assert ended.stderr == (
        f"Error: no embedded server runs at {server_folder} (not sent);"
        " `kizuna up` or `kizuna server start` starts it\n"
    )
    assert not server_folder.exists()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7200, "2 h 0 min"), (3 * 86400 + 4 * 3600 + 59, "3 d 4 h")],
)
def test_durations_are_told_in_two_units(seconds: int, text: str) -> None:
    assert duration(seconds) == text


def test_a_disk_that_fails_is_shouted_about() -> None:
    assert persistence({"aof_enabled": "1", "aof_last_write_status": "ok"}) == "append-only file"
    assert "FAILED" in persistence({"aof_enabled": "1", "aof_last_write_status": "err"})
