"""Programs that tests of queues run as processes of their own, and kill.

python queue_programs.py PROGRAM SETTINGS LEDGER [JSON arguments]

What happens is written to the ledger.
"""

from __future__ import annotations

import asyncio
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
from kizuna.coordination.queue_names import PRIORITIES, Priority
from kizuna.coordination.queues.tasks import Delivery, Push
from kizuna.coordination.worker import Worker
from kizuna.coordination.worker.handlers import GiveUp
from kizuna.errors import KizunaError, LeaseLost
from kizuna.service import run_until_signalled
from kizuna.settings import Settings, load_settings
from kizuna.testing import eventually
from kizuna.testing.ledger import Ledger

TOLD_TO_FAIL = "it was told to fail"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def work(
    settings: Settings,
    ledger: Ledger,
    *,
    group: str,
    concurrency: int = 4,
    slow_s: float = 0,
    stop_timeout_s: float = 10,
) -> None:
    """A worker. Each run is written down with what it returns, which no other run returns."""
    async with connect(settings) as k:
        worker = Worker(k, group, concurrency=concurrency)

        @worker.handler("*")
        async def handle(payload: Any, delivery: Delivery) -> str:
            result = f"{os.getpid()}-{time.monotonic_ns()}"
            ledger.write("ran", task=delivery.id, attempt=delivery.attempt, result=result)
            await asyncio.sleep(slow_s)
            if payload == "fail":
                raise GiveUp(TOLD_TO_FAIL)
            return result

        await run_until_signalled(worker, on_started=lambda: ledger.write("works"), stop_timeout_s=stop_timeout_s)


async def die_at(settings: Settings, ledger: Ledger, *, group: str, moment: str) -> None:
    """Take one task, and die before it is begun, half through, before it is acknowledged, or right after that."""
    async with connect(settings) as k, k.queue(group).consumer() as consumer:
        (delivery,) = await consumer.take(most=1, wait_s=30)
        for now in ("before", "middle", "after"):
            ledger.write(now, task=delivery.id, attempt=delivery.attempt)
            if now == moment:
                die()
        await consumer.finish(delivery, "of the one that died")
        ledger.write("acknowledged", task=delivery.id)
        die()


async def pop_and_keep(settings: Settings, ledger: Ledger, *, group: str) -> None:
    """Take one task under a lease of its own, and keep it until killed."""
    async with connect(settings) as k:
        delivery = await k.queue(group).pop(lease_s=600, wait_s=30)
        assert delivery is not None
        ledger.write("popped", task=delivery.id)
        await asyncio.sleep(600)


async def finish_when_told(settings: Settings, ledger: Ledger, *, group: str, go: str) -> None:
    """Take one task, finish it once the file `go` is there, and write down what is answered."""
    async with connect(settings) as k, k.queue(group).consumer(lease_s=1) as consumer:
        consumer.on_lost = lambda delivery: ledger.write("told", task=delivery.id)
        (delivery,) = await consumer.take(most=1, wait_s=30)
        ledger.write("taken", task=delivery.id)
        await eventually(Path(go).exists, within_s=60)
        try:
            await consumer.finish(delivery, "too late")
            ledger.write("accepted", task=delivery.id)
        except LeaseLost as error:
            ledger.write("refused", task=delivery.id, error=str(error))


async def produce(settings: Settings, ledger: Ledger, *, group: str, seed: int) -> None:
    """Push tasks, one by one and many at once, until killed; write down which were acknowledged."""
    dice = random.Random(seed)
    async with connect(settings) as k:
        queue = k.queue(group)
        while True:
            payloads = ["fail" if dice.random() < 0.02 else "work" for _ in range(dice.choice([1, 1, 5, 20]))]
            priority: Priority = dice.choice(PRIORITIES)
            try:
                tasks = await queue.push_many([Push(payload=payload, priority=priority) for payload in payloads])
            except KizunaError as error:
                ledger.write("not pushed", error=str(error))
                continue
            ledger.write("pushed", tasks=[task.id for task in tasks])
            await asyncio.sleep(dice.random() * 0.1)


async def consume(settings: Settings, ledger: Ledger, *, group: str, seed: int) -> None:
    """Run tasks without a worker, and write down every result that was acknowledged; until killed, or told to end."""
    dice, told = random.Random(seed), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    ledger.write("works")
    async with connect(settings) as k, k.queue(group).consumer() as consumer:
        while not told.is_set():
            for delivery in await consumer.take(most=10, wait_s=0.5):
                result = f"{os.getpid()}-{time.monotonic_ns()}"
                ledger.write("ran", task=delivery.id, attempt=delivery.attempt, result=result)
                await asyncio.sleep(dice.random() * 0.01)
                try:
                    if delivery.payload == "fail":
                        await consumer.fail(delivery, TOLD_TO_FAIL)
                    else:
                        await consumer.finish(delivery, result)
                        ledger.write("committed", task=delivery.id, result=result)
                except KizunaError as error:
                    ledger.write("not committed", task=delivery.id, error=str(error))


PROGRAMS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    program.__name__: program for program in (work, die_at, pop_and_keep, finish_when_told, produce, consume)
}


def main() -> None:
    name, settings, ledger, arguments = sys.argv[1:]
    loaded = load_settings(json.loads(settings), environ={}, cwd="/")
    asyncio.run(PROGRAMS[name](loaded, Ledger(Path(ledger)), **json.loads(arguments)))


if __name__ == "__main__":
    main()
