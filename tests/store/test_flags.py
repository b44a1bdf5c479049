from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kizuna.store.events.flags import lacking, letters_for, with_letters

flags = st.text("AKE$gxhlszetdmn", max_size=8)
needs = st.frozensets(st.sampled_from("K$gxhlszetdmn"))


@given(flags=flags, needed=needs)
def test_nothing_is_lacking_once_the_letters_are_added(flags: str, needed: frozenset[str]) -> None:
    assert not lacking(with_letters(flags, needed), needed)


@given(flags=flags, needed=needs)
def test_flags_that_others_need_stay(flags: str, needed: frozenset[str]) -> None:
    assert set(flags) <= set(with_letters(flags, needed))


def test_changes_of_strings_and_ends_of_keys_need_little() -> None:
    assert with_letters("", letters_for(["set", "expired", "del"])) == "K$gx"


def test_flags_that_cover_all_are_left_as_they_are() -> None:
    assert with_letters("AKE", letters_for(["set", "hset", "zadd", "xadd", "evicted"])) == "AKE"


def test_what_a_stands_for_does_not_cover_misses_and_new_keys() -> None:
    assert lacking("AKE", letters_for(["keymiss", "new"])) == {"m", "n"}


def test_a_misspelt_kind_is_refused_with_the_nearest_right_one() -> None:
    with pytest.raises(ValueError, match=r"no server announces 'expried'; did you mean 'expired'\?"):
        letters_for(["expried"])
