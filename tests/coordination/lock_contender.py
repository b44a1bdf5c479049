"""Processes that want the same lock. Run as `python lock_contender.py URL ROOT NAME COUNT PROCESSES`.

Each says `ready`; all wait for a line on stdin. Then each, COUNT times, reads a number from the server and writes the
next one back, in two steps, under the lock; of each time it prints the fencing number and what it read. They are
forked from one, which has loaded everything once: fifty interpreters that start take all there is of a small machine.
"""

from __future__ import annotations

import asyncio
import os
import sys

import kizuna.coordination.locks
import kizuna.store.events  # noqa: F401 - loaded before the fork, not fifty times after it
from kizuna.app import connect
from kizuna.settings import RootsSettings, Settings, StoreSettings


async def contend(url: str, root: str, name: str, count: int, starting_line: int) -> None:
    store = StoreSettings(url=url, timeout_s=30)
    async with connect(Settings(store=store, roots=RootsSettings(system=root, coordination=root))) as k:
        say("ready")
        await asyncio.to_thread(os.read, starting_line, 1)
        for _ in range(count):
            async with k.locks.hold(name, wait_s=60, lease_s=30) as held:
                read = int(await k.store.call("GET", f"{root}:temp:counter") or 0)
                await k.store.call("SET", f"{root}:temp:counter", read + 1, "EX", 60)
            say(held.fence, read)


def say(*words: object) -> None:
    # In one write: all of them have the same stdout.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def main(url: str, root: str, name: str, count: int, processes: int) -> int:
    starting_line, opened_by_the_first = os.pipe()
    children = []
    for _ in range(processes):
        child = os.fork()
        if child == 0:
            os.close(opened_by_the_first)
            asyncio.run(contend(url, root, name, count, starting_line))
            os._exit(0)
        children.append(child)
    sys.stdin.readline()
    os.close(opened_by_the_first)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
