"""Runs a benchmark on one kind of event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Literal, TypeVar

import uvloop

Loop = Literal["asyncio", "uvloop"]
LOOPS: tuple[Loop, ...] = ("asyncio", "uvloop")
T = TypeVar("T")


def run_on(loop: Loop, main: Coroutine[Any, Any, T]) -> T:
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
