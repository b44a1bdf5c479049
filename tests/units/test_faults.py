"""Connections that break, servers that restart, programs that close while others wait: no reply that was written is
missed, no request that lives is forgotten, and nothing is left behind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.errors import (
    KizunaError,
    PermissionDenied,
    RequestFailed,
    RequestTimeout,
    StoreError,
    Unreachable,
)
from kizuna.settings import Secret, Settings, StoreSettings, UnitsSettings
from kizuna.testing import ChaosProxy, ServerProcess, eventually
from kizuna.testing.services import held_by_this_process
from kizuna.units.executions import Request
from kizuna.units.unit import Unit

WITHIN_S = 40.0

MakeProxy = Callable[..., Awaitable[ChaosProxy]]

pytestmark = pytest.mark.usefixtures("nothing_is_reported")


@pytest.fixture
async def debugged() -> AsyncIterator[None]:
    """The loop looks twice: for coroutines nobody awaits, and calls from other threads."""
    asyncio.get_running_loop().set_debug(True)
    yield
    asyncio.get_running_loop().set_debug(False)


async def echo(data: Any) -> Any:
    return data


def through(settings: Settings, proxy: ChaosProxy, **options: Any) -> Settings:
    return msgspec.structs.replace(settings, store=StoreSettings(url=proxy.url, **options))


def waiting(unit: Unit) -> int:
    return len(unit._requests._waiting)


async def repeat_while(step: Callable[[], Awaitable[object]], is_going_on: Callable[[], bool], every_s: float) -> None:
    while is_going_on():
        await asyncio.sleep(every_s)
        await step()


async def call_while(unit: Unit, is_going_on: Callable[[], bool]) -> None:
    """Three at once, each one after the other."""

    async def call() -> None:
        for turn in itertools.takewhile(lambda _: is_going_on(), itertools.count()):
            # The request lives as long as it is waited for: it is not its end that is looked at here.
            reply = await unit.request("detector", b"%d" % turn, timeout_s=WITHIN_S, ttl_s=WITHIN_S)
            assert reply == b"%d" % turn

    await asyncio.gather(*(call() for _ in range(3)))


# -- cut connections -----------------------------------------------------------------------------------------------


async def test_no_reply_is_missed_while_the_events_connections_are_cut_again_and_again(
    settings: Settings, server: ServerProcess
) -> None:
    with server.connect() as killer:

        async def cut() -> None:
            killer.call("CLIENT", "KILL", "TYPE", "pubsub")

        async with connect(settings) as k, connect(settings) as other, other.unit("detector").serving(echo):
            counts = k.units.counts_of("camera")

            def is_going_on() -> bool:
                return counts.resyncs < 4

            await asyncio.gather(call_while(k.unit("camera"), is_going_on), repeat_while(cut, is_going_on, 0.1))
    assert (counts.requests, counts.timeouts) == (counts.replies, 0)


@pytest.mark.parametrize("side", ["requester", "server", "both"])
async def test_no_reply_is_missed_while_all_connections_are_cut_again_and_again(
    settings: Settings, proxy: MakeProxy, side: str
) -> None:
    between = await proxy()
    behind = through(settings, between)
    mine, theirs = (behind if side in (name, "both") else settings for name in ("requester", "server"))
    async with connect(mine) as k, connect(theirs) as other, other.unit("detector").serving(echo):
        enough = between.connections + 8

        def is_going_on() -> bool:
            return between.connections < enough

        await asyncio.gather(call_while(k.unit("camera"), is_going_on), repeat_while(between.cut, is_going_on, 0.2))
        counts = k.units.counts_of("camera")
    assert (counts.requests, counts.timeouts) == (counts.replies, 0)


async def test_no_reply_is_missed_with_delays_on_the_way(settings: Settings, proxy: MakeProxy) -> None:
    slow, slower = await proxy(), await proxy()
    slow.delay_s, slower.delay_s = 0.01, 0.03
    async with (
        connect(through(settings, slow)) as k,
        connect(through(settings, slower)) as other,
        other.unit("detector").serving(echo),
    ):
        counts = k.units.counts_of("camera")
        await call_while(k.unit("camera"), lambda: counts.requests < 10)
    assert (counts.requests, counts.timeouts) == (counts.replies, 0)
    assert counts.requests >= 10


async def test_a_request_whose_write_was_not_acknowledged_is_asked_once_and_answered(
    settings: Settings, proxy: MakeProxy
) -> None:
    between, asked = await proxy(), []

    async def note(data: bytes) -> bytes:
        asked.append(data)
        return data

    async with (
        connect(settings) as other,
        connect(through(settings, between)) as k,
        other.unit("detector").serving(note),
    ):
        camera = k.unit("camera")
        await camera.request("detector", b"warm up")
        for number in range(5):
            between.drop_replies(1, then="cut")
            assert await camera.request("detector", b"%d" % number, timeout_s=WITHIN_S) == b"%d" % number
    assert asked == [b"warm up", *(b"%d" % number for number in range(5))]


async def test_an_answer_whose_write_was_not_acknowledged_is_written_again_and_the_handler_does_not_run_again(
    settings: Settings, proxy: MakeProxy
) -> None:
    between, asked = await proxy(), []

    async def answer(data: bytes) -> bytes:
        asked.append(data)
        # From now on nothing that the server says arrives; the answer itself does.
        between.drop_replies(1, then="cut")
        return data

    async with (
        connect(settings) as k,
        connect(through(settings, between)) as other,
        other.unit("detector").serving(answer),
    ):
        for number in range(5):
            assert await k.unit("camera").request("detector", b"%d" % number, timeout_s=WITHIN_S) == b"%d" % number
    assert asked == [b"%d" % number for number in range(5)]


async def test_a_claim_whose_acknowledgement_was_lost_is_known_as_our_own(
    settings: Settings, proxy: MakeProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not waited for until it has ended: nobody else has it."""
    between = await proxy()
    lasting = msgspec.structs.replace(settings, units=UnitsSettings(claim_s=60))
    async with (
        connect(settings) as k,
        connect(through(lasting, between)) as other,
        other.unit("detector").serving(echo),
    ):
        await k.unit("camera").request("detector", b"warm up")
        (serving,) = other.units._sweeping.servings
        claim = serving.claims.claim

        def claim_in_vain(*arguments: Any) -> None:
            between.drop_replies(1, then="cut")
            claim(*arguments)

        monkeypatch.setattr(serving.claims, "claim", claim_in_vain)
        for number in range(3):
            asked = k.unit("camera").request("detector", b"%d" % number, timeout_s=WITHIN_S, ttl_s=WITHIN_S)
            assert await asyncio.wait_for(asked, WITHIN_S / 2) == b"%d" % number


async def test_a_request_that_is_written_while_a_server_is_cut_off_is_found_when_it_is_back(
    settings: Settings, proxy: MakeProxy
) -> None:
    between = await proxy()
    async with (
        connect(settings) as k,
        connect(through(settings, between)) as other,
        other.unit("detector").serving(echo),
    ):
        between.refuse()
        await between.cut()
        asked = [
            asyncio.create_task(k.unit("camera").request("detector", b"%d" % number, timeout_s=WITHIN_S))
            for number in range(20)
        ]
        await eventually(lambda: sent(k, 20))
        await between.accept()
        assert await asyncio.gather(*asked) == [b"%d" % number for number in range(20)]


async def sent(k: Kizuna, number: int) -> bool:
    return len(await k.store.call("KEYS", f"{k.units.root}/camera/req/*")) == number


async def test_a_reply_that_was_written_in_time_is_no_timeout_although_the_requester_was_cut_off_at_the_end(
    settings: Settings, proxy: MakeProxy
) -> None:
    between = await proxy()
    async with connect(settings) as other, connect(through(settings, between)) as k:
        camera = k.unit("camera")
        ends_at = asyncio.get_running_loop().time() + 3
        asked = asyncio.create_task(camera.request("detector", b"x", timeout_s=3))
        await eventually(lambda: sent(other, 1))
        between.refuse()
        await between.cut()
        async with other.unit("detector").serving(echo):
            await eventually(lambda: other.store.call("KEYS", f"{other.units.root}/camera/res/*"))
        # It looks at the end, when nobody answers, and again when somebody does.
        await asyncio.sleep(ends_at - asyncio.get_running_loop().time() + 0.1)
        await between.accept()
        assert await asked == b"x"


async def test_a_timeout_of_who_cannot_ask_does_not_say_whether_it_was_claimed(
    settings: Settings, proxy: MakeProxy
) -> None:
    between = await proxy()
    async with connect(through(settings, between, timeout_s=2)) as k:
        camera = k.unit("camera")
        asked = asyncio.create_task(camera.request("detector", b"x", timeout_s=1))
        await eventually(lambda: waiting(camera))
        between.refuse()
        await between.cut()
        with pytest.raises(RequestTimeout) as timeout:
            await asked
        await between.accept()
    assert timeout.value.claimed is None


# -- a server that says no -----------------------------------------------------------------------------------------


async def test_a_request_that_the_server_refuses_is_an_error_at_once() -> None:
    with ServerProcess(users={"reader": "on >secret &* +@all ~kizuna:* %R~muf/*"}) as server:
        async with connect(
            Settings(store=StoreSettings(url=server.url, username="reader", password=Secret("secret")))
        ) as k:
            camera = k.unit("camera")
            with pytest.raises(PermissionDenied):
                await camera.request("detector", b"x", timeout_s=WITHIN_S)
            with pytest.raises(PermissionDenied):
                await camera.send("keep", "state", b"x")
            assert waiting(camera) == 0


async def test_a_server_that_may_not_answer_goes_on_with_what_it_may() -> None:
    rules = "on >secret &* +@all -publish ~kizuna:* ~muf/detector/* ~muf/friend/* %R~muf/*"
    with ServerProcess(users={"detector": rules}, config={"notify-keyspace-events": "AKE"}) as server:
        admin = Settings(store=StoreSettings(url=server.url))
        own = Settings(store=StoreSettings(url=server.url, username="detector", password=Secret("secret")))
        async with connect(admin) as k, connect(own) as other, other.unit("detector").serving(echo, concurrency=1):
            with pytest.raises(RequestTimeout):
                await k.unit("stranger").request("detector", b"x", timeout_s=0.3)
            assert await k.unit("friend").request("detector", b"x", timeout_s=WITHIN_S) == b"x"


# -- a server that restarts ----------------------------------------------------------------------------------------


async def test_a_request_with_a_long_timeout_is_answered_after_the_server_was_killed_and_restarted(
    fresh_server: ServerProcess,
) -> None:
    """Whether it was taken before, while the server was away, or after."""
    fresh_server.call("CONFIG", "SET", "appendfsync", "always")
    go = asyncio.Event()

    async def when_told(data: bytes) -> bytes:
        if data == b"taken before":
            await go.wait()
        return data

    async with connect(fresh_server.url) as k, connect(fresh_server.url) as other:
        camera = k.unit("camera")
        async with other.unit("detector").serving(when_told):
            before = asyncio.create_task(
                camera.request("detector", b"taken before", timeout_s=WITHIN_S, ttl_s=WITHIN_S)
            )
            unserved = asyncio.create_task(camera.request("late", b"not taken", timeout_s=WITHIN_S, ttl_s=WITHIN_S))
            await eventually(lambda: taken(k, 1))
            await asyncio.to_thread(fresh_server.kill)
            during = asyncio.create_task(camera.request("detector", b"during", timeout_s=WITHIN_S))
            go.set()
            await asyncio.sleep(0.1)
            await asyncio.to_thread(fresh_server.start)
            assert [await before, await during] == [b"taken before", b"during"]
            async with other.unit("late").serving(echo):
                assert await unserved == b"not taken"


async def taken(k: Kizuna, number: int) -> bool:
    return len(await k.store.call("KEYS", "muf/detector/keep/claim.*")) == number


# -- who closes while others wait ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("debugged")
async def test_closing_while_requests_are_in_flight_ends_them_and_leaves_nothing(settings: Settings) -> None:
    before = held_by_this_process()
    k = await connect(settings)
    camera = k.unit("camera")
    asked = [asyncio.create_task(camera.request("detector", b"x", timeout_s=WITHIN_S)) for _ in range(10)]
    await eventually(lambda: waiting(camera) == 10)
    await k.aclose()

    outcomes = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), WITHIN_S / 2)
    assert all(isinstance(outcome, KizunaError) for outcome in outcomes), outcomes
    assert waiting(camera) == 0
    await eventually(lambda: not held_by_this_process().beyond(before))
    with pytest.raises(StoreError):
        await camera.request("detector", b"x", timeout_s=1)


@pytest.mark.usefixtures("debugged")
async def test_closing_while_handlers_run_and_others_listen_leaves_nothing(settings: Settings) -> None:
    before = held_by_this_process()
    k = await connect(settings)
    began, never = asyncio.Event(), asyncio.Event()

    async def hang(_: bytes) -> None:
        began.set()
        await never.wait()

    async def listen() -> int:
        return len([message async for message in k.unit("watcher").listen(f"{k.units.root}/*/req/*")])

    server, listening = asyncio.create_task(k.unit("detector").serve(hang)), asyncio.create_task(listen())
    asked = asyncio.create_task(k.unit("camera").request("detector", b"x", timeout_s=WITHIN_S))
    await began.wait()
    await k.aclose()

    # Whoever still serves is told to stop, and then told that it is urgent.
    server.cancel()
    await asyncio.wait([server], timeout=0.1)
    server.cancel()
    listening.cancel()
    done, _ = await asyncio.wait([server, listening, asked], timeout=10)
    assert len(done) == 3
    assert isinstance(asked.exception(), KizunaError)
    await eventually(lambda: not held_by_this_process().beyond(before))


@pytest.mark.usefixtures("debugged")
async def test_closing_while_a_server_begins_leaves_nothing(settings: Settings) -> None:
    before = held_by_this_process()
    for turns in range(0, 60, 6):
        k = await connect(settings)
        server = asyncio.create_task(k.unit("detector").serve(echo))
        asked = asyncio.create_task(k.unit("camera").request("detector", b"x", timeout_s=1))
        for _ in range(turns):
            await asyncio.sleep(0)
        await k.aclose()
        server.cancel()
        done, _ = await asyncio.wait([server, asked], timeout=10)
        assert len(done) == 2
        assert asked.exception() is None or isinstance(asked.exception(), KizunaError)
        assert server.cancelled() or isinstance(server.exception(), KizunaError)
    await eventually(lambda: not held_by_this_process().beyond(before))


@pytest.mark.usefixtures("debugged")
async def test_a_server_that_is_stopped_at_any_moment_of_a_request_leaves_nothing(settings: Settings) -> None:
    """What it had begun is answered, with an error if need be; what it had not, is left to the next one."""
    async with connect(settings) as k:
        camera = k.unit("camera")
        async with k.unit("other").serving(echo):
            await camera.request("other", b"warm up")
            before = held_by_this_process()
            for turns in range(0, 48, 3):
                server = asyncio.create_task(k.unit("detector").serve(handle_slowly))
                await eventually(lambda: len(k.units._sweeping.servings) == 2, every_s=0)
                asked = asyncio.create_task(camera.request("detector", b"x", timeout_s=WITHIN_S))
                for _ in range(turns):
                    await asyncio.sleep(0)
                server.cancel()
                await asyncio.sleep(0)
                server.cancel()
                await asyncio.wait_for(asyncio.wait([server]), WITHIN_S / 2)
                assert server.cancelled()
                async with k.unit("detector").serving(echo):
                    try:
                        assert await asked == b"x"
                    except RequestFailed as failed:
                        assert b"CancelledError" in failed.body  # noqa: PT017 - either is right
            await eventually(lambda: not held_by_this_process().beyond(before))


async def handle_slowly(data: bytes, request: Request) -> bytes:
    await asyncio.sleep(0.01)
    return data


async def test_whoever_begins_to_serve_while_it_is_closed_is_told_so_and_does_not_wait_for_ever(
    settings: Settings, proxy: MakeProxy
) -> None:
    between = await proxy()
    k = await connect(through(settings, between))
    await k.unit("camera").send("req", "warm.up", b"x")
    began = asyncio.Event()
    look = k.units._sweeping._sweep_once

    async def look_for_ever() -> None:
        await look()
        began.set()
        await asyncio.Event().wait()

    k.units._sweeping._sweep_once = look_for_ever  # type: ignore[method-assign]
    server = asyncio.create_task(k.unit("detector").serve(echo))
    await began.wait()
    await k.aclose()
    with pytest.raises(KizunaError, match="closed"):
        await asyncio.wait_for(server, WITHIN_S / 2)


async def test_units_of_which_nothing_was_used_cost_nothing_to_close(settings: Settings) -> None:
    before = held_by_this_process()
    async with connect(settings) as k:
        units = [k.unit(f"u{number}") for number in range(100)]
        assert len(units) == 100
    await eventually(lambda: not held_by_this_process().beyond(before))


# -- a server without memory ---------------------------------------------------------------------------------------


def allow_bytes(server: ServerProcess, most: int) -> None:
    server.call("CONFIG", "SET", "maxmemory", most)


@pytest.mark.parametrize("number", [1, 5])
async def test_answers_wait_for_a_server_that_has_no_memory_for_them(fresh_server: ServerProcess, number: int) -> None:
    begun, goes_on = [], asyncio.Event()

    async def wait(data: bytes) -> bytes:
        begun.append(data)
        await goes_on.wait()
        return data

    settings = Settings(store=StoreSettings(url=fresh_server.url), units=UnitsSettings(claim_s=1))
    async with connect(settings) as k, k.unit("detector").serving(wait):
        camera = k.unit("camera")
        asked = [asyncio.create_task(camera.request("detector", b"%d" % n, timeout_s=WITHIN_S)) for n in range(number)]
        await eventually(lambda: len(begun) == number, within_s=WITHIN_S)
        allow_bytes(fresh_server, 1)
        goes_on.set()
        # Longer than the claims live.
        await asyncio.sleep(1.5)
        allow_bytes(fresh_server, 0)
        assert await asyncio.gather(*asked) == [b"%d" % n for n in range(number)]

        async def all_are_written() -> bool:
            return len(await k.store.call("KEYS", "muf/camera/res/*")) == number

        await eventually(all_are_written, within_s=WITHIN_S)


async def test_a_request_that_could_not_be_claimed_for_lack_of_memory_is_served_when_there_is_some(
    fresh_server: ServerProcess,
) -> None:
    settings = Settings(store=StoreSettings(url=fresh_server.url))
    async with connect(settings) as k, k.unit("detector").serving(echo):
        with fresh_server.connect() as outsider:
            outsider.call("MULTI")
            outsider.call("SET", "muf/me/req/detector.1", "x", "EX", 60)
            outsider.call("CONFIG", "SET", "maxmemory", 1)
            outsider.call("EXEC")
        await asyncio.sleep(0.2)
        assert fresh_server.call("EXISTS", "muf/me/res/detector.1") == 0
        allow_bytes(fresh_server, 0)
        await eventually(lambda: k.store.call("EXISTS", "muf/me/res/detector.1"), within_s=WITHIN_S)


async def test_whoever_serves_or_listens_for_ever_comes_to_an_end_when_everything_is_closed(settings: Settings) -> None:
    k = await connect(settings)
    detector, audit = k.unit("detector"), k.unit("audit")
    heard: list[str] = []

    async def listen() -> None:
        heard.extend([message.id async for message in audit.listen(f"{k.units.root}/*/req/*")])

    listening, serving = asyncio.create_task(listen()), asyncio.create_task(detector.serve(echo))
    await k.unit("camera").request("detector", b"x")
    await eventually(lambda: k.units.counts_of("audit").heard)
    await k.aclose()

    await asyncio.wait_for(listening, WITHIN_S)
    assert len(heard) == 1
    with pytest.raises(Unreachable, match="the units were closed"):
        await asyncio.wait_for(serving, WITHIN_S)
