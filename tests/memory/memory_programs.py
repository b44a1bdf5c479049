"""Programs that tests of memory run as processes of their own, and kill.

python memory_programs.py PROGRAM SETTINGS LEDGER [JSON arguments]

What happens is written to the ledger. Those that are many are forked from one, which has loaded everything once.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from kizuna.app import connect
from kizuna.errors import ContextExists, ItemExists, ItemMissing
from kizuna.memory.context import AtEnd
from kizuna.memory.memory import Memory
from kizuna.settings import Settings, load_settings
from kizuna.testing import eventually
from kizuna.testing.ledger import Ledger


async def count(settings: Settings, ledger: Ledger, *, item: str, times: int, go: str) -> None:
    """Add one to an item, so many times, each time from what is there."""
    async with connect(settings) as k:
        await k.memory.get(item)
        ledger.write("ready")
        await eventually(Path(go).exists, within_s=60)
        for _ in range(times):
            await k.memory.change(item, lambda content: content + 1, within_s=60)
        ledger.write("counted", times=times)


async def sweep(settings: Settings, ledger: Ledger) -> None:
    """Remember, and nothing else: whoever does that sweeps. Until killed."""
    async with connect(settings) as k:
        await k.memory.get("any")
        await k.memory.create("probe", os.getpid(), id=f"probe-{os.getpid()}", ttl_s=86_400)
        ledger.write("sweeps")
        await asyncio.sleep(600)


async def churn(settings: Settings, ledger: Ledger, *, seed: int) -> None:
    """Everything that can be done to items and contexts, many at once; until killed."""
    dice = random.Random(seed)
    async with connect(settings) as k:
        await asyncio.gather(*(_churn(k.memory, ledger, dice, number) for number in range(8)))


async def _churn(m: Memory, ledger: Ledger, dice: random.Random, number: int) -> None:
    done = 0
    while True:
        try:
            await _step(m, dice, number)
        except (ItemExists, ItemMissing, ContextExists):
            continue
        done += 1
        if done % 10 == 0:
            ledger.write("churned", number=number)


def _step(m: Memory, dice: random.Random, content: int) -> Coroutine[Any, Any, Any]:
    (id_, *on), context = [f"i{number}" for number in dice.sample(range(40), 2)], f"c{dice.randrange(6)}"
    type_, priority = f"t{dice.randrange(3)}", dice.randint(1, 10)
    brief = [{"type": "many", "content": n, "context": context, "ttl_s": 0.5} for n in range(50)]
    at_end: AtEnd = dice.choice(["delete", "leave"])
    steps: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: m.create(type_, content, id=id_, context=context, priority=priority, depends_on=on),
        lambda: m.put(id_, type_, content, context=context, priority=priority, depends_on=on),
        lambda: m.update(id_, type=type_, priority=priority),
        lambda: m.move(id_, context),
        lambda: m.copy(id_, context),
        lambda: m.delete(id_),
        lambda: m.create_many(brief),
        lambda: m.contexts.create(context, "t", id=context, at_end=at_end, ttl_s=1),
        lambda: m.contexts.delete(context),
        lambda: m.changed(id_),
    ]
    return dice.choice(steps)()


PROGRAMS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    program.__name__: program for program in (count, sweep, churn)
}


def main() -> int:
    name, settings, ledger, arguments = sys.argv[1:]
    loaded = load_settings(json.loads(settings), environ={}, cwd="/")
    options = json.loads(arguments)
    return _forked(
        options.pop("processes", 1), lambda: asyncio.run(PROGRAMS[name](loaded, Ledger(Path(ledger)), **options))
    )


def _forked(processes: int, run: Callable[[], None]) -> int:
    if processes == 1:
        run()
        return 0
    children, parent = [], os.getpid()
    for _ in range(processes):
        child = os.fork()
        if child == 0:
            threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
            run()
            os._exit(0)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


def _end_with(parent: int) -> None:
    """Whoever kills the one that forked us knows nothing of us."""
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
