"""Programs that tests of units run as processes of their own, and kill.

python unit_programs.py PROGRAM SETTINGS LEDGER [JSON arguments]

What happens is written to the ledger.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from kizuna import connect
from kizuna.service import run_until_signalled
from kizuna.settings import Settings, load_settings
from kizuna.testing import eventually
from kizuna.testing.ledger import Ledger
from kizuna.units.executions import Request


async def serve(settings: Settings, ledger: Ledger, *, unit: str, slow_s: float = 0, block_s: float = 0) -> None:
    """Answer each request with the number of this process, until told to end."""
    async with connect(settings) as k:

        async def answer(_: bytes, request: Request) -> str:
            ledger.write("ran", id=request.id)
            await asyncio.sleep(slow_s)
            time.sleep(block_s)  # noqa: ASYNC251 - so that the loop of this program stands still
            return f"{os.getpid()}"

        await run_until_signalled(k.unit(unit).server(answer), on_started=lambda: ledger.write("works"))
        counts = k.units.counts_of(unit)
        ledger.write("ended", served=counts.served, claims_lost=counts.claims_lost, late=counts.late)


async def answer_when_told(settings: Settings, ledger: Ledger, *, unit: str, go: str) -> None:
    """The same, but each answer waits for the file `go`."""
    async with connect(settings) as k:

        async def answer(_: bytes, request: Request) -> str:
            ledger.write("ran", id=request.id)
            await eventually(Path(go).exists, within_s=60)
            ledger.write("answers", id=request.id)
            return f"{os.getpid()}"

        async with k.unit(unit).serving(answer):
            ledger.write("works")
            await eventually(lambda: k.units.counts_of(unit).served, within_s=60)
        ledger.write("ended", late=k.units.counts_of(unit).late)


PROGRAMS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    program.__name__: program for program in (serve, answer_when_told)
}


def main() -> None:
    name, settings, ledger, arguments = sys.argv[1:]
    loaded = load_settings(json.loads(settings), environ={}, cwd="/")
    asyncio.run(PROGRAMS[name](loaded, Ledger(Path(ledger)), **json.loads(arguments)))


if __name__ == "__main__":
    main()
