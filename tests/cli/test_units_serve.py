from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import FAILURE, TRY_AGAIN, USAGE
from kizuna.testing import ServerProcess
from kizuna.testing.commands import Command
from kizuna.testing.waiting import blocking_until

Call = Callable[..., Result]
WITHIN_S = "30"

HANDLERS = """\
import asyncio, time
from pathlib import Path

async def add(numbers):
    return sum(numbers)

def who(data, request):
    return f"{request.caller} asked {data.decode()}".encode()

def block(data):
    Path(data.decode()).touch()
    time.sleep(600)
"""


@pytest.fixture
def options(server_url: str, root: str) -> list[str]:
    roots = [f"roots.system={root}", f"roots.coordination={root}", f"roots.units={root}"]
    return ["--url", server_url, *[text for setting in [*roots, "probes.port=0"] for text in ("--set", setting)]]


@pytest.fixture
def call(options: list[str]) -> Call:
    def call(*arguments: str, given: bytes | str | None = None) -> Result:
        line = [*options, "units", "call", "--timeout", WITHIN_S, *arguments]
        return CliRunner().invoke(command, line, input=given)

    return call


@pytest.fixture
def serve(options: list[str], tmp_path: Path, start_command: Callable[..., Command]) -> Callable[..., Command]:
    """`kizuna units serve`, in a folder with `handlers.py`."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    return partial(start_command, *options, "units", "serve", "--json")


class Asking:
    """A call that goes on meanwhile, in a process of its own."""

    def __init__(self, options: list[str], *arguments: str) -> None:
        line = [sys.executable, "-m", "kizuna", *options, "units", "call", "--timeout", WITHIN_S, *arguments]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)

    def told(self) -> tuple[int, str, str]:
        """Its exit code and what it wrote."""
        stdout, stderr = self._process.communicate(timeout=120)
        return self._process.returncode, stdout, stderr


# programs


def test_a_program_answers_requests(call: Call, serve: Callable[..., Command]) -> None:
    script = 'cat; echo " $KIZUNA_UNIT $KIZUNA_REQUEST_CALLER $KIZUNA_REQUEST_ID"'
    server = serve("Echo", "--exec", f"sh -c '{script}'")

    assert server.facts["unit"] == "echo"
    assert call("echo", "hello", "--as", "camera", "--id", "7").stdout == "hello echo camera echo.7\n"
    code, said = server.end()
    assert code == 0
    assert said.splitlines()[0] == "Ctrl-C stops it."
    assert said.splitlines()[-1] == "Stopped by SIGTERM: 1 answered, 0 failed."


def test_bytes_go_through_a_program_as_they_are(call: Call, serve: Callable[..., Command]) -> None:
    serve("cat", "--exec", "cat")

    assert call("cat", "-", given=bytes(range(256)) * 100).stdout_bytes == bytes(range(256)) * 100


def test_arguments_behind_the_dashes_are_not_cut_again(call: Call, serve: Callable[..., Command]) -> None:
    serve("print", "--exec", "printf", "--", "%s|", "two words", "--json")

    assert call("print").stdout == "two words|--json|"


def test_a_program_that_fails_is_an_error_for_who_asked_and_a_line_in_the_log(
    call: Call, serve: Callable[..., Command]
) -> None:
    server = serve("fails", "--exec", "sh -c 'echo no such image >&2; exit 3'")

    failed = call("fails", "x")

    reason = "the program ended with exit code 3: no such image"
    assert (failed.exit_code, failed.stdout, failed.stderr) == (FAILURE, "", f"Error: {reason}\n")
    _, said = server.end()
    (line,) = [line for line in said.splitlines() if "request failed" in line]
    assert line.endswith(f"reason={reason}")
    assert "/req/fails." in line
    assert said.splitlines()[-1] == "Stopped by SIGTERM: 0 answered, 1 failed."


def test_a_program_that_takes_too_long_is_killed_with_its_children(
    call: Call, serve: Callable[..., Command], tmp_path: Path
) -> None:
    serve("slow", "--exec", f"sh -c 'sleep 600 & echo $! > {tmp_path}/child; wait'", "--timeout", "0.3")

    assert call("slow").stderr == "Error: the program was not done within 0.3s\n"
    child = int((tmp_path / "child").read_text())
    blocking_until(lambda: not is_alive(child))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_who_listens_to_all_answers_outsiders(server: ServerProcess, root: str, serve: Callable[..., Command]) -> None:
    serve("all", "--exec", "tr a-z A-Z", "--pattern", f"{root}/*/req/*")

    server.call("SET", f"{root}/unit_a/req/42", "hello", "EX", 10)

    assert blocking_until(lambda: server.call("GET", f"{root}/unit_a/res/42"), within_s=10) == b"HELLO"


def test_so_many_programs_run_at_once(options: list[str], serve: Callable[..., Command], tmp_path: Path) -> None:
    # Each waits until the other has begun.
    script = f"read me other; touch {tmp_path}/$me; until [ -e {tmp_path}/$other ]; do sleep 0.02; done; echo met"
    serve("meet", "--exec", f"sh -c '{script}'", "--concurrency", "2")

    both = [Asking(options, "meet", words) for words in ("a b", "b a")]

    assert [each.told() for each in both] == [(0, "met\n", "")] * 2


# functions


def test_functions_answer_requests_in_the_format_that_is_said(call: Call, serve: Callable[..., Command]) -> None:
    serve("adder", "--handler", "handlers:add", "--codec", "json")
    server = serve("who", "--handler", "handlers:who")

    assert call("adder", "[1, 2, 39]").stdout == "42"
    refused = call("adder", '["a"]')
    assert refused.exit_code == FAILURE
    assert refused.stderr.startswith("Error: TypeError: unsupported operand")
    assert refused.stderr.endswith("(handlers.py:5 in add)\n")
    assert call("who", "me", "--as", "camera").stdout == "camera asked me"
    assert server.end(signal.SIGINT)[0] == 0


# stopping


def test_told_to_stop_it_lets_requests_end_and_takes_no_more(
    call: Call, options: list[str], serve: Callable[..., Command], tmp_path: Path
) -> None:
    script = f"touch {tmp_path}/begun; until [ -e {tmp_path}/go ]; do sleep 0.02; done; echo done"
    server = serve("waits", "--exec", f"sh -c '{script}'")
    asking = Asking(options, "waits")
    blocking_until((tmp_path / "begun").exists, within_s=20)

    server.process.send_signal(signal.SIGTERM)
    late = blocking_until(lambda: nobody_took(call("waits", "--timeout", "0.3")), within_s=20)
    (tmp_path / "go").touch()

    assert late.exit_code == TRY_AGAIN
    assert asking.told() == (0, "done\n", "")
    code, said = server.ended()
    assert code == 0
    assert said.splitlines()[-1].startswith("Stopped by SIGTERM: ")


def nobody_took(asked: Result) -> Result | None:
    return asked if asked.stderr.startswith("Error: nobody took request ") else None


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_who_is_not_answered_in_time_or_by_the_second_signal_gets_an_error(
    options: list[str], serve: Callable[..., Command], tmp_path: Path, signals: list[signal.Signals]
) -> None:
    stop_s = "0.1" if len(signals) == 1 else "600"
    server = serve("stuck", "--exec", f"sh -c 'touch {tmp_path}/begun; sleep 600'", "--stop-within", stop_s)
    asking = Asking(options, "stuck")
    blocking_until((tmp_path / "begun").exists, within_s=20)

    code, said = end_one_by_one(server, signals)

    assert code == 0
    assert "0 answered, 1 failed." in said
    reason = "CancelledError: the handler was cancelled before it had an answer"
    assert asking.told() == (FAILURE, "", f"Error: {reason}\n")


def end_one_by_one(server: Command, signals: list[signal.Signals]) -> tuple[int, str]:
    """Two that come together may be told as one."""
    assert server.process.stderr is not None
    lines = []
    for number in signals:
        server.process.send_signal(number)
        while "stopping" not in (line := server.process.stderr.readline()):
            assert line, "it ended"
            lines.append(line)
    code, said = server.ended()
    return code, "".join(lines) + said


def test_a_function_that_cannot_be_stopped_does_not_keep_the_process(
    options: list[str], serve: Callable[..., Command], tmp_path: Path
) -> None:
    server = serve("blocks", "--handler", "handlers:block", "--stop-within", "0.1")
    asking = Asking(options, "blocks", f"{tmp_path}/begun")
    blocking_until((tmp_path / "begun").exists, within_s=20)

    code, said = server.end()

    assert code == 0
    assert said.splitlines()[-1] == "Functions or programs that still run: 1; they end here."
    assert asking.told()[0] == FAILURE


# looking after it


def test_probes_tell_that_it_is_ready_and_what_it_has_done(call: Call, serve: Callable[..., Command]) -> None:
    server = serve("echo", "--exec", "cat", "--probes")
    call("echo", "x")

    assert get(f"{server.facts['probes']}/healthz")[0] == 200
    assert get(f"{server.facts['probes']}/readyz")[0] == 200
    assert 'kizuna_unit_served_total{unit="echo"} 1.0' in get(f"{server.facts['probes']}/metrics")[1]
    assert server.end()[0] == 0


def get(url: str) -> tuple[int, str]:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return answer.status, answer.read().decode()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["echo"], "say which program (--exec) or which function (--handler)"),
        (["echo", "--handler", "json:loads", "--exec", "true"], "say which program"),
        (["echo", "--handler", "nothing"], "write MODULE:FUNCTION"),
        (["echo", "--handler", "json:no_such"], "has no attribute 'no_such'"),
        (["echo", "--handler", "json:loads", "--timeout", "1"], "--timeout are for programs"),
        (["echo", "--handler", "json:loads", "--", "x"], "arguments and"),
        (["echo", "--exec", "no-such-program"], "there is no such program"),
        (["echo", "--exec", "sh -c 'open"], "No closing quotation"),
        (["a.b", "--exec", "cat"], "it has a dot"),
        (["echo", "--exec", "cat", "--pattern", "muf/*"], "cannot be the pattern"),
    ],
)
def test_what_cannot_answer_requests_is_refused_before_anything_starts(
    options: list[str], line: list[str], told: str
) -> None:
    ended = CliRunner().invoke(command, [*options, "units", "serve", *line])

    assert ended.exit_code == USAGE
    assert told in ended.stderr
