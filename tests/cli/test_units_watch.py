from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kizuna.app import connect
from kizuna.cli import command
from kizuna.cli.exit_codes import INTERRUPTED, OK, USAGE
from kizuna.settings import Settings
from kizuna.testing import ServerProcess
from kizuna.testing.leaks import scan

CLAIM = "detector/keep/claim.camera.detector.1a2b"


class Watch:
    """`kizuna units watch` on a server, and what outsiders write there."""

    def __init__(self, server: ServerProcess, root: str, *more: str) -> None:
        self._server, self._root = server, root
        roots = [f"roots.{name}={root}" for name in ("system", "coordination", "units")]
        self.options = [
            "--url",
            server.url,
            *more,
            *(word for text in roots for word in ("--set", text)),
            "units",
            "watch",
        ]

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(command, [*self.options, *arguments])

    @contextmanager
    def running(self, *arguments: str, **how: Any) -> Iterator[subprocess.Popen[str]]:
        """In a process of its own, from when it says that it is ready."""
        line = [sys.executable, "-m", "kizuna", *self.options, *arguments]
        how = {"stdout": subprocess.PIPE, **how}
        with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, **how) as process:
            try:
                assert process.stderr is not None
                assert "Ctrl-C ends it" in process.stderr.readline()
                yield process
            finally:
                process.kill()

    def write(self, rest: str, value: str | bytes = "x") -> None:
        self._server.call("SET", f"{self._root}/{rest}", value, "EX", 10)

    def ask_and_answer(self) -> None:
        self.write("camera/req/detector.1a2b", "hello")
        self.write(CLAIM, "token")
        self.write("camera/res/detector.1a2b", "a cat")


@pytest.fixture
def watch(server: ServerProcess, root: str) -> Watch:
    return Watch(server, root)


def rows(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    shown, told = process.communicate(timeout=120)
    assert process.returncode == OK, told
    return [json.loads(line) for line in shown.splitlines()]


# -- what is shown ------------------------------------------------------------------------------------------


def test_request_and_reply_are_paired_with_the_time_between(watch: Watch) -> None:
    with watch.running("--count", "4") as watching:
        watch.ask_and_answer()
        watch.write("camera/err/detector.1a2b", "too late")
        watch.write("camera/keep/mode", "night")
        shown, _ = watching.communicate(timeout=120)

    at = r"\d\d:\d\d:\d\d\.\d\d\d"
    asked, answered, failed, kept = shown.splitlines()
    assert re.fullmatch(rf"{at} → camera asks detector 1a2b: 5 B 'hello'", asked)
    assert re.fullmatch(rf"{at} ← detector answers camera 1a2b after [\d.e+]+ m?s: 5 B 'a cat'", answered)
    assert re.fullmatch(rf"{at} ✗ detector fails camera 1a2b after [\d.e+]+ m?s: 8 B 'too late'", failed)
    assert re.fullmatch(rf"{at} = camera keeps mode: 5 B 'night'", kept)


def test_machines_are_told_each_message_as_an_object(watch: Watch, root: str) -> None:
    with watch.running("--all", "--json", "--count", "4") as watching:
        watch.ask_and_answer()
        watch.write("camera/keep/image", b"\x89PNG")
        asked, taken, answered, kept = rows(watching)

    assert asked.pop("at")
    assert asked == {
        "kind": "request",
        "path": f"{root}/camera/req/detector.1a2b",
        "unit": "camera",
        "status": "req",
        "id": "detector.1a2b",
        "caller": "camera",
        "server": "detector",
        "after_ms": None,
        "exact": True,
        "bytes": 5,
        "value": "hello",
        "base64": None,
    }
    assert (taken["kind"], taken["server"], taken["caller"]) == ("claim", "detector", "camera")
    assert (answered["kind"], answered["value"]) == ("reply", "a cat")
    assert answered["after_ms"] >= taken["after_ms"] >= 0
    assert (kept["bytes"], kept["value"], kept["base64"]) == (4, None, "iVBORw==")


async def test_units_that_really_talk_are_heard(watch: Watch, settings: Settings) -> None:
    async def see(data: bytes) -> bytes:
        return b"a cat on " + data

    async with connect(settings) as k, k.unit("detector").serving(see):
        with watch.running("--status", "req,res", "--count", "2", "--json") as watching:
            await k.unit("camera").request("detector", b"a mat")
            asked, answered = rows(watching)

    assert (asked["caller"], asked["server"], asked["value"]) == ("camera", "detector", "a mat")
    assert (answered["caller"], answered["server"], answered["value"]) == ("camera", "detector", "a cat on a mat")
    assert answered["id"] == asked["id"]


def test_a_value_can_do_nothing_to_the_terminal(watch: Watch) -> None:
    with watch.running("--count", "3") as watching:
        watch.write("camera/keep/a", b"\x1b[2Jcleared\r\n\x00\xff")
        watch.write("camera/keep/b", "right \u202e left 縁")
        watch.write("camera/keep/\u202ec", "x" * 100_000)
        shown, _ = watching.communicate(timeout=120)

    first, second, third = shown.splitlines()
    assert first.endswith(r"15 B '\x1b[2Jcleared\r\n\x00\xff'")
    assert second.endswith(r"'right \u202e left 縁'")
    assert r"camera keeps \u202ec: 97.7 KiB 'xxx" in third
    assert third.endswith("…'")
    assert len(third) <= 120


def test_what_was_said_before_is_not_shown_but_its_answer_is(watch: Watch) -> None:
    watch.write("camera/req/42", "before")
    with watch.running("--all", "--json", "--count", "2") as watching:
        watch.write("archive/keep/claim.camera.42")
        watch.write("camera/res/42")
        taken, answered = rows(watching)

    assert (taken["kind"], taken["caller"]) == ("claim", "camera")
    assert (answered["server"], answered["after_ms"]) == ("archive", None)


# -- what is wanted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["camera"], ["camera/req/detector.1a2b", "camera/res/detector.1a2b"]),
        (["Camera/REQ"], ["camera/req/detector.1a2b"]),
        (["*/keep/m*"], ["archive/keep/mode"]),
        (["--unit", "Detector"], ["camera/req/detector.1a2b", "camera/res/detector.1a2b"]),
        (["--unit", "archive", "--unit", "other"], ["archive/keep/mode"]),
        (["--status", "RES, keep"], ["camera/res/detector.1a2b", "archive/keep/mode"]),
        (["--id", "1A2"], ["camera/req/detector.1a2b", "camera/res/detector.1a2b"]),
        (["--grep", "hell"], ["camera/req/detector.1a2b"]),
        (["--all", "--grep", "tok"], [CLAIM]),
    ],
)
def test_what_is_shown_can_be_chosen(watch: Watch, root: str, arguments: list[str], shown: list[str]) -> None:
    with watch.running(*arguments, "--json", "--count", str(len(shown))) as watching:
        watch.ask_and_answer()
        watch.write("archive/keep/mode", "night")
        paths = [row["path"] for row in rows(watching)]

    assert paths == [f"{root}/{rest}" for rest in shown]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--status", "req,rep"], "'rep' is none of req, res, err, keep"),
        (["--count", "0"], "0 is not in the range x>=1"),
        (["--for", "0"], "0.0 is not in the range x>0"),
        (["a/b/c/d"], "and not the three of"),
        (["camera/rep"], "it is none of req, res, err, keep"),
    ],
)
def test_what_cannot_be_watched_is_refused(watch: Watch, arguments: list[str], complaint: str) -> None:
    ended = watch(*arguments)

    assert ended.exit_code == USAGE
    assert complaint in " ".join(ended.stderr.split())


# -- beginning and end --------------------------------------------------------------------------------------


def test_it_ends_when_its_time_is_over(watch: Watch) -> None:
    ended = watch("--for", "0.1")

    assert (ended.exit_code, ended.stdout, ended.stderr) == (OK, "", "Watching; Ctrl-C ends it.\n")


def test_it_ends_with_ctrl_c(watch: Watch) -> None:
    with watch.running("--json") as watching:
        watch.write("camera/keep/mode")
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["id"] == "mode"
        watching.send_signal(signal.SIGINT)
        _, told = watching.communicate(timeout=120)

    assert (watching.returncode, told) == (INTERRUPTED, "\n")


def test_who_watches_leaves_no_trace(watch: Watch, server: ServerProcess, root: str) -> None:
    with watch.running("--count", "1", "--json") as watching:
        watch.write("camera/keep/mode")
        rows(watching)

    with server.connect() as conversation:
        assert list(scan(conversation, f"{root}/*")) == [f"{root}/camera/keep/mode".encode()]


# -- where it is shown, and heard ---------------------------------------------------------------------------


@pytest.mark.parametrize("no_color", [False, True])
def test_colours_are_for_terminals_and_for_those_who_want_them(watch: Watch, no_color: bool) -> None:
    mine, its = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "1"} if no_color else {**os.environ, "NO_COLOR": ""}
    try:
        with watch.running("--count", "1", stdout=its, env=environment) as watching:
            watch.write("camera/req/detector.1", "hello")
            assert watching.wait(30) == OK
            shown = os.read(mine, 10_000).decode()
    finally:
        os.close(mine)
        os.close(its)

    assert ("\x1b[36m→ camera asks detector 1" in shown) is not no_color
    assert ("\x1b" in shown) is not no_color
    assert "5 B 'hello'" in shown


def test_where_nothing_is_announced_it_looks_and_says_so(root: str) -> None:
    with ServerProcess(users={"app": "on >secret ~* &* +@all -config"}) as server:
        account = ["--set", "store.username=app", "--set", "store.password=secret", "--set", "units.poll_every_s=0.1"]
        watch = Watch(server, root, *account)
        with watch.running("--count", "2", "--json") as watching:
            # Line by line: `communicate` does not know of what was read along with the line before.
            assert watching.stderr is not None
            told = watching.stderr.readline()
            watch.ask_and_answer()
            shown, more = watching.communicate(timeout=120)

    asked, answered = map(json.loads, shown.splitlines())
    assert (asked["kind"], answered["kind"]) == ("request", "reply")
    assert (asked["exact"], answered["exact"]) == (False, False)
    assert told.startswith("Looking every 0.1 s; what comes and goes in between is not seen, and times are rough.")
    assert more == ""
