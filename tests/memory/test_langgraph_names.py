from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kizuna.memory.keys import CONTEXT, CONTEXTS_OF_TYPE, ITEM
from kizuna.memory.langgraph.names import context_of, item_of, key_of, namespace_of, type_of

labels = st.text(max_size=20)
namespaces = st.lists(labels, max_size=4).map(tuple)


@given(namespace=namespaces, key=labels)
def test_every_text_can_be_a_name_and_comes_back(namespace: tuple[str, ...], key: str) -> None:
    context, item = context_of(namespace), item_of(namespace, key)

    assert CONTEXT.takes(context=context)
    assert CONTEXTS_OF_TYPE.takes(type=type_of(namespace))
    assert ITEM.takes(item=item)
    assert (namespace_of(context), key_of(item)) == (namespace, key)


@given(one=st.tuples(namespaces, labels), other=st.tuples(namespaces, labels))
def test_no_two_places_have_one_id(one: tuple[tuple[str, ...], str], other: tuple[tuple[str, ...], str]) -> None:
    assert (item_of(*one) == item_of(*other)) == (one == other)
    assert (context_of(one[0]) == context_of(other[0])) == (one[0] == other[0])


def test_names_as_they_stand_on_the_server() -> None:
    assert context_of(("users", "ana.b@x")) == "langgraph/users/ana.b%40x"
    assert item_of(("users", "ana.b@x"), "likes: tea") == "langgraph/users/ana.b%40x=likes%3A%20tea"
    assert context_of(("旅", "a/b", "")) == "langgraph/旅/a%2Fb/"
    assert (context_of(()), context_of(("",))) == ("langgraph", "langgraph/")
    assert type_of(("users", "ana")) == "langgraph/users"


def test_long_names_are_folded() -> None:
    context = context_of(("a" * 600,))

    assert context == f"langgraph/{'a' * 246}:{'a' * 256}:{'a' * 98}"
    assert namespace_of(context) == ("a" * 600,)
    assert CONTEXT.takes(context=context)


def test_halves_of_surrogate_pairs_come_back() -> None:
    assert namespace_of(context_of(("\ud800", "%ED%A0%80"))) == ("\ud800", "%ED%A0%80")
