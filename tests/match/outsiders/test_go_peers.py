"""Programs in Go with the libraries of minimatch, its lock among them, on the same server as ours."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from tests.match.pairing import connections, pairing

from kizuna.app import connect
from kizuna.match.fetch_lock import FetchLock
from kizuna.match.matchmaking import Matchmaking
from kizuna.service import running
from kizuna.settings import MatchSettings, Settings
from kizuna.store.client import Store
from kizuna.testing import ServerProcess, eventually

Start = Callable[..., subprocess.Popen[str]]
Guard = Literal["script", "lock"]
GUARDS: list[Guard] = ["script", "lock"]


@pytest.fixture
def start(go_peer: Path, server: ServerProcess, prefix: str) -> Iterator[Start]:
    """Start it in a role; none outlives the test."""
    with ExitStack() as cleanup:

        def start(role: str, *arguments: object) -> subprocess.Popen[str]:
            line = [str(go_peer), role, server.address, prefix, *map(str, arguments)]
            process = cleanup.enter_context(subprocess.Popen(line, stdout=subprocess.PIPE, text=True))
            cleanup.callback(process.kill)
            return process

        yield start


def guarded(settings: Settings, guard: Guard) -> Settings:
    return msgspec.structs.replace(settings, match=MatchSettings(guard=guard, lock_wait_s=30.0, tick_every_s=0.05))


def lines_of(process: subprocess.Popen[str]) -> list[dict[str, object]]:
    """All that it says until it ends."""
    assert process.stdout is not None
    return [json.loads(line) for line in process.stdout if line.startswith("{")]


async def stopped(process: subprocess.Popen[str]) -> dict[str, list[str]]:
    """What it has matched."""
    os.kill(process.pid, signal.SIGTERM)
    said = await asyncio.to_thread(lines_of, process)
    return {str(line["connection"]): list(line["tickets"]) for line in said}  # type: ignore[call-overload]


async def test_their_lock_and_ours_are_one(start: Start, store: Store, prefix: str, root: str) -> None:
    counter = f"{root}:temp:counter"
    theirs = [start("count", counter, 40) for _ in range(2)]
    lock = FetchLock(store, prefix, 30.0)
    for _ in range(40):
        async with lock.hold(wait_s=40):
            read = int(await store.call("GET", counter) or 0)
            await store.call("SET", counter, read + 1, "EX", 60)

    for process in theirs:
        assert await asyncio.to_thread(process.wait, 40) == 0
    assert await store.call("GET", counter) == b"120"


@pytest.mark.parametrize("guard", GUARDS)
async def test_their_players_are_matched_by_our_backend(start: Start, settings: Settings, guard: Guard) -> None:
    async with connect(guarded(settings, guard)) as k, running(pairing(k.match)):
        players = start("frontend", 60)
        told = await asyncio.wait_for(asyncio.to_thread(lines_of, players), 40)

    by_server: dict[object, int] = {}
    for line in told:
        by_server[line["connection"]] = by_server.get(line["connection"], 0) + 1
    assert list(by_server.values()) == [2] * 30


async def test_our_players_are_matched_by_their_backend_and_told(start: Start, mm: Matchmaking) -> None:
    backend = start("backend", 5)
    ids = [(await mm.create_ticket()).id for _ in range(60)]
    told = await asyncio.gather(*(mm.assignment(id_, timeout_s=40) for id_ in ids))
    await eventually(lambda: nobody_waits(mm), within_s=20)
    made = await stopped(backend)

    assert {id_: one.connection for id_, one in zip(ids, told, strict=True)} == {
        id_: connection for connection, pair in made.items() for id_ in pair
    }


@pytest.mark.parametrize("guard", GUARDS)
async def test_both_backends_at_once_match_everybody_once(start: Start, settings: Settings, guard: Guard) -> None:
    ours: dict[str, list[str]] = {}
    async with connect(guarded(settings, guard)) as k:
        mm = k.match
        backend = pairing(mm, fetch_limit=20)
        backend.on_tick = lambda tick: ours.update({f"{one.id}.example:7777": one.ticket_ids for one in tick.matches})
        theirs = start("backend", 2)
        assert theirs.stdout is not None
        assert await asyncio.to_thread(theirs.stdout.readline) == "ready\n"
        async with running(backend):
            ids = list[str]()
            for _ in range(50):
                ids += await asyncio.gather(*(new_ticket(mm) for _ in range(8)))
                await asyncio.sleep(0.005)
            await eventually(lambda: nobody_waits(mm), within_s=40)
        made = {**ours, **await stopped(theirs)}
        told = await connections(mm, *ids)

    assert sorted(id_ for pair in made.values() for id_ in pair) == sorted(ids)
    assert told == [next(where for where, pair in made.items() if id_ in pair) for id_ in ids]


async def new_ticket(mm: Matchmaking) -> str:
    return (await mm.create_ticket()).id


async def nobody_waits(mm: Matchmaking) -> bool:
    return await mm.count() == 0
