"""Listening: whatever is written to the paths that fit a pattern, in its order, as an iterator or with a handler."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.codecs import JSON
from kizuna.errors import RequestFailed, Undecodable, WrongValue
from kizuna.settings import EventsSettings, Settings
from kizuna.testing import eventually
from kizuna.units.listening import Listening, Message

WITHIN_S = 20.0


async def next_of(messages: Listening) -> Message:
    message = await messages.next(timeout_s=WITHIN_S)
    assert message is not None
    return message


# -- what is heard -------------------------------------------------------------------------------------------------


async def test_everything_that_fits_the_pattern_is_heard_in_the_order_in_which_it_was_written(k: Kizuna) -> None:
    camera = k.unit("camera")
    async with k.unit("watcher").listen(f"{k.units.root}/camera/*/*") as messages:
        for number in range(100):
            await camera.send(("req", "res", "err", "keep")[number % 4], f"{number}", b"%d" % number)
        heard = [await next_of(messages) for _ in range(100)]

    assert [message.raw for message in heard] == [b"%d" % number for number in range(100)]
    assert [(message.unit, message.status, message.id) for message in heard[:2]] == [
        ("camera", "req", "0"),
        ("camera", "res", "1"),
    ]
    assert heard[0].path == f"{k.units.root}/camera/req/0"
    assert not any(message.found for message in heard)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*/req/*", {"a/req/1", "b/req/1", "b/req/2.x"}),
        ("b/*/*", {"b/req/1", "b/req/2.x", "b/keep/1"}),
        ("?/keep/1", {"a/keep/1", "b/keep/1"}),
        ("[a]/re?/1", {"a/req/1", "a/res/1"}),
        ("b/req/2.*", {"b/req/2.x"}),
        ("a/req/1", {"a/req/1"}),
    ],
)
async def test_any_pattern_hears_what_fits_it_and_nothing_else(k: Kizuna, pattern: str, expected: set[str]) -> None:
    writer = k.unit("writer")
    async with k.unit("watcher").listen(f"{k.units.root}/{pattern}") as messages:
        for path in ("a/req/1", "a/res/1", "a/err/1", "a/keep/1", "b/req/1", "b/req/2.x", "b/keep/1"):
            unit, status, id_ = path.split("/")
            await writer.send(status, id_, b"x", unit=unit)
        heard = {(await next_of(messages)).path.removeprefix(f"{k.units.root}/") for _ in expected}
        assert await messages.next(timeout_s=0.05) is None
    assert heard == expected


async def test_what_expires_or_is_deleted_or_is_no_string_is_no_message(k: Kizuna) -> None:
    root, list_there = k.units.root, "redis.call('RPUSH', KEYS[1], 'x') redis.call('PEXPIRE', KEYS[1], 50)"
    async with k.unit("watcher").listen(f"{root}/*/req/*") as messages:
        await k.store.call("SET", f"{root}/outsider/req/1", b"x", "PX", 30)
        await k.store.call("SET", f"{root}/outsider/req/2", b"y", "EX", 10)
        await k.store.call("DEL", f"{root}/outsider/req/2")
        await k.store.call("EVAL", list_there, 1, f"{root}/outsider/req/3")
        await eventually(lambda: nothing_left(k))
        await k.unit("outsider").send("req", "last", b"z")
        heard = [await next_of(messages)]
        while heard[-1].id != "last":
            heard.append(await next_of(messages))
    assert {message.raw for message in heard} <= {b"x", b"y", b"z"}
    assert [message.id for message in heard] == sorted({message.id for message in heard}, key="1 2 last".index)


async def nothing_left(k: Kizuna) -> bool:
    return not await k.store.call("KEYS", f"{k.units.root}/outsider/*")


async def test_requests_that_are_there_when_it_begins_come_first_and_other_things_are_no_news(k: Kizuna) -> None:
    camera = k.unit("camera")
    for status in ("req", "res", "err", "keep"):
        await camera.send(status, "old", b"old")
    async with k.unit("watcher").listen(f"{k.units.root}/camera/*/*") as messages:
        await camera.send("keep", "new", b"new")
        heard = [await next_of(messages) for _ in range(2)]
        assert await messages.next(timeout_s=0.05) is None
    assert [(message.status, message.id, message.found) for message in heard] == [
        ("req", "old", True),
        ("keep", "new", False),
    ]


async def test_the_value_is_decoded_by_who_listens_and_a_wrong_one_ends_nothing(k: Kizuna) -> None:
    async with k.unit("watcher", codec=JSON).listen(f"{k.units.root}/*/req/*") as messages:
        await k.unit("camera").send("req", "1", b"{oops")
        await k.unit("camera").send("req", "2", b'{"a":1}')
        wrong, right = await next_of(messages), await next_of(messages)
        with pytest.raises(Undecodable):
            _ = wrong.data
    assert (wrong.raw, right.data) == (b"{oops", {"a": 1})


# -- how it is used ------------------------------------------------------------------------------------------------


async def test_it_is_an_iterator_that_can_be_left_at_any_time(k: Kizuna) -> None:
    async def keep_sending() -> None:
        number = 0
        while True:
            await k.unit("camera").send("req", f"{number}", b"x", ttl_s=1)
            number += 1

    sending = asyncio.create_task(keep_sending())
    heard = 0
    async for message in k.unit("watcher").listen(f"{k.units.root}/*/req/*"):
        assert message.raw == b"x"
        heard += 1
        if heard == 5:
            break
    sending.cancel()
    await asyncio.wait([sending])
    assert heard == 5


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_handler_gets_every_message_until_it_is_cancelled(k: Kizuna, is_async: bool) -> None:
    heard: list[tuple[bytes, bool]] = []

    def note(message: Message) -> None:
        heard.append((message.raw, threading.current_thread() is threading.main_thread()))
        if message.raw == b"bad":
            raise ValueError("this one is logged, and the next one comes")

    async def note_async(message: Message) -> None:
        note(message)

    async def listen() -> None:
        await k.unit("watcher").listen(f"{k.units.root}/*/req/*", note_async if is_async else note)

    listening = asyncio.create_task(listen())
    await k.unit("camera").send("req", "1", b"first")
    await eventually(lambda: heard)
    await k.unit("camera").send("req", "2", b"bad")
    await k.unit("camera").send("req", "3", b"last")
    await eventually(lambda: len(heard) == 3)
    listening.cancel()
    await asyncio.wait([listening])
    assert listening.cancelled()
    assert sorted(heard) == [(b"bad", is_async), (b"first", is_async), (b"last", is_async)]


async def test_a_handler_that_cannot_be_called_or_that_is_missing_is_refused(k: Kizuna) -> None:
    with pytest.raises(WrongValue, match="a handler cannot be"):
        k.unit("watcher").listen(f"{k.units.root}/*/req/*", lambda: None)
    with pytest.raises(TypeError, match="async for"):
        await k.unit("watcher").listen(f"{k.units.root}/*/req/*")


async def test_who_listens_answers_requests_and_fails_them(k: Kizuna) -> None:
    camera = k.unit("camera")

    async def answer(message: Message) -> None:
        if message.raw:
            await message.fail(b"\xffno")
        else:
            await message.reply(b"yes", ttl_s=5)

    async def listen() -> None:
        await k.unit("watcher").listen(f"{k.units.root}/camera/req/*", answer)

    listening = asyncio.create_task(listen())
    assert await camera.request(None, b"", timeout_s=WITHIN_S) == b"yes"
    assert await camera.request("anybody", b"", id="1", timeout_s=WITHIN_S) == b"yes"
    with pytest.raises(RequestFailed) as failed:
        await camera.request(None, b"x", timeout_s=WITHIN_S)
    listening.cancel()
    await asyncio.wait([listening])
    assert failed.value.body == b"\xffno"
    assert 0 < await k.store.call("PTTL", f"{k.units.root}/camera/res/anybody.1") <= 5000


async def test_any_number_listen_to_the_same_and_each_hears_all(k: Kizuna) -> None:
    pattern = f"{k.units.root}/*/req/*"
    watchers = [k.unit("watcher").listen(pattern) for _ in range(10)]
    async with asyncio.timeout(WITHIN_S):
        for watcher in watchers:
            await watcher.__aenter__()
        for number in range(20):
            await k.unit("camera").send("req", f"{number}", b"%d" % number)
        for watcher in watchers:
            assert [(await next_of(watcher)).raw for _ in range(20)] == [b"%d" % number for number in range(20)]
            await watcher.__aexit__()
    assert k.units.counts_of("watcher").heard == 200


async def test_a_slow_reader_finds_by_looking_what_was_too_much_for_it(settings: Settings) -> None:
    settings = msgspec.structs.replace(settings, events=EventsSettings(buffer=10))
    async with connect(settings) as k, k.unit("watcher").listen(f"{k.units.root}/*/req/*") as messages:
        await asyncio.gather(*(k.unit("camera").send("req", f"{number}", b"x") for number in range(200)))
        heard: set[str] = set()
        while len(heard) < 200:
            heard.add((await next_of(messages)).id)
    assert heard == {f"{number}" for number in range(200)}


# -- nothing is left -----------------------------------------------------------------------------------------------


async def test_whoever_is_cancelled_while_it_begins_to_listen_leaves_nothing(k: Kizuna) -> None:
    async def listen() -> None:
        async with k.unit("watcher").listen(f"{k.units.root}/*/req/*") as messages:
            await messages.next()

    async with k.unit("watcher").listen(f"{k.units.root}/*/res/*"):
        before = asyncio.all_tasks()
        subscribed = await k.store.call("PUBSUB", "NUMPAT")
        for turns in range(40):
            listening = asyncio.create_task(listen())
            for _ in range(turns):
                await asyncio.sleep(0)
            listening.cancel()
            await asyncio.wait([listening])
        await eventually(lambda: asyncio.all_tasks() <= before)
        await eventually(lambda: no_more_than(k, subscribed))


async def no_more_than(k: Kizuna, subscribed: int) -> bool:
    """Fewer, if those of an earlier test were still there."""
    return bool(await k.store.call("PUBSUB", "NUMPAT") <= subscribed)


async def test_after_the_end_there_are_no_more_messages(k: Kizuna) -> None:
    async with k.unit("watcher").listen(f"{k.units.root}/*/req/*") as messages:
        waiting = asyncio.create_task(messages.next())
        await asyncio.sleep(0)
    assert await asyncio.wait_for(waiting, WITHIN_S) is None
    await k.unit("camera").send("req", "1", b"x")
    assert await messages.next(timeout_s=0.05) is None
