from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kizuna.testing import MovableClock, eventually

if TYPE_CHECKING:
    from kizuna.clock import Clock


async def wake_up(clock: Clock, name: str, after_s: float, woken: list[tuple[str, float]]) -> None:
    await clock.sleep(after_s)
    woken.append((name, clock.now()))


async def test_time_stands_still_until_it_is_moved() -> None:
    clock = MovableClock(now=100.0)

    await asyncio.sleep(0.01)
    assert clock.now() == 100.0
    await clock.advance(2.5)
    assert clock.now() == 102.5


async def test_sleepers_wake_in_order_each_at_its_own_time() -> None:
    clock, woken = MovableClock(now=100.0), list[tuple[str, float]]()
    async with asyncio.TaskGroup() as group:
        for name, after_s in [("late", 3.0), ("early", 1.0), ("also early", 1.0)]:
            group.create_task(wake_up(clock, name, after_s, woken))
        await eventually(lambda: clock.sleepers == 3)

        await clock.advance(0.5)
        assert woken == []
        await clock.advance(10)

    assert woken == [("early", 101.0), ("also early", 101.0), ("late", 103.0)]


async def test_a_loop_that_sleeps_again_runs_as_often_as_it_would_have() -> None:
    clock, beats = MovableClock(now=0.0), list[float]()

    async def beat() -> None:
        while True:
            await clock.sleep(2)
            beats.append(clock.now())

    beating = asyncio.create_task(beat())
    await eventually(lambda: clock.sleepers == 1)
    await clock.advance(7)
    beating.cancel()

    assert beats == [2, 4, 6]


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = MovableClock()
    sleeping = asyncio.create_task(clock.sleep(5))
    await eventually(lambda: clock.sleepers == 1)
    sleeping.cancel()
    await asyncio.wait([sleeping])

    assert clock.sleepers == 0
    await clock.advance(10)


async def test_no_time_is_no_sleep() -> None:
    clock = MovableClock()

    await clock.sleep(0)
    await clock.sleep(-1)

    assert clock.sleepers == 0
