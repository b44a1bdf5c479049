from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import CONFLICT, NOT_FOUND, USAGE
from kizuna.testing import ServerProcess


@pytest.fixture
def line(server: ServerProcess, root: str) -> list[str]:
    return ["--url", server.url, "--set", f"roots.coordination={root}", "--set", f"roots.system={root}"]


def kizuna(line: list[str], *arguments: str) -> Result:
    return CliRunner().invoke(command, [*line, "issues", *arguments])


def test_from_new_to_done(line: list[str]) -> None:
    assert kizuna(line, "ls").output == "There are none.\n"
    assert kizuna(line, "set", "7", "pending", "--meta", "title=It = leaks").exit_code == 0
    assert kizuna(line, "checkout", "7").output == "Issue 7 is yours.\n"
    table = kizuna(line, "ls", "--status", "processing").stdout.splitlines()
    assert table[0].split() == ["ISSUE", "STATUS", "BY", "SINCE"]
    assert table[1].split()[:2] == ["7", "processing"]

    # The next command is another process, and the same person.
    assert kizuna(line, "complete", "7", "--meta", "pr=77").exit_code == 0
    shown = json.loads(kizuna(line, "show", "7", "--json").stdout)
    assert (shown["status"], shown["metadata"]["title"], shown["metadata"]["pr"]) == ("completed", "It = leaks", "77")
    assert "title        It = leaks" in kizuna(line, "show", "7").stdout
    assert [json.loads(row)["issue"] for row in kizuna(line, "today", "--json").stdout.splitlines()] == ["7"]
    assert kizuna(line, "reopen", "7").output == "Issue 7 is pending again.\n"
    assert kizuna(line, "today").output == "There are none.\n"
    assert kizuna(line, "forget", "7").exit_code == 0
    assert kizuna(line, "show", "7").exit_code == NOT_FOUND


def test_who_is_too_late_is_told_by_the_exit_code(line: list[str]) -> None:
    assert kizuna(line, "checkout", "7", "--as", "mirin").exit_code == 0
    refused = kizuna(line, "checkout", "7")
    assert (refused.exit_code, refused.stderr) == (
        CONFLICT,
        "Error: issue 7 is processing by mirin; nothing was changed\n",
    )
    late = kizuna(line, "complete", "7", "--as", "ponta")
    assert late.exit_code == CONFLICT
    assert "not checked out by us: it is processing by mirin" in late.stderr
    assert kizuna(line, "fail", "7", "no idea", "--as", "mirin").exit_code == 0
    assert kizuna(line, "checkout", "7", "--expect", "failed").exit_code == 0
    assert kizuna(line, "release", "7", "--force", "--as", "ponta").output == "Issue 7 is failed again.\n"


def test_what_was_written_by_hand_is_found_and_put_right(line: list[str], server: ServerProcess, root: str) -> None:
    assert kizuna(line, "verify").stderr == "All is as it should be.\n"
    server.call("SET", f"{root}:issue:status:1", "processing")

    found = kizuna(line, "verify", "--json")
    assert (found.exit_code, json.loads(found.stdout)) == (
        CONFLICT,
        {"issue": "1", "problem": "missing in processing"},
    )
    assert kizuna(line, "verify", "--repair").exit_code == 0
    assert kizuna(line, "verify").exit_code == 0


def test_wrong_words_are_refused(line: list[str]) -> None:
    assert kizuna(line, "set", "7", "two words").exit_code == USAGE
    assert kizuna(line, "checkout", "a:b").exit_code == USAGE
    assert "there is no '=' in 'oops'" in kizuna(line, "checkout", "7", "--meta", "oops").stderr


def test_changes_are_shown_as_they_happen(line: list[str], server: ServerProcess, root: str) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-m", "kizuna", *line, "issues", "watch", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with ExitStack() as cleanup:
        cleanup.callback(watching.communicate)
        cleanup.callback(watching.kill)
        assert watching.stderr is not None
        assert watching.stdout is not None
        assert watching.stderr.readline() == "Listening; Ctrl-C ends it.\n"
        server.call("PUBLISH", f"{root}:channel:events:issue:status", "something else")
        kizuna(line, "checkout", "7", "--as", "mirin")
        assert json.loads(watching.stdout.readline()) == {"issue": "7", "status": "processing", "by": "mirin"}
        assert watching.stderr.readline() == "Something else was published: b'something else'\n"


def test_every_refusal_says_how_it_is(line: list[str]) -> None:
    kizuna(line, "checkout", "7", "--as", "mirin")

    assert kizuna(line, "forget", "7").stderr == "Error: issue 7 is processing by mirin; nothing was changed\n"
    assert kizuna(line, "reopen", "8").stderr == "Error: issue 8 is not there; nothing was changed\n"


def test_somebody_without_a_name_can_check_out(line: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert kizuna(line, "checkout", "7").exit_code == 0
    assert json.loads(kizuna(line, "show", "7", "--json").stdout)["by"].startswith("somebody@")


def test_what_outsiders_wrote_is_shown_as_it_is(line: list[str], server: ServerProcess, root: str) -> None:
    server.call("SET", f"{root}:issue:status:7", "odd")
    server.call("HSET", f"{root}:issue:metadata:7", "checkedOutAt", "9" * 30)
    server.call("SADD", f"{root}:issues:processing", "9" * 5000)

    assert "9" * 30 in kizuna(line, "show", "7").stdout
    assert kizuna(line, "ls").exit_code == 0
    assert kizuna(line, "ls", "--status", "processing").exit_code == 0
    server.call("DEL", f"{root}:issues:processing")
