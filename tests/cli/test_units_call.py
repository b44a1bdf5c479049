from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kizuna.app import connect
from kizuna.cli import command
from kizuna.cli.exit_codes import FAILURE, TRY_AGAIN, UNAVAILABLE, USAGE
from kizuna.coordination.handlers import Failed
from kizuna.settings import Settings
from kizuna.testing.waiting import blocking_until

Call = Callable[..., Result]


@pytest.fixture
def options(server_url: str, root: str) -> list[str]:
    roots = [f"roots.system={root}", f"roots.coordination={root}", f"roots.units={root}"]
    return ["--url", server_url, *[text for setting in roots for text in ("--set", setting)]]


@pytest.fixture
def call(options: list[str]) -> Call:
    def call(*arguments: str, given: bytes | str | None = None) -> Result:
        return CliRunner().invoke(command, [*options, "units", "call", *arguments], input=given)

    return call


@contextmanager
def serving(settings: Settings, handler: Callable[..., Any]) -> Iterator[None]:
    """The unit `echo`, in a thread with a loop of its own."""
    started, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        async with connect(settings) as k, k.unit("echo").serving(handler):
            loops.append(asyncio.get_running_loop())
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(20)
    try:
        yield
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join()


@pytest.fixture
def echo(settings: Settings) -> Iterator[list[tuple[str, str]]]:
    """Answers with what it was asked; gives caller and id of each request."""
    asked: list[tuple[str, str]] = []
    over = threading.Event()

    async def handle(data: bytes, request: Any) -> bytes:
        asked.append((request.caller, request.id))
        if data == b"fail":
            raise Failed("no such\nimage: ü")
        if data == b"fail without a word":
            raise Failed("")
        if data == b"wait":
            await asyncio.to_thread(over.wait)
        return data

    with serving(settings, handle):
        yield asked
        over.set()


@pytest.mark.usefixtures("echo")
@pytest.mark.parametrize("data", [b"", b"hello", b"two\nlines\n", bytes(range(256))])
def test_a_reply_is_printed_as_it_is_and_nothing_is_added(call: Call, data: bytes) -> None:
    for arguments in (["echo"], ["Echo", "-"]):
        answered = call(*arguments, given=data)

        assert (answered.stdout_bytes, answered.stderr, answered.exit_code) == (data, "", 0)


@pytest.mark.usefixtures("echo")
def test_what_is_given_as_an_argument_leaves_the_input_alone(call: Call) -> None:
    answered = call("echo", "hello", given="nobody reads this")

    assert answered.stdout_bytes == b"hello"


@pytest.mark.usefixtures("echo")
def test_on_a_terminal_the_prompt_comes_on_the_next_line(options: list[str]) -> None:
    ours, theirs = pty.openpty()
    line = [sys.executable, "-m", "kizuna", *options, "units", "call", "echo", "hello"]
    assert subprocess.run(line, stdin=theirs, stdout=theirs, timeout=120, check=False).returncode == 0
    os.close(theirs)

    assert os.read(ours, 1000) == b"hello\r\n"
    os.close(ours)


def test_two_calls_have_nothing_in_common_unless_they_are_told_who_they_are(
    call: Call, echo: list[tuple[str, str]]
) -> None:
    for _ in range(2):
        assert call("echo", "x", "--as", "Camera", "--id", "Fixed").exit_code == 0
        assert call("echo", "x").exit_code == 0

    named = [asked for asked in echo if asked[0] == "camera"]
    others = {caller for caller, _ in echo} - {"camera"}
    assert set(named) == {("camera", "echo.fixed")}
    assert len(others) == 2
    assert all(caller.startswith("cli-") for caller in others)


@pytest.mark.usefixtures("echo")
def test_machines_get_what_json_says_and_how_long_it_took(call: Call) -> None:
    told = json.loads(call("echo", '{"boxes": [1, 2]}', "--json").stdout)

    assert (told["unit"], told["reply"]) == ("echo", {"boxes": [1, 2]})
    assert told["took_ms"] > 0
    assert json.loads(call("echo", "-", "--json", given=b"a\xff").stdout)["reply"] == "a\\xff"


@pytest.mark.usefixtures("echo")
def test_an_error_is_one_line_on_stderr(call: Call) -> None:
    failed = call("echo", "fail")

    assert (failed.exit_code, failed.stdout, failed.stderr) == (FAILURE, "", "Error: no such image: ü\n")
    silent = call("echo", "fail without a word")
    assert silent.exit_code == FAILURE
    assert silent.stderr.endswith(" failed: without a word\n")


@pytest.mark.usefixtures("echo")
def test_a_timeout_says_whether_somebody_had_taken_the_request(call: Call) -> None:
    nobody = call("nobody", "x", "--timeout", "0.1")
    assert nobody.exit_code == TRY_AGAIN
    assert nobody.stderr.startswith("Error: nobody took request ")

    def taken() -> bool:
        late = call("echo", "wait", "--timeout", "0.3")
        assert late.exit_code == TRY_AGAIN
        return late.stderr.startswith("Error: 'echo' has taken request ")

    blocking_until(taken, within_s=20)


def test_a_request_lives_as_long_as_is_said(call: Call) -> None:
    late = call("nobody", "x", "--ttl", "0.1")

    assert late.exit_code == TRY_AGAIN
    assert "within 0.1s" in late.stderr


@pytest.mark.usefixtures("echo")
def test_many_calls_are_measured(call: Call) -> None:
    told = json.loads(call("echo", "x", "--many", "50", "--parallel", "8", "--json").stdout)

    assert (told["calls"], told["replies"], told["errors"], told["timeouts"]) == (50, 50, 0, 0)
    assert told["calls_per_s"] > 0
    assert 0 < told["p50_ms"] <= told["p99_ms"]


@pytest.mark.usefixtures("echo")
def test_many_calls_that_are_not_answered_are_a_failure(call: Call) -> None:
    failed = call("echo", "fail", "--many", "3", "--json")
    assert failed.exit_code == FAILURE
    assert json.loads(failed.stdout)["errors"] == 3

    late = call("nobody", "x", "--many", "2", "--parallel", "2", "--timeout", "0.1", "--json")
    assert late.exit_code == FAILURE
    told = json.loads(late.stdout)
    assert (told["timeouts"], told["p50_ms"]) == (2, None)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["a.b"], "it has a dot"),
        (["echo", "x", "--as", "a b"], "' ' is not allowed in a name"),
        (["echo", "x", "--many", "2", "--id", "1"], "keep one"),
        (["echo", "x", "--timeout", "0"], "--timeout"),
    ],
)
def test_what_cannot_be_asked_is_refused(call: Call, line: list[str], told: str) -> None:
    refused = call(*line)

    assert (refused.exit_code, refused.stdout) == (USAGE, "")
    assert told in refused.stderr


def test_no_server_is_started_for_a_call(server_folder: Any) -> None:
    ended = CliRunner().invoke(command, ["--set", f"embedded.folder={server_folder}", "units", "call", "echo", "x"])

    assert ended.exit_code == UNAVAILABLE
    assert not server_folder.exists()


@pytest.mark.parametrize(("closed", "given"), [("<&-", []), (">&-", ["hello"]), ("<&- >&- 2>&-", ["hello"])])
def test_a_shell_that_has_closed_the_streams_gets_its_answer_all_the_same(
    settings: Settings, options: list[str], closed: str, given: list[str]
) -> None:
    asked: list[bytes] = []
    line = [sys.executable, "-m", "kizuna", *options, "units", "call", "echo", *given]
    with serving(settings, asked.append):
        ended = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *line], timeout=120, check=False)
    assert (ended.returncode, asked) == (0, [text.encode() for text in given] or [b""])
