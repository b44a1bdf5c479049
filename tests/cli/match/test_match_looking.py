from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from tests.cli.watching import started, told

from kizuna.app import Kizuna, connect
from kizuna.cli.exit_codes import BAD_SETTINGS, CONFLICT, INTERRUPTED, NOT_FOUND, USAGE
from kizuna.settings import Settings
from kizuna.testing.commands import Command, Runner
from kizuna.testing.waiting import blocking_until

T = TypeVar("T")


def create(kizuna: Runner, *tags: str) -> str:
    id_: str = kizuna.row("ticket", "create", *(word for tag in tags for word in ("--tag", tag)))["id"]
    return id_


def test_pools_of_a_plan_are_counted_now(kizuna: Runner, plan: str) -> None:
    for tag in ("region:eu", "region:eu", "region:us", "region:mars"):
        create(kizuna, tag)
    found = kizuna.row("pools", plan)
    by_pool = {pool["pool"]: pool for pool in found["pools"]}

    assert {name: (pool["waiting"], pool["pending"]) for name, pool in by_pool.items()} == {"eu": (2, 0), "us": (1, 0)}
    assert by_pool["eu"]["profile"] == "duel"
    assert by_pool["eu"]["oldest_s"] >= by_pool["eu"]["p50_s"] >= 0
    assert found["backends"] == []
    header, eu, us = kizuna.done("pools", plan).stdout.splitlines()
    assert header.split()[:4] == ["PROFILE", "POOL", "WAITING", "PENDING"]
    assert (eu.split()[:4], us.split()[:4]) == (["duel", "eu", "2", "0"], ["duel", "us", "1", "0"])


def test_without_a_plan_everybody_is_a_pool_or_those_with_a_tag(kizuna: Runner) -> None:
    create(kizuna, "a")
    create(kizuna, "a", "b")

    assert [(pool["pool"], pool["waiting"]) for pool in kizuna.row("pools")["pools"]] == [("everyone", 2)]
    found = kizuna.row("pools", "--tag", "a", "--tag", "b")["pools"]
    assert [(pool["pool"], pool["waiting"]) for pool in found] == [("a", 2), ("b", 1)]
    ended = kizuna.done("pools")
    assert ended.stderr == "No backend is at work; `kizuna match backend PLAN` starts one.\n"


def test_an_empty_pool_has_no_oldest(kizuna: Runner, plan: str) -> None:
    [eu, _] = kizuna.row("pools", plan)["pools"]

    assert (eu["waiting"], eu["oldest_s"], eu["p50_s"], eu["p99_s"]) == (0, None, None, None)
    assert kizuna.done("pools", plan).stdout.splitlines()[1].split() == ["duel", "eu", "0", "0", "-", "-", "-"]


def test_backends_at_work_report_what_they_found(
    kizuna: Runner, plan: str, start_match: Callable[..., Command]
) -> None:
    backend = start_match("backend", plan)
    for _ in range(3):
        create(kizuna, "region:eu")

    def reported() -> dict[str, Any] | None:
        found = kizuna.row("pools")["backends"]
        return found[0] if found and found[0]["assigned"] == 2 and found[0]["wait_p50_s"] is not None else None

    blocking_until(lambda: reported() is not None)
    ended = kizuna.done("pools")
    assert backend.facts["backend"] in ended.stdout
    assert {"BACKEND", "MATCHES", "ASSIGNED", "FAILURES", "HEARD"} <= set(ended.stdout.split())
    assert backend.end(signal.SIGTERM)[0] == 0
    assert kizuna.row("pools")["backends"] == []


def test_a_plan_that_is_wrong_is_told(kizuna: Runner) -> None:
    ended = kizuna("pools", "nowhere.toml")

    assert ended.exit_code == BAD_SETTINGS
    assert ended.stderr == "Error: nowhere.toml cannot be read: No such file or directory\n"


def using(settings: Settings, use: Callable[[Kizuna], Awaitable[T]]) -> T:
    """What a program of its own does meanwhile."""

    async def main() -> T:
        async with connect(settings) as k:
            return await use(k)

    return asyncio.run(main())


def test_assignments_are_printed_as_they_happen(kizuna: Runner) -> None:
    with started(kizuna, "watch", "--json") as watching:
        first, second = create(kizuna), create(kizuna)
        kizuna.done("assign", first, "host:1", "--extension", "map=dust")
        kizuna.done("assign", second, "host:2")
        one, other = told(watching), told(watching)
        assert (one["ticket"], one["connection"], one["extensions"]) == (first, "host:1", {"map": "dust"})
        assert (other["ticket"], other["connection"]) == (second, "host:2")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=120) == INTERRUPTED


def test_one_ticket_is_watched_until_it_is_gone(kizuna: Runner) -> None:
    id_ = create(kizuna)
    with started(kizuna, "watch", id_) as watching:
        kizuna.done("assign", id_, "host:1", "--extension", "map=dust")
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[1:] == [id_, "host:1", "map=dust"]
        kizuna.done("ticket", "rm", id_)
        _, said = watching.communicate(timeout=120)

    assert watching.returncode == NOT_FOUND
    assert said == f"Error: ticket id: {id_} not found\n"


def test_watching_ends_after_so_many_or_so_long(kizuna: Runner) -> None:
    id_ = create(kizuna)
    kizuna.done("assign", id_, "host:1")

    assert kizuna.row("watch", id_, "--count", "1")["connection"] == "host:1"
    assert kizuna.done("watch", "--for", "0.05").stdout == ""
    assert kizuna("watch", "nobody").exit_code == NOT_FOUND


def test_a_ticket_keeps_its_first_assignment(kizuna: Runner) -> None:
    first, second = create(kizuna), create(kizuna)
    kizuna.done("assign", first, "host:1")
    assert kizuna.done("assign", first, "host:1").output == ""

    ended = kizuna("assign", first, second, "host:2")
    assert (ended.exit_code, ended.stdout) == (CONFLICT, "")
    assert ended.stderr == f"Ticket {first} has another assignment already, and keeps it.\n"
    rows = [kizuna.row("ticket", "get", id_)["assignment"]["connection"] for id_ in (first, second)]
    assert rows == ["host:1", "host:2"]


def test_a_ticket_that_is_not_there_cannot_be_assigned(kizuna: Runner) -> None:
    ended = kizuna("assign", "nobody", "host:1", "--json")

    assert ended.exit_code == NOT_FOUND
    assert json.loads(ended.stdout) == {"ticket": "nobody", "outcome": "missing"}
    assert kizuna("assign", "host:1").exit_code == USAGE


@pytest.mark.parametrize("everybody", [False, True])
def test_what_somebody_took_is_given_back(kizuna: Runner, settings: Settings, everybody: bool) -> None:
    async def take(k: Kizuna) -> str:
        ticket = await k.match.create_ticket()
        await k.match.shards[0].take([ticket.id], "somebody", begins=True)
        return ticket.id

    id_ = using(settings, take)
    assert kizuna.row("ticket", "get", id_)["state"] == "pending"
    assert kizuna.row("pools")["pools"][0]["pending"] == 1

    kizuna.done("release", "--all" if everybody else id_)

    assert kizuna.row("ticket", "get", id_)["state"] == "waiting"
    assert kizuna("release").exit_code == USAGE


def test_backfills_are_listed(kizuna: Runner, settings: Settings) -> None:
    assert kizuna.done("backfills").stderr == "There are none.\n"
    backfill = using(settings, lambda k: k.match.create_backfill(tags=["region:eu"], doubles={"open": 2}))

    assert [row["id"] for row in kizuna.rows("backfills")] == [backfill.id]
    header, line = kizuna.done("backfills").stdout.splitlines()
    assert header.split() == ["ID", "GENERATION", "AGE", "TAGS", "FIELDS"]
    assert (line.split()[:2], line.split()[-2:]) == ([backfill.id, "1"], ["region:eu", "open=2"])
