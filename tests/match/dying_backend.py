"""Takes two tickets and waits to be killed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from tests.match.pairing import EVERYONE, pairs

from kizuna.app import connect
from kizuna.match import Match
from kizuna.service import running
from kizuna.settings import ProcessesSettings, RootsSettings, Settings, StoreSettings


async def hang(matches: Sequence[Match]) -> Any:
    print("has two", flush=True)  # noqa: T201 - to whoever started us
    await asyncio.sleep(3600)


async def main(url: str, root: str) -> None:
    settings = Settings(
        store=StoreSettings(url=url),
        roots=RootsSettings(system=root, coordination=root, match=f"{root}."),
        processes=ProcessesSettings(heartbeat_every_s=0.2, busy_s=1.0),
    )
    async with connect(settings) as k:
        backend = k.match.backend(hang)
        backend.add(EVERYONE, pairs)
        async with running(backend):
            await asyncio.sleep(3600)


asyncio.run(main(*sys.argv[1:]))
