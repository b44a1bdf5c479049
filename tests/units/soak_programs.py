"""Who asks and who serves in the soak: processes whose connections are cut, and which are killed.

python soak_programs.py PROGRAM SETTINGS LEDGER [JSON arguments]
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from kizuna import connect
from kizuna.coordination.handlers import Failed
from kizuna.errors import KizunaError, RequestFailed, RequestTimeout
from kizuna.settings import Settings, load_settings
from kizuna.testing import ledger
from kizuna.units.executions import Request
from kizuna.units.unit import Unit

AT_ONCE = 20


class Ledger(ledger.Ledger):
    works = False

    def write_works(self) -> None:
        """From here on, nothing may go wrong."""
        self.works = True
        self.write("works")


async def serve(settings: Settings, ledger: Ledger, told: asyncio.Event, *, unit: str) -> None:
    """Do as each request says, and write down when that began and ended."""
    runs = itertools.count(1)

    async def handle(raw: bytes, request: Request) -> str:
        plan, run = json.loads(raw), f"{os.getpid()}-{next(runs)}"
        ledger.write("begins", path=request.path, run=run, nonce=plan["nonce"])
        await asyncio.sleep(plan["slow_s"])
        ledger.write("ends", path=request.path, run=run)
        if plan["fails"]:
            raise Failed(json.dumps({"nonce": plan["nonce"], "run": run}))
        return json.dumps({"nonce": plan["nonce"], "run": run})

    async with connect(settings) as k, k.unit(unit).serving(handle):
        ledger.write_works()
        await told.wait()


async def ask(settings: Settings, ledger: Ledger, told: asyncio.Event, *, unit: str, to: str, seed: int) -> None:
    """Ask again and again, and write down how each request ended."""
    dice, numbers = random.Random(seed), itertools.count(1)
    async with connect(settings) as k:
        caller = k.unit(unit)
        # The first one begins to listen, which it cannot do while nobody can be reached.
        await caller.request(to, plan_of("first", dice))
        ledger.write_works()
        await asyncio.gather(*(ask_until(told, caller, to, ledger, dice, numbers) for _ in range(AT_ONCE)))


async def ask_until(
    told: asyncio.Event, caller: Unit, to: str, ledger: Ledger, dice: random.Random, numbers: itertools.count[int]
) -> None:
    while not told.is_set():
        nonce = f"{os.getpid()}-{next(numbers)}"
        plan, timeout_s = plan_of(nonce, dice), dice.uniform(0.2, 5)
        chosen = nonce if dice.random() < 0.2 else None
        began_at = time.time()
        ledger.write("asks", nonce=nonce, timeout_s=timeout_s, plan=json.loads(plan), at=began_at)
        try:
            how, got = "reply", json.loads(await caller.request(to, plan, id=chosen, timeout_s=timeout_s))
        except RequestFailed as failed:
            how, got = "error", json.loads(failed.body)
        except RequestTimeout as timeout:
            how, got = "timeout", {"path": timeout.path, "claimed": timeout.claimed}
        ledger.write("ended", nonce=nonce, how=how, got=got, deadline=began_at + timeout_s)
        await asyncio.sleep(dice.uniform(0, 0.1))


def plan_of(nonce: str, dice: random.Random) -> bytes:
    slow_s = dice.choices([0, dice.uniform(0, 0.3), dice.uniform(0.5, 3)], [6, 3, 1])[0]
    return json.dumps({"nonce": nonce, "slow_s": slow_s, "fails": nonce != "first" and dice.random() < 0.1}).encode()


PROGRAMS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"serve": serve, "ask": ask}


async def run(name: str, settings: Settings, ledger: Ledger, arguments: dict[str, Any]) -> None:
    """Until it is told to end; what cannot begin, because nobody can be reached, is begun again."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    while not told.is_set():
        try:
            await PROGRAMS[name](settings, ledger, told, **arguments)
        except KizunaError as error:
            if ledger.works:
                raise
            ledger.write("not begun", error=str(error))
            await asyncio.sleep(0.1)


def main() -> None:
    name, settings, path, arguments = sys.argv[1:]
    loaded = load_settings(json.loads(settings), environ={}, cwd="/")
    asyncio.run(run(name, loaded, Ledger(Path(path)), json.loads(arguments)))


if __name__ == "__main__":
    main()
