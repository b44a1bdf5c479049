from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.watching import started, told

from kizuna.cli.exit_codes import INTERRUPTED, USAGE
from kizuna.cli.memory.watch import KINDS, read_kinds
from kizuna.testing.commands import Runner


def kinds_and_ids(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["kind"], event["id"]) for event in events]


def until(process: subprocess.Popen[str], last: tuple[str, str]) -> list[tuple[str, str]]:
    """What is told, until that is."""
    found: list[tuple[str, str]] = []
    while last not in found:
        found += kinds_and_ids([told(process)])
    return found


def test_all_eight_kinds_are_told_as_they_happen(with_settings: Callable[..., Runner]) -> None:
    kizuna = with_settings(item_least_s=0.05, context_least_s=0.05)
    with started(kizuna, "watch", "--json") as watching:
        kizuna.done("contexts", "create", "x", "--id", "c")
        kizuna.done("put", "1", "--id", "a", "--context", "c")
        first, second = told(watching), told(watching)
        assert kinds_and_ids([first, second]) == [("ctx:created", "c"), ("item:created", "a")]
        assert (second["type"], second["context"], second["cursor"]) == ("note", "c", None)
        assert 0 <= second["at"] - first["at"] < 60

        kizuna.done("put", "2", "--id", "a", "--context", "c")
        kizuna.done("rm", "a")
        kizuna.done("contexts", "update", "c", "--name", "y")
        kizuna.done("contexts", "rm", "c")
        # Using it makes a context live longer, which may be told in between.
        assert [event for event in until(watching, ("ctx:deleted", "c")) if event != ("ctx:updated", "c")] == [
            ("item:updated", "a"),
            ("item:deleted", "a"),
            ("ctx:deleted", "c"),
        ]
        kizuna.done("put", "1", "--id", "b", "--ttl", "0.05")
        assert ("item:created", "b") in until(watching, ("item:expired", "b"))
        kizuna.done("contexts", "create", "x", "--id", "d", "--ttl", "0.05")
        assert ("ctx:created", "d") in until(watching, ("ctx:expired", "d"))
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=120) == INTERRUPTED


def test_watching_can_be_for_some_kinds_types_and_contexts_and_so_many(kizuna: Runner) -> None:
    with started(kizuna, "watch", "item:created", "deleted", "--context", "c", "--count", "2") as watching:
        kizuna.done("put", "1", "--id", "a")
        kizuna.done("put", "1", "--id", "b", "--context", "c", "--type", "fact")
        kizuna.done("put", "2", "--id", "b", "--context", "c", "--type", "fact")
        kizuna.done("rm", "a", "b")
        out, _ = watching.communicate(timeout=120)
    first, second = out.splitlines()

    assert first.split()[1:] == ["item:created", "b", "fact", "in", "c"]
    assert second.split()[1:] == ["item:deleted", "b", "fact", "in", "c"]
    assert watching.returncode == 0


def test_the_feed_tells_from_a_cursor_on_what_nobody_watched(kizuna: Runner) -> None:
    kizuna.done("put", "1", "--id", "a")
    kizuna.done("put", "2", "--id", "b", "--depends-on", "prices")
    first = kizuna("watch", "--since", "0", "--no-wait", "--count", "1", "--json")
    [event] = [json.loads(line) for line in first.stdout.splitlines()]
    kizuna.done("changed", "prices")

    assert (event["kind"], event["id"], event["version"]) == ("item:created", "a", 1)
    assert first.stderr == f"Read on with --since {event['cursor']}.\n"
    rest = kizuna.rows("watch", "--since", event["cursor"], "--no-wait")
    assert kinds_and_ids(rest) == [("item:created", "b"), ("item:deleted", "b")]
    assert rest[-1]["reason"] == "changed"
    assert kizuna.rows("watch", "--since", rest[-1]["cursor"], "--no-wait") == []
    line = kizuna.done("watch", "deleted", "--since", "0", "--no-wait").stdout
    assert line.split(maxsplit=1)[1] == "item:deleted  b  note in global, version 1, changed\n"


def test_the_feed_can_be_followed_and_says_from_where_to_read_on(kizuna: Runner) -> None:
    kizuna.done("put", "1", "--id", "a")
    with started(kizuna, "watch", "--since", "0", "--json") as watching:
        assert told(watching)["id"] == "a"
        kizuna.done("put", "1", "--id", "b")
        last = told(watching)
        assert last["id"] == "b"
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=120)

    assert watching.returncode == INTERRUPTED
    assert f"Read on with --since {last['cursor']}." in said.splitlines()


def test_watching_ends_when_its_time_is_over(kizuna: Runner) -> None:
    kizuna.done("put", "1", "--id", "a")

    assert kizuna.done("watch", "--for", "0.2").stdout == ""
    assert len(kizuna.rows("watch", "--since", "0", "--count", "1", "--for", "60")) == 1


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        ([], set(KINDS)),
        (["item:created"], {"item:created"}),
        (["expired"], {"item:expired", "ctx:expired"}),
        (["ctx", "item:created"], {"item:created", *(kind for kind in KINDS if kind.startswith("ctx"))}),
    ],
)
def test_a_half_of_a_kind_is_all_that_have_it(given: list[str], kinds: set[str]) -> None:
    assert set(read_kinds(None, None, given)) == kinds  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "said"), [(["watch", "gone"], "'gone' is none of"), (["watch", "--no-wait"], "goes with --since")]
)
def test_what_is_wrong_is_said(kizuna: Runner, line: list[str], said: str) -> None:
    ended = kizuna(*line)

    assert (ended.exit_code, ended.stdout) == (USAGE, "")
    assert said in ended.stderr.splitlines()[-1]
