from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import NOT_FOUND, OK, USAGE
from kizuna.cli.sparkline import ASCII
from kizuna.testing import ServerProcess


class Cli:
    def __init__(self, url: str, root: str) -> None:
        self.options = ["--url", url, "--set", f"roots.system={root}", "--set", f"roots.coordination={root}", "metrics"]

    def __call__(self, *arguments: str) -> Result:
        return CliRunner(env={"COLUMNS": "80"}).invoke(command, [*self.options, *arguments])


@pytest.fixture
def metrics(server: ServerProcess, root: str) -> Cli:
    return Cli(server.url, root)


def test_what_is_recorded_is_listed_and_drawn(metrics: Cli) -> None:
    for value in ("1", "0.5", "9"):
        assert metrics("record", "cpu", value).exit_code == OK
    assert metrics("record", "temperature", "-3.5").exit_code == OK

    assert [json.loads(line) for line in metrics("ls", "--json").stdout.splitlines()] == [
        {"metric": "cpu", "current": 9}, {"metric": "temperature", "current": -3.5},
    ]  # fmt: skip
    assert metrics("ls").stdout.splitlines()[1].startswith("cpu          9        ")
    graph, axis, *summary = metrics("show", "cpu", "--since", "1h").stdout.splitlines()
    assert len(graph) == len(axis) == 80
    assert graph.strip() != ""
    facts = dict(line.split(None, 1) for line in summary)
    assert (facts["min"], facts["mean"], facts["max"], facts["values"]) == ("0.5", "3.5", "9", "3")


def test_machines_get_one_object_for_each_value(metrics: Cli) -> None:
    for value in ("1", "2"):
        metrics("record", "cpu", value)
    samples = [json.loads(line) for line in metrics("show", "cpu", "--json").stdout.splitlines()]

    assert [sample["value"] for sample in samples] == [1, 2]
    assert samples[0]["at_s"] <= samples[1]["at_s"]


def test_a_terminal_without_unicode_gets_plain_characters(metrics: Cli) -> None:
    metrics("record", "cpu", "1")
    command_line = [sys.executable, "-m", "kizuna", *metrics.options, "show", "cpu"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "60"}
    ended = subprocess.run(command_line, env=environment, capture_output=True, check=False, timeout=120)

    assert (ended.returncode, ended.stderr) == (0, b"")
    graph = ended.stdout.decode("ascii").splitlines()[0]
    assert len(graph) == 60
    assert graph.strip() == ASCII[0]


def test_where_there_is_no_value_it_ends_with_3_and_a_sentence(metrics: Cli) -> None:
    ended = metrics("show", "nothing")

    assert (ended.exit_code, ended.stdout) == (NOT_FOUND, "")
    assert "No value of nothing in that time" in ended.stderr
    assert metrics("ls").stderr == "No metrics were recorded lately.\n"


@pytest.mark.parametrize("since", ["", "soon", "-1h", "0s", "1y", "nan"])
def test_a_time_that_is_none_is_refused(metrics: Cli, since: str) -> None:
    ended = metrics("show", "cpu", "--since", since)

    assert ended.exit_code == USAGE
    assert "is no time; write 90s, 15m, 1.5h or 2d" in ended.stderr


@pytest.mark.parametrize("since", ["3600", "90s", "15m", "1.5h", "2d"])
def test_times_may_have_units(metrics: Cli, since: str) -> None:
    metrics("record", "cpu", "1")

    assert metrics("show", "cpu", "--since", since).exit_code == OK


def test_a_value_that_is_no_number_is_refused(metrics: Cli) -> None:
    assert metrics("record", "cpu", "much").exit_code == USAGE
    ended = metrics("record", "cpu", "nan")
    assert (ended.exit_code, ended.stderr) == (USAGE, "Error: metric cpu cannot be nan; expected a number\n")
