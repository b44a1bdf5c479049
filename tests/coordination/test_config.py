"""Values that change while programs run: typed, from memory, seen by everybody, with a history."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kizuna.app import Kizuna, connect
from kizuna.coordination.config import MOST_BYTES
from kizuna.coordination.values.live_values import NOTHING, Change
from kizuna.errors import (
    IllegalName,
    NotFollowed,
    OutOfMemory,
    PermissionDenied,
    ValueChanged,
    ValueUnknown,
    WrongValue,
)
from kizuna.settings import EventsSettings, RootsSettings, Secret, Settings, StoreSettings
from kizuna.testing import ServerProcess, assert_starts_and_stops, eventually

if TYPE_CHECKING:
    from kizuna.coordination.values.live_values import Changes
    from kizuna.testing.fixtures import MakeProxy

NAME = "claude:timeout"
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class Limits(msgspec.Struct, frozen=True):
    per_minute: int
    burst: int = 10


@pytest.fixture
async def other(settings: Settings) -> AsyncIterator[Kizuna]:
    """Another process of the same fleet."""
    async with connect(settings) as other:
        yield other


async def next_of(changes: Changes) -> Change:
    async with asyncio.timeout(5):
        return await anext(changes)


# -- reading ----------------------------------------------------------------------------------------------


async def test_a_declared_value_has_its_default_until_it_is_set(k: Kizuna, other: Kizuna) -> None:
    timeout = k.config.declare(NAME, float, default=30.0)
    async with k.config.following():
        assert (timeout.value, k.config[NAME], k.config.get(NAME, 1)) == (30.0, 30.0, 30.0)
        await other.config.set(NAME, 45)
        await eventually(lambda: timeout.value == 45.0)
        assert isinstance(timeout.value, float)
        assert await k.config.read(NAME) == 45.0
        await other.config.unset(NAME)
        await eventually(lambda: timeout.value == 30.0)
        assert await k.config.read(NAME) == 30.0


async def test_what_was_set_before_is_known_when_following_begins(k: Kizuna, other: Kizuna, root: str) -> None:
    await other.config.set(NAME, 45)
    await other.store.call("SET", f"{root}:config:by:hand", "a word")
    timeout = k.config.declare(NAME, float, default=30.0)
    async with k.config.following():
        assert timeout.value == 45.0
        assert k.config["by:hand"] == "a word"
        assert k.config.declare("by:hand", str, default="").value == "a word"


async def test_what_is_not_set_nor_declared_is_unknown(k: Kizuna) -> None:
    async with k.config.following():
        assert k.config.get("nobody", 5) == 5
        with pytest.raises(ValueUnknown) as unknown:
            k.config["nobody"]
        assert isinstance(unknown.value, KeyError)
        with pytest.raises(ValueUnknown, match="config nobody is not set, and has no default"):
            await k.config.read("nobody")
        assert await k.config.read("nobody", 5) == 5


async def test_nothing_is_read_from_a_memory_that_nobody_keeps_up_to_date(k: Kizuna) -> None:
    timeout = k.config.declare(NAME, float, default=30.0)
    with pytest.raises(NotFollowed):
        _ = timeout.value
    async with k.config.following():
        assert timeout.value == 30.0
        assert k.config.seconds_since_look < 5
    for read in (lambda: timeout.value, lambda: k.config.get(NAME), lambda: k.config.watch()):
        with pytest.raises(NotFollowed, match=r"async with k\.config\.following"):
            read()


async def test_reading_does_no_io(k: Kizuna, server: ServerProcess) -> None:
    timeout = k.config.declare(NAME, float, default=30.0)
    async with k.config.following():
        await k.store.aclose()
        assert [timeout.value for _ in range(1000)] == [30.0] * 1000


async def test_any_thread_may_read(k: Kizuna, other: Kizuna) -> None:
    timeout = k.config.declare(NAME, int, default=0)
    seen: set[int] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            seen.add(timeout.value)
            k.config.get(f"asked:{len(seen)}")

    async with k.config.following():
        reading = asyncio.create_task(asyncio.to_thread(read))
        try:
            for number in range(1, 4):
                await other.config.set(NAME, number)
                await eventually(lambda: number in seen)  # noqa: B023 - awaited here
        finally:
            over.set()
            await reading
    assert seen == {0, 1, 2, 3}


# -- types ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (float, b"30", 30.0),
        (int, b" 30\n", 30),
        (bool, b"1", True),
        (bool, b"false", False),
        (str, b"a bare word", "a bare word"),
        (str, b'"quoted"', "quoted"),
        (str, b"12345", "12345"),
        (str, b"", ""),
        (list[int], b"[1, 2]", [1, 2]),
        (Limits, b'{"per_minute": 60}', Limits(60)),
        (Literal["fast", "slow"], b"slow", "slow"),
        (float | None, b"null", None),
    ],
)
async def test_what_outsiders_write_by_hand_is_understood(
    k: Kizuna, server: ServerProcess, root: str, kind: Any, raw: bytes, value: object
) -> None:
    server.call("SET", f"{root}:config:{NAME}", raw)
    declared = k.config.declare(NAME, kind, default=None)
    async with k.config.following():
        assert (declared.value, k.config.problems()) == (value, [])


@pytest.mark.parametrize(
    ("kind", "wrong", "sentence"),
    [
        (float, "soon", 'claude:timeout cannot be "soon"; expected a number'),
        (int, 1.5, "claude:timeout cannot be 1.5; expected a whole number"),
        (float, math.nan, "expected something that JSON can hold"),
        (float, math.inf, "expected something that JSON can hold"),
        (str, "\ud800", "expected something that JSON can hold"),
        (str, object(), "expected something that JSON can hold"),
        (str, "x" * MOST_BYTES, f"expected at most {MOST_BYTES}; keep what is larger in a key of its own"),
        (Annotated[int, msgspec.Meta(ge=1, le=9)], 10, "expected a whole number, at least 1 and at most 9"),
        (Limits, {"burst": 1}, "expected Limits (Object missing required field `per_minute`)"),
        (list[int], ["a"], "expected list[int] (Expected `int`, got `str` - at `$[0]`)"),
    ],
)
async def test_a_wrong_value_is_refused_before_anything_is_written(
    k: Kizuna, kind: Any, wrong: object, sentence: str
) -> None:
    k.config.declare(NAME, kind, default=None)
    with pytest.raises(WrongValue) as refused:
        await k.config.set(NAME, wrong)

    assert sentence in str(refused.value)
    assert await k.config.read_all() == {}
    assert await k.config.history(NAME) == []


async def test_a_check_of_ones_own_says_what_may_be(k: Kizuna) -> None:
    def even(number: int) -> bool:
        if number < 0:
            raise ValueError("nothing below 0")
        return number % 2 == 0

    k.config.declare("n", int, default=0, check=even, doc="an even number")
    with pytest.raises(WrongValue, match="n cannot be 3; expected an even number"):
        await k.config.set("n", 3)
    with pytest.raises(WrongValue, match="n cannot be -2; expected nothing below 0"):
        await k.config.set("n", -2)
    assert await k.config.set("n", 4)


async def test_a_default_must_be_right_and_a_name_is_declared_once(k: Kizuna) -> None:
    with pytest.raises(WrongValue):
        k.config.declare("a", int, default="x")
    k.config.declare("a", int, default=1)
    assert k.config.declare("a", int, default=1).default == 1
    with pytest.raises(WrongValue, match="a cannot be declared twice; expected int with default 1, as before"):
        k.config.declare("a", int, default=2)
    with pytest.raises(IllegalName):
        k.config.declare("a b", int, default=2)


async def test_a_wrong_value_of_an_outsider_leaves_the_last_good_one_in_force(
    k: Kizuna, server: ServerProcess, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    timeout = k.config.declare(NAME, float, default=30.0)
    key = f"{root}:config:{NAME}"
    async with k.config.following():
        changes = k.config.watch()
        await k.config.set(NAME, 45)
        assert await next_of(changes) == Change(NAME, 30.0, 45.0)
        with caplog.at_level(logging.WARNING, "kizuna.coordination"):
            server.call("SET", key, "soon")
            await eventually(k.config.problems)

        assert timeout.value == 45.0
        assert [str(problem) for problem in k.config.problems()] == ["claude:timeout cannot be soon; expected a number"]
        assert [record.message for record in caplog.records] == ["value not taken"]
        with pytest.raises(WrongValue):
            await k.config.read(NAME)

        server.call("DEL", key)
        await eventually(lambda: not k.config.problems())
        assert timeout.value == 30.0
        assert await next_of(changes) == Change(NAME, 45.0, 30.0)


async def test_a_check_that_stumbles_does_not_end_the_following(k: Kizuna, server: ServerProcess, root: str) -> None:
    names = k.config.declare("names", list[Any], default=[], check=lambda listed: "".join(listed) is not None)
    async with k.config.following():
        server.call("SET", f"{root}:config:names", "[1]")
        await eventually(k.config.problems)
        assert "expected what its check does not stumble over (TypeError(" in str(k.config.problems()[0])
        server.call("SET", f"{root}:config:names", '["a"]')
        await eventually(lambda: names.value == ["a"])


async def test_without_a_good_one_the_default_holds(k: Kizuna, server: ServerProcess, root: str) -> None:
    server.call("SET", f"{root}:config:{NAME}", "soon")
    timeout = k.config.declare(NAME, float, default=30.0)
    async with k.config.following():
        assert timeout.value == 30.0
        assert len(k.config.problems()) == 1


@hypothesis_settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON_VALUES)
async def test_any_json_value_comes_back_as_it_was(k: Kizuna, value: object) -> None:
    await k.config.set("any", value)

    assert await k.config.read("any") == value
    assert (await k.config.history("any", count=1))[0].after == value


# -- hearing of changes -----------------------------------------------------------------------------------


async def test_every_change_is_told_once_and_to_those_who_asked_for_the_name(k: Kizuna, other: Kizuna) -> None:
    k.config.declare(NAME, float, default=30.0)
    async with k.config.following():
        claude, everything = k.config.watch("claude:*"), k.config.watch()
        await other.config.set("github:ratelimit", 60)
        assert await next_of(everything) == Change("github:ratelimit", None, 60)
        await other.config.set(NAME, 45)
        assert await next_of(claude) == Change(NAME, 30.0, 45.0)
        assert await next_of(everything) == Change(NAME, 30.0, 45.0)

        await other.config.set(NAME, 45.0)  # the same, written otherwise
        await other.config.unset(NAME)
        assert await next_of(claude) == Change(NAME, 45.0, 30.0)
        assert await next_of(everything) == Change(NAME, 45.0, 30.0)
        await other.config.set("last", 1)
        assert await next_of(everything) == Change("last", None, 1)


async def test_who_is_slow_is_told_where_it_has_come_to(k: Kizuna) -> None:
    async with k.config.following():
        changes = k.config.watch()
        for number in range(100):
            await k.config.set("n", number)

        assert await next_of(changes) == Change("n", None, 99)
        await k.config.set("n", 100)
        await k.config.set("n", 99)
        await k.config.set("m", 1)
        assert await next_of(changes) == Change("m", None, 1)


async def test_watching_ends_with_the_following(k: Kizuna) -> None:
    async with k.config.following():
        changes = k.config.watch()
        await k.config.set("n", 1)
    assert [change async for change in changes] == [Change("n", None, 1)]


async def test_what_changed_while_nobody_followed_is_told_when_somebody_does_again(k: Kizuna, other: Kizuna) -> None:
    timeout = k.config.declare(NAME, float, default=30.0)
    told: list[Change] = []
    timeout.on_change(told.append)
    async with k.config.following():
        pass
    await other.config.set(NAME, 45)
    async with k.config.following():
        assert told == [Change(NAME, 30.0, 45.0)]


async def test_callbacks_are_called_after_each_change_and_may_fail(
    k: Kizuna, other: Kizuna, caplog: pytest.LogCaptureFixture
) -> None:
    timeout = k.config.declare(NAME, float, default=30.0)
    told: list[tuple[Change, float]] = []

    @timeout.on_change
    def fail(change: Change) -> None:
        raise RuntimeError("mine")

    timeout.on_change(lambda change: told.append((change, timeout.value)))
    async with k.config.following():
        await other.config.set(NAME, 45)
        await eventually(lambda: told == [(Change(NAME, 30.0, 45.0), 45.0)])
    assert [record.message for record in caplog.records] == ["callback failed"]


async def test_outsiders_change_values_in_whatever_way(k: Kizuna, server: ServerProcess, root: str) -> None:
    key = f"{root}:config:n"
    steps: list[tuple[tuple[str | int, ...], object]] = [
        (("SET", key, 1), 1), (("INCR", key), 2), (("APPEND", key, "0"), 20), (("SETRANGE", key, 0, "9"), 90),
        (("MSET", key, '"text"'), "text"), (("DEL", key), None), (("SET", f"{root}:config:m", 3), None),
        (("RENAME", f"{root}:config:m", key), 3), (("SET", key, 4, "PX", 1), None), (("SETNX", key, 5), 5),
        (("UNLINK", key), None),
    ]  # fmt: skip
    async with k.config.following():
        for command, value in steps:
            server.call(*command)
            await eventually(lambda: k.config.get("n") == value)  # noqa: B023 - awaited here


async def test_who_changes_a_value_reads_it_at_once(k: Kizuna) -> None:
    async with k.config.following():
        for number in range(50):
            await k.config.set("n", number)
            assert k.config["n"] == number
        await k.config.unset("n")
        assert k.config.get("n") is None


async def test_two_thousand_values_are_followed(k: Kizuna, other: Kizuna, server: ServerProcess, root: str) -> None:
    server.call("MSET", *(text for number in range(2000) for text in (f"{root}:config:n:{number}", number)))
    async with k.config.following():
        assert [k.config[f"n:{number}"] for number in range(2000)] == list(range(2000))
        before = int(server.info("stats")["total_commands_processed"])
        await k.config.follower().look()
        assert int(server.info("stats")["total_commands_processed"]) - before < 10
        await other.config.set("n:7", "changed")
        await eventually(lambda: k.config["n:7"] == "changed")


async def test_names_that_come_and_go_do_not_gather(k: Kizuna, server: ServerProcess, root: str) -> None:
    async with k.config.following():
        for number in range(200):
            server.call("SET", f"{root}:config:n:{number}", 1)
            server.call("DEL", f"{root}:config:n:{number}")
        await eventually(lambda: k.config._memory.known == {root: {}})


async def test_following_starts_and_stops_fifty_times(k: Kizuna) -> None:
    await assert_starts_and_stops(k.config.follower)


# -- when nothing tells of changes ------------------------------------------------------------------------


def deaf(server: ServerProcess, **more: Any) -> Settings:
    store = StoreSettings(url=server.url, **more)
    events = EventsSettings(canary_every_s=0.2, canary_timeout_s=1.5)
    return Settings(store=store, events=events, roots=RootsSettings(system="t-deaf", coordination="t-deaf"))


async def test_without_notifications_changes_are_seen_within_a_second() -> None:
    rules = "on >secret ~* &* +@all -config"
    with ServerProcess(config={"notify-keyspace-events": ""}, users={"app": rules}) as server:
        settings = deaf(server, username="app", password=Secret("secret"))
        async with connect(settings) as k:
            timeout = k.config.declare(NAME, float, default=30.0)
            async with k.config.following():
                assert k.config.get("asked:for") is None
                server.call("SET", f"t-deaf:config:{NAME}", 45)
                server.call("SET", "t-deaf:config:asked:for", 1)
                # Twice a second it looks; the rest is for a busy machine.
                await eventually(lambda: (timeout.value, k.config.get("asked:for")) == (45.0, 1), within_s=3)
                server.call("DEL", f"t-deaf:config:{NAME}")
                await eventually(lambda: timeout.value == 30.0, within_s=3)


async def test_what_was_missed_while_the_listening_connection_was_away_is_seen(fresh_server: ServerProcess) -> None:
    async with connect(deaf(fresh_server)) as k:
        timeout = k.config.declare(NAME, float, default=30.0)
        async with k.config.following():
            assert fresh_server.call("CLIENT", "KILL", "TYPE", "pubsub") == 1
            fresh_server.call("SET", f"t-deaf:config:{NAME}", 45)
            fresh_server.call("SET", "t-deaf:config:nobody:declared", 1)
            await eventually(lambda: timeout.value == 45.0, within_s=3)
            await eventually(lambda: k.config.get("nobody:declared") == 1)


async def test_values_stay_while_the_server_is_away_and_follow_when_it_is_back(fresh_server: ServerProcess) -> None:
    async with connect(deaf(fresh_server, timeout_s=2, reconnect_longest_s=0.1)) as k:
        timeout = k.config.declare(NAME, float, default=30.0)
        async with k.config.following():
            await k.config.set(NAME, 45)
            fresh_server.kill()
            await eventually(lambda: k.config.seconds_since_look > 1)
            assert timeout.value == 45.0
            await asyncio.to_thread(fresh_server.start)
            fresh_server.call("SET", f"t-deaf:config:{NAME}", 60)
            await eventually(lambda: timeout.value == 60.0)


async def test_a_server_that_cannot_be_read_keeps_following_from_starting(fresh_server: ServerProcess) -> None:
    async with connect(deaf(fresh_server)) as k:
        fresh_server.call("ACL", "SETUSER", "default", "-mget", "-scan")
        with pytest.raises(PermissionDenied):
            async with k.config.following():
                pass
        with pytest.raises(NotFollowed):
            k.config.get(NAME)
        fresh_server.call("ACL", "SETUSER", "default", "+@all")


# -- changing ---------------------------------------------------------------------------------------------


async def test_on_the_server_stands_plain_json(k: Kizuna, server: ServerProcess, root: str) -> None:
    await k.config.set(NAME, 30)
    await k.config.set("limits", Limits(60))
    await k.config.set("word", "言葉")

    assert server.call("GET", f"{root}:config:claude:timeout") == b"30"
    assert server.call("GET", f"{root}:config:limits") == b'{"per_minute":60,"burst":10}'
    assert server.call("GET", f"{root}:config:word").decode() == '"言葉"'


async def test_a_value_is_set_only_where_it_is_as_expected(k: Kizuna, server: ServerProcess, root: str) -> None:
    assert await k.config.set("n", 1, expected=NOTHING)
    with pytest.raises(ValueChanged, match="n is 1 now, which was not expected, and stays so"):
        await k.config.set("n", 2, expected=NOTHING)
    with pytest.raises(ValueChanged):
        await k.config.set("n", 2, expected=5)
    server.call("SET", f"{root}:config:n", "1.0")  # compared as values, not as text
    assert await k.config.set("n", 2, expected=1)
    assert await k.config.unset("n", expected=2)
    with pytest.raises(ValueChanged, match="n is not set now"):
        await k.config.unset("n", expected=2)
    assert not await k.config.unset("n")


async def test_of_many_who_expect_the_same_exactly_one_succeeds(k: Kizuna, other: Kizuna) -> None:
    await k.config.set("n", 0)

    async def attempt(config: Any, value: int) -> bool:
        try:
            return bool(await config.set("n", value, expected=0))
        except ValueChanged:
            return False

    attempts = (attempt(config, value) for value in range(1, 21) for config in (k.config, other.config))
    assert sum(await asyncio.gather(*attempts)) == 1
    assert len(await k.config.history("n")) == 2


async def test_counting_by_comparing_loses_nothing(k: Kizuna, other: Kizuna) -> None:
    await k.config.set("n", 0)

    async def count(config: Any) -> None:
        for _ in range(10):
            while True:
                now = await config.read("n")
                try:
                    await config.set("n", now + 1, expected=now)
                except ValueChanged:
                    continue
                break

    await asyncio.gather(*(count(config) for config in (k.config, other.config, k.config, other.config)))
    assert await k.config.read("n") == 40


async def test_many_are_set_after_all_were_checked(k: Kizuna) -> None:
    k.config.declare("b", int, default=0)
    with pytest.raises(WrongValue):
        await k.config.set_many({"a": 1, "b": "x"})
    assert await k.config.read_all() == {}

    assert await k.config.set_many({"a": 1, "b": 2}) == 2
    assert await k.config.set_many({"a": 1, "b": 3}) == 1
    assert await k.config.read_all() == {"a": b"1", "b": b"3"}
    assert await k.config.read_all("a*") == {"a": b"1"}


# -- history ----------------------------------------------------------------------------------------------


async def test_the_history_says_who_changed_what_when_and_why(k: Kizuna, other: Kizuna, server: ServerProcess) -> None:
    await k.config.set("n", 1, note="first")
    assert not await k.config.set("n", 1)
    await other.config.set("n", [2])
    await other.config.unset("n", note="gone")
    entries = await k.config.history("n")

    assert [(entry.by, entry.before, entry.after, entry.note) for entry in entries] == [
        (other.process, [2], None, "gone"),
        (other.process, 1, [2], ""),
        (k.process, None, 1, "first"),
    ]
    now_s = int(server.call("TIME")[0])
    assert all(abs(entry.at.timestamp() - now_s) < 60 for entry in entries)
    assert await k.config.last_changes(["n", "none"]) == {"n": entries[0]}
    assert await k.config.history("n", count=1) == entries[:1]


async def test_a_note_is_short(k: Kizuna) -> None:
    with pytest.raises(WrongValue, match="a note cannot be 1001 characters long; expected at most 1000"):
        await k.config.set("n", 1, note="x" * 1001)
    assert await k.config.read_all() == {}


async def test_the_history_is_bounded(k: Kizuna, server: ServerProcess, root: str) -> None:
    for number in range(105):
        await k.config.set("n", number)
    entries = await k.config.history("n")

    assert [entry.after for entry in entries] == list(range(104, 4, -1))
    assert server.call("XLEN", f"{root}:history:config:n") == 100


async def test_a_change_is_taken_back(k: Kizuna) -> None:
    await k.config.set("n", 1)
    await k.config.set("n", 2)
    first = (await k.config.history("n"))[-1]
    assert await k.config.revert("n", note="oops")
    assert await k.config.read("n") == 1
    assert await k.config.revert("n")
    assert await k.config.read("n") == 2
    assert await k.config.revert("n", to=first)
    assert await k.config.read("n") == 1
    assert [entry.note for entry in await k.config.history("n")] == ["", "", "oops", "", ""]


async def test_the_first_change_is_taken_back_to_nothing(k: Kizuna) -> None:
    await k.config.set("n", 1)
    assert await k.config.revert("n")
    assert await k.config.read("n", None) is None


async def test_what_somebody_else_changed_since_is_not_taken_back(k: Kizuna, server: ServerProcess, root: str) -> None:
    with pytest.raises(WrongValue, match="n cannot be reverted; expected a change in its history"):
        await k.config.revert("n")
    await k.config.set("n", 1)
    server.call("SET", f"{root}:config:n", 5)
    with pytest.raises(ValueChanged):
        await k.config.revert("n")
    assert await k.config.read("n") == 5


# -- trouble ----------------------------------------------------------------------------------------------


async def test_a_lost_answer_is_asked_for_again_and_the_change_happens_once(
    settings: Settings, proxy: MakeProxy, k: Kizuna
) -> None:
    line = await proxy()
    store = StoreSettings(url=line.url, timeout_s=2, reconnect_first_s=0.01)
    async with connect(Settings(store=store, roots=settings.roots)) as far:
        await far.config.set("n", 0)  # the script is known from here on
        line.drop_replies(1, then="cut")
        # A repetition that was not known as one would find nothing to change.
        assert await far.config.set("n", 1)

    assert await k.config.read("n") == 1
    assert [entry.after for entry in await k.config.history("n")] == [1, 0]


async def test_a_full_server_changes_nothing(fresh_server: ServerProcess) -> None:
    async with connect(deaf(fresh_server)) as k:
        await k.config.set("n", 1)
        fresh_server.call("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(OutOfMemory):
            await k.config.set("n", 2)
        fresh_server.call("CONFIG", "SET", "maxmemory", 0)

        assert await k.config.read("n") == 1
        assert len(await k.config.history("n")) == 1


async def test_who_may_not_write_the_history_changes_nothing() -> None:
    rules = "on >secret ~t-deaf:config:* &* +@all"
    with ServerProcess(users={"app": rules}) as server:
        async with connect(deaf(server, username="app", password=Secret("secret"))) as k:
            with pytest.raises(PermissionDenied):
                await k.config.set("n", 1)
            assert await k.config.read("n", None) is None


async def test_a_key_of_another_type_is_no_value_and_is_left_alone(k: Kizuna, server: ServerProcess, root: str) -> None:
    server.call("LPUSH", f"{root}:config:n", 1)
    async with k.config.following():
        assert k.config.get("n") is None
        with pytest.raises(Exception, match="WRONGTYPE"):
            await k.config.set("n", 1)
    assert await k.config.history("n") == []
    server.call("DEL", f"{root}:config:n")
