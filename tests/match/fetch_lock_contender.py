"""Processes that want minimatch's lock. Run as `python fetch_lock_contender.py URL ROOT PREFIX COUNT PROCESSES`.

Each, COUNT times, reads a number from the server and writes the next one back, in two steps, under the lock. With a
COUNT of 0 it takes the lock, says `held`, and keeps it until it is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys

from kizuna.app import connect
from kizuna.match.fetch_lock import FetchLock
from kizuna.settings import RootsSettings, Settings, StoreSettings


async def contend(url: str, root: str, prefix: str, count: int) -> None:
    roots = RootsSettings(system=root, coordination=root, units=root, memory=root, match=prefix)
    async with connect(Settings(store=StoreSettings(url=url, timeout_s=30), roots=roots)) as k:
        lock = FetchLock(k.store, prefix, 30.0 if count else 1.0)
        for _ in range(count):
            async with lock.hold(wait_s=60):
                read = int(await k.store.call("GET", f"{root}:temp:counter") or 0)
                await k.store.call("SET", f"{root}:temp:counter", read + 1, "EX", 60)
        if not count:
            async with lock.hold(wait_s=60):
                os.write(1, b"held\n")
                await asyncio.Event().wait()


def main(url: str, root: str, prefix: str, count: int, processes: int) -> int:
    children = []
    for _ in range(processes - 1):
        child = os.fork()
        if child == 0:
            asyncio.run(contend(url, root, prefix, count))
            os._exit(0)
        children.append(child)
    asyncio.run(contend(url, root, prefix, count))
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
