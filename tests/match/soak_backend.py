"""A backend that makes pairs until it is killed; it lets the assigner take its time, so that it may be killed there."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterable, Sequence

from tests.match.pairing import EVERYONE, pairs

from kizuna.app import connect
from kizuna.match import Group, Match
from kizuna.service import running
from kizuna.settings import MatchSettings, ProcessesSettings, RootsSettings, Settings, StoreSettings


async def slowly(matches: Sequence[Match]) -> Iterable[Group]:
    await asyncio.sleep(random.uniform(0, 0.1))
    return [match.assigned(match.id) for match in matches]


async def main(url: str, root: str, guard: str) -> None:
    settings = Settings(
        store=StoreSettings(url=url),
        roots=RootsSettings(system=root, coordination=root, match=f"{root}."),
        processes=ProcessesSettings(heartbeat_every_s=0.2, busy_s=1.0),
        match=MatchSettings(assigned_s=3_600, tick_every_s=0.1, pending_s=5, guard=guard),  # type: ignore[arg-type]
    )
    async with connect(settings) as k:
        backend = k.match.backend(slowly, fetch_limit=20)
        backend.add(EVERYONE, pairs)
        async with running(backend):
            print("works", flush=True)  # noqa: T201 - to whoever started us
            await asyncio.sleep(3_600)


asyncio.run(main(*sys.argv[1:]))
