"""A process is killed while the server is away: what it had acknowledged is in the journal."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import msgspec
from tests.memory.backup.conftest import WITHIN_S, backup_of, fallback_of

from kizuna.app import connect
from kizuna.memory.memory import Memory
from kizuna.settings import Settings
from kizuna.testing import ChaosProxy, eventually
from kizuna.testing.ledger import Ledger

PROGRAMS = Path(__file__).with_name("backup_programs.py")


def overrides(settings: Settings) -> str:
    memory = {name: getattr(settings.memory, name) for name in ("backup_folder", "fallback_after_s")}
    store = {"url": settings.store.url, "timeout_s": settings.store.timeout_s}
    return json.dumps({"store": store, "roots": msgspec.to_builtins(settings.roots), "memory": memory})


async def test_the_next_one_replays_what_a_killed_one_had_acknowledged(
    copied: Settings, other: Memory, network: ChaosProxy, ledger: Ledger
) -> None:
    line = [sys.executable, str(PROGRAMS), "write", overrides(copied), str(ledger.path), "{}"]
    process = await asyncio.to_thread(subprocess.Popen, line)
    try:
        await eventually(lambda: ledger.read("connected"), within_s=WITHIN_S)
        network.refuse()
        await network.cut()
        await eventually(lambda: len(ledger.read("updated")) >= 20, within_s=WITHIN_S)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
    created, updated = ledger.read("created"), ledger.read("updated")
    await network.accept()

    async with connect(copied) as k:
        # The first thing that it is asked already knows of them, whoever answers.
        first = await k.memory.get("n")
        assert first is not None
        assert first.content >= updated[-1]["content"]
        await eventually(lambda: not fallback_of(k.memory).is_away, within_s=WITHIN_S)
        assert await backup_of(k.memory).pending() == 0
        assert await k.memory.conflicts() == []

    n = await other.get("n")
    assert n is not None
    # One more may have been written down, and not in the ledger.
    assert n.version - updated[-1]["version"] in (0, 1)
    assert n.content == n.version - 1
    there = await other.get_many([line["id"] for line in created])
    assert None not in there
