from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import NOT_FOUND, OK, USAGE
from kizuna.testing import ServerProcess


class Cli:
    def __init__(self, url: str, root: str) -> None:
        self._options = ["--url", url, "--set", f"roots.system={root}", "--set", f"roots.coordination={root}"]

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(command, [*self._options, "stats", *arguments])


@pytest.fixture
def stats(server: ServerProcess, root: str) -> Cli:
    return Cli(server.url, root)


def test_what_is_counted_is_listed_and_shown(stats: Cli) -> None:
    assert stats("count", "issues", "completed").exit_code == OK
    assert stats("count", "issues", "completed", "2").exit_code == OK
    assert stats("count", "issues", "spent", "0.5").exit_code == OK
    assert stats("count", "issues", "open", "--", "-1").exit_code == OK

    listed = stats("ls")
    assert listed.stdout.splitlines()[1].split("  ")[0] == "issues"
    assert "completed 3, open -1, spent 0.5" in listed.stdout
    assert json.loads(stats("ls", "--json").stdout) == {
        "category": "issues",
        "counters": {"completed": 3, "open": -1, "spent": 0.5},
        "histograms": {},
    }


def test_counters_are_drawn_with_their_scale(stats: Cli) -> None:
    stats("count", "issues", "completed", "7")
    shown = stats("show", "issues", "--days", "5")
    _, header, line = shown.stdout.splitlines()

    assert shown.exit_code == OK
    assert header.split() == ["COUNTER", "OVER", "TIME", "MIN", "MAX", "LAST", "TOTAL"]
    assert line.split() == ["completed", "▁▁▁▁█", "0", "7", "7", "7"]


def test_machines_get_one_object_for_each_period(stats: Cli) -> None:
    stats("count", "issues", "completed", "7")
    days = [json.loads(line) for line in stats("show", "issues", "--json").stdout.splitlines()]
    hours = [json.loads(line) for line in stats("show", "issues", "--hours", "3", "--json").stdout.splitlines()]

    assert len(days) == 7
    assert len(hours) == 3
    assert sum(day["counters"].get("completed", 0) for day in days) == 7
    assert sum(hour["counters"].get("completed", 0) for hour in hours) == 7
    assert days[0].keys() == {"day", "counters", "histograms"}


def test_histograms_have_their_percentiles(stats: Cli, server: ServerProcess, root: str) -> None:
    stats("count", "performance", "done")
    [key] = server.call("KEYS", f"{root}:stats:performance:daily:*")
    for field, number in {"<=8": 90, "<=98.7": 10, "sum": 1700, "min": 7.5, "max": 98}.items():
        server.call("HINCRBYFLOAT", key, f"took_ms {field}", number)
    shown = stats("show", "performance", "--counter", "took_ms").stdout.splitlines()

    assert shown[1].split()[-7:] == ["COUNT", "MEAN", "P50", "P90", "P99", "MIN", "MAX"]
    assert shown[2].split()[-7:] == ["100", "17", "8", "8", "98", "7.5", "98"]
    assert len(shown) == 3
    today = json.loads(stats("show", "performance", "--json").stdout.splitlines()[-1])
    assert today["histograms"]["took_ms"] == {
        "count": 100, "mean": 17, "p50": 8, "p90": 8, "p99": 98, "min": 7.5, "max": 98,
    }  # fmt: skip


def test_where_nothing_was_counted_it_ends_with_3_and_a_sentence(stats: Cli) -> None:
    ended = stats("show", "nothing")

    assert (ended.exit_code, ended.stdout) == (NOT_FOUND, "")
    assert "Nothing was counted in nothing in that time" in ended.stderr
    assert stats("ls").stderr == "Nothing was counted lately.\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("show", "issues", "--days", "1", "--hours", "1"), "exclude each other"),
        (("count", "issues", "done", "many"), "'many' is not a valid float"),
        (("count", "a b", "done"), "cannot be the category of a key"),
        (("count", "issues", "a b"), "cannot be the counter of a key"),
        (("count", "issues", "done", "nan"), "what is added to done cannot be nan"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(stats: Cli, arguments: tuple[str, ...], complaint: str) -> None:
    ended = stats(*arguments)

    assert ended.exit_code == USAGE
    assert complaint in ended.stderr


def test_a_number_below_zero_is_no_option(stats: Cli) -> None:
    stats("count", "issues", "open", "5")
    assert stats("count", "issues", "open", "-2").exit_code == OK

    assert json.loads(stats("ls", "--json").stdout)["counters"] == {"open": 3}
