from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import BAD_SETTINGS
from kizuna.testing import ServerProcess
from kizuna.testing.resp import Conversation
from kizuna.testing.servers import free_port

NAMES = ["latency", "version", "topology", "persistence", "eviction", "notifications", "memory", "slow subscribers",
         "clock", "clients", "security"]  # fmt: skip


def kizuna(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def checks(ended: Result) -> dict[str, dict[str, Any]]:
    return {row["check"]: row for row in map(json.loads, ended.stdout.splitlines())}


@pytest.fixture
def misconfigured() -> Iterator[ServerProcess]:
    """Wrong in everything that can be set."""
    wrong: dict[str, str | int] = {"maxmemory-policy": "allkeys-lru", "maxmemory": 500_000, "maxclients": 10}
    with ServerProcess(config=wrong) as server:
        yield server


@pytest.fixture
def crowd(misconfigured: ServerProcess) -> Iterator[list[Conversation]]:
    with ExitStack() as connections:
        yield [connections.enter_context(misconfigured.connect()) for _ in range(9)]


def test_every_wrong_line_names_a_command_and_after_those_commands_all_is_well(
    misconfigured: ServerProcess, crowd: list[Conversation]
) -> None:
    before = kizuna("--url", misconfigured.url, "doctor", "--json")
    found = checks(before)

    assert before.exit_code == 1
    assert list(found) == NAMES
    assert {row["check"]: row["verdict"] for row in wrong(found)} == {
        "persistence": "fail",
        "eviction": "fail",
        "notifications": "warn",
        "memory": "fail",
        "slow subscribers": "warn",
        "clients": "fail",
    }
    assert found["eviction"] == {
        "check": "eviction",
        "verdict": "fail",
        "found": "allkeys-lru: a full server throws away any key; kizuna refuses to start here",
        "mend": "CONFIG SET maxmemory-policy noeviction",
    }
    assert found["clients"]["found"] == "10 of 10 connected"

    for row in wrong(found):
        if row["mend"]:
            assert crowd[0].call(*shlex.split(row["mend"])) == b"OK"

    after = kizuna("--url", misconfigured.url, "doctor", "--json")
    assert wrong(checks(after)) == []
    assert after.exit_code == 0


def wrong(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """What is wrong with the server; how long it takes to answer is up to the machine, and to who else uses it."""
    return [row for name, row in found.items() if row["verdict"] != "pass" and name != "latency"]


def test_people_get_a_line_for_each_check_and_the_command_below_it(misconfigured: ServerProcess) -> None:
    ended = kizuna("--url", misconfigured.url, "doctor")

    assert ended.exit_code == 1
    assert (
        "fail eviction          allkeys-lru: a full server throws away any key; kizuna refuses to start here\n"
        "                       -> CONFIG SET maxmemory-policy noeviction\n"
    ) in ended.stdout
    assert ended.stderr.startswith(f"Looking at {misconfigured.url}\n")
    # How long the server takes to answer is one of the first, or one of the second.
    assert re.search(r"^(6 passed, 2|5 passed, 3) to look at, 3 failed\.$", ended.stderr, re.MULTILINE)
    assert ended.stderr.endswith("CONFIG REWRITE after it makes it stay.\n")


def test_warnings_alone_are_no_failure(fresh_server: ServerProcess) -> None:
    fresh_server.call("CONFIG", "SET", "maxmemory-policy", "volatile-lru")

    ended = kizuna("--url", fresh_server.url, "doctor", "--json")

    assert checks(ended)["eviction"]["verdict"] == "warn"
    assert ended.exit_code == 0


def test_an_unreachable_server_is_one_failing_line_that_says_what_to_do() -> None:
    port = free_port()
    ended = kizuna("--url", f"redis://127.0.0.1:{port}", "--set", "store.timeout_s=1", "doctor", "--json")

    assert ended.exit_code == 1
    assert checks(ended) == {
        "reachable": {
            "check": "reachable",
            "verdict": "fail",
            "found": f"no connection (Connection refused) at 127.0.0.1:{port} (not sent)",
            "mend": "is the server running there? `kizuna server start` runs the embedded one",
        }
    }


def test_a_wrong_password_is_a_failing_line_too() -> None:
    with ServerProcess(password="right") as server:
        ended = kizuna("--url", f"redis://:wrong@{server.address}", "doctor")

    assert ended.exit_code == 1
    assert "WRONGPASS" in ended.stdout
    assert "-> set store.username and store.password" in ended.stdout
    assert "wrong@" not in ended.output


def test_wrong_settings_are_no_matter_for_the_doctor() -> None:
    assert kizuna("--url", "http://db", "doctor").exit_code == BAD_SETTINGS


def test_the_embedded_server_passes_everything(server_folder: Path) -> None:
    embedded = ["--set", f"embedded.folder={server_folder}", "--set", "embedded.port=0"]
    ended = kizuna(*embedded, "doctor", "--json")

    assert wrong(checks(ended)) == []
    assert ended.exit_code == 0


@pytest.mark.parametrize(("no_colour", "sign"), [("", "\x1b[32m\x1b[1m✓"), ("1", "✓")])
def test_a_terminal_shows_signs(server: ServerProcess, no_colour: str, sign: str) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        subprocess.run(
            [sys.executable, "-m", "kizuna", "--url", server.url, "doctor"],
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "NO_COLOR": no_colour, "TERM": "xterm", "PYTHONUTF8": "1"},
            timeout=120,
            check=False,
        )
        os.close(theirs)
        shown = terminal.read(65536).decode()

    assert any(line.startswith(sign) for line in shown.splitlines())


def test_every_check_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()

    assert [name for name in NAMES if f"| {name} |" not in text] == []
