"""Frontends and backends of minimatch as its data is specified: with plain commands, and none of our code.

They are what a program in any other language is that shares the server with us.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from tests.match.outsiders.go_lock import GoLock

from kizuna.testing.resp import Conversation

TICKET_S = 600
ASSIGNED_S = 60
PENDING_S = 60

_numbers = itertools.count()


def new_id() -> str:
    """As xid makes them: seconds, machine, process, count."""
    raw = int(time.time()).to_bytes(4, "big") + os.urandom(5) + (next(_numbers) % 2**24).to_bytes(3, "big")
    bits = int.from_bytes(raw, "big") << 4
    return "".join("0123456789abcdefghijklmnopqrstuv"[bits >> (5 * place) & 31] for place in reversed(range(20)))


# Protocol Buffers, as far as they are needed here: tags and lengths below 128.


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def encode_ticket(id_: str, tags: Iterable[str] = ()) -> bytes:
    search_fields = b"".join(field(3, tag.encode()) for tag in tags)
    seconds = _varint(int(time.time()))
    return field(1, id_.encode()) + field(4, search_fields) + field(7, b"\x08" + seconds)


def _varint(number: int) -> bytes:
    low, high = number & 127, number >> 7
    return bytes([low | 128]) + _varint(high) if high else bytes([low])


def encode_assignment(connection: str) -> bytes:
    return field(1, connection.encode())


def connection_in(assignment: bytes | None) -> str | None:
    if assignment is None:
        return None
    assert assignment[0] == 0x0A
    return assignment[2 : 2 + assignment[1]].decode()


class RawFrontend:
    def __init__(self, conversation: Conversation, prefix: str) -> None:
        self._call, self._prefix = conversation.call, prefix

    def create(self, id_: str | None = None, *, tags: Iterable[str] = ()) -> str:
        id_ = id_ or new_id()
        self._call("SADD", f"{self._prefix}allTickets", id_)
        self._call("SET", f"{self._prefix}{id_}", encode_ticket(id_, tags), "EX", TICKET_S)
        return id_

    def assignment(self, id_: str) -> str | None:
        return connection_in(self._call("GET", f"{self._prefix}assign:{id_}"))

    def delete(self, id_: str) -> None:
        self._call("DEL", f"{self._prefix}{id_}")
        self._call("SREM", f"{self._prefix}allTickets", id_)
        self._call("ZREM", f"{self._prefix}proposed_ticket_ids", id_)


LockKind = Literal["plain", "three keys"]


class RawBackend:
    def __init__(self, conversation: Conversation, prefix: str, lock: LockKind = "three keys") -> None:
        self._call, self._prefix = conversation.call, prefix
        self._lock, self._go_lock = lock, GoLock(conversation, prefix)

    def fetch(self, limit: int = 10_000) -> list[str]:
        """Ids of tickets that nobody else is matching; they are being matched from now on."""
        with self._locked():
            waiting = self._call("SRANDMEMBER", f"{self._prefix}allTickets", limit)
            now = int(time.time())
            pending = self._call("ZRANGEBYSCORE", f"{self._prefix}proposed_ticket_ids", now - PENDING_S, now + 3_600)
            free = [id_ for id_ in waiting if id_ not in set(pending)]
            if free:
                scored = [part for id_ in free for part in (now, id_)]
                self._call("ZADD", f"{self._prefix}proposed_ticket_ids", *scored)
        return [id_.decode() for id_ in free]

    def read(self, ids: Sequence[str]) -> dict[str, bytes]:
        bodies = self._call("MGET", *(f"{self._prefix}{id_}" for id_ in ids)) if ids else []
        return {id_: body for id_, body in zip(ids, bodies, strict=True) if body is not None}

    def assign(self, ids: Sequence[str], connection: str) -> None:
        for id_ in ids:
            self._call("SET", f"{self._prefix}assign:{id_}", encode_assignment(connection), "EX", ASSIGNED_S)
        with self._locked():
            self._call("ZREM", f"{self._prefix}proposed_ticket_ids", *ids)
            self._call("SREM", f"{self._prefix}allTickets", *ids)
        for id_ in ids:
            self._call("EXPIRE", f"{self._prefix}{id_}", ASSIGNED_S)

    def release(self, ids: Sequence[str]) -> None:
        if ids:
            with self._locked():
                self._call("ZREM", f"{self._prefix}proposed_ticket_ids", *ids)

    def tick(self, name: str) -> dict[str, list[str]]:
        """Pairs of those that wait: by where they are to play."""
        bodies = self.read(self.fetch())
        ids = list(bodies)
        made = {f"{name}-{next(_numbers)}.example:7777": list(pair) for pair in zip(ids[::2], ids[1::2], strict=False)}
        for connection, pair in made.items():
            self.assign(pair, connection)
        self.release(ids[2 * len(made) :])
        return made

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._lock == "three keys":
            with self._go_lock.hold():
                yield
            return
        key, token = f"{self._prefix}fetchTicketsLock", os.urandom(8).hex()
        until = time.monotonic() + 30
        while self._call("SET", key, token, "NX", "PX", 60_000) is None:
            assert time.monotonic() < until, "the lock was never free"
            time.sleep(0.001)
        try:
            yield
        finally:
            self._call("DEL", key)
