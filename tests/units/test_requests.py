"""A request ends in exactly one of reply, error and timeout; and a reply that was written cannot be missed."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.errors import RequestFailed, RequestTimeout
from kizuna.settings import Settings
from kizuna.testing import eventually
from kizuna.units.executions import Request
from kizuna.units.unit import Unit

WITHIN_S = 20.0


async def echo(data: Any) -> Any:
    return data


async def never(_: bytes) -> None:
    await asyncio.Event().wait()


async def written(k: Kizuna, pattern: str) -> list[bytes]:
    return list(await k.store.call("KEYS", f"{k.units.root}/{pattern}"))


def waiting(unit: Unit) -> int:
    return len(unit._requests._waiting)


# -- reply ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [b"", b"\0", bytes(range(256)), b"x" * 2**20], ids=["empty", "nul", "all", "1 MiB"])
async def test_a_request_returns_the_bytes_of_the_reply(k: Kizuna, value: bytes) -> None:
    async with k.unit("detector").serving(echo):
        assert await k.unit("camera").request("detector", value, timeout_s=WITHIN_S) == value


async def test_a_thousand_requests_in_flight_get_each_its_own_reply(k: Kizuna) -> None:
    camera = k.unit("camera")
    async with k.unit("detector").serving(echo):
        replies = await asyncio.gather(
            *(camera.request("detector", b"%d" % number, timeout_s=WITHIN_S) for number in range(1000))
        )
    assert replies == [b"%d" % number for number in range(1000)]
    assert waiting(camera) == 0
    counts = k.units.counts_of("camera")
    assert (counts.requests, counts.replies, counts.errors, counts.timeouts) == (1000, 1000, 0, 0)


async def test_a_unit_asks_serves_and_listens_at_once_also_itself(k: Kizuna) -> None:
    """Each asks the next one, until one of them answers."""
    units = [k.unit(f"u{number}") for number in range(10)]
    first = units[0]

    async def ask_next(data: bytes, request: Any) -> bytes:
        number = int(request.id[1]) + 1
        asked = units[number] if number < 10 else first
        reply: bytes = await asked.request(f"u{number}", data) if number < 10 else data
        return reply + b"+"

    async with asyncio.TaskGroup() as servers:
        serving = [servers.create_task(unit.serve(ask_next)) for unit in units]
        async with first.listen(f"{k.units.root}/*/res/*") as messages:
            assert await first.request("u0", b"x", timeout_s=WITHIN_S) == b"x" + b"+" * 10
            assert {message.unit for message in [await messages.next(timeout_s=5) for _ in range(10)] if message} == {
                unit.name for unit in units
            }
        for task in serving:
            task.cancel()


async def test_units_of_one_name_get_each_their_own_replies(k: Kizuna) -> None:
    cameras = [k.unit("camera") for _ in range(5)]
    async with k.unit("detector").serving(echo):
        asked = [camera.request("detector", b"%d" % number) for number, camera in enumerate(cameras * 20)]
        assert await asyncio.gather(*asked) == [b"%d" % number for number in range(100)]


async def test_the_same_request_in_another_database_of_the_server_is_another_one(k: Kizuna, settings: Settings) -> None:
    other = msgspec.structs.replace(settings.store, url=settings.store.url.removesuffix("/0") + "/1")

    async def reply(_: bytes) -> bytes:
        return b"of database 1"

    camera = k.unit("camera")
    async with connect(msgspec.structs.replace(settings, store=other)) as there, there.unit("detector").serving(reply):
        asked = asyncio.create_task(camera.request("detector", id="1", timeout_s=WITHIN_S))
        await eventually(lambda: written(k, "camera/req/*"))
        assert await there.unit("camera").request("detector", id="1", timeout_s=WITHIN_S) == b"of database 1"

        await camera.send("res", "detector.1", b"of database 0")
        assert await asked == b"of database 0"


# -- error ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"no such size", bytes(range(256))])
async def test_an_error_that_came_back_is_raised_and_carries_its_bytes(k: Kizuna, body: bytes) -> None:
    async def refuse(_: bytes, request: Any) -> None:
        await request.fail(body)

    async with k.unit("detector").serving(refuse):
        with pytest.raises(RequestFailed) as failed:
            await k.unit("camera").request("detector", b"x", id="1")
    assert failed.value.body == body
    assert failed.value.path == f"{k.units.root}/camera/req/detector.1"


# -- timeout -------------------------------------------------------------------------------------------------------


async def test_a_timeout_says_that_nobody_took_the_request(k: Kizuna) -> None:
    with pytest.raises(RequestTimeout, match=r"nobody took request .* within 0\.2s; is 'detector' serving") as timeout:
        await k.unit("camera").request("detector", b"x", timeout_s=0.2)
    assert timeout.value.claimed is False
    assert (timeout.value.to, timeout.value.waited_s) == ("detector", 0.2)
    assert k.units.counts_of("camera").timeouts == 1


async def test_a_timeout_says_that_somebody_has_taken_the_request_and_works_on_it(k: Kizuna) -> None:
    began, told = asyncio.Event(), asyncio.Event()

    async def begin(_: bytes) -> None:
        began.set()
        await told.wait()

    async with k.unit("detector").serving(begin):
        asked = asyncio.create_task(k.unit("camera").request("detector", b"x", timeout_s=2))
        await began.wait()
        with pytest.raises(RequestTimeout, match="'detector' has taken request") as timeout:
            await asked
        told.set()
    assert timeout.value.claimed is True


async def test_a_timeout_of_a_request_to_everybody_does_not_say_who_took_it(k: Kizuna) -> None:
    with pytest.raises(RequestTimeout, match="no reply to request") as timeout:
        await k.unit("camera").request(None, b"x", timeout_s=0.2)
    assert timeout.value.claimed is None


async def test_a_request_waits_as_long_as_it_lives_unless_told_otherwise(k: Kizuna) -> None:
    camera = k.unit("camera", request_s=0.25)
    with pytest.raises(RequestTimeout) as as_the_unit:
        await camera.request("detector", b"x")
    with pytest.raises(RequestTimeout) as as_the_call:
        await camera.request("detector", b"x", ttl_s=0.3)
    assert (as_the_unit.value.waited_s, as_the_call.value.waited_s) == (0.25, 0.3)


async def test_a_request_does_not_outlive_the_wait_unless_told_so(k: Kizuna) -> None:
    camera = k.unit("camera")
    for id_, ttl_s in (("short", None), ("long", 100.0)):
        with pytest.raises(RequestTimeout):
            await camera.request("detector", b"x", id=id_, timeout_s=0.2, ttl_s=ttl_s)
    assert await eventually(lambda: only(k, "camera/req/*", "camera/req/detector.long"))


async def only(k: Kizuna, pattern: str, path: str) -> bool:
    return await written(k, pattern) == [f"{k.units.root}/{path}".encode()]


async def test_a_wait_that_is_longer_than_the_life_of_the_request_gets_the_reply_of_who_took_it(k: Kizuna) -> None:
    async def slow(data: bytes, request: Request) -> bytes:
        # Now, and not when the time of the request is up: that may come before anybody could take it.
        await k.store.call("PEXPIRE", request.path, 1)
        await eventually(lambda: over(request))
        return data

    async def over(request: Request) -> bool:
        return await request.ends_in_s() == 0

    async with k.unit("detector").serving(slow):
        assert await k.unit("camera").request("detector", b"x", ttl_s=WITHIN_S, timeout_s=2 * WITHIN_S) == b"x"


# -- the waiter cannot miss a reply --------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["res", "err"])
async def test_a_reply_that_was_there_before_the_request_is_the_reply_to_an_id_that_the_caller_chose(
    k: Kizuna, status: str
) -> None:
    await k.unit("detector").send(status, "detector.42", b"early", unit="camera")
    camera = k.unit("camera")

    async with asyncio.timeout(WITHIN_S / 2):
        if status == "res":
            assert await camera.request("detector", b"x", id="42", timeout_s=WITHIN_S) == b"early"
        else:
            with pytest.raises(RequestFailed, match="early"):
                await camera.request("detector", b"x", id="42", timeout_s=WITHIN_S)


async def test_a_reply_that_is_written_between_subscription_and_look_is_not_missed(
    k: Kizuna, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever answers at the very moment of the write, in the same turn of the loop, and before the look."""
    camera = k.unit("camera")
    begin = camera._requests.begin

    def begin_and_answer(to: str, id_: str, *rest: Any) -> Any:
        answered = k.store.call("SET", f"{k.units.root}/camera/res/{id_}", b"at once", "PX", int(WITHIN_S * 1000))
        session = begin(to, id_, *rest)
        answered.add_done_callback(lambda done: done.result())
        return session

    monkeypatch.setattr(camera._requests, "begin", begin_and_answer)
    for number in range(200):
        id_ = f"{number}" if number % 2 else None
        assert await camera.request("detector", b"x", id=id_, timeout_s=WITHIN_S) == b"at once"


async def test_a_reply_that_nobody_announced_is_found_at_the_very_end(
    k: Kizuna, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No timeout is told without a look."""
    camera = k.unit("camera")
    monkeypatch.setattr(camera._requests, "_heard", None)  # nothing may be heard from now on
    for ear in camera._requests._ears:
        monkeypatch.setattr(ear, "on_set", lambda _: None)
    asked = asyncio.create_task(camera.request(None, b"x", timeout_s=2))
    (path,) = await eventually(lambda: written(k, "camera/req/*"))
    await camera.send("res", path.decode().rpartition("/")[2], b"unheard")

    assert await asked == b"unheard"
    assert k.units.counts_of("camera").timeouts == 0


async def test_a_reply_with_a_very_short_life_disturbs_nobody(k: Kizuna) -> None:
    """It may have ended when it is read; then the next one counts."""
    camera = k.unit("camera")
    asked = asyncio.create_task(camera.request("detector", b"x", timeout_s=WITHIN_S))
    (path,) = await eventually(lambda: written(k, "camera/req/*"))
    id_, set_and_gone = path.decode().rpartition("/")[2], "redis.call('SET', KEYS[1], 'x') redis.call('DEL', KEYS[1])"
    await k.store.call("EVAL", set_and_gone, 1, f"{k.units.root}/camera/res/{id_}")
    await k.store.call("PING")
    assert not asked.done()
    await camera.send("res", id_, b"lasting")

    assert await asked == b"lasting"


async def test_a_key_of_another_type_is_no_reply(k: Kizuna, scratch: str) -> None:
    camera = k.unit("camera")
    asked = asyncio.create_task(camera.request("detector", b"x", timeout_s=WITHIN_S))
    (path,) = await eventually(lambda: written(k, "camera/req/*"))
    response = path.replace(b"/req/", b"/res/")
    list_there = "redis.call('RPUSH', KEYS[1], 'x') redis.call('PEXPIRE', KEYS[1], 100)"
    await k.store.call("EVAL", list_there, 1, response)
    camera._requests.look_again()
    await eventually(lambda: gone(k, response))
    assert not asked.done()
    await camera.send("res", response.decode().rpartition("/")[2], b"a string")

    assert await asked == b"a string"


async def gone(k: Kizuna, key: bytes) -> bool:
    return not await k.store.call("EXISTS", key)


# -- ids -----------------------------------------------------------------------------------------------------------


async def test_requests_at_once_with_one_id_both_get_the_reply(k: Kizuna) -> None:
    """Whoever chooses its ids may ask again before it was answered, from another task."""
    camera, go = k.unit("camera"), asyncio.Event()

    async def when_told(data: bytes) -> bytes:
        await go.wait()
        return data

    async with k.unit("detector").serving(when_told):
        asked = [asyncio.create_task(camera.request("detector", b"x", id="42", timeout_s=5)) for _ in range(3)]
        await eventually(lambda: k.units.counts_of("camera").requests == 3)
        go.set()
        assert await asyncio.wait_for(asyncio.gather(*asked), WITHIN_S) == [b"x"] * 3
    assert waiting(camera) == 0


async def test_of_requests_at_once_with_one_id_one_may_give_up_and_the_other_gets_the_reply(k: Kizuna) -> None:
    camera = k.unit("camera")
    patient = asyncio.create_task(camera.request("detector", b"x", id="42", timeout_s=WITHIN_S))
    await eventually(lambda: waiting(camera))
    with pytest.raises(RequestTimeout):
        await camera.request("detector", b"x", id="42", timeout_s=0.1, ttl_s=WITHIN_S)
    async with k.unit("detector").serving(echo):
        assert await asyncio.wait_for(patient, WITHIN_S) == b"x"


async def test_a_late_answer_disturbs_nobody(k: Kizuna) -> None:
    camera, go = k.unit("camera"), asyncio.Event()

    async def first_is_slow(data: bytes) -> bytes:
        if data == b"first":
            await go.wait()
        return data

    async with k.unit("detector").serving(first_is_slow):
        with pytest.raises(RequestTimeout):
            await camera.request("detector", b"first", timeout_s=0.2)
        second = asyncio.create_task(camera.request("detector", b"second"))
        go.set()
        await eventually(lambda: written(k, "camera/res/*"))
        assert await second == b"second"
        assert await camera.request("detector", b"third") == b"third"
    assert waiting(camera) == 0


# -- giving up -----------------------------------------------------------------------------------------------------


async def test_cancelled_requests_leave_nothing_behind(k: Kizuna) -> None:
    camera = k.unit("camera")
    async with k.unit("detector").serving(echo):
        await camera.request("detector", b"x")
        before = asyncio.all_tasks()
        for turns in range(40):
            asked = [asyncio.create_task(camera.request("detector", b"x")) for _ in range(5)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in asked:
                task.cancel()
            await asyncio.wait(asked)
            assert waiting(camera) == 0
        assert await camera.request("detector", b"still there") == b"still there"
    await eventually(lambda: asyncio.all_tasks() <= before)


async def test_who_is_cancelled_at_the_moment_of_an_error_leaves_no_complaint(k: Kizuna) -> None:
    camera = k.unit("camera")
    asked = asyncio.create_task(camera.request("detector", b"x"))
    await eventually(lambda: waiting(camera))
    (session,) = camera._requests._waiting.values()
    camera._requests.answered(session, camera._requests._error + session.id, b"no")
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_the_first_request_may_be_cancelled_while_it_subscribes_and_the_next_ones_work(k: Kizuna) -> None:
    async with k.unit("detector").serving(echo):
        for turns in range(12):
            camera = k.unit("camera")
            first = asyncio.create_task(camera.request("detector", b"x"))
            second = asyncio.create_task(camera.request("detector", b"y"))
            for _ in range(turns):
                await asyncio.sleep(0)
            first.cancel()
            assert await asyncio.wait_for(second, WITHIN_S) == b"y"


async def test_a_timeout_of_asyncio_ends_a_request_too(k: Kizuna) -> None:
    camera = k.unit("camera")
    async with k.unit("detector").serving(echo):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await camera.request("nobody", b"x")
        assert waiting(camera) == 0
        assert await camera.request("detector", b"x") == b"x"
