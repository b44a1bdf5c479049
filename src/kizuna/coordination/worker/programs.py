"""Programs as handlers of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kizuna.coordination import programs

if TYPE_CHECKING:
    from kizuna.coordination.queues.tasks import Delivery


class Program:
    """A handler that runs a program, without a shell, and gives back what it wrote. For queues with the codec RAW.

    The program is killed, together with whatever it started, when its task times out, is cancelled, or is lost.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._program = programs.Program(arguments)

    async def __call__(self, payload: bytes, delivery: Delivery) -> bytes:
        facts = {
            "KIZUNA_TASK_ID": delivery.id,
            "KIZUNA_TASK_NAME": delivery.name,
            "KIZUNA_TASK_ATTEMPT": str(delivery.attempt),
        }
        return await self._program.run(payload, facts)
