from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kizuna.coordination.background import Background
from kizuna.errors import Unreachable
from kizuna.settings import Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.testing import ChaosProxy, eventually
from kizuna.testing.fixtures import MakeProxy
from kizuna.testing.servers import free_port
from kizuna.testing.services import held_by_this_process

QUICKLY = 0.005


@pytest.fixture
async def background(settings: Settings) -> AsyncIterator[Background]:
    background = Background(settings)
    yield background
    await background.aclose()


class Steps:
    """Counts, and remembers where it ran."""

    def __init__(self, *, fails: Exception | None = None) -> None:
        self.done = 0
        self.thread: threading.Thread | None = None
        self.fails = fails

    async def __call__(self, store: Store) -> None:
        assert await store.call("PING") == b"PONG"
        self.thread = threading.current_thread()
        self.done += 1
        if self.fails is not None:
            raise self.fails


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "kizuna-background"]


async def test_steps_run_in_another_thread_with_a_connection_of_their_own(background: Background) -> None:
    steps = Steps()
    await background.repeat(steps, every_s=QUICKLY, name="counting")

    await eventually(lambda: steps.done >= 3)
    assert steps.thread is not threading.current_thread()


async def test_a_busy_event_loop_does_not_hold_them_up(background: Background) -> None:
    steps = Steps()
    await background.repeat(steps, every_s=QUICKLY, name="counting")
    ends_at = time.monotonic() + 10
    while steps.done < 5 and time.monotonic() < ends_at:
        time.sleep(0.01)  # noqa: ASYNC251 - this is the point

    assert steps.done >= 5


async def test_all_repetitions_share_one_thread(background: Background) -> None:
    one, other = Steps(), Steps()
    await asyncio.gather(
        background.repeat(one, every_s=QUICKLY, name="one"), background.repeat(other, every_s=QUICKLY, name="other")
    )
    await eventually(lambda: one.done and other.done)

    assert one.thread is other.thread
    assert threads() == ["kizuna-background"]


@pytest.mark.parametrize(
    ("error", "level"), [(Unreachable("nobody", "there", "look"), logging.WARNING), (ValueError("oh"), logging.ERROR)]
)
async def test_a_step_that_fails_is_logged_and_repeated_all_the_same(
    background: Background, caplog: pytest.LogCaptureFixture, error: Exception, level: int
) -> None:
    steps = Steps(fails=error)
    await background.repeat(steps, every_s=QUICKLY, name="failing")
    await eventually(lambda: steps.done >= 3)

    logged = [record for record in caplog.records if record.message == "background step failed"]
    assert {record.levelno for record in logged} == {level}
    assert vars(logged[0])["step"] == "failing"


async def test_after_a_stop_no_step_begins(background: Background) -> None:
    stopped, going = Steps(), Steps()
    repetition = await background.repeat(stopped, every_s=QUICKLY, name="stopped")
    await background.repeat(going, every_s=QUICKLY, name="going")
    await eventually(lambda: stopped.done)
    repetition.stop()
    repetition.stop()
    # One that had begun may still come to its end.
    done = stopped.done + 1
    seen = going.done
    await eventually(lambda: going.done >= seen + 5)

    assert stopped.done <= done


async def test_a_stop_in_the_same_breath_as_the_start_is_heard(background: Background) -> None:
    steps, later = Steps(), Steps()
    (await background.repeat(steps, every_s=0, name="stopped at once")).stop()
    await background.repeat(later, every_s=QUICKLY, name="later")
    await eventually(lambda: later.done >= 3)

    assert steps.done <= 1


async def test_a_step_that_is_under_way_is_cancelled_by_stop_and_by_close(background: Background) -> None:
    begun, cancelled = threading.Semaphore(0), threading.Semaphore(0)

    async def wait_for_ever(_: Store) -> None:
        begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.release()

    repetition = await background.repeat(wait_for_ever, every_s=0, name="waiting")
    await background.repeat(wait_for_ever, every_s=0, name="waiting, too")
    await eventually(lambda: begun.acquire(blocking=False))
    await eventually(lambda: begun.acquire(blocking=False))

    repetition.stop()
    await eventually(lambda: cancelled.acquire(blocking=False))
    await background.aclose()
    assert cancelled.acquire(blocking=False)
    assert threads() == []


async def test_stop_and_close_are_harmless_after_the_end(background: Background) -> None:
    repetition = await background.repeat(Steps(), every_s=QUICKLY, name="counting")
    await background.aclose()
    await background.aclose()
    repetition.stop()

    with pytest.raises(Unreachable, match="connect again"):
        await background.repeat(Steps(), every_s=QUICKLY, name="too late")
    assert threads() == []


async def test_what_was_never_used_costs_no_thread(settings: Settings) -> None:
    await Background(settings).aclose()

    assert threads() == []


async def test_what_keeps_it_from_connecting_is_raised_and_nothing_stays(settings: Settings) -> None:
    nowhere = Settings(store=StoreSettings(url=f"redis://127.0.0.1:{free_port()}", timeout_s=0.2))
    background = Background(nowhere)
    for _ in range(3):
        with pytest.raises(Unreachable):
            await background.repeat(Steps(), every_s=QUICKLY, name="nowhere")
        assert threads() == []
    await background.aclose()


@asynccontextmanager
async def behind(proxy: ChaosProxy) -> AsyncIterator[Background]:
    background = Background(Settings(store=StoreSettings(url=proxy.url, timeout_s=30, connect_timeout_s=30)))
    yield background
    await background.aclose()


async def test_a_start_can_be_cancelled_while_the_server_does_not_answer(proxy: MakeProxy) -> None:
    silent = await proxy()
    silent.stall()
    async with behind(silent) as background:
        for _ in range(3):
            starting = asyncio.create_task(background.repeat(Steps(), every_s=QUICKLY, name="cancelled"))
            await eventually(threads)
            starting.cancel()
            await asyncio.wait([starting], timeout=10)
            assert starting.cancelled()
            await eventually(lambda: not threads())
        # And then it starts, as if nothing had been.
        silent.resume()
        steps = Steps()
        await background.repeat(steps, every_s=QUICKLY, name="counting")
        await eventually(lambda: steps.done)


async def test_it_starts_and_stops_fifty_times_and_leaves_nothing(settings: Settings) -> None:
    async def once(turns: int) -> None:
        background = Background(settings)
        starting = asyncio.create_task(background.repeat(Steps(), every_s=0.0, name="counting"))
        # Every other one is cancelled, a little later each time, to meet also what happens in between.
        if turns % 2:
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
        await asyncio.wait([starting])
        await background.aclose()

    await once(0)
    before = held_by_this_process()
    for turns in range(50):
        await once(turns)

    def nothing_is_left() -> bool:
        left = held_by_this_process().beyond(before)
        assert not left, left
        return True

    await eventually(nothing_is_left)
