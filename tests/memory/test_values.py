"""Whatever JSON can say comes back as it was, over the real server; whatever it cannot, or is too large, is refused."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from kizuna.app import Kizuna, connect
from kizuna.errors import IllegalName, TooLarge, WrongValue
from kizuna.memory.memory import Memory
from kizuna.settings import MemorySettings, Settings

Step = Callable[[], Awaitable[object]]

# Half of a surrogate pair is no text: it is refused, see below.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)
OFTEN = limits(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down: 1 is neither True nor 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@pytest.fixture
async def small(settings: Settings) -> AsyncIterator[Memory]:
    """Where nothing large is taken."""
    async with connect(msgspec.structs.replace(settings, memory=MemorySettings(largest_bytes=100))) as k:
        yield k.memory


@OFTEN
@given(content=VALUES, metadata=st.dictionaries(TEXTS, VALUES, max_size=3))
async def test_all_that_json_can_say_comes_back_as_it_was(m: Memory, content: Any, metadata: dict[str, Any]) -> None:
    created = await m.create("note", content, metadata=metadata)
    read = await m.get(created.id)
    updated = await m.update(created.id, priority=7, metadata=metadata)
    [listed] = (await m.list(type="note")).items

    for item in (created, read, updated, listed):
        assert item is not None
        assert same(item.content, content)
        assert same(item.metadata, metadata)
    await m.delete(created.id)


@OFTEN
@given(first=VALUES, second=VALUES)
async def test_a_content_is_replaced_by_any_other(m: Memory, first: Any, second: Any) -> None:
    item = await m.create("note", first)
    assert same((await m.update(item.id, content=second)).content, second)
    read = await m.get(item.id)
    assert read is not None
    assert same(read.content, second)
    assert same((await m.put(item.id, "note", first)).content, first)
    assert same((await m.change(item.id, lambda content: [content])).content, [first])
    await m.delete(item.id)


@OFTEN
@given(content=VALUES)
async def test_what_stands_on_the_server_is_json_to_everybody(m: Memory, k: Kizuna, root: str, content: Any) -> None:
    item = await m.create("note", content)
    raw = await k.store.call("HGET", f"{root}:memory:short:item:{item.id}", "content")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    assert same(json.loads(raw.decode(), parse_constant=refuse), content)
    await m.delete(item.id)


NO_JSON: dict[str, Any] = {
    "not a number": math.nan,
    "infinity": [math.inf],
    "less than all": {"deep": [{"down": -math.inf}]},
    "beside a null": [None, math.nan],
    "a class": set,
    "an object": object(),
    "a function": len,
    "a complex number": 1j,
    "bytes": b"raw",
    "a set": {1, 2},
    "a date": {"when": datetime.datetime(2026, 11, 15, tzinfo=datetime.UTC)},
    "a date beside a null": [None, datetime.date(2026, 11, 15)],
    "half a pair": "\ud800",
    "half a pair as a name": {"\udfff": 1},
}


@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON.keys())
async def test_what_json_cannot_say_is_refused_and_nothing_is_written(
    m: Memory, k: Kizuna, root: str, value: Any
) -> None:
    await m.create("note", "as it was", id="a")
    steps: list[Step] = [
        lambda: m.create("note", value),
        lambda: m.create("note", 1, metadata={"m": value}),
        lambda: m.put("a", "note", value),
        lambda: m.update("a", content=value),
        lambda: m.update("a", metadata={"m": value}),
        lambda: m.change("a", lambda _: value),
        lambda: m.create_many([{"type": "note", "content": 1}, {"type": "note", "content": value}]),
        lambda: m.contexts.create("Talk", "chat", metadata={"m": value}),
    ]
    for step in steps:
        with pytest.raises(WrongValue):
            await step()
    item = await m.get("a")
    assert item is not None
    assert (item.content, item.version) == ("as it was", 1)
    assert await m.count(type="note") == 1
    assert await k.store.call("EXISTS", f"{root}:memory:ctx:idx:expiry") == 0


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


async def test_what_is_nested_deeply_is_kept_or_refused_and_breaks_nothing(m: Memory) -> None:
    assert (await m.create("note", nested(400), id="deep")).content == nested(400)
    with pytest.raises(WrongValue):
        await m.create("note", nested(200_000))
    item = await m.get("deep")
    assert item is not None
    assert item.content == nested(400)


# -- size ------------------------------------------------------------------------------------------------------------


async def test_what_is_too_large_is_refused_by_its_size_before_it_is_sent(small: Memory) -> None:
    just = "x" * 98  # and two quotes
    await small.create("note", just, id="a", metadata={"m": "x" * 90})
    steps: list[Step] = [
        lambda: small.create("note", just + "x"),
        lambda: small.create("note", "日" * 33),
        lambda: small.create("note", 1, metadata={"m": "x" * 98}),
        lambda: small.put("a", "note", just + "x"),
        lambda: small.update("a", content=just + "x"),
        lambda: small.create_many([{"type": "note", "content": just + "x"}]),
        lambda: small.contexts.create("Talk", "chat", metadata={"m": "x" * 98}),
    ]
    for step in steps:
        with pytest.raises(TooLarge) as refused:
            await step()
        assert refused.value.size > refused.value.largest == 100
        assert "memory.largest_bytes" in str(refused.value)
        assert "xxx" not in str(refused.value)
    assert [item.id async for item in small.all()] == ["a"]


async def test_a_megabyte_is_kept_and_one_more_is_not(m: Memory) -> None:
    most = "x" * (1024 * 1024 - 2)
    await m.create("note", most, id="a")
    item = await m.get("a")
    assert item is not None
    assert item.content == most
    with pytest.raises(TooLarge):
        await m.create("note", most + "x")


# -- names -----------------------------------------------------------------------------------------------------------

TAKEN = ["a", "A", "a-b_c.d", "a:b", "日本語", "ü", "7", "a/b", "#1", "a@b", 'quo"te', "it's", "%41", "<a>", "x" * 256]
REFUSED = ["", " ", "a b", "a\n", "\x00", "*", "a?", "[a]", "{a}", "a\\b", "\ud800", ":", "a:", ":a", "a::b", "x" * 257]
NO_TEXT: list[Any] = [None, 1, b"bytes", ["a"], True]


@pytest.mark.parametrize("name", TAKEN)
async def test_a_name_that_fits_in_a_key_is_taken_everywhere(m: Memory, name: str) -> None:
    await m.contexts.create("Any Näme at all: *?[]{}", name, id=name)
    item = await m.create(name, 1, id=name, context=name, generation=name)
    other = await m.create("note", 1, depends_on=[name])

    assert (item.id, item.type, item.context, item.generation) == (name, name, name, name)
    assert other.depends_on == (name,)
    assert [found.id for found in (await m.list(type=name, context=name)).items] == [name]
    context = await m.contexts.get(name)
    assert context is not None
    assert (context.id, context.type, context.name) == (name, name, "Any Näme at all: *?[]{}")
    assert await m.changed(name) == 1


@pytest.mark.parametrize("name", [*REFUSED, *NO_TEXT], ids=repr)
async def test_a_name_that_does_not_fit_in_a_key_is_refused_everywhere(m: Memory, name: Any) -> None:
    steps: dict[str, Step] = {
        "type": lambda: m.create(name, 1),
        "depends on": lambda: m.create("note", 1, depends_on=[name]),
        "type of a context": lambda: m.contexts.create("Talk", name),
        "get": lambda: m.get(name),
        "delete": lambda: m.delete(name),
        "changed": lambda: m.changed(name),
        "raise": lambda: m.raise_generation(name),
    }
    if name is not None:  # which is nothing said
        steps |= {
            "id": lambda: m.create("note", 1, id=name),
            "id of put": lambda: m.put(name, "note", 1),
            "context": lambda: m.create("note", 1, context=name),
            "generation": lambda: m.create("note", 1, generation=name),
            "id of a context": lambda: m.contexts.create("Talk", "chat", id=name),
        }
    for what, step in steps.items():
        with pytest.raises(IllegalName) as refused:
            await step()
        assert len(str(refused.value)) > 20, what
    assert [item.id async for item in m.all()] == []


@OFTEN
@given(name=st.text(min_size=1, max_size=30))
async def test_any_text_as_a_name_is_refused_or_works(m: Memory, name: str) -> None:
    try:
        await m.create(name, 1, id=name, context=name)
    except IllegalName:
        return
    assert [item.id async for item in m.all(type=name)] == [name]
    assert [item.id async for item in m.all(context=name)] == [name]
    assert await m.delete(name, context=name) is True


# -- what else is given ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 0},
        {"priority": 11},
        {"priority": 2.5},
        {"priority": "5"},
        {"priority": True},
        {"ttl_s": -1},
        {"ttl_s": math.nan},
        {"ttl_s": math.inf},
        {"ttl_s": "60"},
        {"ttl_s": datetime.timedelta(minutes=1)},
        {"kind": "thing"},
        {"importance": 2},
        {"importance": -0.1},
        {"importance": math.nan},
        {"importance": "high"},
        {"cost_s": -1},
        {"cost_s": math.nan},
        {"cost_s": "2"},
        {"metadata": [1]},
        {"metadata": "text"},
        {"depends_on": "name"},
        {"depends_on": 5},
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_refused_with_what_was_expected(m: Memory, wrong: dict[str, Any]) -> None:
    [(name, value)] = wrong.items()
    with pytest.raises(WrongValue) as refused:
        await m.create("note", 1, **wrong)
    assert "expected" in str(refused.value)
    if name in ("priority", "ttl_s", "metadata") and value is not None:
        await m.create("note", 1, id="a")
        with pytest.raises(WrongValue):
            await m.update("a", **wrong)
    assert await m.count(type="note") in (0, 1)


async def test_one_id_is_not_taken_for_the_many_letters_that_it_has(m: Memory) -> None:
    await m.create("note", 1, id="a")
    steps: list[Step] = [lambda: m.get_many("a"), lambda: m.delete_many("a"), lambda: m.touch_many("a")]
    for step in steps:
        with pytest.raises(WrongValue, match="ids cannot be this str; expected a list of ids"):
            await step()
    assert await m.get("a") is not None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"type": "note"}, "an item cannot be one without 'content'; expected type and content at least"),
        ({"type": "note", "content": 1, "contxt": "x"}, "an item cannot be one with 'contxt'; expected no other than"),
        ("note", "an item cannot be this str; expected a dictionary"),
    ],
    ids=["without", "misspelt", "text"],
)
async def test_what_cannot_be_one_of_many_is_told_before_any_is_written(m: Memory, given: Any, said: str) -> None:
    with pytest.raises(WrongValue, match=said):
        await m.create_many([{"type": "note", "content": 1}, given])
    assert await m.count() == 0


async def test_what_makes_no_sense_about_contexts_and_events_is_refused_too(m: Memory) -> None:
    steps: list[Step] = [
        lambda: m.contexts.create("Talk", "chat", active="yes"),  # type: ignore[arg-type]
        lambda: m.contexts.list(active="yes"),  # type: ignore[arg-type]
        lambda: m.contexts.list(limit="5"),  # type: ignore[arg-type]
        lambda: m.contexts.list(cursor=5),  # type: ignore[arg-type]
        lambda: m.events_since(5),  # type: ignore[arg-type]
        lambda: m.events_since("0", limit="5"),  # type: ignore[arg-type]
    ]
    for step in steps:
        with pytest.raises(WrongValue):
            await step()
    with pytest.raises(IllegalName):
        m.watch(context="a b")
