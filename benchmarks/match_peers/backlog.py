"""Tickets that wait before anybody looks: written as a frontend of minimatch would, by one who is in no table."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

from hiredis import pack_command

from kizuna.match.openmatch import messages_pb2
from kizuna.match.tickets import TTL_FIELD, new_ticket
from kizuna.match.values import pack_into
from kizuna.match.xids import make_xid
from kizuna.testing.servers import ServerProcess

TTL_S = 600
AT_ONCE = 1_000
_READ_BYTES = 1 << 20


class Backlog:
    """The same tickets each time, so that writing them is all that has to be done."""

    def __init__(self, tickets: int) -> None:
        self.ids = [make_xid() for _ in range(tickets)]
        self._commands = [*(_set(id_) for id_ in self.ids), *map(_add, _batches(self.ids))]
        self._bytes = b"".join(self._commands)

    def load(self, server: ServerProcess) -> None:
        with socket.create_connection((server.host, server.port)) as connection:
            connection.sendall(self._bytes)
            answers = b""
            while answers.count(b"\r\n") < len(self._commands):
                answers += _read(connection)
        if b"-" in answers:
            raise RuntimeError(f"the backlog could not be written: {answers[answers.index(b'-') :][:100]!r}")

    def assigned(self, server: ServerProcess) -> int:
        """How many of them have an assignment."""
        with server.connect(timeout_s=30) as conversation:
            return sum(conversation.call("EXISTS", *(f"assign:{id_}" for id_ in ids)) for ids in _batches(self.ids))


def _read(connection: socket.socket) -> bytes:
    data = connection.recv(_READ_BYTES)
    if not data:
        raise RuntimeError("the server has ended the connection")
    return data


def _batches(ids: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(ids), AT_ONCE):
        yield ids[first : first + AT_ONCE]


def _set(id_: str) -> bytes:
    return _packed("SET", id_, _ticket(id_).SerializeToString(), "EX", TTL_S)


def _add(ids: list[str]) -> bytes:
    return _packed("SADD", "allTickets", *ids)


def _packed(*command: str | bytes | int) -> bytes:
    return bytes(pack_command(command))  # type: ignore[arg-type]  # its stub allows commands of one word only


def _ticket(id_: str) -> messages_pb2.Ticket:
    ticket = new_ticket(tags=["eu-west"], doubles={"skill": 1500.0}, strings={"mode": "ranked"})
    ticket.id = id_
    pack_into(ticket.persistent_field, {TTL_FIELD: TTL_S * 1_000_000_000})
    ticket.create_time.FromNanoseconds(time.time_ns())
    return ticket
