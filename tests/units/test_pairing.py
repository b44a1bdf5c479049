"""Requests, claims and replies belong together; told by tables, and for all orders in which they may come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kizuna.units.pairing import Fact, Pairing, Selection
from kizuna.units.paths import Path, claim_id

ASKED = Path("camera", "req", "detector.1a2b")
ANSWERED = Path("camera", "res", "detector.1a2b")
FAILED = Path("camera", "err", "detector.1a2b")
TAKEN = Path("detector", "keep", claim_id("camera", "detector.1a2b"))


def facts(*said: tuple[Path, float]) -> list[Fact]:
    pairing = Pairing()
    return [pairing.feed(path, at_s) for path, at_s in said]


def test_a_reply_is_told_with_who_answers_whom_and_after_what_time() -> None:
    asked, answered = facts((ASKED, 1.0), (ANSWERED, 1.5))

    assert asked == Fact("request", ASKED, "1a2b", "camera", "detector")
    assert answered == Fact("reply", ANSWERED, "1a2b", "camera", "detector", after_s=0.5)


def test_so_is_an_error() -> None:
    *_, failed = facts((ASKED, 1.0), (FAILED, 3.0))

    assert failed == Fact("error", FAILED, "1a2b", "camera", "detector", after_s=2.0)


def test_a_claim_tells_who_took_a_request_without_an_address() -> None:
    taken = Path("archive", "keep", claim_id("camera", "42"))
    _, claim, answered = facts((Path("camera", "req", "42"), 1.0), (taken, 1.25), (Path("camera", "res", "42"), 1.5))

    assert claim == Fact("claim", taken, "42", "camera", "archive", after_s=0.25)
    assert answered == Fact("reply", Path("camera", "res", "42"), "42", "camera", "archive", after_s=0.5)


def test_a_claim_whose_name_is_too_long_to_be_read_is_known_all_the_same() -> None:
    caller, id_ = "c" * 200, "detector." + "x" * 200
    _, claim = facts((Path(caller, "req", id_), 1.0), (Path("detector", "keep", claim_id(caller, id_)), 2.0))

    assert (claim.kind, claim.caller, claim.server, claim.after_s) == ("claim", caller, "detector", 1.0)


@pytest.mark.parametrize(
    ("path", "fact"),
    [
        (ANSWERED, Fact("reply", ANSWERED, "1a2b", "camera", "detector")),
        (FAILED, Fact("error", FAILED, "1a2b", "camera", "detector")),
        (TAKEN, Fact("claim", TAKEN, "camera.detector.1a2b", None, "detector")),
        (Path("a", "req", "42"), Fact("request", Path("a", "req", "42"), "42", "a")),
        (Path("a", "req", "b.~4"), Fact("request", Path("a", "req", "b.~4"), "4", "a", "b")),
        (Path("a", "req", "~4"), Fact("request", Path("a", "req", "~4"), "4", "a")),
        (Path("a", "req", "~"), Fact("request", Path("a", "req", "~"), "~", "a")),
        (Path("a", "res", ".42"), Fact("reply", Path("a", "res", ".42"), ".42", "a")),
        (Path("a", "keep", "mode"), Fact("kept", Path("a", "keep", "mode"), "mode")),
        (Path("a", "keep", "presence.web-1"), Fact("presence", Path("a", "keep", "presence.web-1"), "web-1")),
    ],
)
def test_what_belongs_to_nothing_that_was_seen_is_told_by_itself(path: Path, fact: Fact) -> None:
    assert facts((path, 1.0)) == [fact]


def test_a_second_answer_is_paired_as_well() -> None:
    *_, failed, answered = facts((ASKED, 1.0), (FAILED, 2.0), (ANSWERED, 4.0))

    assert (failed.after_s, answered.after_s) == (1.0, 3.0)


def test_an_id_that_is_used_again_begins_anew() -> None:
    *_, answered = facts((ASKED, 1.0), (ANSWERED, 2.0), (ASKED, 10.0), (ANSWERED, 10.5))

    assert answered.after_s == 0.5


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_a_time_is_not_exact_when_one_of_the_two_was_found_by_looking(first: bool, second: bool) -> None:
    pairing = Pairing()
    pairing.feed(ASKED, 1.0, found=first)
    answered = pairing.feed(ANSWERED, 1.25, found=second)

    assert (answered.after_s, answered.is_exact) == (0.25, False)


def test_of_a_request_that_was_there_before_the_time_is_not_known() -> None:
    pairing = Pairing()
    pairing.remember(Path("camera", "req", "42"))
    pairing.feed(Path("archive", "keep", claim_id("camera", "42")), 2.0)
    answered = pairing.feed(Path("camera", "res", "42"), 3.0)

    assert (answered.server, answered.after_s) == ("archive", None)


def test_the_oldest_requests_are_forgotten() -> None:
    pairing = Pairing(remembered=2)
    for number in range(3):
        pairing.feed(Path("camera", "req", f"{number}"), float(number))

    answers = [pairing.feed(Path("camera", "res", f"{number}"), 3.0).after_s for number in range(3)]
    claims = [pairing.feed(Path("archive", "keep", claim_id("camera", f"{number}")), 3.0) for number in range(3)]
    assert answers == [None, 2.0, 1.0]
    assert [claim.caller for claim in claims] == [None, "camera", "camera"]


requests = st.builds(
    Path, st.sampled_from(["a", "b.c", "%"]), st.just("req"), st.sampled_from(["1", "d.1", "d.2", "c.1"])
)
said = st.lists(st.tuples(requests, st.sampled_from(["req", "res", "err", "claim"]), st.integers(0, 100)), max_size=40)


@given(said)
def test_whatever_is_said_in_between_each_is_paired_with_the_latest_request_of_its_name(
    said: list[tuple[Path, str, int]],
) -> None:
    pairing, asked, now = Pairing(), dict[Path, int](), 0
    for request, what, later in said:
        now += later
        if what == "claim":
            fact = pairing.feed(Path("server", "keep", claim_id(request.unit, request.id)), now)
        else:
            fact = pairing.feed(request._replace(status=what), now)
        if what == "req":
            asked[request] = now
            assert fact.after_s is None
        else:
            assert fact.after_s == (now - asked[request] if request in asked else None)
            assert fact.caller == (request.unit if request in asked or what != "claim" else None)


# -- what is wanted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (Selection(), ["request", "reply", "kept"]),
        (Selection(everything=True), ["request", "claim", "reply", "kept", "presence"]),
        (Selection(units=frozenset(["detector"]), everything=True), ["request", "claim", "reply"]),
        (Selection(units=frozenset(["camera", "x"])), ["request", "reply"]),
        (Selection(units=frozenset(["archive"])), ["kept"]),
        (Selection(statuses=frozenset(["res", "keep"])), ["reply", "kept"]),
        (Selection(id="1a"), ["request", "reply"]),
        (Selection(id="detector.1a"), ["request", "reply"]),
        (Selection(id="2b"), []),
        (Selection(text=b"res"), ["reply"]),
    ],
)
def test_only_what_is_wanted_is_taken(selection: Selection, wanted: list[str]) -> None:
    kept, there = Path("archive", "keep", "mode"), Path("archive", "keep", "presence.web-1")
    told = facts((ASKED, 1.0), (TAKEN, 1.0), (ANSWERED, 2.0), (kept, 3.0), (there, 3.0))

    assert [fact.kind for fact in told if selection.takes(fact, fact.path.status.encode())] == wanted
