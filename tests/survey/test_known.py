from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kizuna.catalogue import all_families
from kizuna.settings import CoordinationSettings, RootsSettings, Settings
from kizuna.store.scanning.globs import matcher
from kizuna.survey.known import Known, shown

PLAIN = Known(Settings())
SHARDED = Known(Settings(coordination=CoordinationSettings(shards=4)))
RENAMED = Known(Settings(roots=RootsSettings(system="app:sys", coordination="app", units="app/talk", memory="app:mem")))
SHARED = Known(Settings(roots=RootsSettings(system="all", coordination="all", units="all", memory="all")))


@pytest.mark.parametrize("known", [PLAIN, SHARDED, RENAMED, SHARED])
def test_every_family_is_found_again_by_its_keys(known: Known) -> None:
    for family in all_families():
        if family.key.type == "channel":
            continue
        for root in known.roots[family.component].all:
            names = {name: f"some-{name}" for name in family.key.names}
            found = known.find(family.key.build(root, **names).encode())
            assert found is not None
            assert (found.family, found.root, found.names) == (family, root, names)


@pytest.mark.parametrize(
    "key",
    [
        b"poppobuilder:queue:high", b"poppo", b"poppo:", b"\xff", b"{poppo:1}:queue:high", b"poppo/queue/high",
        b"muf", b"muf/", b"muf/a/req", b"muf/a/req/1/2", b"muf/a/nope/1", b"muf//req/1", b"muf:a:req:1",
        b"mufti/a/req/1", b"MUF/a/req/1", b"muf/A/req/1", b"muf/a/req/\xff", b"{muf:0}/a/req/1",
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
    ],
)
def test_patterns_are_meant_below_the_roots(
    given: tuple[str, ...], matched: list[bytes], not_matched: list[bytes]
) -> None:
    matches = matcher(PLAIN.patterns(*given))

    assert [key for key in matched if not matches(key)] == []
    assert [key for key in not_matched if matches(key)] == []


def test_where_roots_are_shared_the_separator_tells_what_is_meant() -> None:
    assert SHARED.patterns() == ["all:*", "all/*", "{all:*}:*"]
    assert SHARED.patterns("all/a") == ["all/a", "all/a/*"]
    assert SHARED.patterns("all:a") == ["all:a", "all:a:*", "{all:*}:a", "{all:*}:a:*"]


def test_one_root_may_be_the_beginning_of_another() -> None:
    assert RENAMED.patterns("app/talk/a") == ["app/talk/a", "app/talk/a/*"]
    assert RENAMED.patterns("app:sys:canary:*") == ["app:sys:canary:*", "{app:sys:*}:canary:*"]


def test_the_root_of_units_is_in_lower_case_as_all_they_write() -> None:
    known = Known(Settings(roots=RootsSettings(units="Talk")))

    assert known.find(b"talk/a/req/1") is not None
    assert "talk/*" in known.patterns()


@given(pattern=st.text(alphabet="ab:/*?[]{}poppkizunamf", max_size=12))
def test_no_pattern_leaves_the_roots(pattern: str) -> None:
    beginnings = ("poppo:", "kizuna:", "muf/", "harca:", "{poppo", "{kizuna", "{muf", "{harca")

    assert all(expanded.startswith(beginnings) for expanded in PLAIN.patterns(pattern))


@given(key=st.binary())
def test_any_key_is_shown_on_one_line(key: bytes) -> None:
    assert shown(key).isprintable()
