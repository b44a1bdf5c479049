from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import BAD_SETTINGS, CONFLICT, FAILURE, NOT_FOUND, OK, UNAVAILABLE, USAGE
from kizuna.testing import ClusterSetup, ServerProcess


def kizuna(server: ServerProcess | ClusterSetup, *arguments: str, options: tuple[str, ...] = ()) -> Result:
    return CliRunner().invoke(command, ["--url", server.url, *options, "keys", *arguments])


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def filled() -> Any:
    """A server with a small namespace, some things in it that are wrong, and somebody else's keys beside it."""
    with ServerProcess() as server, server.connect() as conversation:
        for written in (
            ("RPUSH", "poppo:queue:high", "a", "b"),
            ("RPUSH", "poppo:queue:low", "c"),
            ("SET", "poppo:lock:issue:1", "x", "EX", 600),
            ("SET", "poppo:lock:backup:daily", "x"),
            ("SET", "poppo:flags:debug", "on", "EX", 600),
            ("SADD", "poppo:issue:status:7", "not a string"),
            ("SET", "poppo:state:unified", "x"),
            ("SET", b"poppo:temp:\xff\n", "x", "EX", 600),
            ("SET", "poppobuilder:queue:high", "x"),
            ("SET", "other:a", "x"),
        ):
            conversation.call(*written)
        yield server


# ls


def test_keys_are_listed_in_order_with_what_they_are(filled: ServerProcess) -> None:
    ended = kizuna(filled, "ls")
    lines = ended.stdout.splitlines()

    assert ended.exit_code == OK
    assert lines[0].split() == ["TYPE", "ENDS", "IN", "SIZE", "KEY"]
    names = [line.split()[-1] for line in lines[1:]]
    assert names == sorted(names)
    assert len(names) == 8
    assert r"poppo:temp:\xff\n" in names
    assert "other:a" not in names
    assert next(line for line in lines if "queue:high" in line).split()[:2] == ["list", "-"]
    assert ended.stderr == "8 keys.\n"


def test_a_long_list_comes_in_pages(filled: ServerProcess) -> None:
    first = kizuna(filled, "ls", "--limit", "3")
    told = first.stderr.strip()
    assert told == "3 of 8 keys; the next: --after 'poppo:lock:backup:daily'"

    second = kizuna(filled, "ls", "--limit", "10", "--after", "poppo:lock:backup:daily", "--json")
    assert [row["key"] for row in rows(second)][:2] == ["poppo:lock:issue:1", "poppo:queue:high"]
    assert len(rows(second)) == 5


def test_machines_get_all_keys_as_they_are_found(filled: ServerProcess) -> None:
    found = rows(kizuna(filled, "ls", "--json"))

    assert len(found) == 8
    by_key = {row["key"]: row for row in found}
    assert by_key["poppo:queue:high"]["type"] == "list"
    assert by_key["poppo:queue:high"]["ttl_ms"] is None
    assert by_key["poppo:queue:high"]["bytes"] > 0
    assert 500_000 < by_key["poppo:lock:issue:1"]["ttl_ms"] <= 600_000


def test_all_at_once_comes_unsorted_in_columns(filled: ServerProcess) -> None:
    assert len(kizuna(filled, "ls", "--limit", "0").stdout.splitlines()) == 8


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["queue"], ["poppo:queue:high", "poppo:queue:low"]),
        (["lock:issue:*", "flags"], ["poppo:flags:debug", "poppo:lock:issue:1"]),
        (["poppo:queue:l*"], ["poppo:queue:low"]),
        (["other:*"], []),
        (["--anywhere", "other:*"], ["other:a"]),
    ],
)
def test_a_pattern_is_meant_below_the_roots(filled: ServerProcess, patterns: list[str], names: list[str]) -> None:
    assert sorted(row["key"] for row in rows(kizuna(filled, "ls", "--json", *patterns))) == names


def test_where_nothing_matches_it_says_so(filled: ServerProcess) -> None:
    assert kizuna(filled, "ls", "nope").stderr == "No key matches nope below kizuna, poppo, muf or harca.\n"


def test_looking_does_not_start_an_embedded_server(server_folder: Path) -> None:
    ended = CliRunner().invoke(command, ["--set", f"embedded.folder={server_folder}", "keys", "ls"])

    assert ended.exit_code == UNAVAILABLE
    assert "no embedded server runs" in ended.stderr


# tree and stat


def test_the_tree_counts_by_parts(filled: ServerProcess) -> None:
    ended = kizuna(filled, "tree", "--depth", "2")
    lines = [line.rstrip() for line in ended.stdout.splitlines()]

    assert lines[0].split()[:2] == ["poppo", "8"]
    assert "├─ lock           2    50% end  string" in lines
    assert "├─ queue          2   none end  list" in lines
    assert lines[-1].startswith("└─ temp")
    counted = {tuple(row["path"]): row for row in rows(kizuna(filled, "tree", "--json"))}
    assert counted["poppo", "lock"] == {
        "path": ["poppo", "lock"],
        "keys": 2,
        "with_ttl": 1,
        "types": {"string": 2},
    }


def test_memory_is_told_by_family_with_the_biggest_keys_and_what_is_wrong(filled: ServerProcess) -> None:
    ended = kizuna(filled, "stat", "--biggest", "2")

    assert ended.exit_code == OK
    assert "coordination  QUEUE         2" in ended.stdout
    assert "2 in no family: " in ended.stdout
    assert "1 without an end, though declared to expire: poppo:lock:backup:daily" in ended.stdout
    assert "8 keys, 5 without a time to live. coordination: " in ended.stderr
    (facts,) = rows(kizuna(filled, "stat", "--json"))
    assert facts["keys"] == 8
    assert facts["problems"] == {"never ends": 1, "ends": 1, "wrong type": 1, "undeclared": 2}
    assert sum(family["bytes"] for family in facts["families"]) == facts["bytes"]
    assert facts["biggest"][0]["bytes"] >= facts["biggest"][-1]["bytes"]


def test_a_sample_tells_its_error(filled: ServerProcess) -> None:
    (facts,) = rows(kizuna(filled, "stat", "--sample", "2", "--json"))

    assert facts["keys"] == 8
    assert facts["error_bytes"] > 0


# lint and describe


def test_lint_names_everything_that_is_not_as_declared(filled: ServerProcess) -> None:
    ended = kizuna(filled, "lint", "--json")

    assert ended.exit_code == FAILURE
    assert {(row["key"], row["problem"]) for row in rows(ended)} == {
        ("poppo:lock:backup:daily", "never ends"),
        ("poppo:flags:debug", "ends"),
        ("poppo:issue:status:7", "wrong type"),
        ("poppo:state:unified", "undeclared"),
        (r"poppo:temp:\xff\n", "undeclared"),
    }
    for_people = kizuna(filled, "lint", "--limit", "1")
    assert len(for_people.stdout.splitlines()) == 1
    assert "8 keys looked at: " in for_people.stderr
    assert "--limit 0 names them all." in for_people.stderr
    assert "1 more begin like a root and are not below it; --beside names them." in for_people.stderr


def test_a_root_that_is_misspelt_is_found_by_its_beginning(filled: ServerProcess) -> None:
    ended = kizuna(filled, "lint", "--beside", "--json")

    assert ("poppobuilder:queue:high", "beside a root") in {(row["key"], row["problem"]) for row in rows(ended)}


def test_where_all_is_as_declared_lint_ends_with_0(filled: ServerProcess) -> None:
    ended = kizuna(filled, "lint", "queue")

    assert ended.exit_code == OK
    assert ended.stderr == "2 keys looked at: all as declared.\n"


def test_a_key_is_described_with_or_without_its_root(filled: ServerProcess) -> None:
    for name in ("poppo:queue:high", "queue:high"):
        ended = kizuna(filled, "describe", name)
        told = dict(line.split("  ", 1) for line in ended.stdout.splitlines())
        assert ended.exit_code == OK
        assert told["key"].strip() == "poppo:queue:high"
        assert told["family"].strip() == "QUEUE of coordination"
        assert told["names"].strip() == "priority = high"
        assert told["now"].strip().startswith("list of 2 items, ")
        assert told["now"].endswith("does not end")


def test_a_family_is_described_by_name_or_pattern(filled: ServerProcess) -> None:
    for name in ("queue", "QUEUE", "queue:<priority>", "poppo:queue:<priority>"):
        (facts,) = rows(kizuna(filled, "describe", name, "--json"))
        assert (facts["family"], facts["pattern"], facts["type"]) == ("QUEUE", "poppo:queue:<priority>", "list")


def test_what_nobody_declared_is_described_as_such(filled: ServerProcess) -> None:
    ended = kizuna(filled, "describe", "poppo:state:unified")
    assert ended.exit_code == OK
    assert "none: nobody has declared it" in ended.stdout

    ended = kizuna(filled, "describe", "nothing:at:all")
    assert ended.exit_code == NOT_FOUND
    assert "there is no such key" in ended.stdout

    ended = kizuna(filled, "describe", "lock:of:nobody")
    assert ended.exit_code == OK
    assert "LOCK of coordination" in ended.stdout


# backup, clean, restore


def test_back_up_clean_and_restore(fresh_server: ServerProcess, tmp_path: Path) -> None:
    server, file = fresh_server, str(tmp_path / "b")
    for number in range(30):
        server.call("SET", f"poppo:temp:{number}", number, "EX", 600)
    server.call("SET", "other:a", "foreign")

    saved = kizuna(server, "backup", file)
    assert (saved.exit_code, saved.stdout) == (OK, "")
    assert saved.stderr.startswith(f"30 keys in {file}, ")
    assert kizuna(server, "backup", file).exit_code == FAILURE
    assert rows(kizuna(server, "backup", file, "--force", "temp:1*", "--json"))[0]["keys"] == 11
    kizuna(server, "backup", file, "--force")

    dry = kizuna(server, "clean", "temp:1*")
    assert dry.stdout.split() == ["KEYS", "FAMILY", "11", "poppo:temp:<name...>"]
    assert dry.stderr == "11 keys would go; nothing was removed. --yes removes them.\n"
    assert server.call("DBSIZE") == 31
    assert kizuna(server, "clean", "*", "--dry-run", "--yes").exit_code == OK
    assert server.call("DBSIZE") == 31
    assert (
        kizuna(server, "clean", "other:*", "--yes").stderr
        == "No key matches other:* below kizuna, poppo, muf or harca.\n"
    )
    assert rows(kizuna(server, "clean", "*", "--yes", "--json")) == [
        {"matching": 30, "families": {"poppo:temp:<name...>": 30}, "removed": 30}
    ]
    assert server.call("DBSIZE") == 1

    back = kizuna(server, "restore", file)
    assert (back.exit_code, back.stderr) == (OK, "30 keys restored.\n")
    assert 500 < server.call("TTL", "poppo:temp:3") <= 600
    again = kizuna(server, "restore", file)
    assert again.exit_code == CONFLICT
    assert "and 29 more exist already, and nothing was written" in again.stderr
    assert "30 existed already" in kizuna(server, "restore", file, "--skip").stderr
    elsewhere = kizuna(server, "restore", file, "--root", "poppo=copy", "--json")
    assert rows(elsewhere)[0]["restored"] == 30
    assert server.call("GET", "copy:temp:3") == b"3"
    assert server.call("GET", "other:a") == b"foreign"


def test_a_person_is_asked_before_anything_goes(fresh_server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kizuna.cli.keys.cleaning.somebody_is_there", lambda: True)
    fresh_server.call("SET", "poppo:temp:a", 1)
    line = ["--url", fresh_server.url, "keys", "clean", "temp"]

    assert "nothing was removed" in CliRunner().invoke(command, line, input="n\n").stderr
    assert fresh_server.call("DBSIZE") == 1
    agreed = CliRunner().invoke(command, line, input="y\n")
    assert "Remove 1 key? [y/N]" in agreed.stderr
    assert "1 key removed." in agreed.stderr
    assert fresh_server.call("DBSIZE") == 0


@pytest.mark.parametrize("given", ["poppo", "=copy", "poppo=", "{poppo:1}=x", "poppo=a b", "muf=copy/", "a:=b"])
def test_a_root_that_cannot_be_is_refused(filled: ServerProcess, tmp_path: Path, given: str) -> None:
    ended = kizuna(filled, "restore", str(tmp_path / "b"), "--root", given)

    assert ended.exit_code == USAGE
    assert "--root" in ended.stderr


def test_a_damaged_backup_gets_a_sentence(filled: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "b"
    kizuna(filled, "backup", str(file))
    file.write_bytes(file.read_bytes()[:-20])

    ended = kizuna(filled, "restore", str(file), "--replace")

    assert ended.exit_code == FAILURE
    assert ended.stderr.startswith(f"Error: {file} cannot be read as a backup: the file ends within")
    salvaged = kizuna(filled, "restore", str(file), "--root", "poppo=saved", "--salvage")
    assert "8 keys restored.\ndamaged: the file ends within" in salvaged.stderr
    assert kizuna(filled, "clean", "saved:*", "--anywhere", "--yes").stderr == "8 keys removed.\n"


def test_a_file_that_cannot_be_written_gets_a_sentence(filled: ServerProcess, tmp_path: Path) -> None:
    ended = kizuna(filled, "backup", str(tmp_path / "no" / "b"))

    assert ended.exit_code == FAILURE
    assert ended.stderr == f"Error: {tmp_path}/no/b was not written: No such file or directory\n"


def test_on_a_cluster_all_primaries_and_shards_are_looked_at(cluster: ClusterSetup, tmp_path: Path) -> None:
    options = ("--set", "coordination.shards=6")
    addresses = {server.port: server for server in cluster.servers}
    for shard in range(6):
        key = f"{{poppo:{shard}}}:queue:high"
        owner = cluster.owner_of(cluster.slot_of(key))
        addresses[owner.port].call("RPUSH", key, shard)

    assert len(rows(kizuna(cluster, "ls", "queue", "--json", options=options))) == 6
    assert kizuna(cluster, "tree", "--depth", "1", options=options).stdout.split()[:2] == ["{poppo:*}", "6"]
    assert kizuna(cluster, "lint", options=options).exit_code == OK
    assert "a shard that is not in use" in kizuna(cluster, "lint").stdout
    file = str(tmp_path / "b")
    kizuna(cluster, "backup", file, options=options)
    assert rows(kizuna(cluster, "clean", "*", "--yes", "--json", options=options))[0]["removed"] == 6
    assert rows(kizuna(cluster, "restore", file, "--json", options=options))[0]["restored"] == 6
    assert "list of 1 items" in kizuna(cluster, "describe", "queue:high", options=options).stdout
    assert rows(kizuna(cluster, "clean", "*", "--yes", "--json", options=options))[0]["removed"] == 6


def test_the_server_is_never_asked_for_all_keys_at_once(fresh_server: ServerProcess, tmp_path: Path) -> None:
    fresh_server.call("SET", "poppo:temp:a", 1)
    for arguments in (["ls"], ["tree"], ["stat"], ["lint"], ["describe", "temp:a"], ["backup", str(tmp_path / "b")]):
        kizuna(fresh_server, *arguments)
    kizuna(fresh_server, "clean", "*", "--yes")
    kizuna(fresh_server, "restore", str(tmp_path / "b"))

    asked = fresh_server.info("commandstats")
    assert "cmdstat_scan" in asked
    assert "cmdstat_keys" not in asked
    assert "cmdstat_del" not in asked or asked["cmdstat_del"].startswith("calls=1,")  # the note of the restore


# units


@pytest.fixture(scope="module")
def with_units() -> Any:
    """A server with a request of an outsider who forgot its end, and other paths, beside a key of coordination."""
    with ServerProcess() as server, server.connect() as conversation:
        for written in (
            ("SET", "muf/unit_a/req/42", "hello", "EX", 600),
            ("SET", "muf/unit_a/req/43", "hello"),
            ("SET", "muf/unit_b/res/detector.1", "there", "EX", 600),
            ("SET", "muf/unit_b/keep/presence.p1", "{}", "EX", 600),
            ("SET", "poppo:lock:issue:1", "x", "EX", 600),
            ("SET", "mufti/a/b/c", "somebody else's"),
        ):
            conversation.call(*written)
        yield server


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ([], ["muf/unit_a/req/42", "muf/unit_a/req/43", "muf/unit_b/keep/presence.p1", "muf/unit_b/res/detector.1",
              "poppo:lock:issue:1"]),
        (["muf"], ["muf/unit_a/req/42", "muf/unit_a/req/43", "muf/unit_b/keep/presence.p1",
                   "muf/unit_b/res/detector.1"]),
        (["unit_a"], ["muf/unit_a/req/42", "muf/unit_a/req/43"]),
        (["muf/unit_b/res"], ["muf/unit_b/res/detector.1"]),
        (["*/req/*2"], ["muf/unit_a/req/42"]),
        (["unit_a/req/43"], ["muf/unit_a/req/43"]),
        (["poppo"], ["poppo:lock:issue:1"]),
    ],
)  # fmt: skip
def test_paths_of_units_are_listed_below_their_root(
    with_units: ServerProcess, patterns: list[str], names: list[str]
) -> None:
    assert sorted(row["key"] for row in rows(kizuna(with_units, "ls", "--json", *patterns))) == names


def test_the_tree_and_the_memory_of_units_are_told(with_units: ServerProcess) -> None:
    drawn = [line.split()[:3] for line in kizuna(with_units, "tree", "muf").stdout.splitlines()]
    assert drawn[:3] == [["muf", "4", "75%"], ["├─", "unit_a", "2"], ["│", "└─", "req"]]

    (facts,) = rows(kizuna(with_units, "stat", "muf", "--json"))
    assert {(family["component"], family["family"], family["keys"]) for family in facts["families"]} == {
        ("units", "REQUEST", 2),
        ("units", "RESPONSE", 1),
        ("units", "KEEP", 1),
    }


def test_a_request_that_never_ends_is_found_by_lint(with_units: ServerProcess) -> None:
    ended = kizuna(with_units, "lint", "--json")

    assert ended.exit_code == FAILURE
    assert rows(ended) == [
        {
            "key": "muf/unit_a/req/43",
            "problem": "never ends",
            "what": "it has no time to live, and REQUEST is declared to expire",
        }
    ]
    assert "1 more begin like a root and are not below it" in kizuna(with_units, "lint").stderr


@pytest.mark.parametrize("name", ["muf/unit_a/req/42", "unit_a/req/42"])
def test_a_path_is_described_with_or_without_its_root(with_units: ServerProcess, name: str) -> None:
    (facts,) = rows(kizuna(with_units, "describe", name, "--json"))

    assert (facts["key"], facts["family"], facts["pattern"]) == ("muf/unit_a/req/42", "REQUEST", "muf/<unit>/req/<id>")
    assert facts["names"] == {"unit": "unit_a", "id": "42"}
    assert facts["length"] == len("hello")


def test_a_path_that_is_not_there_is_described_by_its_family(with_units: ServerProcess) -> None:
    ended = kizuna(with_units, "describe", "unit_x/err/7")

    assert ended.exit_code == OK
    assert "muf/unit_x/err/7" in ended.stdout
    assert "ERROR of units" in ended.stdout
    (facts,) = rows(kizuna(with_units, "describe", "<unit>/keep/<id>", "--json"))
    assert (facts["family"], facts["pattern"]) == ("KEEP", "muf/<unit>/keep/<id>")


def test_paths_are_backed_up_cleaned_and_restored_to_another_root(fresh_server: ServerProcess, tmp_path: Path) -> None:
    server, file = fresh_server, str(tmp_path / "b")
    for number in range(3):
        server.call("SET", f"muf/unit_a/keep/{number}", number, "EX", 600)
    server.call("SET", "poppo:temp:a", 1, "EX", 600)
    server.call("SET", "mufti/a/b/c", "somebody else's")

    assert rows(kizuna(server, "backup", file, "muf", "--json"))[0]["keys"] == 3
    dry = kizuna(server, "clean", "unit_a", "--dry-run")
    assert dry.stdout.split() == ["KEYS", "FAMILY", "3", "muf/<unit>/keep/<id>"]
    assert server.call("DBSIZE") == 5
    assert rows(kizuna(server, "clean", "muf", "--yes", "--json"))[0]["removed"] == 3
    assert server.call("EXISTS", "mufti/a/b/c", "poppo:temp:a") == 2

    assert rows(kizuna(server, "restore", file, "--root", "muf=copy", "--json"))[0]["restored"] == 3
    assert server.call("GET", "copy/unit_a/keep/2") == b"2"
    assert 500 < server.call("TTL", "copy/unit_a/keep/2") <= 600
    at_copy = ("--set", "roots.units=copy")
    assert kizuna(server, "lint", options=at_copy).stderr.startswith("4 keys looked at: all as declared.")
    assert rows(kizuna(server, "clean", "copy", "--yes", "--json", options=at_copy))[0]["removed"] == 3


def test_on_a_cluster_paths_are_found_wherever_they_are(cluster: ClusterSetup, tmp_path: Path) -> None:
    addresses, file = {server.port: server for server in cluster.servers}, str(tmp_path / "b")
    for number in range(12):
        path = f"muf/unit_a/req/{number}"
        addresses[cluster.owner_of(cluster.slot_of(path)).port].call("SET", path, number, "EX", 600)

    assert len(rows(kizuna(cluster, "ls", "muf", "--json"))) == 12
    assert kizuna(cluster, "lint", "muf").exit_code == OK
    assert rows(kizuna(cluster, "backup", file, "unit_a", "--json"))[0]["keys"] == 12
    assert rows(kizuna(cluster, "clean", "muf", "--yes", "--json"))[0]["removed"] == 12
    assert rows(kizuna(cluster, "restore", file, "--json"))[0]["restored"] == 12
    assert rows(kizuna(cluster, "clean", "muf", "--yes", "--json"))[0]["removed"] == 12


def test_the_acl_line_of_units_says_what_it_cannot_grant(with_units: ServerProcess) -> None:
    of_units = kizuna(with_units, "acl", "units")

    assert " ~muf/*/req/* " in of_units.stdout
    assert "poppo" not in of_units.stdout
    assert "`kizuna units acl NAME`" in of_units.stderr
    assert "kizuna units acl" not in kizuna(with_units, "acl", "coordination").stderr
    operator = kizuna(with_units, "acl", "--operator")
    assert " ~muf/* " in operator.stdout
    assert "kizuna units acl" not in operator.stderr


# acl and check


def test_the_acl_line_is_for_the_component_asked_for(filled: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush\n")
    of_store = kizuna(filled, "acl", "store", "--user", "watcher").stdout
    of_all = kizuna(filled, "acl", "--password-file", str(tmp_path / "secret"))

    assert of_store.startswith("ACL SETUSER watcher reset on -@all ")
    assert "poppo" not in of_store
    assert "~poppo:lock:*" in of_all.stdout
    assert "hush" not in of_all.stdout
    assert "before it has a password" not in of_all.stderr
    assert "~poppo:* " in kizuna(filled, "acl", "--operator").stdout
    assert kizuna(filled, "acl", "--acl-file").stdout.startswith("user kizuna on ")
    assert "there is no component 'queues'" in kizuna(filled, "acl", "queues").stderr


def test_a_file_of_the_namespace_is_checked(filled: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "namespace.json"
    redis: dict[str, Any] = {
        "namespace": "poppo",
        "keyPatterns": {"issue": "poppo:issue:{type}:{number}"},
        "channels": {"mirinRequests": "poppo:channel:mirin:requests"},
        "ttl": {"heartbeat": 1800},
    }
    file.write_text(json.dumps({"redis": redis}))
    assert kizuna(filled, "check", str(file)).stdout == (
        f"{file} is right. root: poppo, key patterns: 1, channels: 1, times: 1\n"
    )

    redis["keyPatterns"]["queue"] = "poppo:kew:{priority}"
    file.write_text(json.dumps({"redis": redis}))
    ended = kizuna(filled, "check", str(file))
    assert ended.exit_code == BAD_SETTINGS
    assert "poppo:kew:{priority}" in ended.stderr


# patterns that fit nothing


@pytest.mark.parametrize("verb", ["ls", "tree", "stat", "lint"])
def test_a_pattern_that_fits_nothing_is_told(filled: ServerProcess, verb: str) -> None:
    ended = kizuna(filled, verb, "isues:*")

    assert (ended.exit_code, ended.stdout) == (OK, "")
    assert ended.stderr == "No key matches isues:* below kizuna, poppo, muf or harca.\n"


def test_an_empty_backup_is_told(filled: ServerProcess, tmp_path: Path) -> None:
    ended = kizuna(filled, "backup", str(tmp_path / "empty.kizuna"), "isues:*")

    assert ended.stderr.splitlines()[-1] == "No key matches isues:* below kizuna, poppo, muf or harca."


def test_a_restore_that_skips_and_replaces_is_refused(filled: ServerProcess, tmp_path: Path) -> None:
    ended = kizuna(filled, "restore", str(tmp_path / "any.kizuna"), "--skip", "--replace")

    assert ended.exit_code == USAGE
    assert "--skip and --replace exclude each other" in ended.stderr


def test_an_operator_can_have_keys_described_by_their_short_names(filled: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("geheim")
    granting = kizuna(filled, "acl", "--operator", "--user", "op", "--password-file", str(tmp_path / "secret"))
    filled.call(*granting.stdout.split())
    as_operator = ("--set", "store.username=op", "--set", "store.password=geheim")
    ended = kizuna(filled, "describe", "queue:high", options=as_operator)

    assert ended.exit_code == OK
    assert "list of 2 items" in ended.stdout


# matchmaking, which has no prefix unless one is set: every key on the server begins like its keys

ID = "dbsgf9hksdudin8907v0"
THEIRS = {"session", "cart:7", "assign:homework", "dbsgf9hksdudin8907", "allUsers", "x:allTickets"}
OURS = {"allTickets", "proposed_ticket_ids", ID, f"assign:{ID}", "rueidislock:0:fetchTicketsLock"}


@pytest.fixture
def shared() -> Any:
    """A server with tickets on it, and keys of somebody else."""
    with ServerProcess() as server, server.connect() as conversation:
        for key in THEIRS:
            conversation.call("SET", key, "theirs")
        conversation.call("SADD", "allTickets", ID)
        conversation.call("ZADD", "proposed_ticket_ids", 1_704_067_200, ID)
        for key in (ID, f"assign:{ID}", "rueidislock:0:fetchTicketsLock"):
            conversation.call("SET", key, "x", "EX", 600)
        yield server


def listed(result: Result) -> set[str]:
    return {row["key"] for row in rows(result)}


def test_without_a_prefix_only_what_is_recognisably_ours_is_listed(shared: ServerProcess) -> None:
    assert listed(kizuna(shared, "ls", "--json")) == OURS
    assert listed(kizuna(shared, "ls", "assign", "--json")) == {f"assign:{ID}"}
    assert listed(kizuna(shared, "ls", "session", "--json")) == set()
    assert listed(kizuna(shared, "ls", "*", "--anywhere", "--json")) == OURS | THEIRS
    assert kizuna(shared, "ls", "session").stderr == "No key matches session below kizuna, poppo, muf or harca.\n"


def test_without_a_prefix_nothing_of_anybody_else_is_removed(shared: ServerProcess) -> None:
    assert kizuna(shared, "clean", "*", "--yes").exit_code == OK

    assert {bytes(key).decode() for key in shared.call("KEYS", "*")} == THEIRS


def test_without_a_prefix_nothing_of_anybody_else_is_in_a_backup(shared: ServerProcess, tmp_path: Path) -> None:
    file = str(tmp_path / "b.kizuna")
    assert kizuna(shared, "backup", file).exit_code == OK
    shared.call("FLUSHALL")

    assert kizuna(shared, "restore", file).exit_code == OK
    assert {bytes(key).decode() for key in shared.call("KEYS", "*")} == OURS


def test_what_is_behind_a_prefix_can_be_restored_behind_another(
    fresh_server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIZUNA_ROOTS__MATCH", "mm1:")
    fresh_server.call("SADD", "mm1:allTickets", ID)
    fresh_server.call("SET", f"mm1:{ID}", "x", "EX", 600)
    file = str(tmp_path / "b.kizuna")
    assert kizuna(fresh_server, "backup", file).exit_code == OK

    assert kizuna(fresh_server, "restore", file, "--root", "mm1=mm2").exit_code == OK
    assert {bytes(key).decode() for key in fresh_server.call("KEYS", "mm2:*")} == {"mm2:allTickets", f"mm2:{ID}"}


def test_without_a_prefix_the_keys_of_others_are_nobodys_mistake(shared: ServerProcess) -> None:
    linted = kizuna(shared, "lint")

    assert (linted.exit_code, linted.stderr) == (OK, "5 keys looked at: all as declared.\n")


def test_a_ticket_is_described_by_its_id_and_a_lock_by_its_family(shared: ServerProcess) -> None:
    described = rows(kizuna(shared, "describe", ID, "--json"))[0]
    assert (described["family"], described["names"], described["type"]) == ("BODY", {"id": ID}, "string")

    lock = rows(kizuna(shared, "describe", "LOCK_0", "--json"))[0]
    assert lock["pattern"] == "rueidislock:0:fetchTicketsLock"
    assert "nobody has declared it" in kizuna(shared, "describe", "allUsers").stdout


def test_the_acl_line_of_matchmaking_names_its_keys_and_not_all(shared: ServerProcess) -> None:
    told = kizuna(shared, "acl", "match")
    line = told.stdout.split()

    assert "`kizuna keys acl match coordination`" in told.stderr
    assert kizuna(shared, "acl", "match", "coordination").stderr == kizuna(shared, "acl", "memory").stderr
    assert {"~allTickets", "~rueidislock:2:fetchTicketsLock", "&__keyspace@0__:assign:*"} <= set(line)
    assert f"~{'[0-9a-v]' * 19}[0g]" in line
    assert not {"~*", "&*", "~assign:*"} & set(line)
