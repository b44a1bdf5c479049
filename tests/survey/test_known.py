from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kizuna.catalogue import all_families
from kizuna.settings import CoordinationSettings, MatchSettings, RootsSettings, Settings
from kizuna.store.scanning import Wanted
from kizuna.survey.known import Known, shown

PLAIN = Known(Settings())
SHARDED = Known(Settings(coordination=CoordinationSettings(shards=4)))
RENAMED = Known(Settings(roots=RootsSettings(system="app:sys", coordination="app", units="app/talk", memory="app:mem")))
SHARED = Known(Settings(roots=RootsSettings(system="all", coordination="all", units="all", memory="all")))
PREFIXED = Known(Settings(roots=RootsSettings(match="mm1:")))
WORD_FOR_A_PREFIX = Known(Settings(roots=RootsSettings(match="mm")))
MATCH_IN_SHARDS = Known(Settings(match=MatchSettings(shards=3)))
PREFIXED_IN_SHARDS = Known(Settings(roots=RootsSettings(match="mm1:"), match=MatchSettings(shards=3)))

ID = "dbsgf9hksdudin8907v0"


@pytest.mark.parametrize(
    "known",
    [PLAIN, SHARDED, RENAMED, SHARED, PREFIXED, WORD_FOR_A_PREFIX, MATCH_IN_SHARDS, PREFIXED_IN_SHARDS],
)
def test_every_family_is_found_again_by_its_keys(known: Known) -> None:
    for family in all_families():
        if family.key.type == "channel":
            continue
        for root in known.roots[family.component].all:
            names = {name: ID if name in ("id", "ticket") else f"some-{name}" for name in family.key.names}
            key = family.key.build(root, **names).encode()
            found = known.find(key)
            assert found is not None
            assert (found.family, found.root, found.names) == (family, root, names)
            assert known.is_below(key)
            assert known.wanted().matcher()(key)
            assert known.lookalikes().matcher()(key)


@pytest.mark.parametrize(
    "key",
    [
        b"poppobuilder:queue:high", b"poppo", b"poppo:", b"\xff", b"{poppo:1}:queue:high", b"poppo/queue/high",
        b"muf", b"muf/", b"muf/a/req", b"muf/a/req/1/2", b"muf/a/nope/1", b"muf//req/1", b"muf:a:req:1",
        b"mufti/a/req/1", b"MUF/a/req/1", b"muf/A/req/1", b"muf/a/req/\xff", b"{muf:0}/a/req/1",
        b"somebody", b"session", b"assign:homework", b"alltickets", b"allTickets:x", b"x:allTickets", b"",
        b"dbsgf9hksdudin8907v", b"dbsgf9hksdudin8907v00", b"dbsgf9hksdudin8907v1", b"DBSGF9HKSDUDIN8907V0",
        b"dbsgf9hksdudin8907w0", b"x:dbsgf9hksdudin8907v0", b"assign:dbsgf9hksdudin8907v0:x",
        b"rueidislock:3:fetchTicketsLock", b"rueidislock:0:otherLock", b"{:0}allTickets",
    ],
)  # fmt: skip
def test_what_nobody_declared_has_no_family(key: bytes) -> None:
    assert PLAIN.find(key) is None


def test_only_shards_in_use_are_known() -> None:
    assert SHARDED.find(b"{poppo:3}:queue:high") is not None
    assert SHARDED.find(b"{poppo:4}:queue:high") is None
    assert SHARDED.find(b"poppo:queue:high") is None


@pytest.mark.parametrize(
    ("given", "matched", "not_matched"),
    [
        ((), [b"poppo:a", b"{poppo:3}:a:b", b"kizuna:canary:{all}:r"], [b"poppobuilder:a", b"other:poppo:a"]),
        (("queue",), [b"poppo:queue", b"poppo:queue:high", b"{poppo:0}:queue:x"], [b"poppo:queues:dead:x"]),
        (("lock:*",), [b"poppo:lock:a:b", b"kizuna:lock:a"], [b"poppo:locks:a", b"lock:a"]),
        (("*",), [b"poppo:a"], [b"other:a"]),
        (("poppo:lock:*",), [b"poppo:lock:a", b"{poppo:2}:lock:a"], [b"kizuna:lock:a"]),
        (("poppo",), [b"poppo:a", b"{poppo:2}:a"], [b"kizuna:a"]),
        (("{poppo:2}:lock:*",), [b"{poppo:2}:lock:a"], [b"{poppo:3}:lock:a", b"poppo:lock:a"]),
        (("other:*",), [b"poppo:other:a"], [b"other:a"]),
        (("temp", "session"), [b"poppo:temp:a", b"poppo:session:a"], [b"poppo:lock:a"]),
        ((), [b"muf/a/req/1", b"muf/a"], [b"mufti/a/req/1", b"muf", b"other/muf/a/req/1"]),
        (("muf",), [b"muf/a/req/1"], [b"poppo:a", b"mufti/a/req/1"]),
        (("muf/",), [b"muf/a/req/1"], [b"poppo:a"]),
        (("detector",), [b"muf/detector/req/1", b"poppo:detector:1"], [b"muf/detector.2/req/1"]),
        (("muf/a/req",), [b"muf/a/req/1", b"muf/a/req"], [b"muf/a/res/1", b"muf/a/requests/1"]),
        (("a/req",), [b"muf/a/req/1"], [b"muf/b/req/1"]),
        (("*/req/detector.*",), [b"muf/a/req/detector.1"], [b"muf/a/req/other.1"]),
        (("muf:a",), [b"muf/a/req/1"], [b"poppo:a"]),
        (
            (),
            [b"allTickets", ID.encode(), b"assign:" + ID.encode(), b"kizuna:held:b"],
            [b"session", b"assign:me", b"a"],
        ),
        (("allTickets",), [b"allTickets"], [b"proposed_ticket_ids"]),
        (("assign",), [b"assign:" + ID.encode(), b"poppo:assign"], [b"assign:me", b"assign", ID.encode()]),
        (("assign:dbs*",), [b"assign:" + ID.encode()], [b"assign:dbserver", b"assign:cbsgf9hksdudin8907v0"]),
        ((ID,), [ID.encode()], [b"dbsgf9hksdudin8907vg", b"assign:" + ID.encode()]),
        (
            ("*TicketsLock",),
            [b"fetchTicketsLock", b"rueidislock:0:fetchTicketsLock"],
            [b"myTicketsLock", b"allTickets"],
        ),
        (("rueidislock:1:*",), [b"rueidislock:1:fetchTicketsLock"], [b"rueidislock:1:other", b"fetchTicketsLock"]),
        (("session:*", "a-v*"), [b"poppo:session:a"], [b"session:a", ID.encode(), b"a-v"]),
    ],
)
def test_patterns_are_meant_below_the_roots(
    given: tuple[str, ...], matched: list[bytes], not_matched: list[bytes]
) -> None:
    matches = PLAIN.wanted(*given).matcher()

    assert [key for key in matched if not matches(key)] == []
    assert [key for key in not_matched if matches(key)] == []


def test_where_roots_are_shared_the_separator_tells_what_is_meant() -> None:
    assert SHARED.everything()[:3] == ["all:*", "all/*", "{all:*}:*"]
    assert SHARED.wanted("all/a").patterns == ["all/a", "all/a/*"]
    assert SHARED.wanted("all:a").patterns == ["all:a", "all:a:*", "{all:*}:a", "{all:*}:a:*"]


def test_one_root_may_be_the_beginning_of_another() -> None:
    assert RENAMED.wanted("app/talk/a").patterns == ["app/talk/a", "app/talk/a/*"]
    assert RENAMED.wanted("app:sys:canary:*").patterns == ["app:sys:canary:*", "{app:sys:*}:canary:*"]


def test_the_root_of_units_is_in_lower_case_as_all_they_write() -> None:
    known = Known(Settings(roots=RootsSettings(units="Talk")))

    assert known.find(b"talk/a/req/1") is not None
    assert "talk/*" in known.wanted().patterns


keys = st.one_of(
    st.text(alphabet="ab:/{}poppkizunamfjl", max_size=12),
    st.sampled_from(["", "mm1:", "mm", "assign:", "rueidislock:0:", "{:0}"]).map(lambda start: start + ID),
    st.sampled_from(["allTickets", "session", "assign:me", "mm1:x", "mmx", "kizuna:x", "{mm1::0}x", "{mm:0}x"]),
)


@given(pattern=st.text(alphabet="ab:/*?[]{}poppkizunamf", max_size=12), key=keys)
def test_no_pattern_leaves_the_roots(pattern: str, key: str) -> None:
    beginnings = ("poppo:", "kizuna:", "muf/", "harca:", "{poppo:", "{kizuna:", "{harca:")

    if PLAIN.wanted(pattern).matcher()(key.encode()):
        found = PLAIN.find(key.encode())
        assert key.startswith(beginnings) or (found and found.family.component == "match")


@pytest.mark.parametrize("anything", ["*", "?*", "*a*", "[a-z]*", "*:*"])
@pytest.mark.parametrize("known", [PLAIN, WORD_FOR_A_PREFIX, RENAMED])
def test_a_prefix_that_is_none_or_a_word_takes_nothing_that_is_not_recognisably_ours(
    known: Known, anything: str
) -> None:
    theirs = [b"session", b"mm_sessions", b"mmap", b"cart:7", b"assign:homework", b"mmassign:x", b"user", b"allUsers"]

    matches = known.wanted(anything).matcher()
    assert [key for key in theirs if matches(key) or known.is_below(key)] == []


def test_a_prefix_that_ends_with_a_separator_keeps_its_keys_apart() -> None:
    """Then what is behind it is ours, also ids that somebody else chose."""
    matches = PREFIXED.wanted().matcher()

    assert [matches(key) for key in (b"mm1:player-7", b"mm1:allTickets", b"rueidislock:2:mm1:fetchTicketsLock")]
    assert not any(matches(key) for key in (b"player-7", b"allTickets", b"mm2:allTickets", b"rueidislock:2:mm1:x"))
    found = PREFIXED.find(b"mm1:player-7")
    assert found
    assert (found.family.name, found.names) == ("BODY", {"id": "player-7"})


@pytest.mark.parametrize(
    ("known", "given", "matched", "not_matched"),
    [
        (PREFIXED, "allTickets", [b"mm1:allTickets"], [b"allTickets"]),
        (PREFIXED, "mm1:assign", [b"mm1:assign:x"], [b"mm1:allTickets", b"poppo:assign:x"]),
        (PREFIXED, "mm1:*", [b"mm1:x", b"mm1:assign:x"], [b"rueidislock:0:mm1:fetchTicketsLock"]),
        (PREFIXED, "fetchTicketsLock", [b"mm1:fetchTicketsLock", b"rueidislock:0:mm1:fetchTicketsLock"], [b"mm1:x"]),
        (WORD_FOR_A_PREFIX, "allTickets", [b"mmallTickets"], [b"allTickets"]),
        (WORD_FOR_A_PREFIX, "mmallTickets", [b"mmallTickets"], [b"allTickets"]),
        (MATCH_IN_SHARDS, "allTickets", [b"{:0}allTickets", b"{:2}allTickets"], [b"allTickets", b"{a}allTickets"]),
        (MATCH_IN_SHARDS, "{:1}assign", [b"{:1}assign:x"], [b"{:0}assign:x"]),
        (PREFIXED_IN_SHARDS, "fetchTicketsLock", [b"rueidislock:0:{mm1::1}fetchTicketsLock"], [b"mm1:allTickets"]),
    ],
)
def test_patterns_are_meant_behind_a_prefix_as_well(
    known: Known, given: str, matched: list[bytes], not_matched: list[bytes]
) -> None:
    matches = known.wanted(given).matcher()

    assert [key for key in matched if not matches(key)] == []
    assert [key for key in not_matched if matches(key)] == []


def test_a_name_is_looked_for_behind_a_prefix_only_if_it_is_ours_there() -> None:
    assert PLAIN.keys_meant("allTickets")[-1] == "allTickets"
    assert "session" not in PLAIN.keys_meant("session")
    assert PREFIXED.keys_meant("player-7")[-1] == "mm1:player-7"


def test_an_empty_prefix_is_not_named() -> None:
    assert PLAIN.names == ("kizuna", "poppo", "muf", "harca")
    assert PREFIXED.names[-1] == "mm1:"


def test_what_is_wanted_has_to_fit_a_pattern_and_to_be_within() -> None:
    matches = Wanted(["a*", "b*"], within=["*x", "*y"]).matcher()

    assert [key for key in (b"ax", b"by", b"az", b"cx") if matches(key)] == [b"ax", b"by"]


@given(key=st.binary())
def test_any_key_is_shown_on_one_line(key: bytes) -> None:
    assert shown(key).isprintable()
