"""One read for all who ask at the same time."""

from __future__ import annotations

import asyncio

import pytest

from kizuna.match.director.shared_reads import SharedReads


class Reading:
    """Each read takes until it is let go, and returns its number."""

    def __init__(self) -> None:
        self.began = 0
        self.at_once = 0
        self.most_at_once = 0
        self._gates: list[asyncio.Event] = []

    async def read(self) -> int:
        self.began += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        number, gate = self.began, asyncio.Event()
        self._gates.append(gate)
        await gate.wait()
        self.at_once -= 1
        return number

    async def let_go(self) -> None:
        await turns()
        self._gates.pop(0).set()
        await turns()


async def turns() -> None:
    """Whatever can happen without anything from outside has happened."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_those_who_ask_together_share_a_read_and_those_who_come_later_the_next() -> None:
    reading = Reading()
    shared = SharedReads(reading.read)
    first = [asyncio.ensure_future(shared()) for _ in range(3)]
    await turns()
    later = [asyncio.ensure_future(shared()) for _ in range(3)]

    await reading.let_go()
    assert await asyncio.gather(*first) == [1, 1, 1]
    await reading.let_go()
    assert await asyncio.gather(*later) == [2, 2, 2]

    last = asyncio.ensure_future(shared())
    await reading.let_go()
    assert await last == 3
    assert reading.most_at_once == 1


async def test_one_who_leaves_does_not_end_the_read_of_the_others() -> None:
    reading = Reading()
    shared = SharedReads(reading.read)
    leaves, stays = asyncio.ensure_future(shared()), asyncio.ensure_future(shared())
    await turns()

    leaves.cancel()
    await reading.let_go()

    assert await stays == 1


async def test_a_read_that_fails_fails_for_all_who_share_it_and_not_for_the_next() -> None:
    outcomes = [ZeroDivisionError("oh"), 7]

    async def read() -> object:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    shared = SharedReads(read)
    failed = await asyncio.gather(shared(), shared(), return_exceptions=True)

    assert [type(one) for one in failed] == [ZeroDivisionError, ZeroDivisionError]
    assert await shared() == 7


async def test_closing_ends_what_is_under_way_and_what_waits() -> None:
    shared = SharedReads(Reading().read)
    running = asyncio.ensure_future(shared())
    await turns()
    waiting = asyncio.ensure_future(shared())
    await turns()

    await shared.aclose()

    for one in (running, waiting):
        with pytest.raises(asyncio.CancelledError):
            await one
