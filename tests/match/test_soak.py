"""Three backends are killed and started again at random, and nobody plays twice, and nobody is forgotten.

KIZUNA_SOAK_S says for how many seconds; a minute unless told otherwise.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress

import msgspec
import pytest
from tests.match.pairing import pairing

from kizuna.app import Kizuna, connect
from kizuna.match import Ticket
from kizuna.service import running
from kizuna.settings import MatchSettings, ProcessesSettings, Settings
from kizuna.testing import ServerProcess, eventually

SOAK_S = float(os.environ.get("KIZUNA_SOAK_S", "60"))
WITHIN_S = 60.0
BACKENDS = 3


class Fleet:
    """Backends, some of which are dead at any time."""

    def __init__(self, server: ServerProcess, root: str, seed: int) -> None:
        self._server, self._root = server, root
        self._random = random.Random(seed)
        self.killed = 0
        self.alive: list[asyncio.subprocess.Process] = []

    async def start_one(self) -> None:
        # Both ways to keep out of each other's way, side by side.
        guard = self._random.choice(["script", "lock"])
        command = (sys.executable, "-m", "tests.match.soak_backend", self._server.url, self._root, guard)
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        self.alive.append(process)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"works\n"

    async def suffer(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        await asyncio.gather(*(self.start_one() for _ in range(BACKENDS)))
        while loop.time() < until:
            await asyncio.sleep(self._random.uniform(0.1, 1.5))
            victim = self.alive.pop(self._random.randrange(len(self.alive)))
            victim.send_signal(signal.SIGKILL)
            await victim.wait()
            self.killed += 1
            await self.start_one()

    async def end(self) -> None:
        for process in self.alive:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class Player:
    """Waits for an assignment, and goes on listening: another one would be told."""

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.told: list[str] = []

    async def listen(self, k: Kizuna) -> None:
        async for assignment in k.match.watch_assignments(self.ticket.id):
            self.told.append(assignment.connection)


@pytest.mark.timeout(SOAK_S + 3 * WITHIN_S)
async def test_whoever_is_killed_everybody_plays_once(settings: Settings, server: ServerProcess, root: str) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # noqa: T201 - shown if it fails
    patient = msgspec.structs.replace(
        settings,
        match=MatchSettings(assigned_s=3_600, ticket_s=3_600, pending_s=5),
        processes=ProcessesSettings(heartbeat_every_s=0.2, busy_s=1.0),
    )
    async with connect(patient) as k:
        fleet, players = Fleet(server, root, seed), list[Player]()
        listening: list[asyncio.Task[None]] = []
        suffering = asyncio.create_task(fleet.suffer(SOAK_S))
        try:
            while not suffering.done():
                player = Player(await k.match.create_ticket())
                players.append(player)
                listening.append(asyncio.create_task(player.listen(k)))
                await asyncio.sleep(0.02)
            await suffering
        finally:
            suffering.cancel()
            await fleet.end()
        # Somebody who is not killed takes care of those who are left: at most one stays without an opponent.
        async with running(pairing(k.match, lambda matches: [match.assigned(match.id) for match in matches])):
            await eventually(lambda: sum(not player.told for player in players) <= len(players) % 2, within_s=WITHIN_S)
        for task in listening:
            task.cancel()
        await asyncio.wait(listening)
        stored = await k.store.call_all([("GET", k.match.shards[0].assignment(one.ticket.id)) for one in players])
        await k.match.release_all()
        for player in players:
            await k.match.delete_ticket(player.ticket.id)

    print(f"{len(players)} players, {fleet.killed} kills")  # noqa: T201
    assert max(len(player.told) for player in players) == 1
    together = Counter(connection for player in players for connection in player.told)
    assert set(together.values()) == {2}
    assert sum(body is not None for body in stored) == sum(together.values())
    assert sum(together.values()) >= len(players) - 1
    assert fleet.killed >= SOAK_S / 10
    assert len(players) > SOAK_S
