"""Programs that are told line by line what to do: others than this process, and in other languages."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from kizuna.settings import Settings

HERE = Path(__file__).parent
ANSWERS_WITHIN_S = 30.0


class Heard(NamedTuple):
    channel: str
    event: dict[str, Any]


class CallFailed(Exception):
    """What was called raised; the text is what it said."""


class Driven:
    """One program that runs. Every line to it is a call; every line from it is what came of one, or an event."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.heard: list[Heard] = []
        """All events, in the order in which they came."""
        self._called: dict[int, asyncio.Future[Any]] = {}
        self._listening = asyncio.create_task(self._listen())

    async def call(self, name: str, *parts: Any, **named: Any) -> Any:
        """CallFailed if it raised there."""
        number = len(self._called)
        self._called[number] = answer = asyncio.get_running_loop().create_future()
        assert self.process.stdin is not None
        line = json.dumps({"number": number, "name": name, "parts": parts, "named": named})
        self.process.stdin.write(f"{line}\n".encode())
        return await asyncio.wait_for(answer, ANSWERS_WITHIN_S)

    def events(self, channel: str, id_: str) -> list[dict[str, Any]]:
        """What came on this channel of this item or context."""
        return [heard.event for heard in self.heard if heard.channel == channel and heard.event["data"]["id"] == id_]

    async def end(self) -> None:
        """It ends by itself when there is nothing more to read."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), ANSWERS_WITHIN_S)
        finally:
            if self.process.returncode is None:
                self.process.kill()
                await self.process.wait()
            await self._listening

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self._take(json.loads(line))
        for answer in self._called.values():
            if not answer.done():
                answer.set_exception(CallFailed("it has ended"))

    def _take(self, said: dict[str, Any]) -> None:
        if "channel" in said:
            self.heard.append(Heard(said["channel"], said["event"]))
        elif "error" in said:
            self._called[said["number"]].set_exception(CallFailed(said["error"]))
        else:
            self._called[said["number"]].set_result(said.get("result"))


@asynccontextmanager
async def javascript(settings: Settings) -> AsyncIterator[Driven]:
    """The program that follows the specification. The test is skipped where there is nothing to run it."""
    if shutil.which("node") is None:
        pytest.skip("there is no Node here")
    host, _, port = settings.store.url.removeprefix("redis://").removesuffix("/0").partition(":")
    async with _driven("node", str(HERE / "javascript" / "memory.js"), host, port, settings.roots.memory) as driven:
        yield driven


@asynccontextmanager
async def another_process(settings: Settings, *, clock_ahead_s: float = 0) -> AsyncIterator[Driven]:
    """One of ours, that remembers on the same server, with a clock that is wrong by this much."""
    sections = {name: msgspec.to_builtins(getattr(settings, name), enc_hook=str) for name in ("roots", "memory")}
    overrides = json.dumps({"store": {"url": settings.store.url}, **sections})
    program = str(HERE / "driven_memory.py")
    async with _driven(sys.executable, program, overrides, str(clock_ahead_s)) as driven:
        yield driven


@asynccontextmanager
async def _driven(*line: str) -> AsyncIterator[Driven]:
    # An event with a large content is a long line.
    process = await asyncio.create_subprocess_exec(*line, stdin=PIPE, stdout=PIPE, limit=16 * 1024 * 1024)
    driven = Driven(process)
    try:
        yield driven
    finally:
        await driven.end()
