"""A primary that stands still with its connections open: a failover that no broken connection tells of."""

from __future__ import annotations

import asyncio
import time

from kizuna.app import connect
from kizuna.errors import StoreError
from kizuna.settings import EventsSettings, Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.events import Change, LookAgain
from kizuna.testing import SentinelSetup, ServerProcess


async def test_calls_and_events_move_to_the_new_primary(fresh_sentinel: SentinelSetup) -> None:
    settings = Settings(
        store=StoreSettings(url=fresh_sentinel.url, timeout_s=2.0, connect_timeout_s=1.0),
        events=EventsSettings(canary_every_s=0.5, canary_timeout_s=1.0),
    )
    async with connect(settings) as k, k.store.events.watch("news*") as feed:
        former = await asyncio.to_thread(fresh_sentinel.pause_primary)
        try:
            primary = await asyncio.to_thread(fresh_sentinel.wait_for_failover, former)
            promoted = time.monotonic()
            await written_at(primary, k.store)
            assert isinstance(await feed.next(timeout_s=15), LookAgain)
            # Two seconds for the call that was on its way, and two to be back.
            assert time.monotonic() - promoted < 4
            await k.store.call("SET", "news-1", "x")
            assert await feed.next(timeout_s=15) == Change("news-1", "set")
        finally:
            former.resume()


async def written_at(primary: ServerProcess, store: Store) -> None:
    """Each call ends within its deadline and some slack, whatever comes of it."""
    while True:
        began = time.monotonic()
        try:
            await store.call("SET", "written", "x")
        except StoreError:
            assert time.monotonic() - began < 4
        else:
            break
    assert primary.call("GET", "written") == b"x"
