"""Memory in a process of its own, driven line by line, and if told so, with a clock that is wrong.

python driven_memory.py SETTINGS CLOCK_AHEAD_S
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

AHEAD_S = float(sys.argv[2])
RIGHT_TIME_S, RIGHT_TIME_NS = time.time, time.time_ns
# Before anything else is loaded, for that may keep the function.
time.time = lambda: RIGHT_TIME_S() + AHEAD_S
time.time_ns = lambda: RIGHT_TIME_NS() + round(AHEAD_S * 1e9)

from kizuna import connect  # noqa: E402
from kizuna.errors import KizunaError  # noqa: E402
from kizuna.memory.memory import Memory  # noqa: E402
from kizuna.settings import load_settings  # noqa: E402


async def main() -> None:
    async with connect(load_settings(json.loads(sys.argv[1]))) as k:
        while line := await asyncio.to_thread(sys.stdin.readline):
            said = json.loads(line)
            answer = await _answer(k.memory, said["name"], said["parts"], said["named"])
            print(json.dumps({"number": said["number"], **answer}), flush=True)  # noqa: T201 - read by the test


async def _answer(memory: Memory, name: str, parts: list[Any], named: dict[str, Any]) -> dict[str, Any]:
    called: Any = memory
    for part in name.split("."):
        called = getattr(called, part)
    try:
        return {"result": _plain(await called(*parts, **named))}
    except KizunaError as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _plain(value: Any) -> Any:
    if hasattr(value, "items") and hasattr(value, "cursor"):
        return [item.as_dict() for item in value.items]
    return value.as_dict() if hasattr(value, "as_dict") else value


asyncio.run(main())
