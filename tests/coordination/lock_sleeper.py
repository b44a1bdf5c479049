"""A process that holds a lock and is stopped meanwhile. Run as `python lock_sleeper.py URL ROOT NAME LEASE_S`.

It takes the lock and prints its fencing number. Whatever is written to its stdin after that, it tries to bring to the
resource `report`, with that number, and prints `written` or the error; when it is told that the lock is lost, `lost`.
"""

from __future__ import annotations

import asyncio
import sys

from kizuna.app import connect
from kizuna.errors import LockLost
from kizuna.settings import RootsSettings, Settings, StoreSettings


async def main(url: str, root: str, name: str, lease_s: float) -> None:
    settings = Settings(store=StoreSettings(url=url), roots=RootsSettings(system=root, coordination=root))
    async with connect(settings) as k:
        held = await k.locks.acquire(name, lease_s=lease_s)
        say(held.fence)
        lost = asyncio.create_task(held.lost.wait())
        lost.add_done_callback(lambda _: say("lost"))
        while await asyncio.to_thread(sys.stdin.readline):
            try:
                await held.guard("report")
                say("written")
            except LockLost as refusal:
                say(f"refused: {refusal}")
        lost.cancel()


def say(what: object) -> None:
    print(what, flush=True)  # noqa: T201 - this is how it is heard


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])))
