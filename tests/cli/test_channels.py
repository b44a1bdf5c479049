from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import INTERRUPTED, OK, USAGE
from kizuna.testing import ServerProcess


class Cli:
    def __init__(self, url: str, root: str) -> None:
        self._options = ["--url", url, "--set", f"roots.system={root}", "--set", f"roots.coordination={root}"]

    def __call__(self, *arguments: str, typed: str = "") -> Result:
        return CliRunner().invoke(command, [*self._options, "channels", *arguments], input=typed)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """In a process of its own, from when it says that it is ready."""
        line = [sys.executable, "-m", "kizuna", *self._options, "channels", *arguments]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                assert "Ctrl-C ends it" in process.stderr.readline()
                yield process
            finally:
                process.kill()


@pytest.fixture
def channels(server: ServerProcess, root: str) -> Cli:
    return Cli(server.url, root)


def rows(ended: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_who_listens_hears_what_is_published(channels: Cli) -> None:
    with channels.running("listen", "mirin:*", "news", "--most", "3") as listening:
        assert channels("publish", "mirin:requests", '{"issue": 1}').stdout == "mirin:requests  heard by 1\n"
        assert channels("publish", "other", "x").stdout == "other  heard by 0\n"
        assert channels("publish", "news", "-", "--json", typed="one\ntwo\n").exit_code == OK
        heard, told = listening.communicate(timeout=120)

    assert sorted(heard.splitlines()) == ['mirin:requests  {"issue": 1}', "news  one", "news  two"]
    assert (listening.returncode, told) == (0, "")


def test_listening_ends_with_ctrl_c(channels: Cli) -> None:
    with channels.running("listen", "news", "--json") as listening:
        channels("publish", "news", "縁")
        assert listening.stdout is not None
        assert json.loads(listening.stdout.readline()) == {"channel": "news", "message": "縁"}
        listening.send_signal(signal.SIGINT)

        assert listening.wait(30) == INTERRUPTED


def test_a_durable_message_waits_for_its_reader(channels: Cli) -> None:
    first_look = channels("read", "news", "--reader", "billing")
    assert (first_look.stdout, first_look.stderr) == ("", "Nothing waits for billing.\n")
    [first] = rows(channels("publish", "news", "--durable", "--id", "7", "one", "--json"))
    assert channels("publish", "news", "--durable", "--id", "7", "one").stdout.endswith("published before\n")
    channels("publish", "news", "--durable", "two")

    assert channels("read", "news", "--reader", "billing", "--most", "1").stdout == f"news  {first['entry']}  one\n"
    [second] = rows(channels("read", "news", "--reader", "billing", "--json"))
    assert (second["number"], second["message"]) == (2, "two")
    assert channels("read", "news", "--reader", "billing").stdout == ""
    assert len(channels("read", "news", "--reader", "audit", "--from", "beginning").stdout.splitlines()) == 2


def test_a_follower_waits_for_more(channels: Cli) -> None:
    channels("publish", "news", "--durable", "one")
    following = ("read", "news", "--reader", "billing", "--from", "beginning", "--follow", "--most", "2", "--json")
    with channels.running(*following) as reading:
        channels("publish", "news", "--durable", "two")
        read, _ = reading.communicate(timeout=120)

    assert [json.loads(line)["message"] for line in read.splitlines()] == ["one", "two"]
    assert reading.returncode == 0


def test_what_is_gone_is_said_and_the_rest_is_read(channels: Cli) -> None:
    channels("read", "news", "--reader", "billing")
    channels("publish", "news", "--durable", "-", typed="1\n2\n3\n")
    assert channels("trim", "news", "--keep", "1").stderr == "2 messages are gone.\n"
    ended = channels("read", "news", "--reader", "billing", "--json")

    assert [row["message"] for row in rows(ended)] == ["3"]
    assert "2 of the messages of channel 'news' ended before reader 'billing' had done them" in ended.stderr


def test_channels_are_listed_with_listeners_and_readers(channels: Cli) -> None:
    channels("read", "news", "--reader", "billing")
    channels("publish", "news", "--durable", "one")
    with channels.running("listen", "mirin:requests"):
        assert rows(channels("ls", "--json")) == [
            {"channel": "mirin:requests", "listeners": 1, "kept": 0, "readers": {}},
            {"channel": "news", "listeners": 0, "kept": 1, "readers": {"billing": 1}},
        ]
        assert "billing (1 left)" in channels("ls").stdout


def test_where_there_is_nothing_that_is_said(channels: Cli) -> None:
    assert channels("ls").stderr == "Nobody listens, and no channel is durable.\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("publish", "a b", "x"), "cannot be the channel of a key"),
        (("publish", "news", "--id", "7", "x"), "only with --durable"),
        (("publish", "news", "--id", "7", "--durable", "-"), "--id is for one message"),
        (("read", "news"), "Missing option '--reader'"),
        (("read", "news", "--reader", "r", "--from", "tomorrow"), "now, beginning, or an entry"),
        (("trim", "news", "--keep", "0"), "0 is not in the range"),
        (("listen",), "Missing argument"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(
    channels: Cli, arguments: tuple[str, ...], complaint: str
) -> None:
    ended = channels(*arguments)

    assert ended.exit_code == USAGE
    assert complaint in ended.stderr
