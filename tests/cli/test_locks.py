from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import BUSY, CONFLICT, NOT_FOUND, UNAVAILABLE, USAGE
from kizuna.testing import ServerProcess
from kizuna.testing.waiting import blocking_until


@pytest.fixture
def options(server: ServerProcess, root: str) -> list[str]:
    return ["--url", server.url, "--set", f"roots.coordination={root}", "--set", f"roots.system={root}"]


def kizuna(*arguments: str, says: str = "") -> Result:
    return CliRunner().invoke(command, arguments, input=says)


@contextmanager
def holding(options: list[str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`kizuna locks hold` as a process of its own; the block begins when its command has said something."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kizuna", *options, "locks", "hold", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            process.first_line = process.stdout.readline().strip()  # type: ignore[attr-defined]
            yield process
        finally:
            process.kill()


SAY_AND_SLEEP = ("sh", "-c", "echo $KIZUNA_FENCE; exec sleep 60")


def test_held_locks_are_listed_for_people_and_for_machines(
    options: list[str], server: ServerProcess, root: str
) -> None:
    server.call("SET", f"{root}:lock:issue:1", "1700000000000001:host-1/abc-1", "PX", 60_000)
    server.call("SET", f"{root}:lock:issue:2", "me")
    server.call("ZADD", f"{root}:locks:line:issue:1", 1, "host-2/abc-1")
    server.call("PEXPIRE", f"{root}:locks:line:issue:1", 60_000)

    shown = kizuna(*options, "locks", "ls")
    assert (shown.exit_code, shown.stderr) == (0, "")
    header, first, second = shown.stdout.splitlines()
    assert header.split() == ["LOCK", "HOLDER", "FENCE", "ENDS", "IN", "WAITING"]
    assert first.split()[:3] == ["issue:1", "host-1", "1700000000000001"]
    assert second.split() == ["issue:2", "me", "(by", "hand)", "-", "never", "0"]

    one, other = map(json.loads, kizuna(*options, "locks", "ls", "--json").stdout.splitlines())
    assert 50 < one.pop("ends_in_s") <= 60
    assert one == {
        "lock": "issue:1",
        "process": "host-1",
        "token": "host-1/abc-1",
        "fence": 1700000000000001,
        "waiting": 1,
    }
    assert other == {
        "lock": "issue:2", "process": None, "token": "me", "fence": None, "ends_in_s": None, "waiting": 0
    }  # fmt: skip
    assert "issue:1" not in kizuna(*options, "locks", "ls", "*:2").stdout
    server.call("DEL", f"{root}:lock:issue:2")


def test_where_nothing_is_held_it_says_so(options: list[str]) -> None:
    ended = kizuna(*options, "locks", "ls")
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "", "No lock is held.\n")
    assert kizuna(*options, "locks", "ls", "--json").output == ""
    assert "fits issue:*" in kizuna(*options, "locks", "ls", "issue:*").stderr


def test_one_lock_is_shown_with_who_waits_for_it(options: list[str], server: ServerProcess, root: str) -> None:
    free = json.loads(kizuna(*options, "locks", "show", "nightly", "--json").stdout)
    assert free == {"lock": "nightly", "state": "free", "waiting": []}

    server.call("SET", f"{root}:lock:nightly", "1700000000000001:host-1/abc-1", "PX", 60_000)
    server.call("ZADD", f"{root}:locks:line:nightly", 1, "host-2/abc-1", 2, "host-3/abc-9")
    server.call("PEXPIRE", f"{root}:locks:line:nightly", 60_000)
    held = json.loads(kizuna(*options, "locks", "show", "nightly", "--json").stdout)
    assert (held["state"], held["process"], held["waiting"]) == ("held", "host-1", ["host-2", "host-3"])
    assert "host-2, host-3" in kizuna(*options, "locks", "show", "nightly").stdout


def test_breaking_asks_says_whose_it_was_and_frees_it(options: list[str], server: ServerProcess, root: str) -> None:
    key = f"{root}:lock:nightly"
    server.call("SET", key, "1700000000000001:host-1/abc-1", "PX", 60_000)

    refused = kizuna(*options, "locks", "break", "nightly", says="n\n")
    assert refused.exit_code == 1
    assert "Lock nightly is held by host-1, for up to" in refused.stderr
    assert server.call("EXISTS", key) == 1

    assert kizuna(*options, "locks", "break", "nightly", says="y\n").exit_code == 0
    assert server.call("EXISTS", key) == 0
    server.call("SET", key, "me")
    broken = kizuna(*options, "locks", "break", "nightly", "--yes")
    assert (broken.exit_code, broken.stderr) == (0, "Taken from me (by hand).\n")

    nobody = kizuna(*options, "locks", "break", "nightly", "--yes")
    assert (nobody.exit_code, nobody.stderr) == (NOT_FOUND, "Nobody holds the lock nightly.\n")


def test_a_command_runs_under_the_lock_and_its_exit_code_is_ours(
    options: list[str], server: ServerProcess, root: str
) -> None:
    with holding(options, "nightly", "--", "sh", "-c", "echo $KIZUNA_LOCK $KIZUNA_FENCE; exit 7") as process:
        name, fence = process.first_line.split()  # type: ignore[attr-defined]
        assert (name, fence) == ("nightly", server.call("GET", f"{root}:locks:fence").decode())
        assert process.wait(timeout=120) == 7
    assert server.call("EXISTS", f"{root}:lock:nightly") == 0


def test_while_a_command_runs_nobody_else_gets_the_lock(
    options: list[str], server: ServerProcess, root: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    with holding(options, "nightly", "--", *SAY_AND_SLEEP) as process:
        refused = kizuna(*options, "locks", "hold", "nightly", "touch", str(trace))
        assert refused.exit_code == BUSY
        assert "lock 'nightly' is held by someone else" in refused.stderr
        assert not trace.exists()

        with subprocess.Popen(
            [sys.executable, "-m", "kizuna", *options, "locks", "hold", "--wait", "60", "nightly", "touch", str(trace)]
        ) as waiting:
            blocking_until(lambda: server.call("ZCARD", f"{root}:locks:line:nightly") == 1, within_s=20)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=120) == 128 + signal.SIGTERM
            assert waiting.wait(timeout=120) == 0
        assert trace.exists()


def test_a_command_whose_lock_is_lost_is_ended(options: list[str], server: ServerProcess, root: str) -> None:
    with holding(options, "--lease", "0.5", "nightly", "--", *SAY_AND_SLEEP) as process:
        server.call("DEL", f"{root}:lock:nightly")
        assert process.wait(timeout=120) == CONFLICT
        assert process.stderr is not None
        said = process.stderr.read()
        assert "The lock is lost; the command is told to end." in said
        assert "Error: lock 'nightly' was lost" in said


def test_a_signal_while_it_waits_leaves_the_line(options: list[str], server: ServerProcess, root: str) -> None:
    server.call("SET", f"{root}:lock:nightly", "me", "PX", 60_000)
    line = f"{root}:locks:line:nightly"
    arguments = [sys.executable, "-m", "kizuna", *options, "locks", "hold", "--wait", "inf", "nightly", "true"]
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL) as waiting:
        blocking_until(lambda: server.call("ZCARD", line) == 1, within_s=20)
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(timeout=120) == 128 + signal.SIGTERM
    assert server.call("EXISTS", line) == 0


def test_a_command_that_cannot_be_run_gets_a_sentence_and_the_lock_is_free(
    options: list[str], server: ServerProcess, root: str, tmp_path: Path
) -> None:
    ended = kizuna(*options, "locks", "hold", "nightly", "--", "no-such-command")
    assert (ended.exit_code, ended.stderr) == (
        127,
        "Error: no-such-command cannot be run: No such file or directory\n",
    )
    (tmp_path / "data").write_text("no program")
    assert kizuna(*options, "locks", "hold", "nightly", "--", str(tmp_path / "data")).exit_code == 126
    assert server.call("EXISTS", f"{root}:lock:nightly") == 0


def test_options_of_the_command_are_its_own(options: list[str]) -> None:
    assert kizuna(*options, "locks", "hold", "nightly", "--wait", "5", "--", "sh", "-c", "exit 3").exit_code == 3
    assert kizuna(*options, "locks", "hold", "nightly", "sh", "-c", "exit 3").exit_code == USAGE


def test_looking_does_not_start_an_embedded_server(server_folder: Path) -> None:
    ended = kizuna("--set", f"embedded.folder={server_folder}", "locks", "ls")

    assert ended.exit_code == UNAVAILABLE
    assert not server_folder.exists()


def test_names_that_could_leave_their_place_are_refused(options: list[str]) -> None:
    ended = kizuna(*options, "locks", "show", "a b")

    assert ended.exit_code == USAGE
    assert "cannot be the lock of a key" in ended.stderr
