"""Programs that tests of the copy run as processes of their own, and kill.

python backup_programs.py PROGRAM SETTINGS LEDGER {}
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from kizuna.app import connect
from kizuna.settings import load_settings
from kizuna.testing import eventually
from kizuna.testing.ledger import Ledger


async def write(settings: dict[str, Any], ledger: Ledger) -> None:
    """Write while the server is away, and down what was acknowledged; until killed."""
    loaded = load_settings(settings, environ={}, cwd="/")
    async with connect(loaded) as k:
        m = k.memory
        await m.create("note", 0, id="n")
        ledger.write("connected")

        async def is_away() -> bool:
            return m.fallback is not None and (await m.get("n")) is not None and m.fallback.is_away

        await eventually(is_away, within_s=30)
        number = 0
        while True:
            number += 1
            await m.create("note", number, id=f"i{number}")
            ledger.write("created", id=f"i{number}")
            item = await m.update("n", content=number)
            ledger.write("updated", content=number, version=item.version)


def main() -> None:
    _, settings, path, _ = sys.argv[1:]
    asyncio.run(write(json.loads(settings), Ledger(Path(path))))


if __name__ == "__main__":
    main()
