"""The server is away for a while, once for ten seconds, and four processes write: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest

from kizuna.testing import ServerProcess, eventually
from kizuna.testing.ledger import Ledger

PROGRAMS = Path(__file__).with_name("outage_programs.py")
WRITERS = 4
COUNTER = "counter"
# They write on while it is replayed: on a busy machine it takes long until that has caught up with them.
WITHIN_S = 90.0

How = Literal["paused", "stopped"]
Line = dict[str, Any]


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with ServerProcess(persistent=True, config={"notify-keyspace-events": "AKE"}) as server:
        yield server


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("how", "away_s", "share"), [("stopped", 10, False), ("paused", 3, False), ("paused", 3, True)]
)
async def test_an_outage_loses_nothing_and_brings_nothing_back(
    server: ServerProcess, root: str, ledger: Ledger, tmp_path: Path, how: How, away_s: float, share: bool
) -> None:
    with ExitStack() as stack:
        folders = [tmp_path / ("shared" if share else f"copy-{number}") for number in range(WRITERS)]
        server_has_a_counter(server, root)
        writers = [start(stack, server, root, ledger, folder, number) for number, folder in enumerate(folders)]
        await eventually(lambda: all_have_written(ledger, 20, from_backup=False), within_s=WITHIN_S)
        await asyncio.to_thread(server.pause if how == "paused" else server.stop)
        await asyncio.sleep(away_s)
        await eventually(lambda: all_have_written(ledger, 50, from_backup=True), within_s=WITHIN_S)
        await asyncio.to_thread(server.resume if how == "paused" else server.start)
        before = len(ledger.read("wrote"))
        await eventually(lambda: all_have_written(ledger, 5, from_backup=False, after=before), within_s=WITHIN_S)
        for writer in writers:
            writer.terminate()
        for writer in writers:
            assert await asyncio.to_thread(writer.wait, WITHIN_S) == 0

    assert ledger.read("wrong") == []
    items, conflicts = items_of(server, root), conflicts_in(ledger, share=share)
    assert_all_that_was_counted_counts(ledger, items.pop(COUNTER), conflicts)
    wrote = {line["id"]: line for line in ledger.read("wrote")}
    assert items == {id_: kept(line) for id_, line in wrote.items() if line["version"]}
    assert_versions_are_exact(ledger)


def server_has_a_counter(server: ServerProcess, root: str) -> None:
    """As others would write it; the first who changes it takes it in."""
    fields = {
        "id": COUNTER,
        "type": "counter",
        "content": "0",
        "contextId": "global",
        "priority": "5",
        "metadata": "{}",
    }
    server.call("HSET", f"{root}:memory:short:item:{COUNTER}", *(part for field in fields.items() for part in field))


def start(
    stack: ExitStack, server: ServerProcess, root: str, ledger: Ledger, folder: Path, number: int
) -> subprocess.Popen[bytes]:
    settings = {
        "store": {"url": server.url, "timeout_s": 2.0},
        "roots": dict.fromkeys(("system", "coordination", "units", "memory"), root),
        "memory": {"backup_folder": str(folder), "fallback_after_s": 0.5},
    }
    line = ["write", json.dumps(settings), str(ledger.path), json.dumps({"writer": f"w{number}"})]
    process = subprocess.Popen([sys.executable, str(PROGRAMS), *line])
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def all_have_written(ledger: Ledger, times: int, *, from_backup: bool, after: int = 0) -> bool:
    """Each of them so often; of what was deleted, nobody knows where."""
    lines = ledger.read("wrote")[after:]
    wrote = Counter(line["pid"] for line in lines if line["version"] and line["from_backup"] is from_backup)
    return len(wrote) == WRITERS and min(wrote.values()) >= times


def items_of(server: ServerProcess, root: str) -> dict[str, tuple[int, int]]:
    """Version and content of all that the server has, as the server says it."""
    with server.connect() as conversation:
        places = conversation.call("HKEYS", f"{root}:memory:short:places")
        ids = [bytes(id_).decode() for id_ in places]
        values = [conversation.call("HMGET", f"{root}:memory:short:item:{id_}", "version", "content") for id_ in ids]
    return {id_: (int(version), int(content)) for id_, (version, content) in zip(ids, values, strict=True)}


def conflicts_in(ledger: Ledger, *, share: bool) -> list[Line]:
    """Of all files: of one that is shared, each has told the same."""
    told = [line["conflicts"] for line in ledger.read("ends")]
    assert len(told) == WRITERS
    return max(told, key=len) if share else [conflict for of_one in told for conflict in of_one]


def assert_all_that_was_counted_counts(ledger: Ledger, counter: tuple[int, int], conflicts: list[Line]) -> None:
    """Four write one item, in one copy or in four: what is not in it, is told as a conflict. Nobody else has any."""
    assert {conflict["id"] for conflict in conflicts} <= {COUNTER}
    version, content = counter
    assert version == content + 1
    least = len(ledger.read("counted")) - len(conflicts)
    in_doubt = len(ledger.read("perhaps counted")) + sum(conflict["may_have_happened"] for conflict in conflicts)
    assert least <= content <= least + in_doubt


def kept(line: Line) -> tuple[int, int]:
    return line["version"], line["content"]


def assert_versions_are_exact(ledger: Ledger) -> None:
    versions: dict[str, list[int]] = {}
    for line in ledger.read("wrote"):
        versions.setdefault(line["id"], []).append(line["version"])
    for id_, told in versions.items():
        lived = [version for version in told if version]
        assert lived == list(range(1, len(lived) + 1)), id_
        assert 0 not in told[:-1], f"{id_} was written after it had been deleted"
