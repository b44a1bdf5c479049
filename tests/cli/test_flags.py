from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import CONFLICT, FAILURE, NOT_FOUND, USAGE
from kizuna.testing import ServerProcess

Call = Callable[..., Result]


@pytest.fixture
def flags(server: ServerProcess, root: str) -> Call:
    """Runs `kizuna flags …` on the test's own root."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(
            command, ["--url", server.url, "--set", f"roots.coordination={root}", "flags", *arguments]
        )

    return call


def test_a_flag_is_turned_on_and_off(flags: Call, server: ServerProcess, root: str) -> None:
    assert flags("get", "maintenance").exit_code == NOT_FOUND
    assert flags("on", "maintenance", "--note", "upgrade").stderr == "maintenance is on now.\n"
    assert server.call("GET", f"{root}:flags:maintenance") == b"true"
    assert flags("get", "maintenance").stdout == "on\n"
    assert flags("off", "maintenance").stderr == "maintenance is off now.\n"
    assert flags("get", "maintenance").stdout == "off\n"
    assert flags("unset", "maintenance").stderr == "maintenance is not set now.\n"


def test_scripts_learn_by_the_exit_code(flags: Call) -> None:
    assert flags("check", "maintenance").exit_code == FAILURE
    assert flags("check", "maintenance", "--default", "on").exit_code == 0
    flags("on", "maintenance")
    done = flags("check", "maintenance")
    assert (done.exit_code, done.stdout) == (0, "on\n")


def test_a_flag_is_rolled_out_to_some_and_always_the_same(flags: Call) -> None:
    assert flags("rollout", "new-ui", "25%").stderr == "new-ui is 25% now.\n"
    assert flags("rollout", "new-ui", "25").stderr == "new-ui was 25% before; nothing has changed.\n"
    assert json.loads(flags("get", "new-ui", "--json").stdout) == {"name": "new-ui", "value": "25%", "percent": 25.0}
    assert flags("check", "new-ui", "--of", "user-7").exit_code == FAILURE
    assert flags("check", "new-ui", "--of", "user-9").exit_code == 0
    assert flags("check", "new-ui").exit_code == FAILURE


@pytest.mark.parametrize("value", ["maybe", "25", "101%", "-1%"])
def test_what_is_no_switch_is_refused(flags: Call, value: str) -> None:
    refused = flags("set", "f", "--", value)
    assert refused.exit_code == USAGE
    assert refused.stderr == f"Error: f cannot be {value}; expected on, off, or a percentage such as 25%\n"


def test_a_flag_is_set_only_where_it_is_as_expected(flags: Call) -> None:
    assert flags("set", "f", "25%", "--expect-unset").exit_code == 0
    assert flags("set", "f", "50%", "--expect", "on").exit_code == CONFLICT
    assert flags("set", "f", "50%", "--expect", "25%").exit_code == 0


def test_flags_are_listed_in_one_language(flags: Call, server: ServerProcess, root: str) -> None:
    assert flags("ls").stderr == "Nothing is set.\n"
    flags("on", "a")
    server.call("SET", f"{root}:flags:b", "No")
    server.call("SET", f"{root}:flags:c", "perhaps")
    lines = flags("ls").stdout.splitlines()

    assert lines[0].split() == ["NAME", "VALUE", "CHANGED", "BY"]
    assert [line.split()[:2] for line in lines[1:]] == [["a", "on"], ["b", "off"], ["c", "perhaps"]]
    assert [json.loads(line)["value"] for line in flags("ls", "--json").stdout.splitlines()] == ["on", "off", "perhaps"]


def test_the_history_is_shown_and_gone_back_in(flags: Call) -> None:
    flags("on", "f")
    flags("rollout", "f", "50%", "--note", "careful")
    newest, oldest = [json.loads(line) for line in flags("history", "f", "--json").stdout.splitlines()]

    assert (newest["from"], newest["to"], newest["note"]) == ("on", "50%", "careful")
    assert (oldest["from"], oldest["to"]) == (None, "on")
    assert flags("revert", "f").stderr == "f is on now.\n"
    assert flags("revert", "f", "--to", newest["change"]).stderr == "f is 50% now.\n"


def test_changes_are_printed_in_words(flags: Call, server: ServerProcess, root: str) -> None:
    options = ["--url", server.url, "--set", f"roots.coordination={root}"]
    with subprocess.Popen(
        [sys.executable, "-m", "kizuna", *options, "flags", "watch", "--most", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stderr is not None
        assert watching.stderr.readline() == "Watching; Ctrl-C ends it.\n"
        flags("rollout", "new-ui", "25%", "--note", "careful")
        assert watching.stdout is not None
        line = watching.stdout.readline()

    assert line.startswith("new-ui: not set -> 25%  by ")
    assert line.endswith(" (careful)\n")
