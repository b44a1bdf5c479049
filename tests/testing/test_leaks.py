from __future__ import annotations

import pytest

from kizuna import catalogue
from kizuna.catalogue import Family
from kizuna.store.keys import Key
from kizuna.testing import ServerProcess
from kizuna.testing.leaks import assert_keys_end_as_declared, root_of

FAMILIES = (
    Family("tests", "HOLDER", Key("holder:<lock>", "string", "expires", "who holds it"), "kizuna"),
    Family("tests", "FENCE", Key("fence:<lock>", "string", "never", "last number"), "kizuna"),
    Family("tests", "QUEUE", Key("queue:<group>", "list", "removed", "what is to do"), "kizuna"),
    Family("tests", "ASIDE", Key("aside:<name>", "any", "removed", "whatever it is"), "kizuna"),
    Family("tests", "REQUEST", Key("<unit>/req/<id>", "string", "expires", "what it asks", joined_by="/"), "muf"),
)


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "all_families", lambda: FAMILIES)


def test_declared_keys_are_in_order_and_are_removed(server: ServerProcess, root: str) -> None:
    server.call("SET", f"{root}:holder:a", "me", "PX", 60_000)
    server.call("SET", f"{root}:fence:a", 1)
    server.call("RPUSH", f"{root}:queue:a", 1)
    server.call("RPUSH", f"{{{root}:3}}:queue:a", 1)
    server.call("RPUSH", f"{root}:aside:a", 1)
    server.call("SET", f"{root}:aside:b", 1)
    server.call("SET", f"{root}/unit_a/req/42", 1, "PX", 60_000)

    assert_keys_end_as_declared(server, root)

    assert server.call("EXISTS", f"{root}:fence:a", f"{{{root}:3}}:queue:a") == 0


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["SET", "{}:unknown", "1"], "{}:unknown is in no keys.py"),
        (["SET", "{}:holder:a", "me"], "{}:holder:a would stay for ever, and HOLDER is declared to expire"),
        (["SET", "{}/a/req/1", "me"], "{}/a/req/1 would stay for ever, and REQUEST is declared to expire"),
        (["SET", "{}/a/nope/1", "me", "EX", "60"], "{}/a/nope/1 is in no keys.py"),
        (["SET", "{}:queue:a", "1"], "{}:queue:a is a string, and QUEUE is declared as list"),
        (["SET", "{}:fence:a", "1", "EX", "60"], "ms, and FENCE is declared to stay"),
    ],
)
def test_a_key_that_is_not_as_declared_is_named(
    server: ServerProcess, root: str, command: list[str], complaint: str
) -> None:
    server.call(*(word.format(root) for word in command))

    with pytest.raises(AssertionError) as failed:
        assert_keys_end_as_declared(server, root)

    assert complaint.format(root) in str(failed.value)
    assert_keys_end_as_declared(server, root)


def test_keys_of_others_are_left_alone(server: ServerProcess, root: str, scratch: str) -> None:
    server.call("SET", f"{scratch}mine", "1")

    assert_keys_end_as_declared(server, root)

    assert server.call("EXISTS", f"{scratch}mine") == 1


@pytest.mark.parametrize(
    ("key", "root"),
    [
        (b"t-0a1b2c3d:lock:a", "t-0a1b2c3d"),
        (b"t-0a1b2c3d/unit_a/req/42", "t-0a1b2c3d"),
        (b"{t-0a1b2c3d:3}:queue:a", "t-0a1b2c3d"),
        (b"t-0a1b2c3d.allTickets", "t-0a1b2c3d"),
        (b"{t-0a1b2c3d.:0}assign:x", "t-0a1b2c3d"),
        (b"rueidislock:1:t-0a1b2c3d.fetchTicketsLock", "t-0a1b2c3d"),
        (b"rueidislock:1:{t-0a1b2c3d.:0}fetchTicketsLock", "t-0a1b2c3d"),
        (b"poppo.v2:lock:a", "poppo.v2"),
    ],
)
def test_every_key_that_a_test_leaves_is_traced_to_its_root(key: bytes, root: str) -> None:
    assert root_of(key) == root
