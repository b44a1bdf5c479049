from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kizuna.app import connect
from kizuna.cli import command
from kizuna.cli.exit_codes import INTERRUPTED, OK, UNAVAILABLE
from kizuna.settings import Settings
from kizuna.testing import ServerProcess, eventually

Run = Callable[..., Result]


@pytest.fixture
def options(server: ServerProcess, root: str) -> list[str]:
    roots = (f"roots.{name}={root}" for name in ("system", "coordination", "units"))
    return ["--url", server.url, *(word for text in roots for word in ("--set", text)), "units", "ls"]


@pytest.fixture
def ls(options: list[str]) -> Run:
    return lambda *arguments: CliRunner().invoke(command, [*options, *arguments])


@pytest.fixture
def tell(server: ServerProcess, root: str) -> Callable[..., None]:
    """Write what a process would write about itself."""

    def tell(unit: str, **facts: object) -> None:
        server.call("SET", f"{root}/{unit}/keep/presence.{facts['process']}", json.dumps(facts), "PX", 15_000)

    return tell


def rows(ended: Result) -> list[dict[str, Any]]:
    assert ended.exit_code == OK, ended.output
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_where_nobody_is_it_is_said_how_to_start_one(ls: Run) -> None:
    ended = ls()

    assert (ended.exit_code, ended.stdout) == (OK, "")
    assert ended.stderr == (
        "Nobody is there.\n"
        "`kizuna units serve NAME --exec PROGRAM` starts one; in Python, `k.unit(NAME).serving(handler)` does.\n"
    )
    assert ls("cam*").stderr.startswith("No unit is called cam*.\n")
    assert (ls("--json").stdout, ls("--json").stderr) == ("", "")


def test_units_are_listed_with_what_they_serve_and_how_fast(
    ls: Run, tell: Callable[..., None], server: ServerProcess, root: str
) -> None:
    rates = {"requests": 0, "served": 12.5}
    served = [f"{root}/*/req/detector.*"]
    took = {"p50": 1.234, "p99": 12.345}
    tell("detector", process="web-1", every_s=5, serves=served, rates=rates, handling_ms=took)
    tell("detector", process="web-2", every_s=5, serves=served, rates=rates)
    tell("camera", process="web-3", every_s=5, rates={"requests": 25, "served": 0}, latency_ms={"p50": 2, "p99": 20})
    server.call("SET", f"{root}/outsider/req/42", "hello", "EX", 10)
    server.call("SET", f"{root}/outsider/keep/mode", "x", "EX", 10)
    head, *lines = (line.split("  ") for line in ls().stdout.splitlines())

    assert [word.strip() for word in head if word] == [
        "UNIT", "SERVES", "PROCESSES", "REQUESTS/S", "SERVED/S", "WAITS", "WORKS", "KEYS", "SEEN",
    ]  # fmt: skip
    cells = [[word.strip() for word in line if word.strip()][:-1] for line in lines]
    assert cells == [
        ["camera", "-", "1", "25", "0", "2 / 20 ms", "-", "-"],
        ["detector", "*/req/detector.*", "2", "0", "25", "-", "1.23 / 12.3 ms", "-"],
        ["outsider", "-", "0", "-", "-", "-", "-", "1 req, 1 keep"],
    ]
    assert [line[-1].strip().endswith(" s ago") for line in lines] == [True, True, False]


def test_machines_are_told_everything(ls: Run, tell: Callable[..., None], server: ServerProcess, root: str) -> None:
    tell("detector", process="web-1", every_s=5, serves=["a", "b"], pid=7, since=1.5, polling="deaf")
    server.call("SET", f"{root}/camera/err/1", "x", "EX", 10)
    [row] = rows(ls("--json"))
    everybody = rows(ls("--json", "--all"))

    assert (row["unit"], row["serves"], row["polling"]) == ("detector", ["a", "b"], "deaf")
    [process] = row["processes"]
    assert (process["process"], process["pid"], process["since"]) == ("web-1", 7, 1.5)
    assert 0 <= process["seen_s"] <= 15
    assert [each["unit"] for each in everybody] == ["camera", "detector"]
    assert everybody[0]["keys"] == {"requests": 0, "replies": 0, "errors": 1, "kept": 0, "claims": 0}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("cam*", ["camera", "camel"]), ("CAMERA", ["camera"]), ("x", []), ("*", ["camera", "camel", "x1"])],
)
def test_a_pattern_chooses_names(ls: Run, tell: Callable[..., None], pattern: str, found: list[str]) -> None:
    for unit in ("camera", "camel", "x1"):
        tell(unit, process="web-1")

    assert [row["unit"] for row in rows(ls(pattern, "--json"))] == sorted(found)


def test_why_units_poll_is_said_once_for_all(ls: Run, tell: Callable[..., None]) -> None:
    for number in range(7):
        tell(f"unit-{number}", process="web-1", every_s=5, polling="the server is deaf")
    ended = ls()

    assert all(line.endswith(", polls") for line in ended.stdout.splitlines()[1:])
    assert ended.stderr == (
        "unit-0, unit-1, unit-2, unit-3, unit-4 and 2 more look for changes again and again, instead of hearing of "
        "them: the server is deaf\n"
    )


def test_what_others_write_can_do_nothing_to_the_terminal(ls: Run, tell: Callable[..., None]) -> None:
    tell("un\u202eit", process="web-1", serves=["\x1b[2J"], listens=["\n"], polling="\x1b[2J\r")
    ended = ls()

    assert "\x1b[2J" not in ended.output
    assert ended.stdout.splitlines()[1].split()[:3] == [r"un\u202eit", r"\x1b[2J", r"\n"]
    assert ended.stderr.endswith("them: \\x1b[2J\\r\n")


async def test_a_unit_that_really_serves_is_seen(ls: Run, settings: Settings) -> None:
    async def echo(data: bytes) -> bytes:
        return data

    async def seen() -> list[dict[str, Any]]:
        return rows(await asyncio.to_thread(ls, "--json"))

    async with connect(settings) as k, k.unit("Detector").serving(echo):
        [row] = await eventually(seen, within_s=20)

    assert (row["unit"], row["processes"][0]["process"]) == ("detector", k.process)


def test_it_can_be_shown_again_and_again_until_ctrl_c(options: list[str], tell: Callable[..., None]) -> None:
    tell("camera", process="web-1")
    line = [sys.executable, "-m", "kizuna", *options, "--every", "0.1", "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as looking:
        assert looking.stdout is not None
        try:
            assert [json.loads(looking.stdout.readline())["unit"] for _ in range(3)] == ["camera"] * 3
            looking.send_signal(signal.SIGINT)
            assert looking.wait(30) == INTERRUPTED
        finally:
            looking.kill()


def test_no_embedded_server_is_started_to_look_at(server_folder: Path) -> None:
    ended = CliRunner().invoke(command, ["--set", f"embedded.folder={server_folder}", "units", "ls"])

    assert ended.exit_code == UNAVAILABLE
    assert "no embedded server runs" in ended.stderr
