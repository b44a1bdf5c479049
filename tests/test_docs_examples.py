"""What the pages show in Python runs as it stands there."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import groupby
from pathlib import Path
from textwrap import dedent
from typing import Any

import click
import msgspec
import pytest
import pytest_asyncio

import kizuna
from kizuna.app import Kizuna, connect
from kizuna.cli import LazyGroup, command
from kizuna.match.plan import Plan
from kizuna.settings import Settings
from kizuna.testing import eventually

DOCS = Path(__file__).parent.parent / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What a reader has to imagine: names that a page uses and does not explain.
IMAGINED = """
from dataclasses import dataclass
from kizuna import *
from kizuna.coordination.channels import Garbled, Message, Missed
from kizuna.errors import IssueTaken

async def mend_it(): pass
async def write_report(fence): pass
async def handle(value): pass
def work(payload): return payload
"""


def examples(page: str) -> list[str]:
    found: list[str] = _BLOCK.findall((DOCS / page).read_text())
    assert found, f"{page} shows nothing"
    return found


@pytest_asyncio.fixture
async def k(settings: Settings) -> AsyncIterator[Kizuna]:
    async with connect(settings) as k:
        yield k


@pytest.fixture
def names(k: Kizuna, settings: Settings) -> dict[str, Any]:
    """What stands in the examples; each adds to it what it defines. `connect()` leads to the server of the test."""
    found: dict[str, Any] = {}
    exec(IMAGINED, found)
    return found | {"k": k, "connect": lambda: connect(settings), "kizuna": stand_in(settings)}


def stand_in(settings: Settings) -> Any:
    """The package, connected to the server of the test."""

    class Package:
        connect = staticmethod(lambda: connect(settings))

        def __getattr__(self, name: str) -> Any:
            return getattr(kizuna, name)

    return Package()


async def run(example: str, names: dict[str, Any]) -> None:
    """As if typed at a prompt that takes `await`."""
    code = compile(dedent(example), "<example>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        await result


async def run_until(is_true: Callable[[], Any], example: str, names: dict[str, Any]) -> None:
    """For one that follows something, and does not end: it must not fail before that is true."""
    following = asyncio.create_task(run(example, names))

    async def is_reached() -> bool:
        if following.done():
            following.result()
        told = is_true()
        return bool(await told if inspect.isawaitable(told) else told)

    try:
        await eventually(is_reached)
    finally:
        following.cancel()
        await asyncio.wait([following])


async def test_namespace(k: Kizuna, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_the_json_of("namespace.md", tmp_path / "redis.json")
    spelt, sharded, kept, loaded = examples("namespace.md")
    for example in (spelt, sharded, kept, loaded):
        await run(example, names)

    assert names["settings"].roots.coordination == "poppo"
    # What stands beside a line is what it evaluates to.
    shown = re.findall(r"^(\S.*?)\s+# (poppo:[^\s,;]+)", spelt + loaded, re.MULTILINE)
    assert len(shown) > 5
    assert {code: eval(code, names) for code, _ in shown} == dict(shown)


def write_the_json_of(page: str, file: Path) -> None:
    [text] = re.findall(r"^```json\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    file.write_text(text)


async def test_issues(k: Kizuna, names: dict[str, Any]) -> None:
    [checkout] = examples("issues.md")
    await run(checkout, names)

    assert await k.issues.status(123) == "completed"
    assert (await k.issues.metadata(123))["pr"] == "77"


async def test_config_and_flags(k: Kizuna, names: dict[str, Any]) -> None:
    [following] = examples("config-and-flags.md")

    async def is_changed() -> bool:
        return bool(await k.config.read("claude:timeout") == 45)

    await run_until(is_changed, following, names)


async def test_stats_and_metrics(k: Kizuna, names: dict[str, Any]) -> None:
    counting, gathering = examples("stats-and-metrics.md")
    await run(counting, names)
    await run(gathering, names | {"k": k})

    assert (await k.stats.totals("issues")).counters == {"completed": 2}
    assert (await k.stats.totals("performance")).histograms["took_ms"].count == 2


async def test_channels(k: Kizuna, names: dict[str, Any]) -> None:
    plain, everything, durable = examples("channels.md")
    await run_until(k.channels.active, plain, names)
    async with names["requests"].subscribe() as messages:
        await names["requests"].publish(names["Request"](7))
        within = names | {"messages": messages}
        await run_until(lambda: "item" in within, everything, within)

    async def is_done() -> bool:
        return [log.readers for log in await k.channels.logs()] == [{"billing": 0}]

    await run_until(is_done, durable, names)


async def test_keys(k: Kizuna, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await k.temp.set("report", 1)
    [backup] = examples("keys-command.md")
    copy = f"{k.settings.roots.coordination}-copy"
    await run(backup.replace('"poppo": "copy"', f'"{k.settings.roots.coordination}": "{copy}"'), names)
    await k.store.call("UNLINK", f"{copy}:temp:report")

    assert (names["footer"].keys, names["result"].restored) == (1, 1)


async def test_locks(k: Kizuna, names: dict[str, Any]) -> None:
    holding, refusing = examples("locks.md")
    await run(holding, names)
    async with k.locks.hold("report:7") as held:
        await run(refusing, names | {"k": k, "held": held, "fence": held.fence})


async def test_processes(names: dict[str, Any]) -> None:
    [membership] = examples("processes.md")
    await run(membership, names)


async def test_queues(k: Kizuna, names: dict[str, Any]) -> None:
    pushing, taking = examples("queues.md")
    pushed = asyncio.create_task(run(pushing, names))
    await eventually(lambda: waits_in(k, "images"))
    await run(taking, names | {"queue": k.queue("images")})
    await pushed


async def waits_in(k: Kizuna, group: str) -> bool:
    return (await k.queue(group).depth()).waiting == 1


async def test_worker(k: Kizuna, settings: Settings) -> None:
    [program] = examples("worker.md")
    with started(program, settings) as worker:
        try:
            task = await k.queue("images").push({}, name="resize")
            assert await task.result(timeout_s=30) == {"width": 100}
            worker.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(worker.wait, 30) == 0
        finally:
            worker.kill()


@pytest_asyncio.fixture
async def units(settings: Settings) -> AsyncIterator[Kizuna]:
    """With the root that the pages name."""
    roots = msgspec.structs.replace(settings.roots, units="muf")
    async with connect(msgspec.structs.replace(settings, roots=roots)) as k:
        yield k


async def test_units(units: Kizuna, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    calling, handling, listening, keeping = examples("units.md")
    names |= {"k": units, "unit": units.unit("camera"), "log_it": lambda *_: None}
    await run(calling, names)
    assert capsys.readouterr().out == "b'2 cats'\n"

    await run(handling, names)
    async with units.unit("detector").serving(names["detect"]):
        assert await units.unit("camera").request("detector", b"an image") == b"2 cats"

    async def is_heard() -> bool:
        await units.unit("camera").send("err", "7", b"too dark")
        return "camera 7 b'too dark'" in capsys.readouterr().out

    listener = asyncio.create_task(run(listening, names))
    await eventually(is_heard)
    listener.cancel()
    await run(keeping, names)


def test_every_promise_of_units_names_a_test_that_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "units.md").read_text()))
    written = "".join(path.read_text() for path in (Path(__file__).parent / "units").glob("test_*.py"))

    assert len(named) > 12
    assert {name for name in named if f"def {name}(" not in written} == set()


async def test_state_of_units(units: Kizuna, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    [example] = examples("units-state.md")
    await run(example, names | {"k": units})
    assert capsys.readouterr().out == "temp set 21.5\n"


async def test_memory(k: Kizuna, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    remembering, counting, finding, invalidating, watching, following = examples("memory.md")
    await run(remembering, names)
    assert capsys.readouterr().out == "['trains']\n"
    names |= {"k": k}

    await run(counting, names)
    visits = await k.memory.get("visits")
    assert visits is not None
    assert (visits.content, visits.version) == (2, 3)

    await run(finding, names)
    assert "{'who': 'Ana', 'likes': 'trains'}" in capsys.readouterr().out

    await run(invalidating, names)
    found = [(await k.memory.list(type=of)).items for of in ("table", "total", "vector")]
    assert list(map(len, found)) == [1, 0, 0]

    await run_until(lambda: "events" in names, watching, names)
    await run_until(lambda: "found" in names, following, names)
    assert capsys.readouterr().out.startswith("item:created ")


def test_every_promise_of_memory_names_a_test_that_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "memory.md").read_text()))
    written = "".join(path.read_text() for path in (Path(__file__).parent / "memory").rglob("test_*.py"))

    assert len(named) > 20
    assert {name for name in named if f"def {name}(" not in written} == set()


async def test_match(k: Kizuna, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    first, watching, ticking, backfilling = examples("match.md")
    await run(first, names)
    assert capsys.readouterr().out == "game-7.example.com:7777\n"
    names |= {"k": k}

    await run_until(lambda: "assignments" in names, watching, names)
    await k.match.delete_ticket(names["ticket"].id)
    for _ in range(10):
        await k.match.create_ticket(tags=["region:eu"], strings={"mode": "ranked"}, doubles={"skill": 1500})
    await run(ticking, names)
    assert capsys.readouterr().out == "10 10 0\n"

    await run(backfilling, names)
    assert names["tickets"] == []


def test_every_promise_of_match_names_a_test_that_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "match.md").read_text()))
    written = "".join(path.read_text() for path in (Path(__file__).parent / "match").rglob("test_*.py"))

    assert len(named) > 20
    assert {name for name in named if f"def {name}(" not in written} == set()


def test_the_plans_that_are_shown_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_text("def evaluate(matches): return []")
    (tmp_path / "allocate").write_text("#!/bin/sh\necho host:7777\n")
    (tmp_path / "allocate").chmod(0o755)
    shown = re.findall(r"^```toml\n(.*?)^```$", (DOCS / "match.md").read_text(), re.MULTILINE | re.DOTALL)

    for number, text in enumerate(shown):
        path = tmp_path / f"plan-{number}.toml"
        path.write_text(text)
        assert Plan.load(path).assigner is not None
    assert len(shown) == 2


def started(program: str, settings: Settings) -> subprocess.Popen[bytes]:
    root = settings.roots.coordination
    ours = {"KIZUNA_STORE__URL": settings.store.url, "KIZUNA_ROOTS__COORDINATION": root, "KIZUNA_ROOTS__SYSTEM": root}
    return subprocess.Popen([sys.executable, "-c", program], env=os.environ | ours)


# commands

_LINE = re.compile(r"^ *\$ (.*?kizuna .*?)(?: {3,}.*)?$", re.MULTILINE)
_JOINTS = "|&;<>"
_FILES = ("namespace.json", "secret")


def shown_commands() -> list[str]:
    """Every call of kizuna in a document, of which one holds all help texts."""
    texts = [path.read_text() for path in [*DOCS.glob("*.md"), DOCS.parent / "README.md"]]
    return sorted({shlex.join(call) for text in texts for line in _LINE.findall(text) for call in calls_in(line)})


def calls_in(line: str) -> Iterator[list[str]]:
    """The arguments of kizuna, without what stands before and behind it in a pipeline."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_JOINTS)
    lexer.whitespace_split = True
    for is_joint, words in groupby(lexer, lambda word: not word.strip(_JOINTS)):
        name, *arguments = words
        if not is_joint and name == "kizuna":
            yield arguments


@pytest.mark.parametrize("line", shown_commands())
def test_every_command_that_is_shown_can_be_given(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in _FILES:
        (tmp_path / name).touch()
    parse(command, "kizuna", shlex.split(line), None)


def parse(here: click.Command, name: str, arguments: list[str], parent: click.Context | None) -> None:
    """Whatever is wrong with the arguments is raised; nothing is run."""
    context = here.make_context(name, arguments, parent=parent)
    if isinstance(here, click.Group):
        below, found, rest = here.resolve_command(context, [*context._protected_args, *context.args])
        assert below is not None
        assert found is not None
        parse(here.load(below) if isinstance(here, LazyGroup) else found, below, rest, context)
