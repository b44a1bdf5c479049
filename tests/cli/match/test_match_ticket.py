from __future__ import annotations

import subprocess
import sys

import pytest

from kizuna.cli.exit_codes import FAILURE, NOT_FOUND, TRY_AGAIN, USAGE
from kizuna.testing.commands import Runner

FIELDS = ["--tag", "region:eu", "--double", "skill=1500", "--string", "mode=ranked", "--extension", "name=Ana"]


def test_a_ticket_is_created_read_listed_and_removed(kizuna: Runner) -> None:
    id_ = kizuna.done("ticket", "create", *FIELDS).stdout.strip()

    [ticket] = kizuna.rows("ticket", "get", id_)
    assert (ticket["id"], ticket["state"], ticket["tags"]) == (id_, "waiting", ["region:eu"])
    assert (ticket["doubles"], ticket["strings"]) == ({"skill": 1500.0}, {"mode": "ranked"})
    assert ticket["extensions"] == {"name": "Ana"}
    assert 0 <= ticket["waited_s"] < 600
    assert [row["id"] for row in kizuna.rows("ticket", "ls")] == [id_]

    assert kizuna.done("ticket", "rm", id_).output == ""
    ended = kizuna("ticket", "get", id_)
    assert (ended.exit_code, ended.stdout) == (NOT_FOUND, "")
    assert ended.stderr == f"There is no ticket {id_}, or its time is over.\n"
    kizuna.done("ticket", "rm", id_)


def test_people_see_a_ticket_in_words(kizuna: Runner) -> None:
    id_ = kizuna.row("ticket", "create", *FIELDS)["id"]
    record = dict(line.split(maxsplit=1) for line in kizuna.done("ticket", "get", id_).stdout.splitlines())
    header, line = kizuna.done("ticket", "ls").stdout.splitlines()

    assert (record["state"], record["doubles"], record["strings"]) == ("waiting", "skill=1500", "mode=ranked")
    assert record["extensions"] == "name=Ana"
    assert header.split() == ["ID", "STATE", "AGE", "TAGS", "FIELDS"]
    assert line.split()[:2] == [id_, "waiting"]
    assert line.endswith("region:eu  skill=1500 mode=ranked")


def test_what_players_write_does_nothing_to_the_terminal(kizuna: Runner) -> None:
    kizuna.done("ticket", "create", "--tag", "\x1b[2Jgone", "--string", "a=\nb")
    shown = kizuna.done("ticket", "ls").stdout

    assert "\x1b[2J" not in shown
    assert len(shown.splitlines()) == 2


def test_the_list_has_the_oldest_first_and_only_what_is_wanted(kizuna: Runner) -> None:
    ids = [kizuna.row("ticket", "create", "--tag", tag, "--string", f"n={n}")["id"] for n, tag in enumerate("aba")]

    assert [row["id"] for row in kizuna.rows("ticket", "ls")] == ids
    assert [row["id"] for row in kizuna.rows("ticket", "ls", "--tag", "a")] == [ids[0], ids[2]]
    assert [row["id"] for row in kizuna.rows("ticket", "ls", "--tag", "a", "--string", "n=2")] == [ids[2]]
    limited = kizuna.done("ticket", "ls", "--limit", "1")
    assert (len(limited.stdout.splitlines()), limited.stderr) == (2, "There are 2 more: --limit 3 shows all.\n")


def test_nobody_waits(kizuna: Runner) -> None:
    ended = kizuna.done("ticket", "ls")

    assert (ended.stdout, ended.stderr) == ("", "Nobody waits.\n")
    assert kizuna.rows("ticket", "ls") == []


def test_a_ticket_that_is_taken_out_can_be_read_but_not_matched(kizuna: Runner, plan: str) -> None:
    ids = [kizuna.row("ticket", "create", "--tag", "region:eu")["id"] for _ in range(2)]
    kizuna.done("ticket", "deindex", ids[0])

    assert kizuna.row("ticket", "get", ids[0])["state"] == "deindexed"
    assert kizuna.row("backend", plan, "--once")["assigned"] == 0
    assert [row["id"] for row in kizuna.rows("ticket", "ls")] == [ids[1]]


def test_assigned_tickets_are_listed_when_asked_for(kizuna: Runner, plan: str) -> None:
    ids = [kizuna.row("ticket", "create", "--tag", "region:eu")["id"] for _ in range(3)]
    assert kizuna.row("backend", plan, "--once")["assigned"] == 2

    assert [row["id"] for row in kizuna.rows("ticket", "ls")] == [ids[2]]
    by_state = {row["id"]: row["state"] for row in kizuna.rows("ticket", "ls", "--assigned")}
    assert by_state == {ids[0]: "assigned", ids[1]: "assigned", ids[2]: "waiting"}
    assert kizuna.row("ticket", "get", ids[0])["assignment"]["connection"] == "game-1.example.com:7777"
    assert "game-1.example.com:7777" in kizuna.done("ticket", "ls", "--assigned").stdout


def test_who_waits_in_vain_is_told_and_the_ticket_stays(kizuna: Runner) -> None:
    ended = kizuna("ticket", "create", "--wait", "0.05")
    [ticket] = kizuna.rows("ticket", "ls")

    assert (ended.exit_code, ended.stdout) == (TRY_AGAIN, "")
    assert ended.stderr.splitlines() == [
        f"Ticket {ticket['id']} waits.",
        f"No assignment within 0.05s. `kizuna match watch {ticket['id']}` goes on waiting.",
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["create", "--double", "skill"], "there is no '=' in 'skill'; write NAME=VALUE"),
        (["create", "--double", "skill=high"], "'high' is no number; write NAME=NUMBER, as skill=1500"),
        (["create", "--wait", "0"], "0.0 is not in the range x>0"),
        (["get"], "Missing argument 'ID...'"),
    ],
)
def test_what_is_wrong_is_said(kizuna: Runner, line: list[str], said: str) -> None:
    ended = kizuna("ticket", *line)

    assert ended.exit_code == USAGE
    assert said in ended.stderr


def test_a_life_that_no_ticket_has_is_refused(kizuna: Runner) -> None:
    ended = kizuna("ticket", "create", "--ttl", "1000000")

    assert ended.exit_code == USAGE
    assert ended.stderr.startswith("Error: the life of a ticket cannot be 1e+06s")


def test_what_is_not_installed_is_told(words: list[str]) -> None:
    program = f"""
import sys
sys.modules["google.protobuf"] = None  # as if it were not installed
sys.argv = ["kizuna", *{words!r}, "match", "ticket", "ls"]
from kizuna.cli import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)

    assert ended.returncode == FAILURE
    assert ended.stderr == "Error: there is no google.protobuf here; pip install 'kizuna[match]' brings it\n"
