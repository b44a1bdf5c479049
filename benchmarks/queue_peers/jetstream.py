"""NATS JetStream: a work queue in a file, a pull consumer that fetches in batches, each message acknowledged.

JetStream has no results. The worker sends them to the producer's inbox as plain messages, which is the fastest way it
could: a result that nobody waits for is gone, and none is ever stored. The acknowledgement is sent after the result.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import nats
from nats.errors import TimeoutError as NothingCame
from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from benchmarks.peer_roles import FOLDER, URL, run
from benchmarks.queue_peers.roles import PAYLOAD, RESULT_WITHIN_S

STREAM, SUBJECT, WORKERS = "tasks", "tasks.noop", "workers"
BATCH = 500
PENDING = 2_000
"""How many messages the client lets wait for the server's acknowledgement."""
REPLY_TO = "Reply-To"
DATA = PAYLOAD.encode()


class Producer:
    def __init__(self, connection: Any, inbox: str) -> None:
        self._js = connection.jetstream(publish_async_max_pending=PENDING)
        self._headers = {REPLY_TO: inbox}
        self._missing = 0
        self._all_there = asyncio.Event()

    def push_one(self) -> Any:
        return self._js.publish(SUBJECT, DATA)

    async def push_together(self, tasks: int) -> None:
        await self._publish(tasks, headers=None)

    async def run_together(self, tasks: int) -> None:
        self._expect(tasks)
        await self._publish(tasks, headers=self._headers)
        await asyncio.wait_for(self._all_there.wait(), RESULT_WITHIN_S)

    async def run_one(self) -> None:
        self._expect(1)
        await self._js.publish(SUBJECT, DATA, headers=self._headers)
        await asyncio.wait_for(self._all_there.wait(), RESULT_WITHIN_S)

    async def take_result(self, message: Any) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._all_there.set()

    def _expect(self, results: int) -> None:
        self._missing = results
        self._all_there.clear()

    async def _publish(self, tasks: int, headers: dict[str, str] | None) -> None:
        accepted = [await self._js.publish_async(SUBJECT, DATA, headers=headers) for _ in range(tasks)]
        await asyncio.gather(*accepted)


async def connect() -> Producer:
    connection = await _connection()
    await _declare(connection)
    inbox = connection.new_inbox()
    producer = Producer(connection, inbox)
    await connection.subscribe(inbox, cb=producer.take_result)
    return producer


def work() -> None:
    run(_work())


async def _work() -> None:
    connection = await _connection()
    await _declare(connection)
    js = connection.jetstream()
    options = ConsumerConfig(ack_wait=30, max_ack_pending=10 * BATCH)
    fetching = await js.pull_subscribe(SUBJECT, durable=WORKERS, stream=STREAM, config=options)
    while True:
        try:
            messages = await fetching.fetch(BATCH, timeout=5)
        except NothingCame:
            continue
        for message in messages:
            if message.headers:
                await connection.publish(message.headers[REPLY_TO], b"1")
            await message.ack()


def serve() -> None:
    """The server, with its data in the folder of the benchmark."""
    host, _, port = URL.removeprefix("nats://").partition(":")
    address = ["--addr", host, "--port", port]
    subprocess.run([_server_binary(), *address, "--jetstream", "--store_dir", FOLDER / f"jetstream-{port}"])


def _server_binary() -> Path:
    """Installed next to the packages of this peer."""
    return Path(nats.__file__).parents[1] / "bin" / "nats-server"


async def _connection() -> Any:
    return await nats.connect(URL, max_reconnect_attempts=50, reconnect_time_wait=0.1)


async def _declare(connection: Any) -> None:
    await connection.jetstream().add_stream(
        StreamConfig(STREAM, subjects=[SUBJECT], retention=RetentionPolicy.WORK_QUEUE, storage=StorageType.FILE)
    )
