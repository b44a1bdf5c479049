from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kizuna.app import Kizuna
from kizuna.cli import command
from kizuna.cli.exit_codes import CONFLICT, NOT_FOUND, USAGE
from kizuna.coordination.processes import Processes
from kizuna.settings import Settings
from kizuna.testing import ServerProcess
from kizuna.testing.waiting import blocking_until


@pytest.fixture
def line(server: ServerProcess, root: str) -> list[str]:
    """The options that lead to the server and root of this test."""
    roots = ["--set", f"roots.coordination={root}", "--set", f"roots.system={root}"]
    return ["--url", server.url, *roots, "--set", "processes.heartbeat_every_s=0.2"]


def kizuna(line: list[str], *arguments: str) -> Result:
    return CliRunner().invoke(command, [*line, *arguments])


def listed(line: list[str]) -> dict[str, str]:
    rows = [json.loads(row) for row in kizuna(line, "processes", "ls", "--json").stdout.splitlines()]
    return {row["id"]: row["state"] for row in rows}


def register(settings: Settings, *names: str) -> None:
    """Processes that fall silent at once."""

    async def main() -> None:
        for name in names:
            k = Kizuna(settings)
            await k.store.open()
            await Processes(k.store, k.background, name).register({"role": "leader", "id": "odd"}, kind="web")
            await k.aclose()

    asyncio.run(main())


def test_a_table_for_people_and_objects_for_machines(line: list[str], settings: Settings) -> None:
    assert kizuna(line, "processes", "ls").output == "There are none.\n"
    register(settings, "one", "two")

    table = kizuna(line, "processes", "ls").stdout.splitlines()
    assert table[0].split() == ["ID", "KIND", "HOST", "PID", "SINCE", "HEARD", "STATE"]
    assert [row.split()[0] for row in table[1:]] == ["one", "two"]
    assert table[1].split()[1] == "web"
    assert listed(line).keys() == {"one", "two"}


def test_one_process_with_all_it_says(line: list[str], settings: Settings) -> None:
    register(settings, "one")

    shown = kizuna(line, "processes", "show", "one")
    rows = dict(row.split(None, 1) for row in shown.stdout.splitlines())
    assert (rows["id"], rows["kind"], rows["role"], rows["beats"]) == ("one", "web", "leader", "1")
    assert json.loads(kizuna(line, "processes", "show", "one", "--json").stdout)["info"] == {
        "role": "leader",
        "id": "odd",
    }
    unknown = kizuna(line, "processes", "show", "two")
    assert (unknown.exit_code, unknown.stderr) == (
        NOT_FOUND,
        "Error: no process 'two' is known; `kizuna processes ls` shows who is there\n",
    )


def test_zombies_are_listed_and_buried(line: list[str], server: ServerProcess, root: str) -> None:
    assert kizuna(line, "processes", "bury", "--all").stderr == "There are no zombies.\n"
    for name in ("dead-1", "dead-2", "dead-3"):
        server.call("SADD", f"{root}:processes:zombies", name)
        server.call("HSET", f"{root}:process:info:{name}", "died_at", "1700000000000")
        server.call("EXPIRE", f"{root}:process:info:{name}", 60)

    assert len(kizuna(line, "processes", "zombies").stdout.splitlines()) == 4
    assert kizuna(line, "processes", "bury", "dead-2").stderr == "Buried dead-2.\n"
    assert listed(line) == {"dead-1": "zombie", "dead-3": "zombie"}
    assert kizuna(line, "processes", "bury", "--all").stderr == "Buried dead-1, dead-3.\n"
    assert listed(line) == {}
    assert kizuna(line, "processes", "bury", "dead-1").exit_code == NOT_FOUND
    assert kizuna(line, "processes", "bury").exit_code == USAGE


def test_a_foreign_program_is_a_member_while_it_runs(line: list[str]) -> None:
    program = [sys.executable, "-m", "kizuna", *line, "processes", "run", "--id", "mirin", "--info", "role=cat", "--"]
    with ExitStack() as cleanup:
        running = subprocess.Popen([*program, "sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.05; done"])
        cleanup.callback(running.wait)
        cleanup.callback(running.kill)
        blocking_until(lambda: listed(line).get("mirin") == "alive", within_s=20)
        shown = blocking_until(lambda: told_its_pid(line, running.pid), within_s=20)
        assert (shown["kind"], shown["info"]["role"]) == ("sh", "cat")
        assert shown["info"]["command"].startswith("sh -c")
        # Another one of that name is refused, and does not run.
        second = kizuna(line, "processes", "run", "--id", "mirin", "--", "touch", "/nonexistent/file")
        assert second.exit_code == CONFLICT

        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=120) == 7
    assert listed(line) == {}


def told_its_pid(line: list[str], pid_of_ours: int) -> dict[str, Any] | None:
    shown: dict[str, Any] = json.loads(kizuna(line, "processes", "show", "mirin", "--json").stdout)
    return None if shown["pid"] == pid_of_ours else shown


@pytest.mark.parametrize(("program", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_the_exit_code_is_passed_on(line: list[str], program: str, code: int) -> None:
    whole = [sys.executable, "-m", "kizuna", *line, "processes", "run", "--", "sh", "-c", program]
    assert subprocess.run(whole, check=False, timeout=120).returncode == code


def test_a_program_that_is_not_there_is_told(line: list[str]) -> None:
    ended = kizuna(line, "processes", "run", "--", "/no/such")
    assert (ended.exit_code, ended.stderr) == (127, "Error: /no/such cannot be run: No such file or directory\n")
    assert listed(line) == {}


def test_kizuna_up_is_a_member_of_the_fleet(line: list[str]) -> None:
    up = subprocess.Popen(
        [sys.executable, "-m", "kizuna", *line, "--set", "probes.port=0", "up", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ,
        text=True,
    )
    try:
        assert up.stdout is not None
        places = json.loads(up.stdout.readline())
        blocking_until(lambda: listed(line) == {places["process"]: "alive"})
    finally:
        up.terminate()
        up.communicate(timeout=120)
    assert listed(line) == {}
