from __future__ import annotations

from kizuna.catalogue import all_families, as_markdown, family_of
from kizuna.store.keys import CANARY


def test_a_key_is_traced_to_its_family() -> None:
    key = CANARY.build("kizuna", place="a", reader="r")
    family = family_of(key)

    assert family is not None
    assert (family.component, family.name, family.key) == ("store", "CANARY", CANARY)
    assert family_of(key.encode()) == family


def test_a_path_of_a_unit_is_traced_to_its_family() -> None:
    family = family_of("muf/unit_a/req/42")

    assert family is not None
    assert (family.component, family.name, family.pattern) == ("units", "REQUEST", "muf/<unit>/req/<id>")
    assert family_of("muf:unit_a:req:42") is None
    assert family_of("talk/unit_a/req/42", roots=["talk"]) == family


def test_roots_can_be_other_than_the_default() -> None:
    key = CANARY.build("{elsewhere:1}", place="a", reader="r")

    assert family_of(key) is None
    assert family_of(key, roots=["{elsewhere:0}"]) is None
    assert family_of(key, roots=["{elsewhere:0}", "{elsewhere:1}"]) is not None


def test_a_strange_key_has_no_family() -> None:
    assert family_of("kizuna:what:is:this") is None
    assert family_of(b"\xff") is None


def test_the_page_has_a_line_for_every_family() -> None:
    page = as_markdown()

    assert "| `kizuna:canary:{<place>}:<reader>` | string | expires | " in page
    for family in all_families():
        assert page.count(f"| `{family.pattern}` | {family.key.type} | {family.key.ends} | {family.key.meaning} |") == 1
