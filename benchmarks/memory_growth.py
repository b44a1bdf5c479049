"""What an item costs among many others: among a thousand, a hundred thousand and a million.

Each number of items has a server and a process of its own, and they take turns, so that a slow second hits all of them.
Cost is CPU time of client and server together: it does not depend on who else uses the machine's cores.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.loops import Loop
from benchmarks.memory_peers.entries import OURS
from benchmarks.memory_peers.payload import CONTENT, METADATA, TTL_S
from benchmarks.memory_peers.plain import ROOT
from benchmarks.peer_processes import PeerFailed, PeerProcess
from benchmarks.reporting import Goal, Report
from benchmarks.servers import main_thread_s, memory_of
from kizuna.testing.servers import ServerProcess

SIZES = (1_000, 100_000, 1_000_000)
OPERATIONS = {"create": 640, "get": 1_280, "update": 640, "list": 128, "delete": 640}
"""How many of each make a round: few enough that a thousand items stay about a thousand."""
CALLERS = 64
ROUNDS = 15
ROUND_S = 10.0
FILLED_AT_ONCE = 50_000
AS_CHEAP_AS = 1 / 1.25
"""Within 25 % of the cost among the fewest."""

# What the plain design writes, by a script, since a million of its pipelines take minutes.
FILL_PLAIN = """
local root, content, metadata, expiry = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
for number = tonumber(ARGV[4]), tonumber(ARGV[5]) do
  local id = string.format("%08x-0000-4000-8000-%012x", number, number)
  local item, type_, context = root .. ":item:" .. id, "type-" .. number % 5, "context-" .. math.floor(number / 50)
  redis.call("HSET", item, "id", id, "type", type_, "content", content, "contextId", context, "priority",
    1 + number % 10, "createdAt", expiry - 900000, "expiresAt", expiry, "metadata", metadata)
  redis.call("PEXPIREAT", item, expiry)
  redis.call("SADD", root .. ":idx:type:" .. type_, id)
  redis.call("SADD", root .. ":idx:context:" .. context, id)
  redis.call("ZADD", root .. ":idx:priority:" .. 1 + number % 10, expiry - 900000, id)
  redis.call("ZADD", root .. ":idx:expiry", expiry, id)
end
"""


@dataclass
class Store:
    """Ours, with so many items in it."""

    items: int
    server: ServerProcess
    process: PeerProcess
    bytes_per_item: float = 0.0
    cpu_us: dict[str, list[float]] = field(default_factory=lambda: {operation: [] for operation in OPERATIONS})

    def perform(self, operation: str) -> None:
        before_s = main_thread_s(self.server)
        facts = self.process.order(
            "perform", operation=operation, callers=CALLERS, seconds=ROUND_S, most=OPERATIONS[operation]
        )
        spent_s = facts["cpu_s"] + main_thread_s(self.server) - before_s
        self.cpu_us[operation].append(spent_s / facts["done"] * 1e6)


def measure(report: Report, loop: Loop) -> None:
    report.title(f"Memory, on {loop}: what an item costs among many others")
    with tempfile.TemporaryDirectory(prefix="kizuna-memory-") as folder, ExitStack() as stack:
        try:
            stores = [stack.enter_context(_filled(items, loop, Path(folder))) for items in SIZES]
            for number in range(ROUNDS + 1):
                for operation in OPERATIONS:
                    for store in stores if number % 2 else stores[::-1]:
                        store.perform(operation)
        except PeerFailed as failure:
            report.unmeasured("an item among many others", str(failure))
            return
    plain_bytes = {items: _bytes_of_plain(items) for items in SIZES}
    _show_growth(report, stores, plain_bytes)


@contextmanager
def _filled(items: int, loop: Loop, folder: Path) -> Iterator[Store]:
    with (
        ServerProcess() as server,
        PeerProcess("benchmarks.memory_peers", OURS, "subject", url=server.url, folder=folder, loop=loop) as process,
    ):
        process.order("check")
        store = Store(items, server, process)
        before = memory_of(server)
        for done in range(0, items, FILLED_AT_ONCE):
            process.order("fill", items=min(FILLED_AT_ONCE, items - done))
        process.order("keep_some")
        store.bytes_per_item = (memory_of(server) - before) / items
        yield store


def _bytes_of_plain(items: int) -> float:
    """Of one item as the plain design stores it."""
    with ServerProcess() as server, server.connect(timeout_s=60) as conversation:
        before = memory_of(server)
        content, metadata = msgspec.json.encode(CONTENT), msgspec.json.encode(METADATA)
        expiry = (time.time_ns() // 1_000_000) + TTL_S * 1000
        for first in range(0, items, 10_000):
            last = min(first + 10_000, items) - 1
            conversation.call("EVAL", FILL_PLAIN, 1, ROOT, content, metadata, expiry, first, last)
        return (memory_of(server) - before) / items


def _show_growth(report: Report, stores: Sequence[Store], plain_bytes: dict[int, float]) -> None:
    # The first round of all has filled caches and opened connections.
    costs = {store.items: {name: median(rounds[1:]) for name, rounds in store.cpu_us.items()} for store in stores}
    for store in stores:
        report.figure(
            "memory growth",
            items=store.items,
            bytes_per_item=store.bytes_per_item,
            bytes_per_item_of_plain=plain_bytes[store.items],
            **{f"{name}_us": cost for name, cost in costs[store.items].items()},
        )
    report.table(
        [
            "items",
            *(f"CPU µs: {name}" if name == "create" else name for name in OPERATIONS),
            "bytes of an item",
            "plain",
        ],
        [
            [f"{store.items:,}", *costs[store.items].values(), store.bytes_per_item, plain_bytes[store.items]]
            for store in stores
        ],
    )
    fewest, *more = costs
    for items in more:
        goals = [
            Goal(f"as cheap as among {fewest:,}", costs[fewest][name] / costs[items][name], round(AS_CHEAP_AS, 2))
            for name in OPERATIONS
        ]
        for name, goal in zip(OPERATIONS, goals, strict=True):
            report.goals(f"{name} among {items:,}", [goal])
