"""Paths of units: what is one, what it is made of, and what is refused, for all texts."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kizuna.errors import IllegalName
from kizuna.store.keys import LONGEST_NAME
from kizuna.store.scanning.globs import matcher
from kizuna.units.keys import KEEP
from kizuna.units.paths import (
    CLAIM,
    FAMILIES,
    Path,
    build_path,
    checked_id,
    checked_pattern,
    claim_id,
    lowered,
    parse_path,
    read_path,
    unit_name,
)

# A machine that is busy is not what is tested.
patient = settings(deadline=None, max_examples=100)

# What lower-casing does strange things to stands among what is common, so that they meet.
CHARACTERS = "aB7_-.%:\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}ΣσςẞÅ"
names = st.text(st.sampled_from(CHARACTERS), min_size=1, max_size=12)
statuses = st.sampled_from(["req", "RES", "Err", "keep"])
roots = st.sampled_from(["muf", "MUF", "Talk", "a/b", "a:b/C"])
texts = st.text(max_size=20)


# reading and building


def test_a_path_is_read_and_built_in_lower_case() -> None:
    assert parse_path("MUF/Unit_A/REQ/42") == Path(unit="unit_a", status="req", id="42")
    assert parse_path(b"muf/unit_a/res/detector.7") == ("unit_a", "res", "detector.7")
    assert build_path("Unit_A", "REQ", "X42") == "muf/unit_a/req/x42"


@patient
@given(unit=names, status=statuses, id_=names, root=roots)
def test_reading_is_the_inverse_of_building(unit: str, status: str, id_: str, root: str) -> None:
    path = build_path(unit, status, id_, root)

    assert path == lowered(path)
    assert parse_path(path, root) == (lowered(unit), lowered(status), lowered(id_))
    assert parse_path(path.encode(), root) == parse_path(path, root)
    assert build_path(*parse_path(path, root), root) == path


@patient
@given(unit=names, status=statuses, id_=names, root=roots)
def test_any_way_to_write_a_path_is_the_same_path(unit: str, status: str, id_: str, root: str) -> None:
    written = f"{root}/{unit}/{status}/{id_}"

    assert build_path(*parse_path(written, root), root) == lowered(written)
    assert parse_path(written.swapcase(), root.swapcase()) == parse_path(lowered(written.swapcase()), root)


@patient
@given(path=st.one_of(texts, st.binary(max_size=20), texts.map("muf/{}".format), texts.map("muf/a/req/{}".format)))
@example(path="muf/\ud800/req/1")
@example(path=b"muf/\xff/req/1")
@example(path="")
@example(path="muf/a/req/" + "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}" * 200)
def test_whatever_is_read_is_a_path_or_refused_with_a_reason(path: str | bytes) -> None:
    parts = read_path(path, "muf")

    if parts is None:
        with pytest.raises(IllegalName) as refused:
            parse_path(path)
        assert str(refused.value).isprintable()
    else:
        assert parse_path(path) == parts
        assert build_path(*parts) == lowered(path if isinstance(path, str) else path.decode())


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "does not begin with 'muf/'"),
        ("muf", "does not begin with 'muf/'"),
        ("mufti/a/req/1", "does not begin with 'muf/'"),
        ("muf/a/req", "it has 2 parts below 'muf/', and not the three of muf/<unit>/<status>/<id>"),
        ("muf/a/req/1/2", "it has 4 parts"),
        ("muf/a/ask/1", "'ask' cannot be the status of a key: it is none of req, res, err, keep"),
        ("muf//req/1", "'' cannot be the unit of a key: it is empty"),
        ("muf/a/req/", "'' cannot be the id of a key: it is empty"),
        ("muf/a b/req/1", "'a b' cannot be the unit of a key: ' ' is not allowed"),
        ("muf/a/req/x*", "'x*' cannot be the id of a key: '*' is not allowed"),
        ("muf/a/req/{1}", "'{1}' cannot be the id of a key: '{' is not allowed"),
        ("muf/a/req/\u3000", "'\\u3000' is not allowed"),
        (b"muf/a/req/\xff", "'\\udcff' is not allowed"),
        ("muf/a/req/" + "x" * (LONGEST_NAME + 1), f"longer than {LONGEST_NAME} characters"),
    ],
)
def test_what_is_no_path_is_refused_with_what_is_wrong_about_it(path: str | bytes, reason: str) -> None:
    with pytest.raises(IllegalName) as refused:
        parse_path(path)
    assert reason in str(refused.value)


@patient
@given(name=names, culprit=st.sampled_from("/ *?[]\\{}\n\x00\x7f\u00a0\u3000\ud800"), at=st.integers(0, 12))
@pytest.mark.parametrize("place", ["unit", "id"])
def test_a_part_with_a_character_that_could_leave_its_place_is_refused_by_name(
    place: str, name: str, culprit: str, at: int
) -> None:
    parts = {"unit": "a", "status": "req", "id": "1"} | {place: name[:at] + culprit + name[at:]}

    with pytest.raises(IllegalName) as refused:
        build_path(**parts)
    assert refused.value.place == place
    assert refused.value.name == lowered(parts[place])
    assert f"{culprit!r} is not allowed" in str(refused.value)


def test_a_text_that_is_no_path_is_not_repeated_at_any_length() -> None:
    with pytest.raises(IllegalName) as refused:
        parse_path("x" * 1_000_000)

    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize("root", ["", "muf/", "a b", "a*"])
def test_a_root_that_cannot_be_is_refused(root: str) -> None:
    with pytest.raises(IllegalName, match="root"):
        build_path("a", "req", "1", root)


def test_a_root_may_have_several_parts() -> None:
    assert parse_path("App/Talk/a/req/1", root="app/TALK") == ("a", "req", "1")
    assert build_path("a", "req", "1", root="App/Talk") == "app/talk/a/req/1"
    assert read_path("app/talk/a/req/1", root="app") is None
    with pytest.raises(IllegalName, match="does not begin with 'app/talk/'"):
        parse_path("app/a/req/1", root="app/talk")


# lower case


@patient
@given(one=texts, other=texts)
@example(one="ΟΔΟ", other="Σ")
@example(one="\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", other="\N{COMBINING DOT ABOVE}")
def test_what_stands_around_a_character_does_not_matter_to_its_lower_case(one: str, other: str) -> None:
    assert lowered(one) + lowered(other) == lowered(one + other)
    assert lowered(lowered(one)) == lowered(one)


def test_no_character_becomes_another_illegal_or_changing_one_in_lower_case() -> None:
    changing = [character for character in map(chr, range(sys.maxunicode + 1)) if lowered(character) != character]

    assert len(changing) > 1_000
    assert [c for c in changing if lowered(lowered(c)) != lowered(c)] == []
    assert [c for c in changing if not KEEP.takes(unit="any", id=lowered(c))] == []


def test_names_that_differ_in_case_alone_are_one_name() -> None:
    assert unit_name("Detector") == unit_name("DETECTOR") == "detector"
    assert checked_id("ΟΔΟΣ") == checked_id("οδοσ") == "οδοσ"


def test_a_dotted_capital_i_becomes_two_characters_and_stays_in_its_place() -> None:
    path = build_path("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}zmir", "req", "1")

    assert path == "muf/i\N{COMBINING DOT ABOVE}zmir/req/1"
    assert parse_path(path) == parse_path("MUF/\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}ZMIR/REQ/1")
    with pytest.raises(IllegalName, match="longer than"):
        unit_name("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}" * (LONGEST_NAME // 2 + 1))


# names and ids


def test_the_name_of_a_unit_has_no_dot_and_is_told_why() -> None:
    with pytest.raises(IllegalName) as refused:
        unit_name("detector.v2")

    assert str(refused.value) == (
        "'detector.v2' cannot be the unit of a key: it has a dot, which ends the name of a unit in the id of a request"
    )


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a*", "{a}", "a\n", "x" * (LONGEST_NAME + 1)])
def test_a_name_or_an_id_that_cannot_stand_in_a_path_is_refused(name: str) -> None:
    with pytest.raises(IllegalName):
        unit_name(name)
    with pytest.raises(IllegalName):
        checked_id(name)


# claims

callers = st.text(st.sampled_from("ab.%25e"), min_size=1, max_size=6)
long_names = st.builds(lambda start, repeated: (start + repeated * 300)[:LONGEST_NAME], callers, callers)


@patient
@given(one=st.tuples(callers, callers), other=st.tuples(callers, callers))
@example(one=("a.b", "c"), other=("a", "b.c"))
@example(one=("a%2eb", "c"), other=("a.b", "c"))
def test_no_two_requests_share_a_claim(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (claim_id(*one) == claim_id(*other)) == (one == other)


@patient
@given(one=st.tuples(long_names, long_names), other=st.tuples(long_names | callers, long_names | callers))
def test_no_two_requests_with_long_names_share_a_claim(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (claim_id(*one) == claim_id(*other)) == (one == other)


@patient
@given(caller=names.map(lowered) | long_names, id_=names.map(lowered) | long_names)
def test_a_claim_can_stand_in_a_path_whatever_the_names(caller: str, id_: str) -> None:
    claim = claim_id(caller, id_)

    assert claim.startswith(CLAIM)
    assert parse_path(build_path("detector", "keep", claim)) == ("detector", "keep", claim)


def test_a_claim_can_be_read_by_people() -> None:
    assert claim_id("unit_a", "detector.7") == "claim.unit_a.detector.7"


# patterns


@pytest.mark.parametrize(
    ("pattern", "checked"),
    [
        ("muf/*/req/*", "muf/*/req/*"),
        ("MUF/*/REQ/Detector.*", "muf/*/req/detector.*"),
        ("muf/*/*/*", "muf/*/*/*"),
        ("muf/unit_?/re[qs]/[^a-c]x\\*", "muf/unit_?/re[qs]/[^a-c]x\\*"),
        ("muf/a/keep/b", "muf/a/keep/b"),
    ],
)
def test_a_glob_with_all_four_parts_is_a_pattern(pattern: str, checked: str) -> None:
    assert checked_pattern(pattern, "muf") == checked


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "does not begin with 'muf/'"),
        ("*", "does not begin with 'muf/'"),
        ("m*/a/req/1", "does not begin with 'muf/'"),
        ("muf/*", "it has 1 parts"),
        ("muf/*/req", "it has 2 parts"),
        ("muf/*/req/a/b", "it has 4 parts"),
        ("muf//req/*", "a part of it is empty"),
        ("muf/*/req/", "a part of it is empty"),
        ("muf/*/request/*", "'request' cannot be the status of a key: it is none of req"),
        ("muf/*/req/a b", "' ' is in no path"),
        ("muf/*/req/{1}", "'{' is in no path"),
        ("muf/*/req/\u3000", "is in no path"),
        ("muf/*/req/\ud800", "is in no path"),
    ],
)
def test_a_pattern_that_would_never_match_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(IllegalName) as refused:
        checked_pattern(pattern, "muf")
    assert reason in str(refused.value)


def test_a_pattern_is_meant_below_the_root_in_use() -> None:
    assert checked_pattern("App/Talk/*/REQ/*", "app/TALK") == "app/talk/*/req/*"
    with pytest.raises(IllegalName):
        checked_pattern("muf/*/req/*", "app/talk")


@patient
@given(unit=names, status=statuses, id_=names)
def test_a_path_is_a_pattern_that_matches_itself(unit: str, status: str, id_: str) -> None:
    path = build_path(unit, status, id_)

    assert checked_pattern(path, "muf") == path
    assert matcher([path])(path.encode())


@patient
@given(
    pattern=st.text(st.sampled_from("mufA/*?[]\\req {.\ud800\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"), max_size=16)
)
def test_whatever_is_given_is_a_pattern_below_the_root_or_refused(pattern: str) -> None:
    for text in (pattern, f"muf/{pattern}", f"muf/*/req/{pattern}"):
        try:
            checked = checked_pattern(text, "muf")
        except IllegalName:
            continue
        assert checked.startswith("muf/")
        assert checked.count("/") == 3
        assert checked_pattern(checked, "muf") == checked


def test_every_status_has_its_family() -> None:
    for status, family in FAMILIES.items():
        path = build_path("a", status, "1")
        assert [name for name, other in FAMILIES.items() if other.parse("muf", path) is not None] == [status]
        assert family.build("muf", unit="a", id="1") == path
