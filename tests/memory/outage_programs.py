"""Who writes while the server goes away: each to items of its own, and down in the ledger what was acknowledged.

python outage_programs.py write SETTINGS LEDGER {"writer": …}
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from pathlib import Path
from typing import Any

from kizuna import connect
from kizuna.errors import OutcomeUnknown
from kizuna.memory.memory import Memory
from kizuna.settings import load_settings
from kizuna.testing import eventually
from kizuna.testing.ledger import Ledger

HANDS = 3
COUNTER = "counter"
MOST_ITEMS = 20


class Writer:
    """One hand: creates, updates, deletes and reads its items, one after the other."""

    def __init__(self, memory: Memory, ledger: Ledger, name: str) -> None:
        self._memory, self._ledger, self._name = memory, ledger, name
        self._dice = random.Random(name)
        self._known: dict[str, int] = {}
        """What was acknowledged: the content of each."""
        self._deleted: list[str] = []
        self._number = 0

    async def step(self) -> None:
        self._number += 1
        chance = self._dice.random()
        if not self._known or (chance < 0.3 and len(self._known) < MOST_ITEMS):
            await self._create(f"{self._name}-{self._number}")
        elif chance < 0.7:
            await self._update(self._dice.choice(list(self._known)))
        elif chance < 0.85:
            await self._delete(self._dice.choice(list(self._known)))
        else:
            await self._look()

    async def _create(self, id_: str) -> None:
        item = await self._memory.create("note", self._number, id=id_, context="outage")
        self._known[id_] = self._number
        self._wrote(id_, item.version, from_backup=item.from_backup)

    async def _update(self, id_: str) -> None:
        item = await self._memory.update(id_, content=self._number)
        self._known[id_] = self._number
        self._wrote(id_, item.version, from_backup=item.from_backup)

    async def _delete(self, id_: str) -> None:
        assert await self._memory.delete(id_), id_
        del self._known[id_]
        self._deleted.append(id_)
        self._wrote(id_, 0, from_backup=False)

    async def _look(self) -> None:
        """Whoever answers: what was acknowledged is there, and what was deleted is not."""
        there = self._dice.sample(list(self._known), min(3, len(self._known)))
        gone = self._dice.sample(self._deleted, min(3, len(self._deleted)))
        for id_, item in zip(there + gone, await self._memory.get_many(there + gone), strict=True):
            content = None if item is None else item.content
            if content != self._known.get(id_):
                self._ledger.write("wrong", id=id_, got=content, expected=self._known.get(id_))

    def _wrote(self, id_: str, version: int, *, from_backup: bool) -> None:
        self._ledger.write("wrote", id=id_, version=version, content=self._known.get(id_), from_backup=from_backup)


async def count(memory: Memory, ledger: Ledger, told: asyncio.Event) -> None:
    """Add one, again and again, to what all others count as well."""
    while not told.is_set():
        try:
            await memory.change(COUNTER, lambda content: content + 1)
            ledger.write("counted")
        except OutcomeUnknown:
            ledger.write("perhaps counted")
        await asyncio.sleep(0.05)


async def write(memory: Memory, ledger: Ledger, writer: str, told: asyncio.Event) -> None:
    async def work(hand: Writer) -> None:
        while not told.is_set():
            await hand.step()
            await asyncio.sleep(0.02)

    hands = [Writer(memory, ledger, f"{writer}.{number}") for number in range(HANDS)]
    ledger.write("works", writer=writer)
    await asyncio.gather(*map(work, hands), count(memory, ledger, told))


async def run(settings: dict[str, Any], ledger: Ledger, writer: str) -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    async with connect(load_settings(settings, environ={}, cwd="/")) as k:
        await write(k.memory, ledger, writer, told)
        fallback = k.memory.fallback
        assert fallback is not None, "without a copy, there is nothing to be tested"
        backup = fallback.backup

        async def is_back() -> bool:
            return not fallback.is_away and await backup.pending() == 0

        await eventually(is_back, within_s=80)
        ledger.write("ends", writer=writer, conflicts=[one.as_dict() for one in await backup.conflicts()])


def main() -> None:
    _, settings, path, arguments = sys.argv[1:]
    asyncio.run(run(json.loads(settings), Ledger(Path(path)), **json.loads(arguments)))


if __name__ == "__main__":
    main()
