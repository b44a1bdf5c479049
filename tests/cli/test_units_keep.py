from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import CONFLICT, INTERRUPTED, NOT_FOUND, USAGE
from kizuna.testing import ServerProcess

Keep = Callable[..., Result]


@pytest.fixture
def options(server_url: str, root: str) -> list[str]:
    roots = [f"roots.system={root}", f"roots.coordination={root}", f"roots.units={root}"]
    return ["--url", server_url, *[text for setting in roots for text in ("--set", setting)]]


@pytest.fixture
def keep(options: list[str]) -> Keep:
    def keep(*arguments: str, given: bytes | str | None = None) -> Result:
        return CliRunner().invoke(command, [*options, "units", "keep", *arguments], input=given)

    return keep


def rows(ended: Result) -> list[dict[str, Any]]:
    assert ended.exit_code == 0, ended.output
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_what_is_set_is_kept_for_its_time_and_printed_as_it_is(keep: Keep, server: ServerProcess, root: str) -> None:
    kept = keep("set", "Sensor", "Temp", "21.5", "--ttl", "60")

    assert (kept.exit_code, kept.stdout, kept.stderr) == (0, "", "Sensor keeps Temp for 60s.\n")
    assert server.call("GET", f"{root}/sensor/keep/temp") == b"21.5"
    assert 55_000 < server.call("PTTL", f"{root}/sensor/keep/temp") <= 60_000
    assert keep("get", "sensor", "temp").stdout_bytes == b"21.5"
    (told,) = rows(keep("get", "sensor", "temp", "--json"))
    assert (told["id"], told["value"]) == ("temp", 21.5)
    assert 0 < told["ends_in_s"] <= 60


@pytest.mark.parametrize("arguments", [["-"], []])
def test_bytes_come_from_the_input_as_they_are(keep: Keep, arguments: list[str]) -> None:
    everything = bytes(range(256))

    assert keep("set", "camera", "last", *arguments, given=everything).exit_code == 0
    assert keep("get", "camera", "last").stdout_bytes == everything


def test_what_is_not_kept_has_its_exit_code(keep: Keep) -> None:
    missing = keep("get", "sensor", "temp")

    assert (missing.exit_code, missing.stdout) == (NOT_FOUND, "")
    assert missing.stderr == "sensor keeps no temp, or no longer.\n"
    assert keep("ls", "sensor").stderr == "sensor keeps nothing.\n"


def test_a_value_is_replaced_only_if_it_is_what_is_expected(keep: Keep) -> None:
    assert keep("set", "door", "state", "closed", "--expect-unset").exit_code == 0
    assert keep("set", "door", "state", "open", "--expect", "closed").exit_code == 0

    for condition in (["--expect", "closed"], ["--expect-unset"]):
        refused = keep("set", "door", "state", "broken", *condition)
        assert refused.exit_code == CONFLICT
        assert "is open now, which was not expected" in refused.stderr
    assert keep("set", "door", "state", "x", "--expect", "open", "--expect-unset").exit_code == USAGE
    assert keep("get", "door", "state").stdout == "open"


def test_all_that_a_unit_keeps_is_listed_without_its_own_notes(keep: Keep, server: ServerProcess, root: str) -> None:
    keep("set", "sensor", "temp", "21.5")
    keep("set", "sensor", "note", "-", given=b"two\nlines \x1b[31m " + b"x" * 100)
    server.call("SET", f"{root}/sensor/keep/claim.camera.1", "token", "EX", 60)

    listed = rows(keep("ls", "sensor", "--json"))
    assert [row["id"] for row in listed] == ["note", "temp"]
    assert listed[1]["value"] == 21.5
    header, note, temp = keep("ls", "sensor").stdout.splitlines()
    assert header.split() == ["ID", "VALUE", "ENDS", "IN", "S"]
    assert "two\\nlines \\x1b[31m xxx" in note
    assert "xx…" in note
    assert temp.split()[:2] == ["temp", "21.5"]
    assert [row["id"] for row in rows(keep("ls", "sensor", "t*", "--json"))] == ["temp"]


def test_watching_tells_what_is_there_and_then_each_change(
    options: list[str], keep: Keep, server: ServerProcess, root: str
) -> None:
    keep("set", "sensor", "temp", "21.5")
    line = [sys.executable, "-m", "kizuna", *options, "units", "keep", "watch", "Sensor", "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None

        def told() -> dict[str, Any]:
            assert process.stdout is not None
            change: dict[str, Any] = json.loads(process.stdout.readline())
            return change

        assert told() == {"id": "temp", "kind": "set", "value": 21.5, "found": True}
        keep("set", "sensor", "temp", "22")
        assert told() == {"id": "temp", "kind": "set", "value": 22, "found": False}
        server.call("DEL", f"{root}/sensor/keep/temp")
        assert told() == {"id": "temp", "kind": "deleted", "value": None, "found": False}
        keep("set", "sensor", "note", "short", "--ttl", "0.3")
        assert [told()["kind"], told()["kind"]] == ["set", "expired"]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == INTERRUPTED


def test_watching_ends_after_so_many_lines_or_so_much_time(keep: Keep) -> None:
    for id_ in ("a1", "a2", "b"):
        keep("set", "sensor", id_, "on")

    assert len(keep("watch", "sensor", "--count", "2").stdout.splitlines()) == 2
    watched = keep("watch", "sensor", "a*", "--for", "0.5")
    assert sorted(watched.stdout.splitlines()) == ["is       a1  on", "is       a2  on"]
    assert watched.stderr == "Watching; Ctrl-C ends it.\n"
    assert keep("watch", "nobody", "--for", "0").stdout == ""


@pytest.mark.parametrize(
    "line", [["get", "sensor", "a/b"], ["set", "a b", "temp", "1"], ["ls", "sensor", "a/*"], ["watch", "sen sor"]]
)
def test_what_is_no_name_is_refused(keep: Keep, line: list[str]) -> None:
    refused = keep(*line)

    assert (refused.exit_code, refused.stdout) == (USAGE, "")
