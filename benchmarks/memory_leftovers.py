"""A list of fifty items in a context in which a hundred thousand others have ended, and nobody has cleaned up.

    left by pipelines   what the plain design leaves for ever: entries in its four indexes, without items
    left by ours        our own items, whose time came while no process was there to end them

Then a program comes back and lists: at once, and again and again for some seconds, while whatever cleans up does so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median

from redis.asyncio import Redis

from benchmarks.loops import Loop, run_on
from benchmarks.memory_peers.kizuna import Ours
from benchmarks.memory_peers.payload import CONTENT, ITEMS_PER_CONTEXT, context_of, draft
from benchmarks.memory_peers.plain import ROOT, Plain
from benchmarks.memory_peers.roles import Memory
from benchmarks.reporting import Cell, Goal, Report
from kizuna import connect
from kizuna.settings import MemorySettings, Settings, StoreSettings
from kizuna.testing.servers import ServerProcess

DEAD = 100_000
LISTS = 200
LISTS_AT_LEAST = 5
LISTED_FOR_S = 5.0
AT_ONCE = 1_000
AS_FAST_AS = 1 / 2
"""No slower than twice."""
CONTEXT = context_of(0)
SHORT_S = 0.1
NEVER_S = 86_400.0

# Everything that the plain design writes, except the items.
LEAVE = """
local root, context, ended = KEYS[1], ARGV[1], ARGV[2]
for number = tonumber(ARGV[3]), tonumber(ARGV[4]) do
  local id = string.format("%08x-0000-4000-8000-%012x", number, number)
  redis.call("SADD", root .. ":idx:type:fact", id)
  redis.call("SADD", root .. ":idx:context:" .. context, id)
  redis.call("ZADD", root .. ":idx:priority:5", ended - 900000, id)
  redis.call("ZADD", root .. ":idx:expiry", ended, id)
end
"""

Remembering = Callable[[str], AbstractAsyncContextManager[Memory]]
Leave = Callable[[ServerProcess], Awaitable[None]]


@dataclass
class Listed:
    """Milliseconds of each list, in their order."""

    without: list[float] = field(default_factory=list)
    among: list[float] = field(default_factory=list)
    """While some of them were still there, at the beginning."""
    afterwards: list[float] = field(default_factory=list)
    gone_after_s: float | None = None
    """How long until nothing was left; None: it was longer than was listed."""


def measure(report: Report, loop: Loop) -> None:
    report.title(f"Memory, on {loop}: a list of {ITEMS_PER_CONTEXT}, with {DEAD:,} that have ended around")
    cases = {
        "kizuna, left by pipelines": _measured(_ours, _ours_at_rest, _leave_indexes),
        "kizuna, left by ours": _measured(_ours, _ours_at_rest, _leave_items),
        "redis-py pipelines, left by pipelines": _measured(_plain, _plain, _leave_indexes),
    }
    _show(report, {what: run_on(loop, case) for what, case in cases.items()})


async def _measured(remembering: Remembering, at_rest: Remembering, leave: Leave) -> Listed:
    listed = Listed()
    with ServerProcess() as clean, ServerProcess() as littered:
        await leave(littered)
        for server in (clean, littered):
            async with at_rest(server.url) as memory:
                for number in range(ITEMS_PER_CONTEXT):
                    await memory.create(draft(number))
        async with remembering(clean.url) as memory:
            listed.without = [await _list_ms(memory) for _ in range(LISTS)]
        async with remembering(littered.url) as memory:
            await _list_among(memory, littered, listed)
    return listed


async def _list_among(memory: Memory, littered: ServerProcess, listed: Listed) -> None:
    began = time.perf_counter()
    # A program that does nothing but read does not clean up for others.
    await memory.create(draft(ITEMS_PER_CONTEXT))
    while time.perf_counter() - began < LISTED_FOR_S or len(listed.among) < LISTS_AT_LEAST > len(listed.afterwards):
        (listed.among if listed.gone_after_s is None else listed.afterwards).append(await _list_ms(memory))
        if listed.gone_after_s is None and _is_clean(littered):
            listed.gone_after_s = time.perf_counter() - began


async def _list_ms(memory: Memory) -> float:
    began = time.perf_counter()
    contents = await memory.list(CONTEXT)
    took_ms = (time.perf_counter() - began) * 1000
    if list(contents) != [CONTENT] * ITEMS_PER_CONTEXT:
        raise AssertionError(f"a list of {len(contents)} items instead of {ITEMS_PER_CONTEXT}")
    return took_ms


def _is_clean(server: ServerProcess) -> bool:
    return int(server.call("SCARD", f"{ROOT}:idx:context:{CONTEXT}")) == ITEMS_PER_CONTEXT


@asynccontextmanager
async def _ours(url: str) -> AsyncIterator[Memory]:
    async with connect(url) as k:
        yield Ours(k)


@asynccontextmanager
async def _ours_at_rest(url: str) -> AsyncIterator[Memory]:
    async with connect(_at_rest(url)) as k:
        yield Ours(k)


@asynccontextmanager
async def _plain(url: str) -> AsyncIterator[Memory]:
    client: Redis = Redis.from_url(url, decode_responses=True)
    try:
        yield Plain(client)
    finally:
        await client.aclose()


async def _leave_indexes(server: ServerProcess) -> None:
    ended_ms = time.time_ns() // 1_000_000 - 1_000
    with server.connect(timeout_s=60) as conversation:
        for first in range(0, DEAD, AT_ONCE * 10):
            conversation.call("EVAL", LEAVE, 1, ROOT, CONTEXT, ended_ms, first, first + AT_ONCE * 10 - 1)


async def _leave_items(server: ServerProcess) -> None:
    short = {"type": "fact", "content": CONTENT, "context": CONTEXT, "ttl_s": SHORT_S}
    async with connect(_at_rest(server.url)) as k:
        for _ in range(0, DEAD, AT_ONCE):
            await k.memory.create_many([short] * AT_ONCE)
    await asyncio.sleep(2 * SHORT_S)


def _at_rest(url: str) -> Settings:
    """Items may be short-lived, and nobody ends them."""
    memory = MemorySettings(item_least_s=SHORT_S, sweep_every_s=NEVER_S)
    return Settings(store=StoreSettings(url=url), memory=memory)


def _show(report: Report, cases: dict[str, Listed]) -> None:
    rows: list[list[Cell]] = []
    for what, listed in cases.items():
        facts = {
            "without_ms": median(listed.without),
            "first_ms": listed.among[0],
            "among_ms": median(listed.among),
            "longest_ms": max(listed.among),
            "afterwards_ms": median(listed.afterwards or [0.0]),
            "gone_after_s": listed.gone_after_s or 0.0,
        }
        report.figure("memory leftovers", what=what, dead=DEAD, **facts)
        numbers = list(facts.values())
        rows.append([what, *numbers[:4], *(numbers[4:] if listed.gone_after_s else ["", "never"])])
    report.table(
        ["ms", "without", "the first among them", "median", "the longest", "afterwards", "all gone after s"], rows
    )
    for what, listed in cases.items():
        if what.startswith("kizuna"):
            ratio = median(listed.without) / median(listed.among)
            report.goals(what, [Goal("as fast as without", ratio, AS_FAST_AS)])
