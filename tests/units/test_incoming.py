"""Keys that others wrote, read quickly: as slowly as `read_path`, it would come to the same."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kizuna.store.keys import LONGEST_NAME
from kizuna.units.incoming import Reader
from kizuna.units.paths import build_path, claim_id, read_path

ROOT = "muf"

parts = st.one_of(
    st.sampled_from(["req", "res", "a", "a.b", "%2e", "detector", "detector.1", "Unit_A", "", "a b", "é", "*", "{a}"]),
    st.text(max_size=5),
    st.text("ab.%", min_size=LONGEST_NAME - 2, max_size=LONGEST_NAME + 2),
)
paths = st.builds(
    lambda root, unit, status, id_, more: "/".join([root, unit, status, id_, *more]).encode(errors="surrogatepass"),
    st.sampled_from([ROOT, ROOT, ROOT, "MUF", "mufx", ""]),
    parts,
    st.sampled_from(["req", "req", "req", "REQ", "res", "keep", ""]),
    parts,
    st.lists(parts, max_size=1),
)


@given(key=st.one_of(paths, paths, st.binary(max_size=30).map(b"muf/".__add__), st.binary(max_size=30)))
@example(b"muf/detector/req/detector.1")
@example(b"muf/detector/req/1")
@example(b"muf/" + b"a" * LONGEST_NAME + b"/req/" + b"1" * LONGEST_NAME)
@example(b"muf//req/")
def test_a_key_is_read_as_its_path_is(key: bytes) -> None:
    reader, path = Reader(ROOT, "detector"), read_path(key, ROOT)
    found = reader.read(key)

    if path is None or path.status != "req" or (path.unit == "detector" and not path.id.startswith("detector.")):
        assert found is None
        return
    assert found is not None
    assert (found.key, found.caller.decode(), found.id.decode()) == (key, path.unit, path.id)
    assert reader.response(found).decode() == build_path(path.unit, "res", path.id, ROOT)
    assert reader.error(found).decode() == build_path(path.unit, "err", path.id, ROOT)
    assert found.claim.decode() == build_path("detector", "keep", claim_id(path.unit, path.id), ROOT)


@given(first=st.tuples(parts, parts), second=st.tuples(parts, parts))
def test_no_two_requests_share_a_claim(first: tuple[str, str], second: tuple[str, str]) -> None:
    reader = Reader(ROOT, "detector")
    keys = [f"{ROOT}/{unit}/req/{id_}".encode(errors="surrogatepass") for unit, id_ in (first, second)]
    found = [reader.read(key) for key in keys]
    if found[0] is None or found[1] is None:
        return

    same = (found[0].caller, found[0].id) == (found[1].caller, found[1].id)
    assert (found[0].claim == found[1].claim) == same
