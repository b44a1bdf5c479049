from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kizuna.store.scanning.globs import covering, covers, has_wildcards, matcher
from kizuna.testing import ServerProcess

# Few different characters, so that patterns and texts meet.
texts = st.text(alphabet="ab-:{}[]^\\*?\n", max_size=8)


# No key is empty, and to the server "" is matched by "*" and not by "**".
@given(pattern=texts, text=texts.filter(bool))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_pattern_means_what_it_means_to_the_server(
    server: ServerProcess, scratch: str, pattern: str, text: str
) -> None:
    if pattern.count("[") != pattern.count("]") or ("[" in pattern and "\\" in pattern):
        return  # the servers' versions differ in what they make of a class that does not end
    with server.connect() as conversation:
        conversation.call("DEL", scratch)
        conversation.call("SADD", scratch, text)
        _, found = conversation.call("SSCAN", scratch, 0, "MATCH", pattern)

    assert bool(found) == bool(matcher([pattern])(text.encode())), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("poppo:*", b"poppo:a\nb", True),
        ("poppo:*", b"poppobuilder:a", False),
        ("{poppo:*}:lock:*", b"{poppo:3}:lock:x", True),
        ("a?c", b"a\xffc", True),
        ("[a-c]x", b"bx", True),
        ("[^a-c]x", b"bx", False),
        ("[c-a]x", b"bx", True),
        (r"\*", b"*", True),
        (r"\*", b"x", False),
        ("a.c", b"abc", False),
    ],
)
def test_patterns(pattern: str, text: bytes, fits: bool) -> None:
    assert bool(matcher([pattern])(text)) == fits


def test_one_pattern_for_the_server_covers_all_and_is_as_narrow_as_it_can_be() -> None:
    assert covering(["poppo:queue:*"]) == b"poppo:queue:*"
    assert covering(["poppo:queue:*", "poppo:queue:*"]) == b"poppo:queue:*"
    assert covering(["poppo:queue:*", "poppo:quiet"]) == b"poppo:qu*"
    assert covering(["poppo:*", "kizuna:*"]) == b"*"


@given(patterns=st.lists(st.text(alphabet="ab*?", min_size=1, max_size=4), min_size=1, max_size=3), text=texts)
def test_what_covers_never_leaves_out_what_is_covered(patterns: list[str], text: str) -> None:
    if matcher(patterns)(text.encode()):
        assert matcher([covering(patterns)])(text.encode())


def test_a_wider_pattern_covers_a_narrower_one() -> None:
    assert covers("queue:*", "queue:*:*")
    assert covers("queue:*", "queue:high")
    assert not covers("queue:*:*", "queue:*")
    assert not covers("queue:high", "queue:*")


def test_what_is_a_pattern_and_what_a_name() -> None:
    assert has_wildcards("lock:*")
    assert not has_wildcards("lock:issue:123")
