from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import CONFLICT, FAILURE, NOT_FOUND, TRY_AGAIN, UNAVAILABLE, USAGE
from kizuna.testing.commands import Command
from kizuna.testing.waiting import blocking_until

Kizuna = Callable[..., Result]
WITHIN_S = "30"

TASKS = """\
import asyncio, time

async def double(payload):
    return payload * 2

def refuse(payload):
    raise ValueError("no such size")

async def sleep(payload, delivery):
    await delivery.progress(0.5, "half")
    await asyncio.sleep(payload)

def block(payload, delivery):
    delivery.progress(0.5, "half")
    time.sleep(payload)
"""


@pytest.fixture
def options(server_url: str, root: str) -> list[str]:
    roots = [f"roots.system={root}", f"roots.coordination={root}", "queues.retry_first_s=0.01"]
    return ["--url", server_url, *[text for setting in roots for text in ("--set", setting)]]


@pytest.fixture
def kizuna(options: list[str]) -> Kizuna:
    def kizuna(*arguments: str, given: bytes | str | None = None) -> Result:
        return CliRunner().invoke(command, [*options, "queues", *arguments], input=given)

    return kizuna


@pytest.fixture
def work(options: list[str], tmp_path: Path, start_command: Callable[..., Command]) -> Callable[..., Command]:
    """`kizuna queues work`, in a folder with `tasks.py`."""
    (tmp_path / "tasks.py").write_text(TASKS)
    return partial(start_command, *options, "queues", "work", "--json")


def rows(ended: Result) -> list[dict[str, Any]]:
    assert ended.exit_code == 0, ended.output
    return [json.loads(line) for line in ended.stdout.splitlines()]


def row(ended: Result) -> dict[str, Any]:
    (only,) = rows(ended)
    return only


# pushing and looking


def test_a_pushed_task_is_seen(kizuna: Kizuna) -> None:
    pushed = kizuna("push", '{"image": "cat.png"}', "--group", "images", "--id", "cat", "--priority", "high")

    assert (pushed.stdout, pushed.exit_code) == ("cat\n", 0)
    status = row(kizuna("status", "cat", "--group", "images", "--json"))
    assert (status["state"], status["priority"], status["failures"]) == ("waiting", "high", 0)
    group = row(kizuna("ls", "--json"))
    assert (group["group"], group["high"], group["normal"], group["paused"]) == ("images", 1, 0, False)
    assert group["oldest_s"] >= 0
    assert group["pushed_per_min"] > 0
    table = kizuna("ls").stdout.splitlines()
    assert table[0].split()[:4] == ["GROUP", "HIGH", "NORMAL", "LOW"]
    assert table[1].split()[:4] == ["images", "1", "0", "0"]


def test_a_second_push_of_an_id_changes_nothing_and_says_so(kizuna: Kizuna) -> None:
    kizuna("push", "1", "--id", "one")
    again = kizuna("push", "2", "--id", "one")

    assert (again.exit_code, again.stdout) == (0, "one\n")
    assert again.stderr == "A task one is there already; nothing was changed.\n"


def test_each_line_of_the_input_is_a_task(kizuna: Kizuna) -> None:
    pushed = rows(kizuna("push", "-", "--lines", "--json", given='1\n"two"\n'))

    assert [each["known"] for each in pushed] == [False, False]
    assert [row(kizuna("pop", "--json"))["payload"] for _ in pushed] == [1, "two"]


def test_what_is_no_json_is_refused_unless_it_is_meant(kizuna: Kizuna) -> None:
    refused = kizuna("push", "hello")

    assert refused.exit_code == USAGE
    assert "the payload 'hello' is not JSON" in refused.stderr
    assert kizuna("push", "-", "--raw", given=b"\xff\n").exit_code == 0
    assert "payload   \\xff\n" in kizuna("pop").stdout


def test_what_is_not_there_is_told_with_its_exit_code(kizuna: Kizuna) -> None:
    for line in (["status", "none"], ["result", "none"], ["cancel", "none"], ["dead", "requeue", "none"]):
        ended = kizuna(*line)
        assert (ended.exit_code, ended.stdout) == (NOT_FOUND, "")
        assert ended.stderr.startswith("Error: no task 'none' is known in group 'default'")
    assert kizuna("pop").exit_code == NOT_FOUND
    assert kizuna("ls").stderr == "There are no tasks, and there were none.\n"


def test_a_result_that_is_not_there_yet_is_not_waited_for_unless_told(kizuna: Kizuna) -> None:
    kizuna("push", "--id", "one")

    ended = kizuna("result", "one")

    assert ended.exit_code == TRY_AGAIN
    assert ended.stderr.startswith("Task one is not done, but waiting;")
    assert kizuna("result", "one", "--wait", "0.05").exit_code == TRY_AGAIN


def test_a_cancelled_task_has_no_result(kizuna: Kizuna) -> None:
    kizuna("push", "--id", "one")

    assert kizuna("cancel", "one").exit_code == 0
    assert kizuna("cancel", "one").exit_code == CONFLICT
    assert kizuna("result", "one").exit_code == CONFLICT


def test_a_paused_group_hands_nothing_out(kizuna: Kizuna) -> None:
    kizuna("push", "--group", "images")

    assert kizuna("pause", "--group", "images").stderr == "Group images is paused.\n"
    assert kizuna("pop", "--group", "images").exit_code == NOT_FOUND
    assert row(kizuna("ls", "--json"))["paused"] is True
    assert kizuna("resume", "--group", "images").stderr == "Group images goes on.\n"
    assert kizuna("pop", "--group", "images").exit_code == 0


def test_looking_does_not_start_an_embedded_server(server_folder: Path) -> None:
    ended = CliRunner().invoke(command, ["--set", f"embedded.folder={server_folder}", "queues", "ls"])

    assert ended.exit_code == UNAVAILABLE
    assert not server_folder.exists()


def test_watching_shows_the_groups_again_and_again(options: list[str], kizuna: Kizuna) -> None:
    kizuna("push", "--group", "images")
    line = [sys.executable, "-m", "kizuna", *options, "queues", "watch", "--every", "0.1", "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130

    assert [each["group"] for each in seen] == ["images", "images"]


# by hand


def test_a_task_is_taken_kept_and_acknowledged_by_three_processes(kizuna: Kizuna) -> None:
    kizuna("push", "[1, 2]", "--id", "sum", "--name", "add")
    taken = row(kizuna("pop", "--lease", "60", "--json"))
    token = ["--token", taken["token"]]

    assert (taken["id"], taken["payload"], taken["attempt"], taken["name"]) == ("sum", [1, 2], 1, "add")
    assert kizuna("renew", "sum", *token, "--lease", "90").exit_code == 0
    assert kizuna("ack", "sum", *token, "--result", "3").stderr == "Task sum is done.\n"
    assert kizuna("result", "sum").stdout == "3\n"
    assert row(kizuna("result", "sum", "--json")) == {"id": "sum", "result": 3}
    late = kizuna("ack", "sum", *token, "--result", "4")
    assert late.exit_code == CONFLICT
    assert "is no longer ours" in late.stderr
    assert kizuna("ack", "sum", "--token", "nonsense").exit_code == USAGE


def test_a_failed_task_is_tried_again_or_given_up_and_can_be_requeued_and_purged(kizuna: Kizuna) -> None:
    kizuna("push", "--id", "one", "--attempts", "2")

    token = row(kizuna("pop", "--json"))["token"]
    failed = kizuna("fail", "one", "--token", token, "--reason", "busy", "--retry-in", "0.01")
    assert failed.stderr == "Task one will be tried again.\n"
    taken = row(kizuna("pop", "--wait", WITHIN_S, "--json"))
    assert taken["attempt"] == 2
    both = kizuna("fail", "one", "--token", taken["token"], "--reason", "broken", "--give-up", "--retry-in", "1")
    assert both.exit_code == USAGE
    given_up = kizuna("fail", "one", "--token", taken["token"], "--reason", "broken", "--give-up")
    assert given_up.stderr == "Task one is given up.\n"

    letter = row(kizuna("dead", "ls", "--json"))
    assert (letter["id"], letter["reason"], letter["failures"]) == ("one", "broken", 2)
    assert "broken" in kizuna("dead", "ls").stdout
    assert kizuna("dead", "requeue").exit_code == USAGE
    assert kizuna("dead", "requeue", "--all").stderr == "Requeued: 1.\n"
    assert row(kizuna("status", "one", "--json"))["state"] == "waiting"

    token = row(kizuna("pop", "--json"))["token"]
    kizuna("fail", "one", "--token", token, "--reason", "broken", "--give-up")
    assert kizuna("dead", "purge", "--all", given="n\n").exit_code == FAILURE
    assert kizuna("dead", "purge", "--all", "--yes").stderr == "Forgotten: 1.\n"
    assert kizuna("dead", "ls").stdout == ""
    assert kizuna("status", "one").exit_code == NOT_FOUND
    assert kizuna("dead", "purge", "one").exit_code == NOT_FOUND


# working


def test_functions_run_tasks(kizuna: Kizuna, work: Callable[..., Command]) -> None:
    worker = work("--group", "a", "--group", "b", "--handler", "double=tasks:double", "--handler", "tasks:refuse")

    assert worker.facts["groups"] == ["a", "b"]
    assert kizuna("push", "21", "--group", "b", "--name", "double", "--wait", WITHIN_S).stdout == "42\n"
    refused = kizuna("push", "21", "--group", "a", "--attempts", "1", "--wait", WITHIN_S)
    assert refused.exit_code == FAILURE
    assert refused.stderr.endswith("was given up: ValueError: no such size (tasks.py:7 in refuse)\n")
    code, said = worker.end()
    assert code == 0
    assert said.splitlines()[-1] == "Stopped by SIGTERM: 1 done, 1 failed, 0 handed back."


@pytest.mark.parametrize("function", ["sleep", "block"])
def test_what_is_not_done_when_it_is_told_to_stop_is_handed_back(
    kizuna: Kizuna, work: Callable[..., Command], function: str
) -> None:
    kizuna("push", "600", "--id", "one")
    worker = work("--handler", f"tasks:{function}", "--stop-within", "0.1")
    blocking_until(lambda: row(kizuna("status", "one", "--json"))["note"] == "half", within_s=20)

    code, said = worker.end(signal.SIGINT)

    assert code == 0
    assert "Stopped by SIGINT: 0 done, 0 failed, 1 handed back.\n" in said
    assert ("Functions that still run in threads: 1; they end here.\n" in said) == (function == "block")
    status = row(kizuna("status", "one", "--json"))
    assert (status["state"], status["crashes"]) == ("waiting", 0)


def test_a_program_runs_tasks(kizuna: Kizuna, work: Callable[..., Command]) -> None:
    script = 'read word; [ "$word" = fail ] && { echo no such word >&2; exit 3; }; echo $word $KIZUNA_TASK_ID'
    work("--exec", f"sh -c '{script}'", "--timeout", "30")

    assert kizuna("push", "hello", "--raw", "--id", "one", "--wait", WITHIN_S).stdout == "hello one\n"
    failed = kizuna("push", "fail", "--raw", "--attempts", "1", "--wait", WITHIN_S)
    assert failed.exit_code == FAILURE
    assert failed.stderr.endswith("was given up: the program ended with exit code 3: no such word\n")


def test_a_program_that_takes_too_long_is_killed_with_its_children(
    kizuna: Kizuna, work: Callable[..., Command], tmp_path: Path
) -> None:
    work("--exec", f"sh -c 'sleep 600 & echo $! > {tmp_path}/child; wait'", "--timeout", "0.3")

    late = kizuna("push", "--attempts", "1", "--wait", WITHIN_S)

    assert late.stderr.endswith("was given up: not done within 0.3s\n")
    child = int((tmp_path / "child").read_text())
    blocking_until(lambda: not is_alive(child))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ([], "say which functions (--handler) or which program (--exec)"),
        (["--handler", "json:loads", "--exec", "true"], "say which functions"),
        (["--handler", "nothing"], "write [NAME=]MODULE:FUNCTION"),
        (["--handler", "no_such_module:run"], "No module named 'no_such_module'"),
        (["--handler", "json:no_such"], "has no attribute 'no_such'"),
        (["--handler", "os:sep"], "that is no function, but '/'"),
        (["--exec", "no-such-program"], "there is no such program"),
        (["--exec", "sh -c 'open"], "No closing quotation"),
    ],
)
def test_what_cannot_run_tasks_is_refused_before_anything_starts(kizuna: Kizuna, line: list[str], told: str) -> None:
    ended = kizuna("work", *line)

    assert ended.exit_code == USAGE
    assert told in ended.stderr
