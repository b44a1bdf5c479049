from __future__ import annotations

import getpass
import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import CONFLICT, NOT_FOUND, USAGE
from kizuna.testing import ClusterSetup, ServerProcess
from kizuna.testing.leaks import assert_keys_end_as_declared

Call = Callable[..., Result]


@pytest.fixture
def config(server: ServerProcess, root: str) -> Call:
    """Runs `kizuna config …` on the test's own root."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(
            command, ["--url", server.url, "--set", f"roots.coordination={root}", "config", *arguments]
        )

    return call


def test_a_value_is_set_shown_and_removed(config: Call, server: ServerProcess, root: str) -> None:
    assert config("ls").stderr == "Nothing is set.\n"
    done = config("set", "claude:timeout", "45")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "claude:timeout is 45 now.\n")
    assert server.call("GET", f"{root}:config:claude:timeout") == b"45"
    assert config("set", "claude:timeout", "45").stderr == "claude:timeout was 45 before; nothing has changed.\n"
    assert config("get", "claude:timeout").stdout == "45\n"
    assert json.loads(config("get", "claude:timeout", "--json").stdout) == {"name": "claude:timeout", "value": 45}

    assert config("unset", "claude:timeout").stderr == "claude:timeout is not set now.\n"
    missing = config("get", "claude:timeout")
    assert (missing.exit_code, missing.stdout) == (NOT_FOUND, "")
    assert "claude:timeout is not set" in missing.stderr


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("-5", b"-5"),
        ("true", b"true"),
        ("hello world", b'"hello world"'),
        ('"30"', b'"30"'),
        ('{"a": [1, null]}', b'{"a":[1,null]}'),
        ("言葉", '"言葉"'.encode()),
        ("", b'""'),
    ],
)
def test_a_value_is_json_or_else_text(config: Call, server: ServerProcess, root: str, text: str, stored: bytes) -> None:
    assert config("set", "n", text).exit_code == 0
    assert server.call("GET", f"{root}:config:n") == stored


def test_the_list_says_who_changed_what_and_when_unless_an_outsider_did(
    config: Call, server: ServerProcess, root: str
) -> None:
    config("set", "a", "1")
    config("set", "b", "[2]")
    server.call("SET", f"{root}:config:b", "a word")
    header, first, second = config("ls").stdout.splitlines()

    assert header.split() == ["NAME", "VALUE", "TYPE", "CHANGED", "BY"]
    assert first.split()[:3] == ["a", "1", "number"]
    assert first.split()[-1].startswith(f"{getpass.getuser()}@")
    assert second.split() == ["b", '"a', 'word"', "text", "-", "-"]
    rows = [json.loads(line) for line in config("ls", "b*", "--json").stdout.splitlines()]
    assert rows == [{"name": "b", "value": "a word", "type": "text", "changed": None, "by": None}]


def test_a_value_is_set_only_where_it_is_as_expected(config: Call) -> None:
    assert config("set", "n", "1", "--expect-unset").exit_code == 0
    refused = config("set", "n", "2", "--expect", "5")
    assert refused.exit_code == CONFLICT
    assert refused.stderr.startswith("Error: n is 1 now, which was not expected")
    assert config("set", "n", "2", "--expect", "1").exit_code == 0
    assert config("unset", "n", "--expect", "1").exit_code == CONFLICT
    both = config("set", "n", "2", "--expect", "1", "--expect-unset")
    assert both.exit_code == USAGE
    assert "keep one" in both.stderr


def test_the_history_is_shown_and_gone_back_in(config: Call) -> None:
    assert config("history", "n").stderr == "n was never changed through kizuna.\n"
    config("set", "n", "1", "--note", "first")
    config("set", "n", "2")
    newest, oldest = [json.loads(line) for line in config("history", "n", "--json").stdout.splitlines()]

    assert (newest["from"], newest["to"], newest["note"]) == (1, 2, "")
    assert (oldest["from"], oldest["to"], oldest["note"]) == (None, 1, "first")
    assert [line.split()[-3:] for line in config("history", "n").stdout.splitlines()[1:]] == [
        ["1", "2", "-"],
        ["-", "1", "first"],
    ]
    assert config("revert", "n").stderr == "n is 1 now.\n"
    assert config("revert", "n", "--to", newest["change"]).stderr == "n is 2 now.\n"
    wrong = config("revert", "n", "--to", "1-1")
    assert wrong.exit_code == USAGE
    assert "n has no change 1-1 in its history" in wrong.stderr
    assert config("revert", "other").exit_code == USAGE


def test_the_first_change_is_gone_back_on_to_nothing(config: Call) -> None:
    config("set", "n", "1")
    assert config("revert", "n").stderr == "n is not set now.\n"


def test_a_name_that_cannot_be_one_ends_with_a_sentence(config: Call) -> None:
    refused = config("set", "a b", "1")
    assert refused.exit_code == USAGE
    assert refused.stderr == "Error: 'a b' cannot be the name of a key: ' ' is not allowed in a name\n"


def test_changes_are_printed_as_they_happen_one_line_each(server: ServerProcess, root: str, config: Call) -> None:
    options = ["--url", server.url, "--set", f"roots.coordination={root}"]
    arguments = ["config", "watch", "claude:*", "--most", "2", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "kizuna", *options, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stderr is not None
        assert watching.stderr.readline() == "Watching; Ctrl-C ends it.\n"
        config("set", "other", "1")
        config("set", "claude:timeout", "45")
        # Seen before it changes again: a slow watcher is told only what has come of it.
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        server.call("DEL", f"{root}:config:claude:timeout")
        second = json.loads(watching.stdout.readline())
        assert watching.wait(10) == 0

    assert (first["name"], first["old"], first["new"]) == ("claude:timeout", None, 45)
    assert first["by"].startswith(f"{getpass.getuser()}@")
    assert (second["old"], second["new"], second["by"]) == (45, None, None)


def test_on_a_cluster_it_works_with_shards(cluster: ClusterSetup, root: str) -> None:
    options = ["--url", cluster.url, "--set", f"roots.coordination={root}", "--set", "coordination.shards=4"]

    def config(*arguments: str) -> Result:
        return CliRunner().invoke(command, [*options, "config", *arguments])

    for name in ("a", "b", "c"):
        assert config("set", name, "1").exit_code == 0
    assert [json.loads(line)["name"] for line in config("ls", "--json").stdout.splitlines()] == ["a", "b", "c"]
    for server in cluster.servers:
        assert_keys_end_as_declared(server, root)


def test_the_process_id_of_the_settings_is_who_did_it(server: ServerProcess, root: str, config: Call) -> None:
    options = ["--url", server.url, "--set", f"roots.coordination={root}", "--set", "processes.id=deploy-7"]
    CliRunner().invoke(command, [*options, "config", "set", "n", "1"])

    assert json.loads(config("ls", "--json").stdout)["by"] == "deploy-7"


@pytest.mark.parametrize("value", ['{"a":', "[1, 2", "{a: 1}"])
def test_json_with_a_slip_is_not_taken_as_text(config: Call, value: str) -> None:
    ended = config("set", "claude:models", value)

    assert ended.exit_code == USAGE
    assert "begins like JSON, and is none" in ended.stderr
    assert config("get", "claude:models").exit_code == NOT_FOUND
