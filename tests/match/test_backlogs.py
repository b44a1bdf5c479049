"""More tickets than a tick may take: the rest follows at once."""

from __future__ import annotations

import asyncio

from tests.match.pairing import pairing

from kizuna.match.matchmaking import Matchmaking
from kizuna.service import running
from kizuna.testing.waiting import eventually


async def test_the_last_ones_of_a_backlog_do_not_wait_for_the_next_tick(mm: Matchmaking) -> None:
    await asyncio.gather(*(mm.create_ticket() for _ in range(26)))
    backend = pairing(mm, fetch_limit=10, tick_every_s=600)

    async def nobody_waits() -> bool:
        return await mm.count() == 0

    async with running(backend):
        await eventually(nobody_waits, within_s=60)

    assert backend.counts.assigned == 26
