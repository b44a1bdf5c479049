"""The store of LangGraph, compared with the one that it brings along."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from kizuna.app import Kizuna, connect
from kizuna.errors import TooLarge
from kizuna.memory.langgraph import KizunaStore
from kizuna.memory.langgraph.names import context_of, item_of
from kizuna.settings import MemorySettings, Settings
from kizuna.testing import eventually

PLACES: list[tuple[tuple[str, ...], str, dict[str, Any]]] = [
    (("docs",), "a", {"text": "Trains to Kyoto", "stars": 3, "tags": ["x", "y"]}),
    (("docs",), "b", {"text": "Planes", "stars": 5.5, "by": {"name": "Ana", "age": 30}}),
    (("docs", "old"), "a", {"text": "Ships", "stars": None}),
    (("docs", "old", "v1"), "c", {}),
    (("docsother",), "a", {"text": "trains"}),
    (("users", "ana"), "likes", {"tea": True}),
    (("users", "ben"), "likes", {"tea": False}),
    (("users", "ben", "v1"), "likes", {"tea": None}),
]
SEARCHES: list[Op] = [
    SearchOp(()),
    SearchOp(("docs",)),
    SearchOp(("docs", "old")),
    SearchOp(("docs", "old", "v1", "deeper")),
    SearchOp(("doc",)),
    SearchOp(("nowhere",)),
    SearchOp(("users",), limit=1),
    SearchOp(("users",), limit=1, offset=1),
    SearchOp(("users",), limit=5, offset=2),
    SearchOp(("users",), limit=5, offset=9),
    SearchOp((), limit=0),
    SearchOp((), filter={"stars": 3}),
    SearchOp((), filter={"stars": {"$eq": 3}}),
    SearchOp(("docs",), filter={"tags": ["x", "y"]}),
    SearchOp(("docs",), filter={"by": {"name": "Ana"}}),
    SearchOp(("users",), filter={"tea": {"$ne": True}}),
    SearchOp((), filter={"text": "Ships", "stars": None}),
]
LISTS: list[Op] = [
    ListNamespacesOp(),
    ListNamespacesOp(max_depth=1),
    ListNamespacesOp(max_depth=2, limit=2, offset=1),
    ListNamespacesOp(limit=2),
    ListNamespacesOp(offset=4),
    ListNamespacesOp((MatchCondition("prefix", ("docs",)),)),
    ListNamespacesOp((MatchCondition("prefix", ("docs", "*")),)),
    ListNamespacesOp((MatchCondition("prefix", ("*", "old")),)),
    ListNamespacesOp((MatchCondition("prefix", ()),)),
    ListNamespacesOp((MatchCondition("suffix", ("v1",)),)),
    ListNamespacesOp((MatchCondition("suffix", ("*", "v1")),)),
    ListNamespacesOp((MatchCondition("suffix", ("ben", "*")),)),
    ListNamespacesOp((MatchCondition("prefix", ("users",)), MatchCondition("suffix", ("v1",)))),
    ListNamespacesOp((MatchCondition("suffix", ("a", "b", "c", "d", "e")),)),
    ListNamespacesOp((MatchCondition("prefix", ("nowhere",)),)),
]


@pytest.fixture
async def lg(k: Kizuna) -> KizunaStore:
    return KizunaStore(k.memory)


@pytest.fixture
async def filled(lg: KizunaStore) -> KizunaStore:
    await fill(lg)
    return lg


async def fill(store: BaseStore) -> None:
    for namespace, key, value in PLACES:
        await store.aput(namespace, key, value)


def without_times(result: Any) -> Any:
    if isinstance(result, list):
        return [without_times(each) for each in result]
    if isinstance(result, SearchItem):
        return ("found", result.namespace, result.key, result.value, result.score)
    if isinstance(result, Item):
        return (result.namespace, result.key, result.value)
    return result


# the same as the model


@pytest.mark.parametrize("op", [*SEARCHES, *LISTS], ids=str)
async def test_searches_and_lists_find_what_the_store_in_memory_finds(filled: KizunaStore, op: Op) -> None:
    model = InMemoryStore()
    await fill(model)

    assert without_times(await filled.abatch([op])) == without_times(await model.abatch([op]))


@pytest.mark.parametrize(
    "batch",
    [
        [GetOp(("docs",), "a"), GetOp(("docs",), "none"), GetOp(("none",), "a"), GetOp(("docs", "old"), "a")],
        # Reads come before writes, whatever their order.
        [PutOp(("docs",), "a", {"new": 1}), GetOp(("docs",), "a"), SearchOp(("docs",)), ListNamespacesOp()],
        # The last write to a place counts.
        [PutOp(("z",), "k", {"v": 1}), PutOp(("z",), "k", None), PutOp(("z",), "k", {"v": 2})],
        [PutOp(("z",), "k", {"v": 1}), PutOp(("z",), "k", None)],
        [PutOp(("docs",), "a", None), PutOp(("docs",), "none", None)],
        [],
    ],
    ids=str,
)
async def test_a_batch_does_what_it_does_in_memory(filled: KizunaStore, batch: list[Op]) -> None:
    model = InMemoryStore()
    await fill(model)
    look: list[Op] = [SearchOp((), limit=100), GetOp(("z",), "k"), GetOp(("docs",), "a")]

    assert without_times(await filled.abatch(batch)) == without_times(await model.abatch(batch))
    assert without_times(await filled.abatch(look)) == without_times(await model.abatch(look))


@pytest.mark.parametrize(
    "value",
    [
        {"": None, "a": [], "b": {}, "n": 2**70, "f": 0.1, "t": '極 \U0001f600 \x00 "\\'},
        {"nested": {"a": [{"b": [1, [2, [None]]]}]}},
        {"_encrypted": False},
    ],
    ids=str,
)
async def test_values_come_back_as_they_were(lg: KizunaStore, value: dict[str, Any]) -> None:
    await lg.aput(("n",), "k", value)

    item = await lg.aget(("n",), "k")
    assert item is not None
    assert item.value == value


@pytest.mark.parametrize(
    "name",
    ["a b", "a:b", "a/b", "a=b", "a%2Fb", "*?[]{}\\", "改行\n", "..", "é", "x" * 1000, "\x00", "\ud800", "global"],
)
async def test_any_text_can_be_a_key_and_almost_any_a_label(lg: KizunaStore, name: str) -> None:
    namespace = ("odd", name) if "\x00" not in name and "." not in name else ("odd",)
    await lg.aput(namespace, name, {"name": repr(name)})
    await lg.aput(("odd",), "plain", {})

    item = await lg.aget(namespace, name)
    assert item is not None
    assert (item.namespace, item.key, item.value) == (namespace, name, {"name": repr(name)})
    assert (namespace, name) in [(found.namespace, found.key) for found in await lg.asearch(("odd",))]
    assert namespace in await lg.alist_namespaces()
    await lg.adelete(namespace, name)
    assert await lg.aget(namespace, name) is None


async def test_labels_that_only_look_alike_are_kept_apart(lg: KizunaStore) -> None:
    names = [("a", "b"), ("a/b",), ("a%2Fb",), ("a", "b "), ("a:b",), ("A", "b"), ("a=b",), ("a", "b", "c")]
    for namespace in names:
        await lg.aput(namespace, "k", {"of": list(namespace)})

    assert await lg.alist_namespaces() == sorted(names)
    for namespace in names:
        item = await lg.aget(namespace, "k")
        assert item is not None
        assert item.value == {"of": list(namespace)}
    assert [found.namespace for found in await lg.asearch(("a",))] == [("a", "b"), ("a", "b", "c"), ("a", "b ")]


async def test_a_namespace_whose_items_are_gone_is_not_listed(filled: KizunaStore) -> None:
    await filled.adelete(("docs", "old"), "a")

    assert await filled.alist_namespaces(prefix=("docs",)) == [("docs",), ("docs", "old", "v1")]


# what differs, on purpose


async def test_created_at_stays_when_an_item_is_put_again(lg: KizunaStore) -> None:
    await lg.aput(("n",), "k", {"v": 1})
    first = await lg.aget(("n",), "k")
    assert first is not None

    async def put_later() -> bool:
        await lg.aput(("n",), "k", {"v": 2})
        second = await lg.aget(("n",), "k")
        assert second is not None
        assert second.created_at == first.created_at
        return second.updated_at > first.updated_at

    await eventually(put_later)
    assert first.created_at.utcoffset() is not None


async def test_a_query_finds_words_and_the_most_of_them_first(filled: KizunaStore) -> None:
    found = await filled.asearch((), query="kyoto trains")

    assert [(item.namespace, item.key, item.score) for item in found] == [
        (("docs",), "a", 1.0),
        (("docsother",), "a", 0.5),
    ]
    assert [item.score for item in await filled.asearch((), query="trains kyoto", offset=1)] == [0.5]
    assert await filled.asearch((), query="zeppelin") == []
    assert [item.key for item in await filled.asearch((), query="trains", filter={"stars": {"$gt": 2}})] == ["a"]


# lives


@pytest.fixture
async def brief_k(settings: Settings) -> AsyncIterator[Kizuna]:
    memory = MemorySettings(item_least_s=0.3, item_s=30, item_most_s=60, context_least_s=0.1)
    async with connect(msgspec.structs.replace(settings, memory=memory)) as k:
        yield k


async def left_s(k: Kizuna, namespace: tuple[str, ...], key: str) -> float:
    item = await k.memory.get(item_of(namespace, key))
    assert item is not None
    return item.expires_at - item.updated_at


async def test_lives_are_in_minutes_and_clamped_by_the_policy(brief_k: Kizuna) -> None:
    lg = KizunaStore(brief_k.memory)
    await lg.aput(("n",), "half", {}, ttl=0.5)
    await lg.aput(("n",), "none", {})
    await lg.aput(("n",), "long", {}, ttl=1_000_000)
    await lg.aput(("n",), "short", {}, ttl=0.000001)

    lives = [await left_s(brief_k, ("n",), key) for key in ("half", "none", "long", "short")]
    assert lives == pytest.approx([30, 60, 60, 0.3], abs=0.01)
    await eventually(lambda: gone(lg, "short"))


async def gone(lg: KizunaStore, key: str) -> bool:
    return await lg.aget(("n",), key, refresh_ttl=False) is None


async def test_a_default_life_is_taken_from_the_configuration(brief_k: Kizuna) -> None:
    lg = KizunaStore(brief_k.memory, ttl={"default_ttl": 0.25, "refresh_on_read": False})
    await lg.aput(("n",), "k", {})

    assert await left_s(brief_k, ("n",), "k") == pytest.approx(15, abs=0.01)


async def ends_at(k: Kizuna, key: str) -> float:
    item = await k.memory.get(item_of(("n",), key))
    assert item is not None
    return item.expires_at


async def test_reading_gives_an_item_its_own_life_again_unless_told_otherwise(brief_k: Kizuna) -> None:
    lg = KizunaStore(brief_k.memory)
    await lg.aput(("n",), "k", {}, ttl=0.5)
    at_first = await ends_at(brief_k, "k")

    async def with_get() -> bool:
        await lg.aget(("n",), "k")
        return at_first < await ends_at(brief_k, "k") < at_first + 20

    async def with_search() -> bool:
        await lg.asearch(("n",))
        return after_get < await ends_at(brief_k, "k") < after_get + 20

    await eventually(with_get)
    after_get = await ends_at(brief_k, "k")
    await eventually(with_search)
    after_search = await ends_at(brief_k, "k")
    await asyncio.sleep(0.01)
    await lg.aget(("n",), "k", refresh_ttl=False)
    await lg.asearch(("n",), refresh_ttl=False)
    assert await ends_at(brief_k, "k") == after_search


async def test_whatever_is_on_the_way_to_an_item_lives_at_least_as_long(settings: Settings) -> None:
    memory = MemorySettings(
        item_least_s=1, item_s=20, item_most_s=100, context_least_s=1, context_s=10, context_most_s=40
    )
    async with connect(msgspec.structs.replace(settings, memory=memory)) as k:
        lg = KizunaStore(k.memory)
        way = ("a", "b", "c")

        async def ends() -> list[float]:
            contexts = [await k.memory.contexts.get(context_of(way[:depth])) for depth in (1, 2, 3)]
            return [context.expires_at for context in contexts if context is not None]

        await lg.aput(way, "k", {})
        assert await left_s(k, way, "k") == pytest.approx(30, abs=0.01)
        at_first = await ends()
        assert len(at_first) == 3
        item = await k.memory.get(item_of(way, "k"))
        assert item is not None
        assert min(at_first) > item.expires_at

        # As if ten seconds, a quarter of their lives, had passed.
        lg._namespaces._seen_to = {namespace: seen - 10 for namespace, seen in lg._namespaces._seen_to.items()}
        await asyncio.sleep(0.01)
        await lg.aget(way, "k")
        assert all(now > before for now, before in zip(await ends(), at_first, strict=True))


async def test_a_namespace_that_somebody_removed_is_found_again_after_a_while(k: Kizuna, lg: KizunaStore) -> None:
    await lg.aput(("a", "b"), "k", {})
    await k.memory.contexts.delete(context_of(("a",)), items="leave")
    assert await lg.asearch(("a",), refresh_ttl=False) != []
    assert await lg.asearch(()) == []

    lg._namespaces._seen_to.clear()
    await lg.aget(("a", "b"), "k")
    assert len(await lg.asearch(())) == 1


# many at once


async def test_concurrent_puts_all_count(lg: KizunaStore) -> None:
    await asyncio.gather(*(lg.aput(("many", f"u{number % 10}"), f"k{number}", {"v": number}) for number in range(300)))

    found = await lg.asearch(("many",), limit=1000)
    assert sorted(item.value["v"] for item in found) == list(range(300))
    assert len(await lg.alist_namespaces(prefix=("many",))) == 10


async def test_two_stores_see_the_same(settings: Settings) -> None:
    async with connect(settings) as one, connect(settings) as other:
        a, b = KizunaStore(one.memory), KizunaStore(other.memory)
        await asyncio.gather(a.aput(("n", "x"), "a", {"v": 1}), b.aput(("n", "x"), "b", {"v": 2}))

        for store in (a, b):
            assert sorted(item.key for item in await store.asearch(("n",))) == ["a", "b"]


@pytest.mark.parametrize("shards", [1, 5])
async def test_namespaces_may_be_spread_over_shards(settings: Settings, shards: int) -> None:
    memory = MemorySettings(shards=shards)
    async with connect(msgspec.structs.replace(settings, memory=memory)) as k:
        lg = KizunaStore(k.memory)
        await fill(lg)
        model = InMemoryStore()
        await fill(model)
        look: list[Op] = [SearchOp((), limit=100), ListNamespacesOp(), GetOp(("docs",), "b")]
        assert without_times(await lg.abatch(look)) == without_times(await model.abatch(look))


async def test_many_items_and_namespaces_are_searched_whole(lg: KizunaStore) -> None:
    ops = [PutOp((f"u{number:03}",), "k", {"even": number % 2 == 0}) for number in range(80)]
    await lg.abatch([*ops, *(PutOp(("big",), f"k{number:03}", {"even": number % 2 == 0}) for number in range(600))])

    assert len(await lg.asearch((), filter={"even": True}, limit=1000)) == 340
    assert [item.namespace for item in await lg.asearch((), filter={"even": True}, limit=3, offset=300)] == [
        ("u000",),
        ("u002",),
        ("u004",),
    ]


# errors


async def test_an_error_goes_up_after_the_rest_of_the_batch_is_done(settings: Settings) -> None:
    memory = MemorySettings(largest_bytes=1000)
    async with connect(msgspec.structs.replace(settings, memory=memory)) as k:
        lg = KizunaStore(k.memory)
        with pytest.raises(TooLarge):
            await lg.abatch([PutOp(("n",), "big", {"v": "x" * 2000}), PutOp(("n",), "small", {"v": 1})])
        assert await lg.aget(("n",), "small") is not None


async def test_what_is_no_operation_is_refused(lg: KizunaStore) -> None:
    await lg.aput(("n",), "k", {})
    with pytest.raises(ValueError, match="str is no operation of a store"):
        await lg.abatch(["get"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="not by 'infix'"):
        await lg.abatch([ListNamespacesOp((MatchCondition("infix", ("n",)),))])  # type: ignore[arg-type]


# threads


async def test_the_methods_without_a_work_in_other_threads(lg: KizunaStore) -> None:
    def use() -> list[Any]:
        lg.put(("n",), "k", {"v": 1}, ttl=5)
        found = [lg.get(("n",), "k"), lg.search(("n",)), lg.list_namespaces()]
        lg.delete(("n",), "k")
        return [*found, lg.get(("n",), "k")]

    got, found, namespaces, after = await asyncio.to_thread(use)
    assert (got.value, found[0].value, namespaces, after) == ({"v": 1}, {"v": 1}, [("n",)], None)


async def test_in_the_thread_of_the_loop_they_say_what_to_do_instead(lg: KizunaStore) -> None:
    with pytest.raises(asyncio.InvalidStateError, match="await the method that begins with a"):
        lg.get(("n",), "k")


async def test_a_loop_in_another_thread_may_use_them_too(lg: KizunaStore) -> None:
    """Its own loop stands still meanwhile, but ours does not."""
    values: list[Any] = []

    async def elsewhere() -> None:
        lg.put(("n",), "k", {"v": 1})
        item = lg.get(("n",), "k")
        values.append(item and item.value)

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert values == [{"v": 1}]
