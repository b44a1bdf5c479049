"""Handlers: async or plain, they answer by what they return, raise or say by hand, and nothing that they do ends the
unit. As many run at once as was said, and nobody in line is forgotten."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.coordination.handlers import Failed
from kizuna.errors import RequestFailed, TooLarge, WrongValue
from kizuna.service import running
from kizuna.settings import Settings, UnitsSettings
from kizuna.testing import assert_starts_and_stops, eventually
from kizuna.units.executions import Request

WITHIN_S = 20.0


async def echo(data: Any) -> Any:
    return data


async def failed_with(k: Kizuna, data: bytes = b"x") -> bytes:
    with pytest.raises(RequestFailed) as failed:
        await k.unit("camera").request("detector", data, timeout_s=WITHIN_S)
    return failed.value.body


# -- kinds of handlers ---------------------------------------------------------------------------------------------


class Detector:
    async def method(self, data: bytes) -> bytes:
        return data * 2

    def __call__(self, data: bytes) -> bytes:
        return data * 2


class AsyncDetector:
    async def __call__(self, data: bytes, request: Request) -> bytes:
        return data * 2


async def doubled(data: bytes) -> bytes:
    return data * 2


def doubled_plainly(data: bytes, *, times: int = 2) -> bytes:
    return data * times


def plain_with_request(data: bytes, request: Request) -> bytes:
    return request.raw + data


KINDS: list[Callable[..., Any]] = [
    doubled,
    doubled_plainly,
    plain_with_request,
    lambda data: data * 2,
    functools.partial(doubled_plainly, times=2),
    Detector().method,
    Detector(),
    AsyncDetector(),
]


@pytest.mark.parametrize("handler", KINDS)
async def test_results_come_from_async_and_from_plain_functions(k: Kizuna, handler: Callable[..., Any]) -> None:
    async with k.unit("detector").serving(handler):
        assert await k.unit("camera").request("detector", b"x") == b"xx"


async def test_plain_functions_run_in_threads_and_at_the_same_time(k: Kizuna) -> None:
    """Each waits for all the others; one after the other they would wait for ever."""
    everybody = threading.Barrier(8)

    def meet(_: bytes) -> bytes:
        everybody.wait(timeout=WITHIN_S)
        return threading.current_thread().name.encode()

    camera = k.unit("camera")
    async with k.unit("detector").serving(meet):
        threads = await asyncio.gather(*(camera.request("detector", timeout_s=WITHIN_S) for _ in range(8)))
    assert len(set(threads)) == 8
    assert threading.current_thread().name.encode() not in threads


def without_parameters() -> None: ...


def with_two(data: bytes, more: bytes) -> None: ...


async def with_another_name(data: bytes, *, message: Any) -> None: ...


@pytest.mark.parametrize("handler", [without_parameters, with_two, with_another_name])
async def test_a_handler_that_cannot_be_called_is_refused_with_a_sentence(
    k: Kizuna, handler: Callable[..., Any]
) -> None:
    with pytest.raises(WrongValue, match=r"a handler cannot be .*; expected one that takes the payload, and perhaps"):
        k.unit("detector").server(handler)


@pytest.mark.parametrize("concurrency", [0, -1])
async def test_a_server_without_a_place_is_refused(k: Kizuna, concurrency: int) -> None:
    with pytest.raises(WrongValue, match="concurrency cannot be"):
        k.unit("detector").server(echo, concurrency=concurrency)


async def test_a_handler_that_returns_nothing_replies_with_nothing(k: Kizuna) -> None:
    async with k.unit("detector").serving(lambda _: None):
        assert await k.unit("camera").request("detector", b"x") == b""


async def test_a_handler_is_told_who_asks_what_and_for_how_long(k: Kizuna) -> None:
    seen: list[Request] = []

    async def look(data: bytes, request: Request) -> None:
        ends_in_s = await request.ends_in_s()
        assert ends_in_s is not None
        assert 0 < ends_in_s <= 30
        seen.append(request)

    async with k.unit("detector").serving(look):
        await k.unit("camera").request("detector", b"x", id="42", ttl_s=30)
    (request,) = seen
    assert (request.caller, request.id, request.raw, request.data) == ("camera", "detector.42", b"x", b"x")
    assert request.path == f"{k.units.root}/camera/req/detector.42"


# -- answers by hand -----------------------------------------------------------------------------------------------


async def test_a_handler_may_reply_and_go_on_working(k: Kizuna) -> None:
    went_on, end = asyncio.Event(), asyncio.Event()

    async def reply_first(data: bytes, request: Request) -> bytes:
        await request.reply(b"first")
        # It can be read by now.
        assert await k.store.get(request.path.replace("/req/", "/res/")) == b"first"
        await end.wait()
        went_on.set()
        return b"second"

    camera = k.unit("camera")
    async with k.unit("detector").serving(reply_first):
        assert await camera.request("detector", b"x", id="1") == b"first"
        assert not went_on.is_set()
        end.set()
    assert went_on.is_set()
    assert await k.store.get(f"{k.units.root}/camera/res/detector.1") == b"first"


async def test_a_second_answer_is_refused_and_the_first_one_stands(k: Kizuna) -> None:
    refused: list[str] = []

    async def answer_twice(data: bytes, request: Request) -> bytes:
        await request.reply(b"first")
        for again in (request.reply(b"second"), request.fail(b"third")):
            with pytest.raises(RuntimeError, match="is answered already") as error:
                await again
            refused.append(str(error.value))
        raise ValueError("this does not count any more, either")

    async with k.unit("detector").serving(answer_twice):
        assert await k.unit("camera").request("detector", b"x") == b"first"
    assert len(refused) == 2
    keys = [key.decode().split("/")[2] for key in await k.store.call("KEYS", f"{k.units.root}/camera/*")]
    assert "res" in keys
    assert "err" not in keys
    assert (k.units.counts_of("detector").served, k.units.counts_of("detector").failed) == (1, 0)


async def test_two_answers_at_once_are_one_answer(k: Kizuna) -> None:
    async def answer_at_once(data: bytes, request: Request) -> None:
        outcomes = await asyncio.gather(request.reply(b"a"), request.reply(b"b"), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), RuntimeError]

    async with k.unit("detector").serving(answer_at_once):
        assert await k.unit("camera").request("detector", b"x") == b"a"
    assert k.units.counts_of("detector").failed == 0


async def test_a_plain_handler_replies_by_hand_through_the_loop(k: Kizuna) -> None:
    loop = asyncio.get_running_loop()

    def reply(data: bytes, request: Request) -> None:
        asyncio.run_coroutine_threadsafe(request.reply(data * 2), loop).result(WITHIN_S)

    async with k.unit("detector").serving(reply):
        assert await k.unit("camera").request("detector", b"x") == b"xx"


# -- handlers that fail --------------------------------------------------------------------------------------------


async def test_failed_says_what_the_error_says(k: Kizuna) -> None:
    async def refuse(_: bytes) -> None:
        raise Failed("寿司 is sold out")

    async with k.unit("detector").serving(refuse):
        assert await failed_with(k) == "寿司 is sold out".encode()


RAISED: dict[type[BaseException], tuple[Any, ...]] = {
    ValueError: ("no such size",),
    KeyError: ("size",),
    SystemExit: (3,),
    StopIteration: ("over",),
    StopAsyncIteration: ("over",),
    asyncio.CancelledError: ("of something else",),
    TimeoutError: (),
    ExceptionGroup: ("both", [ValueError("a"), ValueError("b")]),
    RecursionError: ("too deep",),
    TooLarge: ("the thing", 2, 1, "units.largest_bytes"),
}


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
@pytest.mark.parametrize("error", RAISED)
async def test_a_handler_that_raises_becomes_an_error_with_a_readable_body_and_the_unit_lives_on(
    k: Kizuna, error: type[BaseException], is_async: bool
) -> None:
    def fail(data: bytes) -> bytes:
        if data:
            raise error(*RAISED[error])
        return b"alive"

    async def fail_async(data: bytes) -> bytes:
        return fail(data)

    async with k.unit("detector").serving(fail_async if is_async else fail, concurrency=1):
        body = (await failed_with(k)).decode()
        assert await k.unit("camera").request("detector", b"", timeout_s=WITHIN_S) == b"alive"
    if error is StopIteration and is_async:
        assert body.startswith("RuntimeError: coroutine raised StopIteration")
    else:
        assert body.startswith(error.__name__)
    if error is ValueError:
        assert body.startswith("ValueError: no such size (test_serving.py:")
        assert body.endswith(" in fail)")


async def test_an_error_whose_text_cannot_be_told_is_an_error_all_the_same(k: Kizuna) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    async def fail(data: bytes) -> bytes:
        raise Mute if data == b"mute" else ValueError("\udcff")

    async with k.unit("detector").serving(fail, concurrency=1):
        assert b"Mute" in await failed_with(k, b"mute")
        assert b"ValueError: ?" in await failed_with(k, b"surrogate")


async def test_a_result_that_the_codec_has_no_word_for_is_an_error_that_says_so(k: Kizuna) -> None:
    async def count(data: bytes) -> int:
        return len(data)

    async with k.unit("detector").serving(count):
        assert b"TypeError: only bytes and text can be sent as they are, not int" in await failed_with(k)


async def test_what_a_handler_awaits_may_be_cancelled_and_the_request_is_answered(k: Kizuna) -> None:
    async def cancel_own_part(_: bytes) -> None:
        part = asyncio.create_task(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(part.cancel)
        await part

    async with k.unit("detector").serving(cancel_own_part):
        assert b"CancelledError: the handler was cancelled" in await failed_with(k)


async def test_an_error_is_not_larger_than_anything_else_that_is_sent(settings: Settings) -> None:
    async def fail(data: bytes, request: Request) -> None:
        if data:
            raise Failed("ä" * 1000)
        with pytest.raises(TooLarge):
            await request.fail("ä" * 1000)

    async with (
        connect(msgspec.structs.replace(settings, units=UnitsSettings(largest_bytes=500))) as k,
        k.unit("detector").serving(fail),
    ):
        body = await failed_with(k)
        assert "ä" * 200 in body.decode(errors="replace")
        assert len(body) <= 500
        assert await k.unit("camera").request("detector", b"") == b""


# -- one beside the other ------------------------------------------------------------------------------------------

asked_for = ContextVar("asked_for", default=b"nothing")


async def test_a_handler_finds_no_context_variable_that_another_one_has_set(k: Kizuna) -> None:
    async def note(data: bytes) -> bytes:
        before = asked_for.get()
        asked_for.set(data)
        if data.endswith(b"0"):
            await asyncio.sleep(0)
        return before

    camera = k.unit("camera")
    async with k.unit("detector").serving(note):
        found = await asyncio.gather(*(camera.request("detector", b"%d" % number) for number in range(100)))
    assert set(found) == {b"nothing"}


class Incomparable:
    """Like many an array."""

    def __eq__(self, _: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = None  # type: ignore[assignment]


class EqualToAll:
    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


value_of_this_request: ContextVar[object] = ContextVar("value_of_this_request")


@pytest.mark.parametrize("kind", [Incomparable, EqualToAll])
async def test_values_of_context_variables_are_not_compared_to_find_that_out(
    settings: Settings, nothing_is_reported: None, kind: type
) -> None:
    value_of_this_request.set(of_the_program := kind())

    async def note(_: bytes) -> bytes:
        is_mine = value_of_this_request.get() is of_the_program
        value_of_this_request.set(kind())
        return b"%d" % is_mine

    async with connect(settings) as k, k.unit("detector").serving(note):
        camera = k.unit("camera")
        found = await asyncio.gather(*(camera.request("detector", timeout_s=WITHIN_S) for _ in range(100)))
    assert set(found) == {b"1"}


async def test_a_handler_that_renames_its_task_renames_no_other(k: Kizuna) -> None:
    async def rename(_: bytes) -> str:
        task = asyncio.current_task()
        assert task is not None
        before = task.get_name()
        task.set_name("mine")
        return before

    camera = k.unit("camera")
    async with k.unit("detector").serving(rename):
        found = await asyncio.gather(*(camera.request("detector", timeout_s=WITHIN_S) for _ in range(100)))
    assert b"mine" not in found


async def test_a_handler_that_cancels_itself_and_takes_it_back_cancels_no_other(k: Kizuna) -> None:
    async def take_back(data: bytes) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        if data.endswith(b"0"):
            task.cancel()
            task.uncancel()
        else:
            await asyncio.sleep(0)
        return data

    camera = k.unit("camera")
    async with k.unit("detector").serving(take_back):
        asked = [camera.request("detector", b"%d" % number, timeout_s=WITHIN_S) for number in range(100)]
        assert await asyncio.gather(*asked) == [b"%d" % number for number in range(100)]


async def test_a_handler_that_cancels_itself_fails_alone(k: Kizuna) -> None:
    async def cancel_some(data: bytes) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        if data.endswith(b"0"):
            task.cancel()
            await asyncio.sleep(0)
        elif data.endswith(b"5"):
            task.cancel()  # and ends before it hears of it
        return data

    camera = k.unit("camera")
    async with k.unit("detector").serving(cancel_some):
        asked = [camera.request("detector", b"%d" % number, timeout_s=WITHIN_S) for number in range(100)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    failed = {number for number, outcome in enumerate(outcomes) if isinstance(outcome, RequestFailed)}
    assert failed == set(range(0, 100, 10))
    assert {outcome for outcome in outcomes if isinstance(outcome, bytes)} == {
        b"%d" % number for number in range(100) if number % 10
    }


async def test_a_handler_may_have_a_timeout_of_its_own(k: Kizuna) -> None:
    async def limited(data: bytes) -> bytes:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
        except TimeoutError:
            return data
        return b"not reached"

    camera = k.unit("camera")
    async with k.unit("detector").serving(limited):
        asked = [camera.request("detector", b"%d" % number, timeout_s=WITHIN_S) for number in range(100)]
        assert await asyncio.gather(*asked) == [b"%d" % number for number in range(100)]


# -- how many at once ----------------------------------------------------------------------------------------------


class Crowd:
    """A handler that knows how many of it run."""

    def __init__(self) -> None:
        self.now = self.most = self.all = 0
        self.go = asyncio.Event()

    async def __call__(self, data: bytes) -> bytes:
        self.now, self.all = self.now + 1, self.all + 1
        self.most = max(self.most, self.now)
        await self.go.wait()
        await asyncio.sleep(0)
        self.now -= 1
        return data


async def test_concurrency_is_never_exceeded_and_fully_used_and_who_has_to_wait_is_served(k: Kizuna) -> None:
    crowd, camera = Crowd(), k.unit("camera")
    async with k.unit("detector").serving(crowd, concurrency=7):
        asked = [
            asyncio.create_task(camera.request("detector", b"%d" % number, timeout_s=WITHIN_S)) for number in range(100)
        ]
        await eventually(lambda: crowd.now == 7)
        await asyncio.sleep(0.05)
        assert crowd.now == 7
        crowd.go.set()
        assert await asyncio.gather(*asked) == [b"%d" % number for number in range(100)]
    assert (crowd.most, crowd.all) == (7, 100)


async def test_one_place_is_enough_for_all(k: Kizuna) -> None:
    crowd, camera = Crowd(), k.unit("camera")
    crowd.go.set()
    async with k.unit("detector").serving(crowd, concurrency=1):
        asked = [camera.request("detector", b"%d" % number, timeout_s=WITHIN_S) for number in range(50)]
        assert await asyncio.gather(*asked) == [b"%d" % number for number in range(50)]
    assert (crowd.most, crowd.all) == (1, 50)


async def test_a_handler_that_has_replied_and_goes_on_keeps_its_place(k: Kizuna) -> None:
    crowd, camera = Crowd(), k.unit("camera")

    async def reply_first(data: bytes, request: Request) -> None:
        await request.reply(data)
        await crowd(data)

    async with k.unit("detector").serving(reply_first, concurrency=1):
        assert await camera.request("detector", b"1") == b"1"
        second = asyncio.create_task(camera.request("detector", b"2"))
        await eventually(lambda: k.units.counts_of("camera").requests == 2)
        await asyncio.sleep(0.05)
        assert (crowd.all, second.done()) == (1, False)
        crowd.go.set()
        assert await second == b"2"
    assert crowd.most == 1


@pytest.mark.parametrize("longest", [0, 1, 20])
async def test_requests_beyond_the_longest_line_are_not_lost(
    k: Kizuna, monkeypatch: pytest.MonkeyPatch, longest: int
) -> None:
    monkeypatch.setattr("kizuna.units.serving.LONGEST_LINE", longest)
    crowd, camera = Crowd(), k.unit("camera")
    async with k.unit("detector").serving(crowd, concurrency=3):
        asked = [
            asyncio.create_task(camera.request("detector", b"%d" % number, timeout_s=WITHIN_S)) for number in range(60)
        ]
        await eventually(lambda: k.units.counts_of("camera").requests == 60 and crowd.now == 3)
        crowd.go.set()
        assert await asyncio.gather(*asked) == [b"%d" % number for number in range(60)]
    assert (crowd.most, crowd.all) == (3, 60)


async def test_who_waited_in_line_longer_than_a_claim_lasts_is_served_once(settings: Settings) -> None:
    settings = msgspec.structs.replace(settings, units=UnitsSettings(claim_s=0.3))
    crowd = Crowd()
    async with connect(settings) as k:
        camera = k.unit("camera")
        async with k.unit("detector").serving(crowd, concurrency=1):
            asked = [asyncio.create_task(camera.request("detector", b"%d" % number)) for number in range(5)]
            await eventually(lambda: crowd.now == 1)
            await asyncio.sleep(0.4)
            crowd.go.set()
            assert await asyncio.gather(*asked) == [b"%d" % number for number in range(5)]
    assert crowd.all == 5


async def test_a_request_that_ends_in_line_is_not_served(k: Kizuna) -> None:
    crowd, camera = Crowd(), k.unit("camera")
    async with k.unit("detector").serving(crowd, concurrency=1):
        first = asyncio.create_task(camera.request("detector", b"first", timeout_s=WITHIN_S))
        await eventually(lambda: crowd.now == 1)
        await camera.send("req", "detector.short", b"x", ttl_s=0.05)
        await eventually(lambda: gone(k, f"{k.units.root}/camera/req/detector.short"))
        crowd.go.set()
        await first
        assert await camera.request("detector", b"next") == b"next"
    assert crowd.all == 2


async def gone(k: Kizuna, key: str) -> bool:
    return not await k.store.call("EXISTS", key)


# -- several servers -----------------------------------------------------------------------------------------------


async def test_many_sessions_at_once_on_one_unit_that_asks_serves_and_listens(k: Kizuna) -> None:
    hub = k.unit("hub")
    callers = [k.unit(f"caller-{number}") for number in range(20)]
    async with (
        hub.serving(echo),
        k.unit("other").serving(echo),
        hub.listen(f"{k.units.root}/*/req/hub.*") as messages,
    ):
        asked = [caller.request("hub", b"%d" % turn, timeout_s=WITHIN_S) for turn in range(20) for caller in callers]
        own = [hub.request("other", b"%d" % turn, timeout_s=WITHIN_S) for turn in range(100)]
        replies = await asyncio.gather(*asked, *own)
        heard = [await messages.next(timeout_s=5) for _ in range(400)]
    assert replies == [b"%d" % turn for turn in range(20) for _ in callers] + [b"%d" % turn for turn in range(100)]
    assert len({message.path for message in heard if message}) == 400


async def test_a_unit_that_serves_everything_does_not_answer_what_it_asks_itself(k: Kizuna) -> None:
    everybody = k.unit("everybody")
    async with everybody.serving(echo, pattern=f"{k.units.root}/*/req/*"), k.unit("other").serving(doubled):
        assert await everybody.request("other", b"x") == b"xx"
        assert await k.unit("camera").request(None, b"x") == b"x"
        assert await everybody.request("everybody", b"x") == b"x"


async def test_servers_of_one_name_in_one_process_share_the_requests(k: Kizuna) -> None:
    crowds, camera = [Crowd() for _ in range(3)], k.unit("camera")
    for crowd in crowds:
        crowd.go.set()
    detector = k.unit("detector")
    async with detector.serving(crowds[0]), detector.serving(crowds[1]), k.unit("detector").serving(crowds[2]):
        await asyncio.gather(*(camera.request("detector", b"x", timeout_s=WITHIN_S) for _ in range(100)))
    assert sum(crowd.all for crowd in crowds) == 100
    assert k.units.counts_of("detector").claims_lost == 200


# -- the end of a server -------------------------------------------------------------------------------------------


async def test_leaving_the_block_finishes_what_was_begun_and_leaves_the_rest_to_others(k: Kizuna) -> None:
    crowd, camera = Crowd(), k.unit("camera")
    async with k.unit("detector").serving(crowd, concurrency=2):
        asked = [
            asyncio.create_task(camera.request("detector", b"%d" % number, timeout_s=WITHIN_S)) for number in range(5)
        ]
        await eventually(lambda: crowd.now == 2)
        asyncio.get_running_loop().call_later(0.1, crowd.go.set)
    assert crowd.all == 2
    assert await asyncio.gather(*asked[:2]) == [b"0", b"1"]
    assert not any(task.done() for task in asked[2:])
    async with k.unit("detector").serving(echo):
        assert await asyncio.gather(*asked[2:]) == [b"2", b"3", b"4"]


async def test_a_second_cancellation_ends_at_once_with_errors_as_answers(k: Kizuna) -> None:
    crowd, camera = Crowd(), k.unit("camera")
    server = asyncio.create_task(k.unit("detector").serve(crowd, concurrency=3))
    asked = [asyncio.create_task(camera.request("detector", timeout_s=WITHIN_S)) for _ in range(5)]
    await eventually(lambda: crowd.now == 3)
    server.cancel()
    await asyncio.wait([server], timeout=0.1)
    assert not server.done()  # it waits for what was begun
    server.cancel()
    await asyncio.wait([server], timeout=WITHIN_S / 2)
    assert server.cancelled()

    outcomes = await asyncio.gather(*asked[:3], return_exceptions=True)
    assert [getattr(outcome, "body", outcome) for outcome in outcomes] == [
        b"CancelledError: the handler was cancelled before it had an answer"
    ] * 3
    for task in asked[3:]:
        task.cancel()


async def test_a_handler_that_will_not_be_cancelled_does_not_hold_up_the_end_for_ever(settings: Settings) -> None:
    store = msgspec.structs.replace(settings.store, timeout_s=2)
    go = asyncio.Event()

    async def stubborn(_: bytes) -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    async with connect(msgspec.structs.replace(settings, store=store)) as k:
        server = asyncio.create_task(k.unit("detector").serve(stubborn))
        asked = asyncio.create_task(k.unit("camera").request("detector", timeout_s=WITHIN_S))
        await eventually(lambda: k.units.counts_of("camera").requests)
        await eventually(lambda: k.store.call("KEYS", f"{k.units.root}/detector/keep/claim.*"))
        server.cancel()
        await asyncio.sleep(0.05)
        server.cancel()
        await asyncio.wait([server], timeout=WITHIN_S)
        assert server.cancelled()
        go.set()
        asked.cancel()


async def test_a_request_that_is_claimed_at_the_moment_of_the_end_is_answered_and_its_handler_does_not_begin(
    k: Kizuna, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    server = asyncio.create_task(k.unit("detector").serve(asked.append))
    await eventually(lambda: k.units._sweeping.servings)
    (serving,) = k.units._sweeping.servings
    claimed = serving.claims._on_claimed

    def end_first(*arguments: Any) -> None:
        server.cancel()
        asyncio.get_running_loop().call_soon(server.cancel)
        # As late as can be: when all that runs was told to stop.
        asyncio.get_running_loop().call_later(0.1, claimed, *arguments)

    monkeypatch.setattr(serving.claims, "_on_claimed", end_first)
    async with asyncio.timeout(WITHIN_S / 2):
        assert b"CancelledError" in await failed_with(k)
        await asyncio.wait([server])
    assert server.cancelled()
    assert asked == []


async def test_a_server_starts_and_stops_fifty_times_in_a_row_and_leaves_nothing(k: Kizuna) -> None:
    camera = k.unit("camera")

    async def answers() -> bool:
        reply: bytes = await camera.request("detector", b"x", timeout_s=WITHIN_S)
        return reply == b"x"

    async with k.unit("warm").serving(echo):
        await assert_starts_and_stops(lambda: k.unit("detector").server(echo), check_working=answers)


async def test_plain_handlers_leave_no_thread(k: Kizuna) -> None:
    async with k.unit("detector").serving(lambda data: data):
        await k.unit("camera").request("detector", b"x")
        assert [thread for thread in threading.enumerate() if thread.name.startswith("kizuna-unit")]
    await eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith("kizuna-unit")])


async def test_a_server_is_a_service(k: Kizuna) -> None:
    async with running(k.unit("detector").server(echo)):
        assert await k.unit("camera").request("detector", b"x") == b"x"


async def test_a_request_that_was_there_before_the_server_is_served(k: Kizuna) -> None:
    camera = k.unit("camera")
    asked = [asyncio.create_task(camera.request("detector", b"%d" % number)) for number in range(50)]
    await eventually(lambda: sent(k, 50))
    async with k.unit("detector").serving(echo):
        assert await asyncio.gather(*asked) == [b"%d" % number for number in range(50)]


async def sent(k: Kizuna, number: int) -> bool:
    return len(await k.store.call("KEYS", f"{k.units.root}/camera/req/*")) == number
