"""Programs as handlers of requests: what is asked on standard input, the reply on standard output."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kizuna.coordination import programs
from kizuna.coordination.handlers import Failed
from kizuna.units.paths import lowered

if TYPE_CHECKING:
    from kizuna.units.executions import Request


class Program:
    """A handler that runs a program, without a shell, and gives back what it wrote. For units with the codec RAW.

    It finds KIZUNA_UNIT, KIZUNA_REQUEST_ID and KIZUNA_REQUEST_CALLER in its environment. It is killed, together with
    whatever it started, when it takes longer than `timeout_s`, or when its server stops at once.
    """

    def __init__(self, unit: str, arguments: Sequence[str], *, timeout_s: float | None = None) -> None:
        self._unit, self._timeout_s = lowered(unit), timeout_s
        self._program = programs.Program(arguments)

    def close(self) -> None:
        """Let go of the threads; programs that still run are not waited for."""
        self._program.close()

    async def __call__(self, data: bytes, request: Request) -> bytes:
        facts = {
            "KIZUNA_UNIT": self._unit,
            "KIZUNA_REQUEST_ID": request.id,
            "KIZUNA_REQUEST_CALLER": request.caller,
        }
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                return await self._program.run(data, facts)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Failed(f"the program was not done within {self._timeout_s:g}s") from None
