"""What the processes of all peers have in common: they take orders, and end when nobody is left to give any.

Orders and answers are lines of JSON. Whatever a library prints goes to standard error.

    {"order": "run_together", "tasks": 500}   ->   {"seconds": 0.41, "latencies_ms": []}
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

URL = os.environ.get("PEER_URL", "redis://localhost:6379/0")
FOLDER = Path(os.environ.get("PEER_FOLDER", "."))
LOOP = os.environ.get("PEER_LOOP", "asyncio")

T = TypeVar("T")
Orders = Mapping[str, Callable[..., Awaitable[dict[str, Any]]]]
"""By name: what is called with that which takes orders, and with what the order says besides."""


def obey(entering: AbstractAsyncContextManager[T], orders: Orders) -> None:
    """Enter it, then do and answer one order after the other, until nobody gives any."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    run(_obey(entering, orders, answers))


def run(main: Any) -> None:
    if LOOP == "uvloop":
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)
    else:
        asyncio.run(main)


def end_with_standard_input() -> None:
    """The benchmark holds the other end; however it ends, nothing of this process group is left."""

    def wait() -> None:
        os.read(stdin, 1)
        os.killpg(0, signal.SIGKILL)

    # Some workers read or close what is called sys.stdin.
    stdin = os.dup(0)
    threading.Thread(target=wait, daemon=True).start()


async def _obey(entering: AbstractAsyncContextManager[T], orders: Orders, answers: Any) -> None:
    obeying = await entering.__aenter__()
    # Keep the garbage collector off what importing has left.
    gc.collect()
    gc.freeze()
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        answers.write(json.dumps(await orders[asked.pop("order")](obeying, **asked)) + "\n")
    # Not all of the libraries can be told to end; their process can.
    answers.close()
    os._exit(0)
