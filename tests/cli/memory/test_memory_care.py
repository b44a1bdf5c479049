"""`kizuna memory stats`, `verify`, `pressure`, `reseal` and `conflicts`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kizuna.app import connect
from kizuna.cli.exit_codes import CONFLICT, FAILURE, NOT_FOUND, UNAVAILABLE
from kizuna.cli.memory.pressure import as_record, used_of
from kizuna.memory.pressure import Pressure
from kizuna.memory.pressure.measuring import Level, ServerUse
from kizuna.settings import MemorySettings, Settings, StoreSettings
from kizuna.testing import ServerProcess, eventually
from kizuna.testing.commands import Runner

# stats


def test_what_is_remembered_is_counted(kizuna: Runner) -> None:
    for id_, type_, priority in (("a", "fact", "5"), ("b", "fact", "9"), ("c", "note", "5")):
        kizuna.done("put", "x", "--id", id_, "--type", type_, "--priority", priority)
    kizuna.done("contexts", "create", "x", "--inactive")
    counts = kizuna.row("stats")

    assert (counts["items"], counts["by_type"], counts["by_priority"]) == (
        3,
        {"fact": 2, "note": 1},
        {"5": 2, "9": 1},
    )
    assert (counts["contexts"], counts["active_contexts"], counts["events"]) == (1, 0, 4)
    shown = kizuna.done("stats").stdout.splitlines()
    assert [line[20:] for line in shown] == ["3", "2 fact, 1 note", "2 of 5, 1 of 9", "1, 0 of them active", "4"]


def test_shards_are_counted_together(with_settings: Callable[..., Runner]) -> None:
    kizuna = with_settings(shards=3)
    for context in "abcde":
        kizuna.done("put", "x", "--context", context, "--type", "fact")

    assert kizuna.row("stats")["by_type"] == {"fact": 5}
    assert len(kizuna.rows("ls")) == 5


# verify


def test_where_nothing_is_off_it_is_said(kizuna: Runner) -> None:
    kizuna.done("put", "x")
    told = kizuna.done("verify")

    assert (told.stdout, told.stderr.split(":")[1]) == ("", " everything is exact.\n")
    assert kizuna.row("verify")["exact"] is True


def test_what_ended_while_nobody_was_there_is_not_off(
    with_settings: Callable[..., Runner], server: ServerProcess, root: str
) -> None:
    kizuna = with_settings(item_least_s=0.01, context_least_s=0.01)
    kizuna.done("put", "x", "--id", "a", "--ttl", "0.01")
    kizuna.done("contexts", "create", "x", "--id", "c", "--ttl", "0.01", "--inactive")
    keys = (f"{root}:memory:short:item:a", f"{root}:memory:context:c")
    asyncio.run(eventually(lambda: server.call("EXISTS", *keys) == 0))
    # As if that was long ago: longer than what has ended may wait for a sweeper.
    server.call("ZADD", f"{root}:memory:short:idx:expiry", "XX", 1, "a")
    server.call("ZADD", f"{root}:memory:ctx:idx:expiry", "XX", 1, "c")

    assert kizuna.row("verify")["exact"] is True
    assert [event["id"] for event in kizuna.rows("watch", "expired", "--since", "0", "--no-wait")] == ["a", "c"]


def test_a_generation_that_was_raised_leaves_nothing(kizuna: Runner) -> None:
    kizuna.done("put", "[0.1]", "--id", "vector", "--generation", "model")
    kizuna.done("raise", "model")
    kizuna.done("raise", "another")

    assert kizuna.row("verify")["members"] == 0
    assert kizuna.row("verify")["exact"] is True


def test_what_is_off_is_said_and_mended_when_that_is_wanted(kizuna: Runner, server: ServerProcess, root: str) -> None:
    kizuna.done("put", "x", "--id", "a")
    server.call("SREM", f"{root}:memory:short:idx:type:note", "a")
    server.call("SADD", f"{root}:memory:short:idx:context:trip", "gone")
    off = kizuna("verify")
    told = json.loads(kizuna("verify", "--json").stdout)

    assert off.exit_code == CONFLICT
    assert len(off.stdout.splitlines()) == 2
    assert all(line.startswith("off ") for line in off.stdout.splitlines())
    assert f"{root}:memory:short:idx:context:trip" in off.stdout
    assert off.stderr.endswith(": 2 off.\n")
    assert {(finding["kind"], finding["id"]) for finding in told["findings"]} == {
        ("not in index", "a"),
        ("no item", "gone"),
    }
    mended = kizuna.done("verify", "--repair")
    assert all(line.startswith("mended ") for line in mended.stdout.splitlines())
    assert mended.stderr.endswith(": 2 mended.\n")
    assert kizuna.row("verify")["exact"] is True


# pressure


def measured(level: Level, *, root_bytes: int | None = None) -> Pressure:
    server = ServerUse(root="harca", used=600, limit=1000, level=level)
    measured = Pressure(used=600, limit=1000, ratio=0.6, level=level, items=1234, servers=(server,))
    return msgspec.structs.replace(measured, root_bytes=root_bytes, budget_bytes=2048 if root_bytes else 0)


def test_how_full_it_is_and_what_would_be_done_is_shown(kizuna: Runner) -> None:
    shown = kizuna.done("pressure").stdout
    told = kizuna.row("pressure")

    assert "full: " in shown
    assert [line.split("  ")[0] for line in shown.splitlines()] == [
        "items",
        "server",
        "what is done",
        "above 80%",
        "above 90%",
    ]
    assert (told["level"], told["items"]) == ("calm", 0)


@pytest.mark.parametrize(
    ("level", "what", "above"),
    [
        ("calm", "nothing", ["80%", "90%"]),
        ("shorten", "priority 3 and less are given 5 min", ["90%"]),
        ("remove", "are removed until", []),
    ],
)
def test_what_is_done_depends_on_how_full_it_is(level: Level, what: str, above: list[str]) -> None:
    record = as_record(measured(level, root_bytes=1024), MemorySettings())

    assert record["server"] == "60.0% full: 600 B of 1000 B"
    assert record["memory alone"] == "50.0% full: 1.0 KiB of 2.0 KiB, which is its budget"
    assert what in str(record["what is done"])
    assert [name.removeprefix("above ") for name in record if name.startswith("above ")] == above
    assert used_of(600, 0) == "600 B, without a limit"


def test_relief_does_what_is_needed_and_says_what_it_did(with_settings: Callable[..., Runner]) -> None:
    for number in range(20):
        with_settings().done("put", "x" * 1000, "--id", f"a{number}", "--priority", "1" if number % 2 else "9")
    over = with_settings(budget_bytes=20_000)
    relieved = over.row("pressure", "--relieve")

    assert relieved["removed"] > 0
    assert relieved["pressure"]["ratio"] <= 0.9
    left = {row["id"] for row in over.rows("ls")}
    assert len(left) == 20 - relieved["removed"]
    assert with_settings().done("pressure", "--relieve").stderr == "There was nothing to do.\n"


# reseal

OLD, NEW = f"old:{'A' * 43}=", f"new:{'B' * 42}A="


def test_after_resealing_the_old_key_is_needed_no_more(with_settings: Callable[..., Runner]) -> None:
    with_settings(seal_keys=OLD).done("put", "a secret", "--id", "x", "--sealed")
    with_settings(seal_keys=OLD).done("put", "plain", "--id", "y")
    told = with_settings(seal_keys=f"{NEW} {OLD}").done("reseal")

    assert (told.stdout, told.stderr) == ("", "1 of 2 items were sealed again.\n")
    assert with_settings(seal_keys=NEW).done("get", "x", "--content").stdout == "a secret"
    assert with_settings(seal_keys=NEW).row("reseal")["resealed"] == 0


def test_what_cannot_be_opened_is_said_and_left(with_settings: Callable[..., Runner]) -> None:
    with_settings(seal_keys=OLD).done("put", "a secret", "--id", "x", "--sealed")
    failed = with_settings(seal_keys=NEW)("reseal")

    assert (failed.exit_code, failed.stderr) == (FAILURE, "0 of 1 items were sealed again; 1 cannot be opened.\n")
    assert "'x'" in failed.stdout
    assert "AAAA" not in failed.output
    assert with_settings()("reseal").exit_code == FAILURE


# conflicts


def test_without_a_backup_there_are_no_conflicts(kizuna: Runner) -> None:
    told = kizuna.done("conflicts")

    assert told.stdout == ""
    assert told.stderr.startswith("No copy is kept on this machine")


def test_with_one_it_is_said_that_there_are_none(with_settings: Callable[..., Runner], tmp_path: Path) -> None:
    told = with_settings(backup_folder=tmp_path).done("conflicts", "--forget")

    assert (told.stdout, told.stderr) == ("", "There are none.\nForgot 0.\n")


async def test_a_write_during_an_outage_that_another_has_overtaken_is_shown_until_it_is_forgotten(
    with_settings: Callable[..., Runner], fresh_server: ServerProcess, settings: Settings, tmp_path: Path
) -> None:
    memory = MemorySettings(backup_folder=str(tmp_path), fallback_after_s=2.0)
    store = StoreSettings(url=fresh_server.url, timeout_s=2)
    async with connect(msgspec.structs.replace(settings, store=store, memory=memory)) as k:
        await k.memory.put("a", "note", 1)
        fresh_server.stop()
        changed = await k.memory.update("a", content=2)
    fresh_server.start()
    others = with_settings(url=fresh_server.url)
    ours = with_settings(url=fresh_server.url, backup_folder=tmp_path, fallback_after_s=2.0)
    await asyncio.to_thread(others.done, "put", "3", "--id", "a")

    async def found() -> list[dict[str, Any]]:
        await asyncio.to_thread(ours.done, "get", "a")
        return await asyncio.to_thread(ours.rows, "conflicts")

    [conflict] = await eventually(found, within_s=30)
    assert (changed.content, changed.from_backup) == (2, True)
    assert (conflict["what"], conflict["id"], conflict["op"], conflict["base_version"]) == ("item", "a", "change", 1)
    head, line = (await asyncio.to_thread(ours.done, "conflicts", "--forget")).stdout.splitlines()
    assert head.split() == ["WHAT", "ID", "WANTED", "BASED", "ON", "WRITTEN", "FOUND", "HAPPENED", "REASON"]
    assert line.split()[:5] == ["item", "a", "change", "version", "1"]
    assert await asyncio.to_thread(ours.rows, "conflicts") == []
    assert (await asyncio.to_thread(ours.row, "get", "a"))["content"] == 3


# while the server is away


def test_who_only_reads_is_answered_by_the_copy_while_the_server_is_away(
    with_settings: Callable[..., Runner], fresh_server: ServerProcess, tmp_path: Path
) -> None:
    before = with_settings(url=fresh_server.url, backup_folder=tmp_path)
    before.done("contexts", "create", "Trip", "--id", "trip-7")
    before.done("put", "hello", "--id", "a", "--context", "trip-7")
    fresh_server.stop()
    kizuna = with_settings(url=fresh_server.url, backup_folder=tmp_path, timeout_s=0.1)
    told = kizuna.done("get", "a")

    assert told.stderr.startswith("This is from the copy on this machine, and may be old: no connection")
    assert told.stdout.splitlines()[-1] == "hello"
    assert "the copy on this machine" in told.stdout
    assert [(row["id"], row["from_backup"]) for row in kizuna.rows("ls", "--ends-within", "90000")] == [("a", True)]
    assert kizuna.done("ls").stdout.splitlines()[1].startswith("a ")
    assert kizuna.row("contexts")["items"] is None
    assert "Trip" in kizuna.done("contexts", "get", "trip-7").stdout
    assert kizuna.done("conflicts").stderr.endswith("There are none.\n")
    assert kizuna("get", "b").exit_code == NOT_FOUND
    assert kizuna("put", "x").exit_code == UNAVAILABLE
    assert with_settings(url=fresh_server.url, timeout_s=0.1)("get", "a").exit_code == UNAVAILABLE
